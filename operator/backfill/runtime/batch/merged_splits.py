"""The splits of a run of steps, without reading anything twice that several steps share.

Streaming reads a file once for each step that has a slice of it. A run reads exactly the same rows,
each row group as seldom as the slices allow: slices that meet become one, a gap between two stays.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from backfill.planning.plan import OffsetRange, Split

_WHOLE = -1
"""Stands for all row groups of a file that is not cut between them."""


@dataclass(frozen=True, slots=True)
class _Cut:
    """Which rows of a row group are read."""

    start_us: int | None
    end_us: int | None
    offsets: tuple[OffsetRange, ...]

    def with_next(self, other: "_Cut") -> "_Cut | None":
        """Both as one, if that is exactly their rows, each as often as in the two."""
        if self.offsets == other.offsets and self.end_us is not None:
            return (
                _Cut(self.start_us, other.end_us, self.offsets)
                if self.end_us == other.start_us
                else None
            )
        if (self.start_us, self.end_us) != (other.start_us, other.end_us):
            return None
        return _joined_offsets(self, other)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A row group, or a whole file, as one cut reads it."""

    group: int
    cut: _Cut
    rows: float
    bytes: float
    lower_us: int
    upper_us: int


def merged(splits: Sequence[Split], most_bytes: int) -> list[Split]:
    """Splits of one source in several steps, made into those of one.

    A split of several row groups has at most about ``most_bytes``, so that tasks can share a file.
    Where several splits read a row, as a plan never has it, so do the results.
    """
    files: dict[Split, list[Split]] = defaultdict(list)
    for split in splits:
        files[_file_of(split)].append(split)
    return [
        split
        for file, parts in files.items()
        for split in (parts if len(parts) == 1 else _merged_file(file, parts, most_bytes))
    ]


def _file_of(split: Split) -> Split:
    """What is the same in all splits of a file."""
    return replace(
        split,
        step=0,
        row_groups=None,
        slice_start_us=None,
        slice_end_us=None,
        lower_us=0,
        upper_us=0,
        rows=0,
        bytes=0,
        offsets=(),
        duplicates=(),
    )


def _merged_file(file: Split, parts: Sequence[Split], most_bytes: int) -> Iterator[Split]:
    file = replace(
        file, duplicates=tuple(sorted(rows for part in parts for rows in part.duplicates))
    )
    pieces: dict[int, list[_Piece]] = defaultdict(list)
    for part in parts:
        for piece in _pieces(part):
            pieces[piece.group].append(piece)
    alike: dict[_Cut, list[_Piece]] = defaultdict(list)
    for group in sorted(pieces):
        for piece in _joined(pieces[group]):
            alike[piece.cut].append(piece)
    step = min(part.step for part in parts)
    for cut, found in alike.items():
        for some in _portions(found, most_bytes):
            yield _split(replace(file, step=step), cut, some)


def _pieces(split: Split) -> Iterator[_Piece]:
    groups = split.row_groups if split.row_groups is not None else (_WHOLE,)
    cut = _Cut(split.slice_start_us, split.slice_end_us, split.offsets)
    for group in groups:
        yield _Piece(
            group,
            cut,
            split.rows / len(groups),
            split.bytes / len(groups),
            split.lower_us,
            split.upper_us,
        )


def _joined(pieces: Sequence[_Piece]) -> list[_Piece]:
    """The pieces of one row group, as few as they can be."""
    done: list[_Piece] = []
    for piece in sorted(pieces, key=_start):
        cut = done[-1].cut.with_next(piece.cut) if done else None
        if cut is None:
            done.append(piece)
            continue
        last = done.pop()
        done.append(
            _Piece(
                piece.group,
                cut,
                last.rows + piece.rows,
                max(last.bytes, piece.bytes),
                min(last.lower_us, piece.lower_us),
                max(last.upper_us, piece.upper_us),
            )
        )
    return done


def _start(piece: _Piece) -> tuple[bool, int]:
    start_us = piece.cut.start_us
    return start_us is not None, start_us or 0


def _joined_offsets(first: _Cut, second: _Cut) -> _Cut | None:
    """Two cuts that differ in their offsets; None if a row could be in both."""
    if not (first.offsets and second.offsets):
        return None
    ranges = sorted(
        (*first.offsets, *second.offsets), key=lambda each: (each.partition, each.start)
    )
    if any(one.partition == two.partition and two.start < one.end for one, two in pairwise(ranges)):
        return None
    return replace(first, offsets=tuple(_without_seams(ranges)))


def _without_seams(ranges: Iterable[OffsetRange]) -> Iterator[OffsetRange]:
    """Sorted ranges, those that meet as one."""
    last: OffsetRange | None = None
    for each in ranges:
        if last is not None and (last.partition, last.end) == (each.partition, each.start):
            last = OffsetRange(last.partition, last.start, each.end)
            continue
        if last is not None:
            yield last
        last = each
    if last is not None:
        yield last


def _portions(pieces: Sequence[_Piece], most_bytes: int) -> Iterator[list[_Piece]]:
    portion: list[_Piece] = []
    size = 0.0
    for piece in pieces:
        # a list of row groups has each once, and no whole file
        apart = bool(portion) and portion[-1].group in (piece.group, _WHOLE)
        if apart or (portion and size + piece.bytes > most_bytes):
            yield portion
            portion, size = [], 0.0
        portion.append(piece)
        size += piece.bytes
    yield portion


def _split(file: Split, cut: _Cut, pieces: Sequence[_Piece]) -> Split:
    groups = tuple(piece.group for piece in pieces)
    return replace(
        file,
        row_groups=None if groups == (_WHOLE,) else groups,
        slice_start_us=cut.start_us,
        slice_end_us=cut.end_us,
        offsets=cut.offsets,
        lower_us=min(piece.lower_us for piece in pieces),
        upper_us=max(piece.upper_us for piece in pieces),
        rows=max(1, round(sum(piece.rows for piece in pieces))),
        bytes=round(sum(piece.bytes for piece in pieces)),
    )
