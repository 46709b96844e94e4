"""When the rows of a source arrive, seen from their event times. A span needs rows by their event
time and reads steps, which hold rows by their arrival, so it must know both.

Where the two differ, the lag is measured before the first span (:mod:`.measure_arrivals`): the rows
at each watermark are put into cells of about the same arrival and about the same lag. A span reads
all cells with rows that its results depend on, however late or early they arrived, except for those
that a stream would not use any more. A stream has closed a result once its watermark has passed all
that the result depends on, and the watermark is the greatest event time of earlier batches, less
the delay, at the source that is furthest behind. So rows are read that lag behind as a whole, and
stragglers are not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Protocol

import numpy as np

Ints = np.ndarray[tuple[int], np.dtype[np.int64]]
Which = np.ndarray[tuple[int], np.dtype[np.bool_]]

_NEVER = np.int64(2**62)


class StepBounds(dict[int, tuple[int, int]]):
    """By step, for those with rows of a source: the arrival times between which all of them are,
    both included, in microseconds.
    """

    def between(self, start_us: int, end_us: int) -> range:
        """From the first to the last step that may have rows from the first to before the second
        time.
        """
        steps, latest, earliest = self._in_order
        first = int(np.searchsorted(latest, start_us))
        last = int(np.searchsorted(earliest, end_us)) - 1
        while first <= last and not self._has(steps[first], start_us, end_us):
            first += 1
        while first <= last and not self._has(steps[last], start_us, end_us):
            last -= 1
        return range(steps[first], steps[last] + 1) if first <= last else range(0)

    def _has(self, step: int, start_us: int, end_us: int) -> bool:
        lower, upper = self[step]
        return lower < end_us and upper >= start_us

    @cached_property
    def _in_order(self) -> tuple[list[int], Ints, Ints]:
        """The steps, for each the latest arrival up to it, and the earliest one from it on."""
        steps = sorted(self)
        bounds = np.array([self[step] for step in steps], np.int64).reshape(-1, 2)
        earliest = np.minimum.accumulate(bounds[::-1, 0])[::-1]
        return steps, np.maximum.accumulate(bounds[:, 1]), earliest


class Arrives(Protocol):
    """When the rows of a source arrive."""

    @property
    def late_us(self) -> int:
        """So long before the end of what is read, all rows of the time before are there."""

    def between(self, start_us: int, end_us: int, closed_us: int) -> tuple[int, int]:
        """From when to before when the rows arrived whose event times are from the first to before
        the second one, up to when a stream's watermark passed ``closed_us``.
        """


@dataclass(frozen=True, slots=True)
class Assumed:
    """Rows arrive around their event times."""

    early_us: int
    """At most this long before."""
    late_us: int
    """At most this long after."""

    def between(self, start_us: int, end_us: int, closed_us: int) -> tuple[int, int]:
        """By the event times alone."""
        return start_us - self.early_us, end_us + self.late_us


@dataclass(frozen=True, slots=True)
class Cells:
    """Rows in cells of about the same arrival and lag; each array has one number for a cell."""

    first_arrival: Ints
    last_arrival: Ints
    first_event: Ints
    last_event: Ints
    greatest_lag: Ints
    """The greatest difference between a row's arrival and its event time."""
    rows: Ints

    def __len__(self) -> int:
        """How many there are."""
        return len(self.rows)

    def where(self, which: Which) -> "Cells":
        """Some of them."""
        return Cells(*(getattr(self, field.name)[which] for field in fields(self)))

    def happened(self, start_us: int, end_us: int) -> Which:
        """Which ones may have rows from the first to before the second event time."""
        return (self.first_event < end_us) & (self.last_event >= start_us)


@dataclass(frozen=True, slots=True)
class AtWatermark:
    """The rows for which a query has a watermark."""

    sources: frozenset[str]
    """Where they come from."""
    delay_us: int
    """How long the watermark stays behind them."""
    cells: Cells
    uses_late: bool = False
    """Whether a stream uses them however late they arrive."""


@dataclass(frozen=True, slots=True)
class WatermarkedRows:
    """Rows at a watermark, with what the query's watermark was at most when they arrived."""

    cells: Cells
    watermark: Ints


@dataclass(frozen=True, slots=True)
class Measured:
    """Rows arrive as was measured."""

    seen: Sequence[WatermarkedRows]
    """At each watermark above the source."""
    late_us: int
    also: Arrives | None = None
    """For rows of the source that no watermark sees."""

    def between(self, start_us: int, end_us: int, closed_us: int) -> tuple[int, int]:
        """By the cells. Where there are no such rows, both times are the same."""
        found = [
            each.cells.where(each.cells.happened(start_us, end_us) & (each.watermark <= closed_us))
            for each in self.seen
        ]
        arrived = [
            (int(cells.first_arrival.min()), int(cells.last_arrival.max()) + 1)
            for cells in found
            if len(cells)
        ]
        if self.also is not None:
            arrived.append(self.also.between(start_us, end_us, closed_us))
        if not arrived:
            return start_us, start_us
        return min(first for first, _ in arrived), max(end for _, end in arrived)


class Lags:
    """How the rows of a query have arrived."""

    def __init__(
        self,
        watermarks: Sequence[AtWatermark],
        bounds: Mapping[str, StepBounds],
        *,
        steps: int,
        read_end_us: int,
        waits_us: int,
        hidden: bool = False,
    ):
        """``bounds`` are the arrival times of each source's steps, of which there are ``steps``.
        What arrived from ``read_end_us`` on is not read. A result may wait for rows with event
        times up to ``waits_us`` after those of other ones. With a ``hidden`` watermark, which is
        none of these and may be behind all of them, a stream may use any row.
        """
        self._steps = steps
        self._delay_us = max((each.delay_us for each in watermarks), default=0)
        self._latest = {name: _latest_so_far(each, steps) for name, each in bounds.items()}
        self._earliest = {name: _earliest_from(each, steps) for name, each in bounds.items()}
        passed = [self._passed(each) for each in watermarks]
        known = passed and not hidden
        nothing = np.full(steps + 1, -_NEVER)
        watermark = np.minimum.reduce(passed) if known else nothing
        self._late_rows = np.zeros(steps + 1, np.int64)
        self._seen = [
            (each, self._see(each, nothing if each.uses_late else watermark, waits_us))
            for each in watermarks
        ]
        self.late_us = self._closing_us(read_end_us, waits_us)

    def of(self, source: str, *, also: Arrives | None) -> Measured | None:
        """When the rows of a source arrived; None where no watermark sees them."""
        seen = [rows for each, rows in self._seen if source in each.sources]
        return Measured(seen, self.late_us, also) if seen else None

    def late_rows(self, steps: range) -> int:
        """How many rows of these steps a stream would certainly drop."""
        return int(self._late_rows[steps.start : steps.stop].sum())

    def any_late(self, start_us: int, end_us: int, closed_us: int) -> bool:
        """Whether rows with event times from the first to before the second one arrived when a
        stream's watermark may have passed ``closed_us``.
        """
        return any(
            bool((rows.cells.happened(start_us, end_us) & (rows.watermark > closed_us)).any())
            for _, rows in self._seen
        )

    def _passed(self, each: AtWatermark) -> Ints:
        """By step, what a watermark has surely passed for a stream's batch of that step: Spark
        drops rows by the watermark of the batch before, which knows the rows of those before it.
        """
        order = np.argsort(each.cells.last_arrival)
        arrived = each.cells.last_arrival[order]
        greatest = np.maximum.accumulate(each.cells.last_event[order])
        earliest = np.minimum.reduce([self._earliest[source] for source in each.sources])
        known = np.searchsorted(arrived, earliest[:-1])
        passed = np.full(self._steps + 1, -_NEVER)
        some = np.flatnonzero(known)
        passed[some + 1] = greatest[known[some] - 1] - each.delay_us
        return passed

    def _see(self, each: AtWatermark, watermark: Ints, waits_us: int) -> WatermarkedRows:
        cells = each.cells
        first_steps = np.minimum.reduce(
            [np.searchsorted(self._latest[source], cells.first_arrival) for source in each.sources]
        )
        # what is not late by its own clock is read, also where other clocks are years ahead
        passed = np.minimum(watermark[first_steps], cells.first_arrival - self._delay_us)
        late = cells.last_event < passed - waits_us
        np.add.at(self._late_rows, first_steps[late], cells.rows[late])
        return WatermarkedRows(cells, passed)

    def _closing_us(self, read_end_us: int, waits_us: int) -> int:
        """How long before the end of what is read results are closed: as no row was later, or as a
        stream's watermark closes them, by clocks that are not ahead.
        """
        greatest, reached = 0, read_end_us
        for each, rows in self._seen:
            cells = each.cells
            if not len(cells):
                continue
            kept = cells.where(cells.last_event >= rows.watermark - waits_us)
            greatest = max(greatest, int(kept.greatest_lag.max(initial=0)))
            happened = int(np.minimum(cells.last_event, cells.last_arrival).max())
            reached = min(reached, happened - each.delay_us)
        return max(self._delay_us, min(read_end_us - reached, greatest))


def _latest_so_far(bounds: StepBounds, steps: int) -> Ints:
    """By step, the latest arrival so far: what arrived later is in a later step."""
    latest = np.full(steps, -_NEVER)
    for step, (_, upper) in bounds.items():
        latest[step] = upper
    return np.maximum.accumulate(latest)


def _earliest_from(bounds: StepBounds, steps: int) -> Ints:
    """By step, the earliest arrival from it on: what arrived earlier is in an earlier step."""
    earliest = np.full(steps + 1, _NEVER)
    for step, (lower, _) in bounds.items():
        earliest[step] = lower
    return np.minimum.accumulate(earliest[::-1])[::-1]
