"""Pieces, which a step reads as a whole: a file or one of its row groups, with the bounds of its
timestamps. Columns, not objects.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from backfill.planning.file_bounds import unreadable_files
from backfill.planning.parquet_footers import Unreadable, read_footers
from backfill.planning.source_files import Bools, Int64s, RowGroup, SourceFiles

WHOLE = -1
"""Row group of a piece that is a whole file."""
CAREFUL, APART = 1, 2
"""Rows must be checked one by one, since some are outside of the range or may have no timestamp;
or since other pieces have other rows of the same file or row group.
"""


@dataclass(frozen=True, slots=True)
class ReadRange:
    """Rows with a timestamp in [start, end) are read."""

    start_us: int
    end_us: int


@dataclass(frozen=True)
class Pieces:
    """Pieces of all sources. ``lower_us`` and ``upper_us`` are limited to what is read."""

    source: Int64s
    file: Int64s
    """Index among the source's files."""
    group: Int64s
    """Row group, or :data:`WHOLE`."""
    lower_us: Int64s
    upper_us: Int64s
    rows: Int64s
    """Exact for what is read as a whole; otherwise an estimate, as if rows were distributed evenly
    between the bounds.
    """
    bytes: Int64s
    careful: Int64s
    """:data:`CAREFUL`, :data:`APART`, or 0 if all rows of the file or row group are read."""
    known_groups: Int64s
    """Number of row groups of the file by its manifest,
    if the row group is known from that alone; otherwise 0.
    """

    def __len__(self) -> int:
        """Number of pieces."""
        return len(self.source)

    def take(self, chosen: Bools | Int64s) -> "Pieces":
        """The chosen pieces."""
        return Pieces(
            **{column.name: getattr(self, column.name)[chosen] for column in fields(self)}
        )


def join(parts: Sequence[Pieces]) -> Pieces:
    """All pieces of several parts; there must be at least one part."""
    return Pieces(
        **{
            column.name: np.concatenate([getattr(part, column.name) for part in parts])
            for column in fields(Pieces)
        }
    )


def whole_files(files: SourceFiles, source: int, span: ReadRange) -> Pieces:
    """Each file of a source as one piece."""
    groups = np.stack(
        [
            np.arange(len(files), dtype=np.int64),
            np.full(len(files), WHOLE, np.int64),
            files.lower_us,
            files.upper_us,
            files.rows,
            files.file_bytes,
            files.nulls,
        ]
    )
    return _cut_to_range(files, source, span, groups)


def worth_opening(files: SourceFiles, span: ReadRange, limit_us: int) -> Bools:
    """Files with several row groups that are longer than a limit or exceed the range, so that their
    groups may be read differently.
    """
    outside = (files.lower_us < span.start_us) | (files.upper_us >= span.end_us)
    return several_groups(files) & (outside | (files.upper_us - files.lower_us > limit_us))


def several_groups(files: SourceFiles) -> Bools:
    """Files that may have more than one row group: by the manifest, or because it does not say."""
    lengths = pc.fill_null(pc.list_value_length(files.group_starts), 0)
    return np.asarray(lengths.to_numpy(zero_copy_only=False) != 1)


def row_groups(
    files: SourceFiles, source: int, span: ReadRange, chosen: Int64s, where: str
) -> Pieces:
    """The row groups of the chosen files that may hold rows of the range, by the files' footers.

    Raises:
        InvalidPlanInput: a file cannot be read.
    """
    found: list[tuple[int, ...]] = []
    unreadable: list[Unreadable] = []
    for row, footer in zip(chosen.tolist(), read_footers(files, chosen.tolist()), strict=True):
        if isinstance(footer, Unreadable):
            unreadable.append(footer)
            continue
        for number, group in enumerate(footer):
            bounds = _within(files, row, group)
            if bounds is not None and bounds[0] < span.end_us and bounds[1] >= span.start_us:
                found.append((row, number, *bounds, group.rows, group.bytes, group.nulls))
    if unreadable:
        raise unreadable_files(files, where, unreadable)
    return _cut_to_range(files, source, span, np.array(found, np.int64).reshape(-1, 7).T)


def _within(files: SourceFiles, row: int, group: RowGroup) -> tuple[int, int] | None:
    """The bounds of a row group, which never exceed its file's;
    None if no row of it has a timestamp.
    """
    if group.empty:
        return None
    lower, upper = int(files.lower_us[row]), int(files.upper_us[row])
    if group.lower_us is None or group.upper_us is None:
        return lower, upper
    return max(lower, group.lower_us), min(upper, group.upper_us)


def _cut_to_range(
    files: SourceFiles, source: int, span: ReadRange, found: npt.NDArray[np.int64]
) -> Pieces:
    """Pieces from rows of ``found``, each with file, row group, lower bound, upper bound, rows,
    bytes and rows without a timestamp.
    """
    file, group, lower, upper, rows, size, nulls = found
    outside = (lower < span.start_us) | (upper >= span.end_us)
    inside_lower, inside_upper = (
        np.maximum(lower, span.start_us),
        np.minimum(upper, span.end_us - 1),
    )
    share = (inside_upper - inside_lower + 1) / (upper - lower + 1).astype(np.float64)
    return Pieces(
        source=np.full(len(file), source, np.int64),
        file=file,
        group=group,
        lower_us=inside_lower,
        upper_us=inside_upper,
        rows=np.where(outside, np.ceil(rows * share), rows).astype(np.int64),
        bytes=size,
        careful=np.where(outside | (nulls != 0), CAREFUL, 0),
        known_groups=np.zeros(len(file), np.int64),
    )
