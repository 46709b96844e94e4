"""Turns pieces and steps into splits: what is read as a whole, in time slices, or by several tasks.

A piece is read as a whole in the step of its lower bound if it ends within that step's reach.
Otherwise each step that it overlaps reads a slice of it. Files larger than a task's share of their
step are split between row groups.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from backfill.planning.metadata.delete_files import MOST_APPLIED, deletes_not_applied
from backfill.planning.pieces import (
    APART,
    WHOLE,
    Pieces,
    ReadRange,
    join,
    row_groups,
    several_groups,
)
from backfill.planning.plan import DeleteFile, splits_schema
from backfill.planning.source_files import Bools, Int64s, SourceFiles

MIN_SPLIT_BYTES = 4 * 2**20
"""Smaller splits are not worth a task."""


@dataclass(frozen=True)
class Steps:
    """Boundaries of the steps, and how far past its end each may read."""

    starts: Int64s
    ends: Int64s
    reach_us: int

    def of(self, moment_us: Int64s) -> Int64s:
        """The step of each moment."""
        return np.asarray(np.searchsorted(self.starts, moment_us, "right") - 1, np.int64)

    def astride(self, pieces: Pieces) -> Bools:
        """The pieces that end too far after their step to be read as a whole."""
        return np.asarray(pieces.upper_us > self.ends[self.of(pieces.lower_us)] + self.reach_us)


@dataclass(frozen=True)
class StepPieces:
    """Pieces by step. A piece that is cut is here once for each step that it overlaps."""

    pieces: Pieces
    step: Int64s
    sliced: Bools


@dataclass(frozen=True)
class Opener:
    """Replaces files by their row groups, which it reads from footers."""

    sources: Sequence[SourceFiles]
    fields: Sequence[str]
    """Paths of the sources in the resource."""
    span: ReadRange

    def open_astride(self, pieces: Pieces, steps: Steps) -> Pieces:
        """Opens files that must be cut, so that each slice
        reads only the row groups that it overlaps.
        """
        chosen = steps.astride(pieces) & (pieces.group == WHOLE) & (pieces.careful != APART)
        for number, files in enumerate(self.sources):
            mine = chosen & (pieces.source == number)
            chosen[mine] = several_groups(files)[pieces.file[mine]]
        return self.open(pieces, chosen) if chosen.any() else pieces

    def open(self, pieces: Pieces, chosen: Bools) -> Pieces:
        """The pieces, with the chosen files replaced by their row groups.

        Raises:
            InvalidPlanInput: a file cannot be read.
        """
        parts = [pieces.take(~chosen)]
        for number, files in enumerate(self.sources):
            rows = pieces.file[chosen & (pieces.source == number)]
            if rows.size:
                parts.append(row_groups(files, number, self.span, rows, self.fields[number]))
        return join(parts)


def place(pieces: Pieces, steps: Steps) -> StepPieces:
    """Assigns each piece, or its slices, to steps."""
    first, sliced = steps.of(pieces.lower_us), steps.astride(pieces)
    if not sliced.any():
        return StepPieces(pieces, first, sliced)
    last = np.where(sliced, steps.of(pieces.upper_us), first)
    counts = last - first + 1
    origin = np.repeat(np.arange(len(pieces)), counts)
    step = np.arange(len(origin)) - np.repeat(np.cumsum(counts) - counts, counts) + first[origin]
    cut = sliced[origin]
    placed = pieces.take(origin)
    return StepPieces(
        replace(placed, rows=np.where(cut, _rows_of_slices(placed, steps, step), placed.rows)),
        step,
        cut,
    )


def _rows_of_slices(pieces: Pieces, steps: Steps, step: Int64s) -> Int64s:
    """Estimated rows of slices: distributed evenly between a piece's bounds, and at least one,
    since zero would mean that there are none.
    """
    length = (pieces.upper_us - pieces.lower_us + 1).astype(np.float64)
    begin, end = (
        np.maximum(steps.starts[step], pieces.lower_us),
        np.minimum(steps.ends[step], pieces.upper_us + 1),
    )
    until = np.floor(pieces.rows * ((end - pieces.lower_us) / length))
    return np.asarray(
        np.maximum(until - np.floor(pieces.rows * ((begin - pieces.lower_us) / length)), 1),
        np.int64,
    )


def without_empty_steps(parts: StepPieces, steps: Steps) -> tuple[StepPieces, Steps, Int64s]:
    """Removes steps that read nothing, and lets the
    others start at the first row that they may hold.

    Returns:
        The parts, the steps, and the previous numbers of the steps.
    """
    used, step = np.unique(parts.step, return_inverse=True)
    starts, ends = steps.starts[used], steps.ends[used]
    first = np.full(len(used), np.iinfo(np.int64).max)
    np.minimum.at(first, step, np.maximum(parts.pieces.lower_us, starts[step]))
    return (
        StepPieces(parts.pieces, step.astype(np.int64), parts.sliced),
        Steps(first, ends, steps.reach_us),
        used,
    )


def share_between_tasks(
    parts: StepPieces, opener: Opener, parallelism: int
) -> tuple[StepPieces, Int64s]:
    """Splits files that are larger than a task's share of their step between row groups.

    Returns:
        The parts, and the target size of each step's splits in bytes.
    """
    step_bytes = np.bincount(parts.step, weights=parts.pieces.bytes).astype(np.int64)
    share = np.maximum(step_bytes // parallelism, MIN_SPLIT_BYTES)
    pieces = parts.pieces
    big = (pieces.group == WHOLE) & ~parts.sliced & (pieces.bytes > share[parts.step])
    if not big.any():
        return parts, share
    cut: list[StepPieces] = []
    unknown = np.zeros(len(pieces), np.bool_)
    for row in np.flatnonzero(big).tolist():
        starts = opener.sources[pieces.source[row]].group_starts[int(pieces.file[row])].as_py()
        unknown[row] = starts is None
        big[row] = starts is None or len(starts) > 1
        if starts is not None and len(starts) > 1:
            cut.append(_by_starts(parts, row, np.array(starts, np.int64)))
    cut += _by_footers(parts, unknown, opener)
    whole = StepPieces(pieces.take(~big), parts.step[~big], parts.sliced[~big])
    return _join_parts([whole, *cut]), share


def _by_footers(parts: StepPieces, chosen: Bools, opener: Opener) -> list[StepPieces]:
    """The row groups of whole files, all in the step of their file."""
    cut = []
    for row in np.flatnonzero(chosen).tolist():
        one = np.zeros(len(chosen), np.bool_)
        one[row] = True
        opened = opener.open(parts.pieces.take(one), np.ones(1, np.bool_))
        cut.append(
            StepPieces(
                opened, np.full(len(opened), parts.step[row]), np.zeros(len(opened), np.bool_)
            )
        )
    return cut


def _by_starts(parts: StepPieces, row: int, starts: Int64s) -> StepPieces:
    """A part for each row group of a whole file.

    Its rows are in proportion to bytes, and add up to the file's.
    """
    piece = parts.pieces.take(np.full(len(starts), row))
    size = int(piece.bytes[0])
    ends = np.append(starts[1:], size)
    begun = np.append(0, ends * int(piece.rows[0]) // size)
    sizes = ends - np.append(0, starts[1:])
    known_groups = np.full(len(starts), len(starts))
    divided = replace(
        piece,
        group=np.arange(len(starts)),
        rows=np.diff(begun),
        bytes=sizes,
        known_groups=known_groups,
    )
    return StepPieces(
        divided, np.full(len(starts), parts.step[row]), np.full(len(starts), parts.sliced[row])
    )


def _join_parts(parts: Sequence[StepPieces]) -> StepPieces:
    if len(parts) == 1:
        return parts[0]
    return StepPieces(
        join([part.pieces for part in parts]),
        np.concatenate([part.step for part in parts]),
        np.concatenate([part.sliced for part in parts]),
    )


def in_order(parts: StepPieces, sources: Sequence[SourceFiles]) -> StepPieces:
    """Sorted by step, source (in the order of the resource), path and row group."""
    pieces = parts.pieces
    rank = np.empty(len(pieces), np.int64)
    for number, files in enumerate(sources):
        mine = pieces.source == number
        rank[mine] = _ranks(files.path)[pieces.file[mine]]
    order = np.lexsort((pieces.group, parts.sliced, rank, pieces.source, parts.step))
    return StepPieces(pieces.take(order), parts.step[order], parts.sliced[order])


def build_splits(
    parts: StepPieces, share: Int64s, steps: Steps, span: ReadRange, sources: Sequence[SourceFiles]
) -> pa.Table:
    """The plan's splits, of pieces that are :func:`in_order`."""
    begins = _split_begins(parts, share)
    return _table(parts, begins, steps, span, sources)


def _ranks(paths: pa.StringArray) -> Int64s:
    """The rank of each path among all, in sorted order."""
    order = pc.sort_indices(paths).to_numpy()
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    return ranks


def _split_begins(parts: StepPieces, share: Int64s) -> Int64s:
    """Where splits start among sorted parts. Row groups of a file that are read in the same way
    share a split, up to its target size.
    """
    pieces = parts.pieces
    careful = pieces.careful.astype(np.bool_) | parts.sliced
    kind = np.stack([parts.step, pieces.source, pieces.file, parts.sliced, careful])
    fresh = (
        np.append(True, (np.diff(kind) != 0).any(axis=0)) if len(pieces) else np.empty(0, np.bool_)
    )
    run = np.cumsum(fresh) - 1
    before = np.cumsum(pieces.bytes) - pieces.bytes
    middle = before - before[np.flatnonzero(fresh)][run] + pieces.bytes // 2
    bucket = middle // share[parts.step] if len(pieces) else middle
    fresh[1:] |= (np.diff(bucket) != 0)[: max(len(pieces) - 1, 0)]
    fresh |= pieces.careful == APART  # the time slice of several would have rows of other pieces
    return np.asarray(np.flatnonzero(fresh), np.int64)


def _table(
    parts: StepPieces, begins: Int64s, steps: Steps, span: ReadRange, sources: Sequence[SourceFiles]
) -> pa.Table:
    pieces = parts.pieces
    # most often all are, and a million take 72 MB
    head = pieces if len(begins) == len(pieces) else pieces.take(begins)
    step, sliced = parts.step[begins], parts.sliced[begins]
    start, end = steps.starts[step], steps.ends[step]
    lower, upper = (np.minimum, np.maximum)
    lower_us = lower.reduceat(pieces.lower_us, begins)
    upper_us = upper.reduceat(pieces.upper_us, begins)
    slice_start = np.where(sliced, start, lower_us)
    slice_end = np.where(sliced, end, np.minimum(upper_us + 1, span.end_us))
    finer = np.array([files.column.ticks.finer_than_us for files in sources], np.int64)[head.source]
    unsliced = ~(sliced | head.careful.astype(np.bool_))
    columns = {
        "step": step,
        "source": _dictionary(head.source, [files.source.name for files in sources], pa.int16()),
        "path": _gather(head, [files.path for files in sources]),
        "format": _dictionary(np.zeros(len(head), np.int64), ["parquet"], pa.int16()),
        "file_bytes": _numbers(head, [files.file_bytes for files in sources]),
        "row_groups": _row_groups(pieces.group, begins),
        "slice_start_us": pa.array(slice_start, mask=unsliced),
        "slice_end_us": pa.array(slice_end, mask=unsliced),
        "lower_us": np.where(sliced, np.maximum(lower_us, start), lower_us),
        "upper_us": np.where(sliced, np.minimum(upper_us, end - 1), upper_us) + finer,
        "rows": np.add.reduceat(pieces.rows, begins),
        "bytes": np.add.reduceat(pieces.bytes, begins),
        "spec_id": _numbers(head, [files.spec_id for files in sources]),
        "partition": _partitions(head, sources),
        "deletes": _deletes(head, sources),
        "offsets": pa.nulls(len(head), splits_schema().field("offsets").type),
        "file_row_groups": pa.array(head.known_groups, mask=head.known_groups == 0),
        "duplicates": pa.nulls(len(head), splits_schema().field("duplicates").type),
        "file_rows": _numbers(head, [files.rows for files in sources]),
    }
    return pa.table({name: columns[name] for name in splits_schema().names}).cast(splits_schema())


def _row_groups(groups: Int64s, begins: Int64s) -> pa.ListArray:
    """The row groups of each split; null for whole files."""
    whole = groups[begins] == WHOLE
    offsets = np.append(begins, len(groups)).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(groups.astype(np.int32)))
    return pc.if_else(pa.array(whole), pa.scalar(None, lists.type), lists)


def _gather(head: Pieces, columns: Sequence[pa.Array]) -> pa.Array | pa.ChunkedArray:
    """For each split, the element of its source's column."""
    if len(columns) == 1:
        return columns[0].take(pa.array(head.file))
    lengths = np.array([len(column) for column in columns])
    first = np.cumsum(lengths) - lengths
    return pa.chunked_array(columns).take(pa.array(head.file + first[head.source]))


def _numbers(head: Pieces, columns: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    lengths = np.array([len(column) for column in columns])
    first = np.cumsum(lengths) - lengths
    return np.asarray(np.concatenate(columns)[head.file + first[head.source]])


def _dictionary(indices: Int64s, values: list[str], kind: pa.DataType) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(indices, kind), pa.array(values, pa.string()))


def _partitions(head: Pieces, sources: Sequence[SourceFiles]) -> pa.DictionaryArray:
    texts = sorted({values.identity for files in sources for values in files.partitions})
    place_of = {text: number for number, text in enumerate(texts)}
    codes = [
        np.array([place_of[values.identity] for values in files.partitions], np.int64)[
            files.partition
        ]
        for files in sources
    ]
    return _dictionary(_numbers(head, codes), texts, pa.int32())


def _deletes(head: Pieces, sources: Sequence[SourceFiles]) -> pa.Array:
    kind = splits_schema().field("deletes").type
    if all(len(files.delete_sets) == 1 for files in sources):
        return pa.nulls(len(head), kind)
    sets = [deletes for files in sources for deletes in files.delete_sets]
    first = np.cumsum([0, *(len(files.delete_sets) for files in sources)])
    numbers = _numbers(
        head, [files.deletes + first[number] for number, files in enumerate(sources)]
    )
    _refuse_many_deletes(sets, numbers, sources)
    known: dict[DeleteFile, int] = {}
    places = [known.setdefault(file, len(known)) for deletes in sets for file in deletes]
    described = pa.array(
        [{"path": each.path, "format": each.format, "equality": each.equality} for each in known],
        kind.value_type,
    )
    ends = np.cumsum([0, *map(len, sets)]).astype(np.int32)
    none = pa.array([not deletes for deletes in sets])
    lists = pa.ListArray.from_arrays(
        pa.array(ends), described.take(pa.array(places, pa.int64())), type=kind, mask=none
    )
    return lists.take(pa.array(numbers))


def _refuse_many_deletes(
    sets: Sequence[tuple[DeleteFile, ...]],
    numbers: npt.NDArray[Any],
    sources: Sequence[SourceFiles],
) -> None:
    """A file of data may have many splits, each with all of the file's deletes."""
    lengths = np.array([sum(bool(file.equality) for file in each) for each in sets])
    if (applied := int(lengths[numbers].sum())) > MOST_APPLIED:
        number = int(np.argmax([max(map(len, files.delete_sets)) for files in sources]))
        why = f"{applied:,} times to splits of files; at most {MOST_APPLIED:,} can be"
        raise deletes_not_applied(f"spec.sources[{number}]", sources[number].source, why)
