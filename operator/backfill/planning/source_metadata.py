"""Reads the metadata of all sources: the files that may hold rows of the range, and the bounds of
their timestamps.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backfill.api.errors import InvalidPlanInput, Problem
from backfill.api.quantities import count
from backfill.iceberg.timestamp_units import describe_us
from backfill.planning.file_bounds import fill_bounds
from backfill.planning.metadata.ingestion_watermark import ingested, latest_us, written_us
from backfill.planning.metadata.manifests import CALENDAR_US, ManifestScan
from backfill.planning.metadata.pinning import PinnedTable
from backfill.planning.missing_offsets import NOTHING, check_offsets
from backfill.planning.newest_rows import DAY_US, newest_before
from backfill.planning.plan import InputCheck, PlanInputs
from backfill.planning.planning_progress import PlanningProgress
from backfill.planning.source_completeness import OtherFiles, check_input, check_live_input
from backfill.planning.source_files import UNKNOWN, SourceFiles


@dataclass
class ReadSources:
    """Files of all sources, in the order of the resource, with warnings about them."""

    files: list[SourceFiles]
    fields: list[str]
    """Path of each source in the resource."""
    files_without_bounds: list[int]
    warnings: list[str]
    checks: list[InputCheck]
    """Whether each source has everything that arrived in the range."""
    without_timestamp: list[int]
    """Number of rows of each source without a timestamp, in the files that were looked at."""
    newest_us: list[int] = field(default_factory=list)
    """Timestamp of the newest row of each source that has rows, for ``window.end: Live``."""


def read_sources(
    inputs: PlanInputs,
    pinned: Sequence[PinnedTable],
    on_progress: Callable[[PlanningProgress], None],
) -> ReadSources:
    """Reads the metadata of all sources.

    Raises:
        InvalidPlanInput: with the problems of all sources.
    """
    read, problems = _read_each(inputs, pinned, on_progress)
    if problems:
        raise InvalidPlanInput(problems)
    return read


def refuse_empty(read: ReadSources, inputs: PlanInputs, pinned: Sequence[PinnedTable]) -> None:
    """Checks that there is something to read.

    Raises:
        InvalidPlanInput: no source has rows in the range.
    """
    if not any(len(files) for files in read.files):
        raise InvalidPlanInput([_nothing_to_read(table, inputs) for table in pinned])


def newest_us(read: ReadSources) -> int:
    """Timestamp of the newest row of all sources, which must have some. The window must end
    ``Live``.
    """
    return max(read.newest_us)


def problems_of_files(
    inputs: PlanInputs,
    pinned: Sequence[PinnedTable],
    on_progress: Callable[[PlanningProgress], None],
) -> list[Problem]:
    """Problems of these sources' files, if the plan cannot be made because of other sources."""
    return _read_each(inputs, pinned, on_progress)[1]


def _read_each(
    inputs: PlanInputs,
    pinned: Sequence[PinnedTable],
    on_progress: Callable[[PlanningProgress], None],
) -> tuple[ReadSources, list[Problem]]:
    read = ReadSources([], [], [], [], [], [])
    problems: list[Problem] = []
    for table in pinned:
        try:
            _read_source(inputs, table, read, on_progress)
        except InvalidPlanInput as error:
            problems += error.problems
    return read, problems


def _read_source(
    inputs: PlanInputs,
    table: PinnedTable,
    read: ReadSources,
    on_progress: Callable[[PlanningProgress], None],
) -> None:
    name, start, end = table.source.name, inputs.read_start_us, inputs.read_end_us
    scan = ManifestScan(
        table,
        start,
        end,
        lambda done, all_, files: on_progress(PlanningProgress(name, done, all_, files)),
    )
    files = scan.read()
    miscounted = files.path.filter(pa.array(files.rows == UNKNOWN))
    filled = fill_bounds(files, table.field, start, end)
    source = table.source
    if table.left_out:
        read.warnings.append(
            f"source {name}: {source.table} is read without {', '.join(table.left_out)}, since"
            " columns of type variant cannot be passed on"
        )
    committed_us = written_us(table.table.metadata, table.snapshot)
    if inputs.live:
        newest, notes = newest_before(files, table.field, latest_us(committed_us, source) + DAY_US)
        read.warnings += notes
        if newest is not None:
            read.newest_us.append(newest)
            end = newest + 1
    unbounded = filled.unbounded
    read.files.append(files)
    read.fields.append(table.field)
    read.files_without_bounds.append(unbounded)
    without_timestamp = filled.without_timestamp + scan.without_timestamp
    without_timestamp += int(files.nulls[files.nulls != UNKNOWN].sum())
    read.without_timestamp.append(without_timestamp)
    through, why_not = ingested(table.table.metadata, table.snapshot, table.source)
    filtered = source.row_filter is not None or source.regions is not None
    offsets = (
        NOTHING
        if files.offset_bounds is None or filtered  # other rows have the offsets between
        else check_offsets(
            files.offset_bounds,
            np.stack([files.lower_us, files.upper_us]),
            scan.offset_bounds,
            scan.offsets_near,
            (start, end),
            dropped=bool(source.drop_duplicates),
        )
    )
    goes_on = bool((filled.later_us < latest_us(committed_us, source)).any())
    around = OtherFiles(
        lambda: goes_on or scan.rows_after(), through, why_not, offsets, committed_us
    )
    check = (check_live_input if inputs.live else check_input)(
        files, inputs.ending_at(end) if inputs.live else inputs, around
    )
    read.checks.append(check)
    if len(files) or table.appends is None:  # nothing need have been appended
        read.warnings += _warnings(files, inputs, unbounded - len(miscounted), without_timestamp)
        with_rows = miscounted.filter(pc.is_in(miscounted, files.path))
        if len(with_rows):
            read.warnings.append(
                f"source {name}: reads {count(len(with_rows), 'file')} with rows of which the"
                f" manifest says that there are none, or an impossible number, such as"
                f" {with_rows[0].as_py()}; rewrite_data_files corrects it"
            )


def _warnings(
    files: SourceFiles, inputs: PlanInputs, unbounded: int, without_timestamp: int
) -> list[str]:
    name, table, column = files.source.name, files.source.table, files.source.timestamp_column
    warnings = []
    if not len(files):
        warnings.append(f"source {name}: {table} has no rows {_range(inputs)}")
    if without_timestamp:
        warnings.append(
            f"source {name}: ignores {count(without_timestamp, 'row')} without {column} in the"
            " files that were checked"
        )
    by_value = np.array([any(each.equality for each in some) for some in files.delete_sets])
    if number := int(by_value[files.deletes].sum()):
        warnings.append(
            f"source {name}: may leave out rows of {count(number, 'file')}, because upserts deleted"
            " or replaced them later; set deletes: Ignore to read them, as the topic had them"
        )
    if unbounded and files.column.key is not None:
        warnings.append(
            f"source {name}: read {column} in {count(unbounded, 'file')}, because tables have no"
            " bounds of one key of a map; planning is faster with a column of its own"
        )
    elif unbounded:
        warnings.append(
            f"source {name}: read the footers of {count(unbounded, 'file')}, because the"
            f" manifests have no bounds of {column}; planning is faster with the table property"
            f" write.metadata.metrics.column.{column}=full"
        )
    return warnings


def _range(inputs: PlanInputs) -> str:
    """What is read, in words."""
    start, end = describe_us(inputs.read_start_us), describe_us(inputs.read_end_us)
    return f"from {start} on" if inputs.live else f"from {start} to {end}"


def _nothing_to_read(table: PinnedTable, inputs: PlanInputs) -> Problem:
    source = table.source
    with_deleted = replace(table, source=source.model_copy(update={"keep_deleted": True}))
    everything = ManifestScan(with_deleted, -CALENDAR_US, CALENDAR_US).read()
    message = (
        f"{source.table} has no rows with {source.timestamp_column} {_range(inputs)}"
        + (f" and {source.row_filter}" if source.row_filter else "")
        + (f" and {source.region_column} in {', '.join(source.regions)}" if source.regions else "")
    )
    known, fix = everything.bounded, "check window, filter, snapshot and timestampUnit"
    if len(everything) and known.any():
        lower, upper = int(everything.lower_us[known].min()), int(everything.upper_us[known].max())
        fix = f"its snapshot contains rows from {describe_us(lower)} to {describe_us(upper)}: {fix}"
    return Problem(f"{table.field}.table", message, fix)
