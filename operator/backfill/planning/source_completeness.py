"""Whether a source's table has everything that arrived in the range that is read.

Judged by metadata: where files have rows, how many, and whether the table continues after the
range. A stretch without rows counts as missing input only if it is improbable in several ways at
once, because a false alarm keeps a correct Backfill from running:

* If rows arrived at random with the source's own rate, no such stretch would be found in a million
  ranges. The rate is the least of those over the whole range and around the stretch.
* It is several times as long as stretches that the source has anyway, which is how sources that
  are written in bursts look.
* It lasts a minute, or a hundredth of a shorter range.
* No other day has the same pause: the nearest ones and the same day of the next two weeks, before
  and after. A table that has no rows there is too young to be compared.

Only stretches that no file spans can be seen.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta

import numpy as np
import numpy.typing as npt

from backfill.api.quantities import format_duration
from backfill.iceberg.timestamp_units import GREATEST_US, describe_us
from backfill.planning.metadata.ingestion_watermark import KNOWN_PROPERTIES, Ingested, latest_us
from backfill.planning.missing_offsets import NOTHING, Offsets, in_words
from backfill.planning.plan import InputCheck, PlanInputs
from backfill.planning.source_files import Int64s, SourceFiles
from backfill.planning.usual_pauses import BoundsNear, Range, compare

FALSE_ALARMS = 1e-6
"""Upper limit of the probability that rows that arrive at random are taken for incomplete."""
_USUAL_TIMES = 3
"""A stretch is improbable only if it is at least this many times as long as the usual ones."""
_HOLES = 5
"""This many stretches besides one may be longer than the usual ones. If more are equally long, they
are what the source always looks like.
"""
_SECOND_US = 1_000_000
_HOUR_SECONDS = 3600
_SHORTEST_US = 60 * _SECOND_US
_SHORTEST_PART = 100
_MANY_GAPS = 10
"""Number of other stretches from which it is known how long they usually are."""
_NEAR = 4
"""Files must span what is right around a stretch, a fraction of its length (one in so many), for
other days to be compared.
"""
_BURST = 24
"""Rows of which the range has less than this fraction of a stretch (one in so many, such as an hour
of a day) may be a burst.
"""
_ENOUGH_DAYS = 2
"""Number of other days that have rows at the time of a stretch, by which it is improbable."""
_CANDIDATES = 20
"""Stretches that are looked at: the longest ones."""
_MANY_ROWS = 100.0
"""A day without rows is compared with days that have at least a quarter of this many."""
_FEW_ROWS = 100
"""With fewer rows, nothing improbable could be seen at the end of the range."""


@dataclass(frozen=True, slots=True)
class EmptyStretch:
    """A stretch [start, end) without rows."""

    start_us: int
    end_us: int
    expected_rows: float
    """Number of rows that would be usual in it."""
    sure: bool
    """Whether rows are missing; otherwise the source may always have such stretches."""
    comparable: bool
    """Whether rows are missing if other days have rows at that time."""
    unclear: str = ""
    """Why it could not be compared with other days."""

    @property
    def length_us(self) -> int:
        """Its length."""
        return self.end_us - self.start_us


@dataclass(frozen=True, slots=True)
class OtherFiles:
    """What is known of a table besides the files that are read."""

    rows_before: Callable[[], bool]
    """Whether other files have rows from before the range."""
    rows_after: Callable[[], bool]
    """The same for rows from its end on."""
    bounds_near: BoundsNear
    """Its files, to compare with other days."""
    ingested: Ingested | None = None
    """What ingestion says."""
    no_watermark: str = ""
    """Why it says nothing, although the source names the property."""
    offsets: Offsets = NOTHING
    """What Kafka offsets say."""
    written_us: int = GREATEST_US
    """When its newest rows were committed."""


def check_input(files: SourceFiles, inputs: PlanInputs, around: OtherFiles) -> InputCheck:
    """Whether the files, which are all that have rows of the range, have everything of it."""
    end = inputs.read_end_us
    says = around.ingested
    too_late = files.upper_us >= latest_us(around.written_us, files.source)
    later = (files.upper_us >= end) & ~too_late
    goes_on = bool(later.any()) or around.rows_after()
    promised = says is not None and says.through_us >= end
    missing, unknown = _by_rows(files, inputs, around, goes_on=goes_on, promised=promised)
    missing += in_words(around.offsets.gaps)
    reached = goes_on or promised
    behind = not len(files) and not reached
    if says is not None and not promised and not says.newer_rows:
        reached = False
        early = (
            f"ingestion had written everything up to {_moment(says.through_us)} ({says.property}),"
            f" but the input range ends at {_moment(end)}"
        )
        if says.several:
            unknown.append(
                f"one of several Kafka connectors that write the table is behind: {early}"
            )
        elif says.property in KNOWN_PROPERTIES and not goes_on:  # they stay where no rows are
            behind = True
            unknown.append(f"{early}; the property is not updated while no rows arrive")
        else:
            missing.append(early)
    elif around.no_watermark:
        unknown.append(around.no_watermark)
    if not goes_on and not promised and around.written_us < end:
        behind = True
        unknown.append(
            f"the newest rows were committed at {_moment(around.written_us)}, before the end of"
            f" the input range ({_moment(end)})"
        )
    if not goes_on and not promised and too_late.any():
        behind = True
        unknown.append(
            f"some files contain rows with timestamps up to {_moment(int(files.upper_us.max()))},"
            " later than the files were committed, so it is unknown up to when other rows arrived"
        )
    known = ""
    if not missing and not unknown:
        known = _why_complete(files, says if promised else None, goes_on=goes_on)
    return InputCheck(
        complete=False if missing else None if unknown else True,
        reached=reached,
        behind=behind,
        known_from=known,
        missing=tuple(missing),
        unknown=tuple(unknown),
        notes=around.offsets.notes,
    )


def check_live_input(files: SourceFiles, inputs: PlanInputs, around: OtherFiles) -> InputCheck:
    """The same for a source that is read up to its newest row, where live traffic continues:
    nothing can be missing at its end.
    """
    if not len(files):
        return InputCheck(
            reached=True,
            unknown=("no rows in the input range; live traffic has all of them",),
        )
    newest = int(files.upper_us.max())
    goes_on = replace(around, rows_after=lambda: True, ingested=None, no_watermark="")
    check = check_input(files, inputs.ending_at(newest + 1), goes_on)
    if check.complete is not True:
        return check
    known = f"read up to the newest row ({_moment(newest)}), where live traffic continues"
    return check.model_copy(update={"known_from": known})


def _why_complete(files: SourceFiles, promise: Ingested | None, *, goes_on: bool) -> str:
    if promise is not None:
        return (
            f"ingestion had written everything up to {_moment(promise.through_us)}"
            f" ({promise.property})"
        )
    if goes_on:
        return "rows arrived at or after the end of the input range"
    newest = _moment(int(files.upper_us.max()))
    return f"the newest row ({newest}) is as close to the end of the input range as usual"


def _by_rows(
    files: SourceFiles, inputs: PlanInputs, around: OtherFiles, *, goes_on: bool, promised: bool
) -> tuple[list[str], list[str]]:
    """What is missing, judged by where there are rows, and what remains unknown.

    ``goes_on``: whether there are rows after the range. ``promised``: whether ingestion says that
    it has written everything up to its end.
    """
    start, end = inputs.read_start_us, inputs.read_end_us
    missing: list[str] = []
    unknown: list[str] = []
    if not len(files):
        return _without_rows((start, end), around, goes_on=goes_on)
    arrivals = Arrivals(files.lower_us, files.upper_us, files.rows, start, end)
    for stretch in _unless_usual(arrivals.suspicious(), around.bounds_near):
        if stretch.end_us == end and not goes_on:
            if not promised:
                (missing if stretch.sure else unknown).append(_too_early(stretch, end))
        elif around.offsets.show_quiet(stretch.start_us, stretch.end_us):
            continue  # there were no rows
        elif not stretch.sure:
            if stretch.unclear:
                unknown.append(f"{_hole(stretch)}; {stretch.unclear}")
        elif stretch.start_us == start and not (
            (files.lower_us < start).any() or around.rows_before()
        ):
            unknown.append(
                f"the oldest row arrived at {_moment(stretch.end_us)}, {_length(stretch)} after"
                " the start of the input range; whether older rows existed is unknown"
            )
        else:
            missing.append(_hole(stretch))
    if not (goes_on or promised or missing or unknown) and arrivals.rows < _FEW_ROWS:
        unknown.append(
            "no row arrived at or after the end of the input range, and there are too few rows to"
            " judge whether more are expected"
        )
    return missing, unknown


def _without_rows(span: Range, around: OtherFiles, *, goes_on: bool) -> tuple[list[str], list[str]]:
    """The same for a source without any row in the range."""
    (days,) = compare([(span, _MANY_ROWS)], around.bounds_near)
    if days.rows >= _ENOUGH_DAYS and not days.pauses:
        return ["no rows in the input range, although other days have rows"], []
    later = "rows arrived later" if goes_on else "no rows arrived later either"
    return [], [f"no rows in the input range; {later}"]


_HIDDEN = "files of other days span too much time to compare, or have no bounds"
_TOO_YOUNG = "the table has too few other days to compare"


def _unless_usual(stretches: list[EmptyStretch], bounds_near: BoundsNear) -> list[EmptyStretch]:
    """The stretches without those that the source has on other days as well."""
    found = []
    ranges = [((each.start_us, each.end_us), each.expected_rows) for each in stretches]
    for stretch, days in zip(stretches, compare(ranges, bounds_near), strict=True):
        if days.pauses:
            continue
        if stretch.sure and days.hidden and not days.rows:
            found.append(replace(stretch, sure=False, unclear=_HIDDEN))
        elif stretch.sure or (stretch.comparable and days.rows >= _ENOUGH_DAYS):
            found.append(replace(stretch, sure=True))
        else:
            found.append(replace(stretch, unclear=_TOO_YOUNG if stretch.comparable else ""))
    return found


def _hole(stretch: EmptyStretch) -> str:
    return (
        f"no rows from {_moment(stretch.start_us)} to {_moment(stretch.end_us)}"
        f" ({_length(stretch)}), where {_about(stretch.expected_rows)} would be usual"
    )


def _too_early(stretch: EmptyStretch, end_us: int) -> str:
    return (
        f"the newest row arrived at {_moment(stretch.start_us - 1)}, {_length(stretch)} before the"
        f" end of the input range ({_moment(end_us)}); {_about(stretch.expected_rows)} more would"
        f" be usual{'' if stretch.sure else ', unless rows arrive in bursts'}"
    )


def _length(stretch: EmptyStretch) -> str:
    seconds = stretch.length_us / _SECOND_US
    exact = 60 if seconds >= _HOUR_SECONDS else 1
    return format_duration(timedelta(seconds=max(round(seconds / exact) * exact, 1)))


def _about(rows: float) -> str:
    """An estimate, with three digits that count."""
    return f"about {round(rows, 2 - math.floor(math.log10(rows))):,.0f}"


def _moment(moment_us: int) -> str:
    """A moment, to the second, which is precise enough for a person."""
    return describe_us(moment_us // _SECOND_US * _SECOND_US)


class Arrivals:
    """When rows arrived in a range, as far as files' bounds show it."""

    def __init__(self, lower: Int64s, upper: Int64s, rows: Int64s, start_us: int, end_us: int):
        order = np.argsort(lower, kind="stable")
        self._lower, self._upper = lower[order], upper[order]
        # as floats, since bounds may be as far apart as integers cannot say
        self._density: npt.NDArray[np.float64] = rows[order] / (
            np.subtract(self._upper, self._lower, dtype=np.float64) + 1
        )
        self._range = (start_us, end_us)
        spanned_until = np.maximum.accumulate(self._upper) + 1 if lower.size else self._upper
        self._gap_starts = np.concatenate([[start_us], np.clip(spanned_until, start_us, end_us)])
        next_from = np.concatenate([np.clip(self._lower, start_us, end_us), [end_us]])
        self._gap_ends = np.maximum(self._gap_starts, next_from)
        self.rows = self._rows_in(start_us, end_us)
        """Number of rows in the range, as if those of a file were distributed evenly."""

    def suspicious(self) -> list[EmptyStretch]:
        """Stretches in which more rows than could be missing by chance would be usual, in order.

        Where files do not span most of what is around one, rows come in bursts, and only many of
        them show how long it is between two. Where little of the range is around one, they may as
        well.
        """
        start, end = self._range
        shortest = min(_SHORTEST_US, (end - start) // _SHORTEST_PART)
        lengths = self._gap_ends - self._gap_starts
        longest_first = np.argsort(-lengths, kind="stable")
        found = []
        for place in longest_first[:_CANDIDATES].tolist():
            first, last = int(self._gap_starts[place]), int(self._gap_ends[place])
            expected = self._expected(first, last)
            if last - first < shortest or not self._is_surprising(last - first, expected):
                continue
            others = lengths[longest_first[longest_first != place]]
            bursts = others[others > 0]
            length = last - first
            longer = bursts.size >= _MANY_GAPS and length >= _USUAL_TIMES * _usual(bursts)
            known = sum(end - start for start, end in self._sides(first, last, length))
            covered = known * _BURST >= length and self._is_covered_around(first, last, length)
            sure = length >= _USUAL_TIMES * _usual(others) if covered else longer
            comparable = longer or self._is_covered_around(first, last, length // _NEAR)
            found.append(EmptyStretch(first, last, expected, sure, comparable))
        return sorted(found, key=lambda stretch: stretch.start_us)

    def _is_surprising(self, length: int, expected_rows: float) -> bool:
        """Whether rows at random would hardly ever leave out a stretch of this length, wherever."""
        start, end = self._range
        limit = math.log(self.rows + 1) - math.log(FALSE_ALARMS)
        by_chance = -self.rows * math.log1p(-min(length / (end - start), 1 - 1e-9))
        return min(by_chance, expected_rows) >= limit

    def _sides(self, start_us: int, end_us: int, length: int) -> list[tuple[int, int]]:
        """So much before and after a stretch, as far as it is in the range."""
        start, end = self._range
        sides = [(max(start, start_us - length), start_us), (end_us, min(end, end_us + length))]
        return [(first, last) for first, last in sides if first < last]

    def _expected(self, start_us: int, end_us: int) -> float:
        """Usual number of rows in a stretch: by the least of the rates over the rest of the range,
        and right before and after it.
        """
        start, end = self._range
        length = end_us - start_us
        rates = [self.rows / max(end - start - length, 1)]
        rates += [
            self._rows_in(first, last) / (last - first)
            for first, last in self._sides(start_us, end_us, length)
            if (last - first) * _USUAL_TIMES >= length
        ]
        return min(rates) * length

    def _is_covered_around(self, start_us: int, end_us: int, length: int) -> bool:
        """Whether files span at least half of so much before and after a stretch."""
        sides = self._sides(start_us, end_us, length)
        empty = sum(
            int(
                np.clip(
                    np.minimum(self._gap_ends, last) - np.maximum(self._gap_starts, first), 0, None
                ).sum()
            )
            for first, last in sides
        )
        return 2 * empty <= sum(last - first for first, last in sides)

    def _rows_in(self, start_us: int, end_us: int) -> float:
        overlap = np.minimum(self._upper + 1, end_us) - np.maximum(self._lower, start_us)
        return float((np.clip(overlap, 0, None) * self._density).sum())


def _usual(lengths_descending: Int64s) -> int:
    """The length of stretches that occur anyway."""
    place = min(_HOLES, lengths_descending.size // 2)
    return int(lengths_descending[place]) if place < lengths_descending.size else 0
