"""Converts the numbers of a timestamp column between their own unit and microseconds,
without losing a row.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from backfill.api.quantities import format_time, from_us

LEAST_US = -(2**62)
GREATEST_US = 2**62
"""Later moments are replaced by this one, so that durations can be added without overflow."""

_TICKS_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_US_PER_SECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class Ticks:
    """A column that counts units since 1970: ``s``, ``ms``, ``us`` or ``ns``."""

    unit: str

    def floor_us(self, value: int) -> int:
        """The microsecond that contains a value of the column. Planning keeps all bounds in this
        form: it compares only whole microseconds, and a value is in a slice [start, end) of them
        exactly if its microsecond is.
        """
        return bounded_us(value * _US_PER_SECOND // _TICKS_PER_SECOND[self.unit])

    def floor_all_us(self, values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """:meth:`floor_us` of many values, which must be within the calendar."""
        ticks = _TICKS_PER_SECOND[self.unit]
        if ticks > _US_PER_SECOND:
            return values // (ticks // _US_PER_SECOND)
        return values * (_US_PER_SECOND // ticks)

    @property
    def finer_than_us(self) -> bool:
        """Whether a value can be later than the start of its microsecond."""
        return self.unit == "ns"

    def first_at(self, moment_us: int) -> int:
        """The least value of the column that is not before a moment: ``value >= first_at(t)`` is
        equivalent to ``t <= time``.
        """
        return -(-moment_us * _TICKS_PER_SECOND[self.unit] // _US_PER_SECOND)


def ticks_of(iceberg_type: str, unit: str | None) -> Ticks:
    """The unit of a column with an Iceberg type. ``unit`` is that of a ``long``."""
    if iceberg_type == "long":
        return Ticks(unit or "us")
    return Ticks("ns" if iceberg_type.endswith("_ns") else "us")


def describe_us(moment_us: int) -> str:
    """A moment in words; outside of the calendar, its number."""
    try:
        return format_time(from_us(moment_us))
    except OverflowError:
        return f"{moment_us} µs after 1970"


def bounded_us(value: int) -> int:
    """A moment, limited to :data:`LEAST_US` and :data:`GREATEST_US`."""
    return max(LEAST_US, min(GREATEST_US, value))
