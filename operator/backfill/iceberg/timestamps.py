"""What the numbers of a timestamp column mean:
from its own unit to microseconds and back, without losing a row.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from backfill.api.quantities import format_time, from_us

LEAST_US = -(2**62)
GREATEST_US = 2**62
"""Moments beyond these are taken as these: room enough
to add and subtract lengths of time without overflow.
"""

_TICKS_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_US_PER_SECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class Ticks:
    """A column that counts units since the epoch: ``s``, ``ms``, ``us`` or ``ns``."""

    unit: str

    def floor_us(self, value: int) -> int:
        """The microsecond a value of the column lies in. Planning keeps all its bounds like this:
        it compares only whole microseconds, and a value lies in a slice [start, end) of them
        exactly if its microsecond does.
        """
        return bounded_us(value * _US_PER_SECOND // _TICKS_PER_SECOND[self.unit])

    def floor_all_us(self, values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """:meth:`floor_us` of many values, all within the calendar."""
        ticks = _TICKS_PER_SECOND[self.unit]
        if ticks > _US_PER_SECOND:
            return values // (ticks // _US_PER_SECOND)
        return values * (_US_PER_SECOND // ticks)

    @property
    def finer_than_us(self) -> bool:
        """Whether a value can be newer than the microsecond it lies in."""
        return self.unit == "ns"

    def first_at(self, moment_us: int) -> int:
        """The least value of the column that is not before a moment: ``value >= first_at(t)`` is
        exactly ``t <= time``.
        """
        return -(-moment_us * _TICKS_PER_SECOND[self.unit] // _US_PER_SECOND)


def ticks_of(iceberg_type: str, unit: str | None) -> Ticks:
    """How a column of an Iceberg type counts; ``unit`` is that of a ``long``."""
    if iceberg_type == "long":
        return Ticks(unit or "us")
    return Ticks("ns" if iceberg_type.endswith("_ns") else "us")


def describe_us(moment_us: int) -> str:
    """A moment for people; what lies outside of the calendar as the number it is."""
    try:
        return format_time(from_us(moment_us))
    except OverflowError:
        return f"{moment_us} µs after 1970"


def bounded_us(value: int) -> int:
    """A moment within :data:`LEAST_US` and :data:`GREATEST_US`."""
    return max(LEAST_US, min(GREATEST_US, value))
