"""The least and greatest timestamp of each file whose manifest entry does not have them.

In order of preference, they are taken from the manifest's bounds, the statistics of row groups in
the Parquet footer, and the partition's value.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from backfill.api.errors import InvalidPlanInput, Problem
from backfill.api.quantities import count
from backfill.planning.parquet_footers import Unreadable, read_footers
from backfill.planning.source_files import UNKNOWN, Int64s, RowGroup, SourceFiles


@dataclass
class _Missing:
    """What could not be determined."""

    unreadable: list[Unreadable] = field(default_factory=list)
    without_statistics: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Filled:
    """What was found while bounds were completed."""

    unbounded: int
    """Number of files without bounds in the manifest."""
    without_timestamp: int
    """Number of rows without a timestamp in files that were left out."""
    later_us: Int64s
    """Least timestamps of files that were left out because all of their rows are later."""


def fill_bounds(files: SourceFiles, where: str, start_us: int, end_us: int) -> Filled:
    """Completes the bounds of a source's files, and their numbers of rows where manifests have
    wrong ones, and leaves out files without a row in [start, end).

    Args:
        files: the files of the source, modified in place.
        where: path of the source in the resource.

    Raises:
        InvalidPlanInput: files cannot be read, or their timestamps cannot be determined.
    """
    unbounded = np.flatnonzero(~files.bounded)
    keep = np.ones(len(files), np.bool_)
    missing = _Missing()
    without_timestamp = 0
    for row, footer in zip(
        unbounded.tolist(), read_footers(files, unbounded.tolist()), strict=True
    ):
        if isinstance(footer, Unreadable):
            missing.unreadable.append(footer)
            continue
        files.rows[row] = sum(group.rows for group in footer)
        if all(group.empty for group in footer):
            keep[row] = False
            without_timestamp += sum(group.rows for group in footer)
        elif not _take(files, row, footer):
            missing.without_statistics.append(files.path[row].as_py())
    _refuse(files, where, missing)
    later_us = files.lower_us[keep & (files.lower_us >= end_us)]
    keep &= (files.lower_us < end_us) & (files.upper_us >= start_us)
    files.keep(keep)
    return Filled(len(unbounded), without_timestamp, later_us)


def unreadable_files(
    files: SourceFiles, where: str, unreadable: Sequence[Unreadable]
) -> InvalidPlanInput:
    """The error for data files that cannot be opened or parsed."""
    unavailable = all(each.unavailable for each in unreadable)
    return InvalidPlanInput(
        Problem(
            f"{where}.table",
            f"{count(len(unreadable), 'data file')} of {files.source.table} cannot be read; the"
            f" first: {unreadable[0].reason}",
            unreadable[0].fix
            or "check the store's credentials and the file; if it is lost, remove it from the table"
            " or choose another snapshot",
            may_pass=unavailable,
            unavailable=unavailable,
        )
    )


def _take(files: SourceFiles, row: int, footer: Sequence[RowGroup]) -> bool:
    """Sets one file's bounds by its footer or its partition; returns False if neither has them."""
    groups = [group for group in footer if not group.empty]
    lowers = [group.lower_us for group in groups if group.lower_us is not None]
    uppers = [group.upper_us for group in groups if group.upper_us is not None]
    files.nulls[row] = (
        UNKNOWN
        if any(group.nulls == UNKNOWN for group in footer)
        else sum(group.nulls for group in footer)
    )
    if len(lowers) == len(uppers) == len(groups):
        files.lower_us[row], files.upper_us[row] = min(lowers), max(uppers)
        return True
    span = files.partitions[files.partition[row]].range_us
    if span is None:
        return False
    files.lower_us[row], files.upper_us[row] = span
    return True


def _refuse(files: SourceFiles, where: str, missing: _Missing) -> None:
    if missing.unreadable:
        raise unreadable_files(files, where, missing.unreadable)
    if missing.without_statistics:
        without = missing.without_statistics
        column, table = files.source.timestamp_column, files.source.table
        lacking = "has" if len(without) == 1 else "have"
        raise InvalidPlanInput(
            Problem(
                f"{where}.timestampColumn",
                f"{count(len(without), 'data file')} of {table} {lacking} no statistics of column"
                f" {column}, neither in the manifest nor in the footer; the first: {without[0]}",
                f"set the table property write.metadata.metrics.column.{column}=full"
                " and rewrite these files",
            )
        )
