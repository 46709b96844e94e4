"""Extends a plan: its steps, and more of them for the rows that its tables have got since.

What was read stays as it was read. So a plan is extended only if its tables have got new rows by
appends alone, and if all of these come after the rows of the plan: by their Kafka offsets, and in
the order that the plan promises. Otherwise nothing is lost: live traffic has these rows.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backfill.api.errors import BackfillError, NotExtended
from backfill.api.quantities import count, format_duration, to_us
from backfill.api.spec import BackfillSpec, OrderingPolicy
from backfill.iceberg.open_tables import Catalogs
from backfill.planning.divide_into_steps import lay_out
from backfill.planning.duplicate_records import (
    FEW_GAPS,
    MOST_CHUNKS,
    SeenOffsets,
    kafka_positions,
    without_duplicates,
)
from backfill.planning.metadata.appended_files import appends, changes_since, with_all_appended
from backfill.planning.metadata.pinning import PinnedTable, pin
from backfill.planning.metadata.snapshot_protection import protect
from backfill.planning.missing_offsets import MARKERS, in_words
from backfill.planning.ordering_policies import check_promises
from backfill.planning.partition_files import Gap
from backfill.planning.plan import (
    HEADER_FILE,
    PlanHeader,
    PlanInputs,
    PlanSplits,
    Proof,
    SourceInput,
    SourceTotals,
    plan_directory,
    read_header,
    splits_schema,
    write_plan,
)
from backfill.planning.plan_proof import prove
from backfill.planning.planner import source_field, tags_of
from backfill.planning.planning_progress import PlanningProgress
from backfill.planning.recorded_offsets import offsets_file, read_offsets, starts_file
from backfill.planning.source_metadata import newest_us, read_sources
from backfill.planning.workspace import Workspace


def extend_plan(
    spec: BackfillSpec,
    header: PlanHeader,
    workspace: Workspace,
    kept: Workspace,
    *,
    owner: str,
    on_progress: Callable[[PlanningProgress], None],
) -> PlanHeader:
    """Writes a plan that extends another one, and returns its header.

    The last step of the plan, at least, must not have been read. The same tables give the same
    plan. ``kept`` is where the driver keeps the offsets after the rows of the plan; ``owner`` names
    the Backfill, as :func:`~backfill.planning.planner.owner_of` does.

    Raises:
        NotExtended: there are no newer rows, or they cannot follow.
        InvalidPlanInput: a table cannot be read.
    """
    catalogs = Catalogs()
    pinned = [
        _newer(catalogs, spec, number, source)
        for number, source in enumerate(header.inputs.sources)
    ]
    before = header.inputs
    inputs = before.model_copy(
        update={"sources": tuple(table.source for table in pinned), "extends": before}
    )
    if inputs.sources == before.sources:
        raise NotExtended("the tables have no newer snapshots")
    read = read_sources(inputs.ending_at(to_us(spec.window.end)), pinned, on_progress)
    if not any(len(files) for files in read.files) or newest_us(read) < before.end_us:
        raise NotExtended("the tables have no newer rows")
    for files, rows in zip(read.files, read.without_timestamp, strict=True):
        if rows:  # live traffic has them
            raise NotExtended(
                f"an extension would leave out {count(rows, 'row')} without"
                f" {files.source.timestamp_column} appended to {files.source.table}"
            )
    inputs = inputs.ending_at(newest_us(read) + 1)
    directory = plan_directory(workspace, inputs.own_id())
    if not directory.exists(HEADER_FILE):
        more, splits = without_duplicates(*lay_out(read, inputs), pinned)
        for table in pinned:
            name = table.source.name
            after_plan = _recorded(kept, offsets_file(before.own_id(), name), name)
            starts = _recorded(kept, starts_file(before.plan_id(), name), name)
            _check_offsets(table, splits, after_plan, starts or {})
        extended = _extended(header, _splits(workspace, header), more, splits)
        _protect(spec, pinned, header, owner)
        write_plan(workspace, extended.header, [extended.splits])
    return read_header(directory)


def _recorded(kept: Workspace, file: str, source: str) -> dict[int, int] | None:
    """Offsets of a source, as a driver has recorded them; None if it has not."""
    try:
        return read_offsets(kept, file)
    except (ValueError, AttributeError, TypeError) as error:  # a driver is not trusted
        raise NotExtended(f"it is unknown which Kafka offsets of {source} were read") from error


def _newer(catalogs: Catalogs, spec: BackfillSpec, number: int, source: SourceInput) -> PinnedTable:
    """A table at its newest snapshot, and what was appended since that of the plan."""
    wish = spec.sources[number]
    if not wish.kafka.identifies_records or wish.snapshot.is_chosen:
        raise NotExtended(f"source {wish.name} has no Kafka offsets, or sets a snapshot")
    found = pin(catalogs, wish, source_field(number))
    if found.source.model_copy(update={"snapshot_id": source.snapshot_id}) != source:
        raise NotExtended(f"the schema of {source.table} has changed, or the table was recreated")
    changes = changes_since(found.table, source.snapshot_id, found.snapshot)
    appended = appends(found.table, changes)
    if not appended:  # compacted at most: what the plan reads is still pinned
        return replace(found, source=source, appends=())
    return replace(found, appends=appended)


def _protect(spec: BackfillSpec, pinned: list[PinnedTable], header: PlanHeader, owner: str) -> None:
    for number, (table, before) in enumerate(zip(pinned, header.inputs.sources, strict=True)):
        if not spec.sources[number].snapshot.protect:
            continue
        changes = changes_since(table.table, before.snapshot_id, table.snapshot)
        needed = {each.snapshot_id for each in with_all_appended(changes)}
        needed.add(table.source.snapshot_id)  # attempts look for it, also if it has only compacted
        for each in sorted(needed - {before.snapshot_id}):
            held = before.model_copy(update={"snapshot_id": each})
            tag = f"{tags_of(owner)}{before.name}/{each}"
            protect(held, tag, source_field(number))


def _check_offsets(
    table: PinnedTable,
    splits: pa.Table,
    after_plan: Mapping[int, int] | None,
    starts: Mapping[int, int],
) -> None:
    """Checks that all rows come after those of the plan in their Kafka partition, and that none is
    there twice: then each is read once. Also checks that they follow without a gap: live traffic
    would not read what is in it. Where offsets are left out everywhere, as in compacted topics, a
    gap cannot be seen.

    ``starts`` are the first offsets of partitions without rows in the plan. Others are new.
    """
    name, seen, known = table.source.table, SeenOffsets(), set[int]()
    if after_plan is None:
        raise NotExtended(f"it is unknown which Kafka offsets of {name} were read")
    for partitions, offsets in kafka_positions(table, splits):
        if partitions.null_count or offsets.null_count:
            raise NotExtended(f"rows were appended to {name} without a Kafka partition or offset")
        rows = pa.table({"partition": partitions, "offset": offsets}).group_by("partition")
        for row in rows.aggregate([("offset", "min")]).to_pylist():
            partition, first = row["partition"], row["offset_min"]
            if first < after_plan.get(partition, 0):
                raise NotExtended(
                    f"a row with offset {first} of Kafka partition {partition} was appended to"
                    f" {name}, but history already contains rows up to offset"
                    f" {after_plan[partition] - 1}"
                )
            known.add(partition)
        new = seen.first(partitions.to_numpy(), offsets.to_numpy())
        if not new.all():
            place = int(new.argmin())
            raise NotExtended(
                f"rows were appended to {name} twice, such as the one with offset {offsets[place]}"
                f" of Kafka partition {partitions[place]}"
            )
    if seen.partial > MOST_CHUNKS:
        raise NotExtended(
            f"the Kafka offsets of the rows appended to {name} are too far apart to find duplicates"
        )
    for partition in sorted(known):
        due = after_plan.get(partition, starts.get(partition, 0))
        gaps = tuple(Gap(partition, *each) for each in seen.gaps(partition, due, MARKERS))
        if 0 < len(gaps) <= FEW_GAPS:
            missing = "; ".join(in_words(gaps))
            raise NotExtended(
                f"rows are missing among those appended to {name}, or between them and the rows"
                f" already read: {missing}"
            )


def _splits(workspace: Workspace, header: PlanHeader) -> pa.Table:
    directory = plan_directory(workspace, header.inputs.own_id())
    return PlanSplits(directory, header).table()


@dataclass(frozen=True)
class _Extended:
    header: PlanHeader
    splits: pa.Table


def _extended(
    header: PlanHeader, splits: pa.Table, more: PlanHeader, more_splits: pa.Table
) -> _Extended:
    """Both plans as one. Steps of the second one that begin before the end of the first are one
    step: rows that are late are read at once.
    """
    inputs = more.inputs
    floor = max(header.step_ends_us[-1], header.step_starts_us[-1] + 1)
    late = max(bisect_right(more.step_starts_us, floor), 1)
    if late > 1 and inputs.policy is OrderingPolicy.STRICT:
        raise NotExtended("rows were appended that arrived before the end of history")
    start = max(more.step_starts_us[0], floor)
    end = max(more.step_ends_us[late - 1], start + 1)
    starts = (*header.step_starts_us, start, *more.step_starts_us[late:])
    ends = (*header.step_ends_us, end, *more.step_ends_us[late:])
    moved = np.maximum(more_splits["step"].to_numpy() - (late - 1), 0) + header.steps
    column = more_splits.schema.get_field_index("step")
    moved_splits = more_splits.set_column(
        column, splits_schema().field("step"), pa.array(moved, pa.int32())
    )
    together = pa.concat_tables(
        [splits.cast(splits_schema()), _sorted(moved_splits, inputs).cast(splits_schema())]
    )
    proof = prove(together, starts, ends, inputs.max_misalignment_us)
    _check_promises(proof, inputs)
    totals = zip(header.sources, more.sources, strict=True)
    return _Extended(
        header.model_copy(
            update={
                "inputs": inputs,
                "step_starts_us": starts,
                "step_ends_us": ends,
                "sources": tuple(_both(one, other, late) for one, other in totals),
                "proof": proof,
                "warnings": tuple(dict.fromkeys((*header.warnings, *more.warnings))),
            }
        ),
        together,
    )


def _check_promises(proof: Proof, inputs: PlanInputs) -> None:
    exact = inputs.policy is OrderingPolicy.EXACT
    allowed_us = 0 if exact else inputs.allowed_lateness_us
    if proof.greatest_disorder_us > allowed_us:
        early, allowed = (
            format_duration(timedelta(seconds=-(-each // 1_000_000)))
            for each in (proof.greatest_disorder_us, allowed_us)
        )
        raise NotExtended(
            f"rows of the appended files may have arrived up to {early} before rows that were"
            f" already read, but ordering allows only {allowed}"
        )
    try:
        check_promises(proof, inputs)
    except BackfillError as error:
        raise NotExtended(str(error)) from error


def _sorted(splits: pa.Table, inputs: PlanInputs) -> pa.Table:
    """Splits by step, source (in the order of the resource) and path."""
    names = pa.array([source.name for source in inputs.sources])
    keys = pa.table(
        {
            "step": splits["step"],
            "source": pc.index_in(splits["source"].cast(pa.string()), names),
            "path": splits["path"],
        }
    )
    order = [(name, "ascending") for name in keys.column_names]
    return splits.take(pc.sort_indices(keys, order))


def _both(one: SourceTotals, other: SourceTotals, late: int) -> SourceTotals:
    """Totals of both plans, in which the first steps of the second one are one step."""
    lower = [each.lower_us for each in (one, other) if each.lower_us is not None]
    upper = [each.upper_us for each in (one, other) if each.upper_us is not None]
    return SourceTotals(
        name=one.name,
        files=one.files + other.files,
        splits=one.splits + other.splits,
        rows=one.rows + other.rows,
        bytes=one.bytes + other.bytes,
        wide_files=one.wide_files + other.wide_files,
        files_without_bounds=one.files_without_bounds + other.files_without_bounds,
        lower_us=min(lower, default=None),
        upper_us=max(upper, default=None),
        input=one.input,
        step_rows=_appended(one.step_rows, other.step_rows, late),
        step_bytes=_appended(one.step_bytes, other.step_bytes, late),
    )


def _appended(one: Sequence[int], other: Sequence[int], late: int) -> tuple[int, ...]:
    return (*one, sum(other[:late]), *other[late:])
