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

from backfill.api.quantities import count
from backfill.planning.partition_files import Gap, GapPlace, PartitionFiles
from backfill.planning.source_files import Int64s

OffsetBounds = Int64s
"""A row each: least partition, greatest partition, least offset, greatest offset, number of rows.
The first is :data:`NO_BOUNDS` for a file whose bounds are not known.
"""
OffsetsNear = Int64s
"""The same of files near the range, with two more rows: least and greatest timestamp."""
NO_BOUNDS = -1
MARKERS = 2
"""Gaps of this many offsets are those of transactions' markers."""
_SOME = 5
"""This many gaps may be more than every second file has."""
_LEFT_OUT = (
    "Kafka offsets do not show whether rows are missing: offsets are missing throughout the"
    " files, as with transactions, compacted topics or filters in ingestion"
)
_SEVERAL = (
    "Kafka offsets do not show whether rows are missing: in partition {}, greater offsets arrived"
    " earlier than smaller ones, as with several topics or clusters in one table, or a recreated"
    " topic"
)
_MOST_LOOKED_FOR = 1_000
"""Gaps that are looked for in the rest of the table: the longest ones."""
_MOST_GAPS = 3
"""Gaps of a partition that are named."""


@dataclass(frozen=True, slots=True)
class Offsets:
    """What offsets say of a source."""

    gaps: tuple[Gap, ...] = ()
    """Offsets that are missing."""
    notes: tuple[str, ...] = ()
    """What else they say, and why they do not say more."""


def check_offsets(
    files: OffsetBounds,
    arrived: Int64s,
    others: Callable[[], Iterable[OffsetBounds]],
    near: Callable[[], Iterable[OffsetsNear]],
    read: tuple[int, int],
    *,
    dropped: bool = False,
) -> Offsets:
    """What the offsets of the files of a range say.

    Args:
        arrived: a row each of their least and greatest timestamps.
        others: reads the bounds of all files of the table, as rows of a gap may have a timestamp
            outside of the range.
        near: reads those of files close to the range that have no rows of it.
        read: start and end of the range.
        dropped: whether duplicates are left out, and counted elsewhere.
    """
    least, greatest = files[0], files[1]
    single = (least == greatest) & (least != NO_BOUNDS)
    if not single.all():
        mixed = int((~single).sum())
        return Offsets(
            notes=(
                f"Kafka offsets do not show whether rows are missing: {mixed:,} of {len(least):,}"
                " files contain rows of several partitions, or have no bounds of partition and"
                " offset",
            )
        )
    around = _with_every_offset(near())
    found = [  # also partitions without any row in the range
        PartitionFiles.of(
            int(each),
            np.concatenate([files[2:, least == each], arrived[:, least == each]]),
            around[2:, around[0] == each],
            read,
        )
        for each in np.unique(np.concatenate([least, around[0]]))
    ]
    several = next((each.number for each in found if each.several_logs), None)
    if several is not None:
        return Offsets(notes=(_SEVERAL.format(several),))
    doubled = sum(each.doubled for each in found)
    notes = (
        [
            f"at least {count(doubled, 'row')} {'has' if doubled == 1 else 'have'} the same Kafka"
            " offset as another row"
        ]
        if doubled and not dropped
        else []
    )
    if any(each.sparse for each in found):
        return Offsets(notes=(*notes, _LEFT_OUT))
    places = [place for each in found for place in each.gaps()]
    if len(places) > _SOME and 2 * len(places) > sum(each.compared for each in found):
        return Offsets(notes=(*notes, _LEFT_OUT))
    places = [each for each in places if each.gap.end - each.gap.start > MARKERS]
    within = [each for each in places if each.is_within(each.gap)]
    gaps: list[Gap] = []
    if within:
        longest = sorted(within, key=lambda each: each.gap.start - each.gap.end)
        for place, left in _not_elsewhere(longest[:_MOST_LOOKED_FOR], others()):
            if place.is_within(left):
                gaps.append(left)
        gaps.sort(key=lambda gap: (gap.partition, gap.start))
    return Offsets(tuple(gaps), tuple(notes))


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


def _with_every_offset(near: Iterable[OffsetsNear]) -> OffsetsNear:
    """The files of one partition each that leave no offset out."""
    files = np.concatenate([np.empty((7, 0), np.int64), *near], axis=1)
    least, greatest, first, last, rows = files[:5]
    return files[:, (least == greatest) & (least != NO_BOUNDS) & (rows >= last - first + 1)]


def _not_elsewhere(
    places: list[GapPlace], others: Iterable[OffsetBounds]
) -> Iterator[tuple[GapPlace, Gap]]:
    """What is left of the gaps by all files of the table, whatever the timestamps of their rows."""
    gaps = [each.gap for each in places]
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
    for each, ranges in zip(places, filled, strict=True):
        for left in _rest(each.gap, ranges):
            yield each, left


def _rest(gap: Gap, filled: list[tuple[int, int]]) -> Iterator[Gap]:
    """The parts of a gap that are not filled."""
    start = gap.start
    for first, end in sorted(filled):
        if first > start:
            yield Gap(gap.partition, start, first)
        start = max(start, end)
    if start < gap.end:
        yield Gap(gap.partition, start, gap.end)
