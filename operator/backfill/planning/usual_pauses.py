"""Whether a source has the same pause on other days: at night, or on every weekend."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from backfill.planning.source_files import Int64s

Range = tuple[int, int]
BoundsNear = Callable[[Sequence[Range]], Iterable[Int64s]]
"""Reads all files that may have rows in some ranges: arrays with a row each of least timestamps,
greatest timestamps and numbers of rows.
"""

DAY_US = 86_400_000_000
_WEEK_DAYS = 7
_WEEK_US = _WEEK_DAYS * DAY_US
_SELDOM = 4
"""On another day, this many times fewer rows than expected are a pause as well."""


@dataclass(slots=True)
class _Day:
    """The same time on another day."""

    same: Range
    beyond: Range
    """The week on the far side of it. A source without rows there is too young to be compared."""
    between: Range
    """What lies between it and the stretch. Without rows there, both are one."""
    rows: float = 0.0
    hidden: bool = False
    """Whether files that are longer than it may have a pause or none."""
    rows_beyond: bool = False
    rows_between: bool = False

    @property
    def ranges(self) -> tuple[Range, ...]:
        """What has to be read to compare it."""
        return self.same, self.beyond, self.between

    def add(self, files: Int64s) -> None:
        lower, upper, rows = files
        start, end = self.same
        overlap = np.clip(np.minimum(upper + 1, end) - np.maximum(lower, start), 0, None)
        length = np.subtract(upper, lower, dtype=np.float64) + 1  # may exceed integers
        long = length > end - start
        self.rows += float((overlap * rows / length)[~long].sum())
        self.hidden |= bool((overlap[long] > 0).any())
        self.rows_beyond |= _has_rows(files, self.beyond)
        self.rows_between |= _has_rows(files, self.between)

    @property
    def is_another(self) -> bool:
        """Whether the table had rows then, or a pause of its own."""
        return self.rows_beyond and (self.rows_between or self.rows > 0)

    def shows_pause(self, expected: float) -> bool | None:
        """Whether there was a pause; None if files are too long to show that."""
        if self.rows * _SELDOM >= expected:
            return False
        return None if self.hidden else True


@dataclass(frozen=True, slots=True)
class OtherDays:
    """What other days have at the time of a stretch without rows."""

    pauses: int = 0
    """Number of days that have the same pause."""
    rows: int = 0
    """Number of days that have rows then."""
    hidden: int = 0
    """Number of days whose files are too long to show that."""


def compare(stretches: Sequence[tuple[Range, float]], bounds_near: BoundsNear) -> list[OtherDays]:
    """For each stretch without rows, with the number of rows expected there: what other days have.

    Days before the table's first row or after its last one do not count, nor do those that the
    stretch extends to.
    """
    days = [_days(stretch) for stretch, _ in stretches]
    everything = [each for day in days for one in day for each in one.ranges]
    for files in bounds_near(everything) if everything else ():
        for day in days:
            for one in day:
                one.add(files)
    return [_count(day, expected) for day, (_, expected) in zip(days, stretches, strict=True)]


def _days(stretch: Range) -> list[_Day]:
    """The nearest days, and the same day of the weeks, before and after it."""
    start, end = stretch
    days = -(-(end - start) // DAY_US)
    weeks = _WEEK_DAYS * -(-days // _WEEK_DAYS)
    found = []
    for away in sorted({days, weeks, weeks + _WEEK_DAYS}):
        shift = away * DAY_US
        earlier, later = (start - shift, end - shift), (start + shift, end + shift)
        found += [
            _Day(earlier, (earlier[0] - _WEEK_US, earlier[0]), (earlier[1], start)),
            _Day(later, (later[1], later[1] + _WEEK_US), (end, later[0])),
        ]
    return found


def _count(days: list[_Day], expected: float) -> OtherDays:
    shown = [day.shows_pause(expected) for day in days if day.is_another]
    return OtherDays(shown.count(True), shown.count(False), shown.count(None))


def _has_rows(files: Int64s, within: Range) -> bool:
    lower, upper, _ = files
    start, end = within
    return bool(((lower < end) & (upper >= start)).any())
