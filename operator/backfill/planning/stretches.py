"""Where the rows of wide files are in time.

By its bounds, a file with one row of 1970 and one of 2099 may have rows at any time: each step
would read a slice of it. So the timestamps of such files are read, and pieces take their place, one
for each stretch of time in which the file really has rows.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from backfill.api.quantities import count
from backfill.iceberg.timestamp_units import describe_us
from backfill.planning.file_bounds import unreadable_files
from backfill.planning.parquet_footers import Unreadable, read_moments
from backfill.planning.pieces import APART, CAREFUL, WHOLE, Pieces, join
from backfill.planning.source_files import Bools, Int64s, SourceFiles
from backfill.planning.splits import Opener
from backfill.planning.step_boundaries import StepLimits

_WIDE = 8
"""A piece is wide if it is longer than this many steps. Shorter ones are cheaper to cut."""
_FIRST = 64
"""Wide pieces of a source that are read to find out whether it pays to read the others."""
MOST_PIECES = 10_000
"""Wide pieces of a source that are read at most: about a minute with an object store."""
_MOST_ROWS = 20_000_000
"""Larger pieces are not read, so that the timestamps that are in memory at once are few."""
_READERS = 8
_FEW = 10
"""Rows are reported as far from the others of their file if they are one in this many or fewer."""


@dataclass(frozen=True, slots=True)
class _Found:
    """Where the rows of a piece are."""

    stretches: Int64s
    """Least timestamp, greatest timestamp and number of rows of each, in order."""
    outside: Int64s
    """Timestamps that are outside of the read range, in order: the least and the greatest."""
    rows_outside: int
    complete: bool
    """Whether each row of the piece is in a stretch."""


def with_stretches(pieces: Pieces, opener: Opener, limits: StepLimits) -> tuple[Pieces, list[str]]:
    """The pieces, with wide ones replaced by the stretches of time in which they have rows, and
    what a person should know of them.

    Raises:
        InvalidPlanInput: a file cannot be read.
    """
    longest_us = limits.span_us + max(limits.reach_us, 0)
    parts: list[Pieces] = []
    notes: list[str] = []
    replaced = np.zeros(len(pieces), np.bool_)
    for number, files in enumerate(opener.sources):
        wide = np.flatnonzero(_is_wide(pieces, files, number, _WIDE * longest_us))[:MOST_PIECES]
        if not len(wide):
            continue
        reader = _Reader(files, opener, number, longest_us)
        first = wide[np.unique(np.linspace(0, len(wide) - 1, _FIRST).astype(np.int64))]
        found = reader.read(pieces, first)
        if not found:
            continue
        by_bounds = _steps(pieces.lower_us[first], pieces.upper_us[first], longest_us)
        stretches = np.concatenate([each.stretches for each in found.values()])
        if 2 * _steps(stretches[:, 0], stretches[:, 1], longest_us) <= by_bounds:
            found |= reader.read(pieces, np.setdiff1d(wide, first))
        replaced[list(found)] = True
        parts += [_in_place_of(pieces.take(np.array([row])), found[row]) for row in sorted(found)]
        notes += _notes(files, list(found.values()))
    return (join([pieces.take(~replaced), *parts]), notes) if parts else (pieces, notes)


def _is_wide(pieces: Pieces, files: SourceFiles, source: int, limit_us: int) -> Bools:
    """Pieces of a source that are longer than a limit. Of one that exceeds the read range, only its
    file's bounds are known.
    """
    mine = pieces.source == source
    length = pieces.upper_us - pieces.lower_us
    file = pieces.file[mine]
    of_file = files.upper_us[file] - files.lower_us[file]
    length[mine] = np.where(pieces.careful[mine] != 0, of_file, length[mine])
    mine[mine] = files.rows[file] <= _MOST_ROWS
    return np.asarray(mine & (length > limit_us))


def _steps(lower_us: Int64s, upper_us: Int64s, step_us: int) -> int:
    """About how many steps read something of these stretches."""
    return int(((upper_us - lower_us) // step_us + 1).sum())


class _Reader:
    """Reads the timestamps of a source's files."""

    def __init__(self, files: SourceFiles, opener: Opener, number: int, apart_us: int):
        """Rows with nothing between them for longer than ``apart_us`` are in two stretches."""
        self._files = files
        self._span = opener.span
        self._field = opener.fields[number]
        self._apart_us = apart_us

    def read(self, pieces: Pieces, chosen: Int64s) -> dict[int, _Found]:
        """Where the rows of the chosen pieces are, as far as their files have the column."""
        places = zip(pieces.file[chosen].tolist(), pieces.group[chosen].tolist(), strict=True)
        with ThreadPoolExecutor(_READERS) as pool:
            read = list(pool.map(self._read, places))
        unreadable = [each for each in read if isinstance(each, Unreadable)]
        if unreadable:
            raise unreadable_files(self._files, self._field, unreadable)
        pairs = zip(chosen.tolist(), read, strict=True)
        return {row: each for row, each in pairs if isinstance(each, _Found)}

    def _read(self, place: tuple[int, int]) -> _Found | Unreadable | None:
        row, group = place
        read = read_moments(self._files, row, None if group == WHOLE else [group])
        return self._found(np.sort(read[0]), read[1]) if isinstance(read, tuple) else read

    def _found(self, moments: Int64s, rows: int) -> _Found:
        first, end = np.searchsorted(moments, [self._span.start_us, self._span.end_us])
        inside, outside = moments[first:end], np.delete(moments, slice(first, end))
        breaks = np.flatnonzero(np.diff(inside) > self._apart_us) + 1
        begin = np.append(0, breaks) if len(inside) else breaks
        until = np.append(breaks, len(inside)) if len(inside) else breaks
        return _Found(
            np.stack([inside[begin], inside[until - 1], until - begin], axis=1),
            outside[[0, -1]] if len(outside) else outside,
            len(outside),
            len(inside) == rows,
        )


def _in_place_of(piece: Pieces, found: _Found) -> Pieces:
    """A piece for each stretch of one piece."""
    lower, upper, rows = found.stretches.T
    several = len(rows) > 1
    made = piece.take(np.zeros(len(rows), np.int64))
    careful = APART if several else 0 if found.complete else CAREFUL
    return replace(
        made,
        lower_us=lower,
        upper_us=upper,
        rows=rows,
        careful=np.full(len(rows), careful, np.int64),
    )


def _notes(files: SourceFiles, found: Sequence[_Found]) -> Iterator[str]:
    """Rows far from the others of their file."""
    name, column = files.source.name, files.source.timestamp_column
    strays = [
        each for each in found if 0 < _FEW * each.rows_outside <= int(each.stretches[:, 2].sum())
    ]
    if strays:
        ends = np.concatenate([each.outside for each in strays])
        yield (
            f"source {name}: {count(len(strays), 'file')} also contain"
            f" {count(sum(each.rows_outside for each in strays), 'row')} far outside of the time"
            f" to be read, which are left out: {column} is from {describe_us(int(ends.min()))}"
            f" to {describe_us(int(ends.max()))}"
        )
    apart = [
        stretch
        for each in found
        for stretch in each.stretches
        if _FEW * int(stretch[2]) <= int(each.stretches[:, 2].sum())
    ]
    if apart:
        lower, upper, rows = np.stack(apart).T
        yield (
            f"source {name}: {count(int(rows.sum()), 'row')} with {column} from"
            f" {describe_us(int(lower.min()))} to {describe_us(int(upper.max()))} are far from the"
            " others of their files; each is read in the step of its own time"
        )
