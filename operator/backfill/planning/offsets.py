"""Kafka offsets that a source lacks, or has twice, by the bounds and row counts of its files.

A file shows something only if all of its rows are of one Kafka partition. Transactions and
compacted topics leave offsets out: offsets between two files count as missing rows only where the
files themselves have every offset, and most follow one another. Rows of several topics or clusters,
and of a topic that was created again, count their offsets independently: that shows where greater
offsets arrived earlier.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from backfill.planning.files import Int64s

OffsetBounds = Int64s
"""A row each: least partition, greatest partition, least offset, greatest offset, number of rows.
The first is :data:`NO_BOUNDS` for a file whose bounds are not known.
"""
NO_BOUNDS = -1
MARKERS = 2
"""Gaps of this many offsets are those of transactions' markers."""
_SOME = 5
"""This many gaps may be more than every second file has."""
_LEFT_OUT = (
    "Kafka offsets do not show whether rows are missing: the files lack offsets everywhere, as"
    " with transactions, compacted topics and filters of ingestion"
)
_SEVERAL = (
    "Kafka offsets do not show whether rows are missing: greater ones of partition {} arrived"
    " earlier than smaller ones, as with several topics or clusters in one table, or a topic that"
    " was created again"
)
_MOST_LOOKED_FOR = 1_000
"""Gaps that are looked for in the rest of the table: the longest ones."""
_MOST_GAPS = 3
"""Gaps of a partition that are named."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets [start, end) of a partition that no file has."""

    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Offsets:
    """What offsets say of a source."""

    gaps: tuple[Gap, ...] = ()
    """Offsets that are missing."""
    continuous: bool = False
    """Whether none is missing between the first and the last one of any partition, except markers
    of transactions.
    """
    notes: tuple[str, ...] = ()
    """What else they say, and why they do not say more."""


def check_offsets(
    files: OffsetBounds,
    arrived: Int64s,
    others: Callable[[], Iterable[OffsetBounds]],
    *,
    dropped: bool = False,
) -> Offsets:
    """What the offsets of the files of a range say.

    Args:
        arrived: a row each of their least and greatest timestamps.
        others: reads the bounds of all files of the table, as rows of a gap may have a timestamp
            outside of the range.
        dropped: whether duplicates are left out, and counted elsewhere.
    """
    least, greatest = files[0], files[1]
    single = (least == greatest) & (least != NO_BOUNDS)
    if not single.all():
        mixed = int((~single).sum())
        return Offsets(
            notes=(
                f"Kafka offsets do not show whether rows are missing: {mixed:,} of {len(least):,}"
                " files have rows of several partitions, or no bounds of partition and offset",
            )
        )
    found = [
        _Partition.of(int(each), files[:, least == each], arrived[:, least == each])
        for each in np.unique(least)
    ]
    several = next((each.number for each in found if each.several_logs), None)
    if several is not None:
        return Offsets(notes=(_SEVERAL.format(several),))
    doubled = sum(each.doubled for each in found)
    notes = (
        [f"at least {doubled:,} rows have the Kafka offset of another row"]
        if doubled and not dropped
        else []
    )
    if any(each.sparse for each in found):
        return Offsets(notes=(*notes, _LEFT_OUT))
    gaps = [gap for each in found for gap in each.gaps()]
    if len(gaps) > _SOME and 2 * len(gaps) > len(least):
        return Offsets(notes=(*notes, _LEFT_OUT))
    gaps = [gap for gap in gaps if gap.end - gap.start > MARKERS]
    if gaps:
        longest = sorted(gaps, key=lambda gap: gap.start - gap.end)[:_MOST_LOOKED_FOR]
        left = _not_elsewhere(longest, others())
        gaps = sorted(left, key=lambda gap: (gap.partition, gap.start))
    return Offsets(tuple(gaps), continuous=not gaps, notes=tuple(notes))


def in_words(gaps: tuple[Gap, ...]) -> Iterator[str]:
    """A sentence for each partition with gaps."""
    for partition in sorted({gap.partition for gap in gaps}):
        mine = [gap for gap in gaps if gap.partition == partition]
        ranges = ", ".join(f"{gap.start} to {gap.end - 1}" for gap in mine[:_MOST_GAPS])
        more = f" and {len(mine) - _MOST_GAPS} more gaps" if len(mine) > _MOST_GAPS else ""
        rows = sum(gap.end - gap.start for gap in mine)
        yield f"Kafka partition {partition} lacks {rows:,} offsets: {ranges}{more}"


NOTHING = Offsets()
"""What the offsets say of a source that does not name their columns."""


@dataclass(frozen=True)
class _Partition:
    """The files of one partition, by their first offset."""

    number: int
    first: Int64s
    last: Int64s
    rows: Int64s
    earliest: Int64s
    latest: Int64s
    """Bounds of timestamps."""

    @classmethod
    def of(cls, number: int, files: OffsetBounds, arrived: Int64s) -> "_Partition":
        order = np.argsort(files[2], kind="stable")
        columns = (*files[2:], *arrived)
        return cls(number, *(column[order] for column in columns))

    @property
    def _until(self) -> Int64s:
        """Offset after the greatest of each file and those before it."""
        return np.maximum.accumulate(self.last) + 1

    @property
    def doubled(self) -> int:
        """The least number of rows in excess of offsets."""
        before = np.concatenate([self.first[:1], self._until[:-1]])
        offsets = np.clip(self._until - np.maximum(self.first, before), 0, None).sum()
        within = np.clip(self.rows - (self.last - self.first + 1), 0, None).sum()
        return int(max(self.rows.sum() - offsets, within, 0))

    @property
    def sparse(self) -> bool:
        """Whether a file has fewer rows than offsets."""
        return bool((self.rows < self.last - self.first + 1).any())

    @property
    def several_logs(self) -> bool:
        """Whether most rows after a gap arrived before the last ones ahead of it."""
        after = self._after_gaps
        ahead = np.searchsorted(self._until, self._until[after - 1])  # the file that ends there
        middle = self.earliest[after] + (self.latest[after] - self.earliest[after]) // 2
        return bool((middle < self.latest[ahead]).any())

    @property
    def _after_gaps(self) -> Int64s:
        """The files in front of which offsets are missing."""
        return np.flatnonzero(self.first[1:] > self._until[:-1]) + 1

    def gaps(self) -> Iterator[Gap]:
        until = self._until
        for place in self._after_gaps.tolist():
            yield Gap(self.number, int(until[place - 1]), int(self.first[place]))


def _not_elsewhere(gaps: list[Gap], others: Iterable[OffsetBounds]) -> Iterator[Gap]:
    """What is left of the gaps by all files of the table, whatever the timestamps of their rows."""
    partition, start, end = np.array(
        [(gap.partition, gap.start, gap.end) for gap in gaps], np.int64
    ).T
    filled: list[list[tuple[int, int]]] = [[] for _ in gaps]
    for files in others:
        for least, greatest, first, last, _ in files.T.tolist():
            unknown = least == NO_BOUNDS
            within = (least <= partition) & (partition <= greatest) & (first < end)
            for place in np.flatnonzero(unknown | (within & (last >= start))).tolist():
                exact = not unknown and least == greatest
                whole = (gaps[place].start, gaps[place].end)
                filled[place].append((first, last + 1) if exact else whole)
    for gap, ranges in zip(gaps, filled, strict=True):
        yield from _rest(gap, ranges)


def _rest(gap: Gap, filled: list[tuple[int, int]]) -> Iterator[Gap]:
    """The parts of a gap that are not filled."""
    start = gap.start
    for first, end in sorted(filled):
        if first > start:
            yield Gap(gap.partition, start, first)
        start = max(start, end)
    if start < gap.end:
        yield Gap(gap.partition, start, gap.end)
