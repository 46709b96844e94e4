"""Makes a plan: pins the tables, reads their metadata,
divides their files into steps, and writes the result.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

from pydantic import TypeAdapter

from backfill.api.errors import InputAwaited, InvalidPlanInput, Problem
from backfill.api.quantities import count, from_us, to_us
from backfill.api.spec import BackfillSpec, OrderingPolicy
from backfill.iceberg.open_tables import Catalogs
from backfill.planning.divide_into_steps import lay_out
from backfill.planning.duplicate_records import without_duplicates
from backfill.planning.metadata.manifests import open_file
from backfill.planning.metadata.pinning import PinnedTable, check_pinned, pin, pin_static
from backfill.planning.metadata.snapshot_protection import protect, unprotect
from backfill.planning.metadata.source_filter import columns_read
from backfill.planning.parquet_footers import Unreadable, unreadable_files
from backfill.planning.plan import (
    HEADER_FILE,
    TASK_BYTES_PER_SECOND,
    InputCheck,
    PlanHeader,
    PlanInputs,
    PlanSplits,
    StaticInput,
    files_of_source,
    plan_directory,
    read_header,
    write_plan,
)
from backfill.planning.planning_progress import PlanningProgress
from backfill.planning.source_metadata import (
    newest_us,
    problems_of_files,
    read_sources,
    refuse_empty,
)
from backfill.planning.strict_order import missing_columns
from backfill.planning.workspace import Workspace

STEP_SECONDS = 10
"""Target duration of a step where data is dense.
It is long compared with the overhead of a micro-batch, some tenths of a second, and short enough
that a step that is lost in a failure is soon read again.
"""

_CHECKS_FILE = "input.json"
"""Whether the input of a plan that was not made is complete, so that the same snapshots are read
only once.
"""
_CHECKS = TypeAdapter(list[InputCheck])

MOST_FILES_OPENED = 2_000
"""Most files that are opened. It takes a few seconds of small requests to an object store."""

_Result = TypeVar("_Result")


def make_plan(
    spec: BackfillSpec,
    workspace: Workspace,
    *,
    parallelism: int,
    on_progress: Callable[[PlanningProgress], None] | None = None,
    awaits_input: bool = False,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> PlanHeader:
    """Plans a Backfill, writes the plan's files below ``workspace`` and returns the header.

    The same tables and spec give the same plan, byte for byte. An existing plan is returned as it
    is.

    Args:
        parallelism: number of tasks that a step should have work for.
        on_progress: called after each manifest.
        awaits_input: whether to make no plan while rows are missing.
        clock: the time at which it is judged whether rows are missing.

    Raises:
        InputAwaited: rows are missing, and are waited for.
        InvalidPlanInput: with the problems of all sources and of the workspace together.
    """
    pinned, problems = _each(
        lambda catalogs, number: pin(catalogs, spec.sources[number], source_field(number)),
        len(spec.sources),
    )
    static, of_static = _each(
        lambda catalogs, number: pin_static(
            catalogs, spec.static_tables[number], spec.window.end, _static_field(number)
        ),
        len(spec.static_tables),
    )
    problems += [*of_static, *workspace.problems()]
    inputs = plan_inputs(spec, pinned, parallelism, static)
    report = on_progress or (lambda progress: None)
    if inputs.policy is OrderingPolicy.STRICT:
        problems += missing_columns(inputs.sources)
    if problems:
        raise InvalidPlanInput([*problems, *problems_of_files(inputs, pinned, report)])
    read = read_sources(inputs, pinned, report) if inputs.live else None
    if read is not None:  # only now it is known where the plan ends
        refuse_empty(read, inputs, pinned)
        inputs = inputs.ending_at(newest_us(read) + 1)
    directory = plan_directory(workspace, inputs.own_id())
    if directory.exists(HEADER_FILE):
        header = read_header(directory)
        if awaits_input:
            _refuse_incomplete([source.input for source in header.sources], inputs, clock())
        return header
    if awaits_input and (known := _known_checks(directory)):
        _refuse_incomplete(known, inputs, clock())
    read = read or read_sources(inputs, pinned, report)
    if awaits_input:
        directory.write_sealed(_CHECKS_FILE, _CHECKS.dump_json(read.checks, by_alias=True))
        _refuse_incomplete(read.checks, inputs, clock())
    refuse_empty(read, inputs, pinned)
    header, splits = without_duplicates(*lay_out(read, inputs), pinned)
    return read_header(write_plan(workspace, header, [splits]))


def _known_checks(directory: Workspace) -> list[InputCheck]:
    """What was found when these snapshots were last read; nothing if they must be read again."""
    try:
        return _CHECKS.validate_json(directory.read_sealed(_CHECKS_FILE))
    except (FileNotFoundError, ValueError):
        return []


def _refuse_incomplete(checks: Sequence[InputCheck], inputs: PlanInputs, now: datetime) -> None:
    read_end = from_us(inputs.read_end_us)
    problems = [
        Problem(f"{source_field(number)}.table", f"{source.table}: {missing}")
        for number, (source, check) in enumerate(zip(inputs.sources, checks, strict=True))
        for missing in check.at(now, read_end).awaited
    ]
    if problems:
        raise InputAwaited(problems)


def verify_snapshots(header: PlanHeader) -> None:
    """Checks that every table and snapshot of a plan still exists.

    Each attempt must do so before it starts.

    Raises:
        InvalidPlanInput: a table or snapshot no longer exists; names each and what to do.
    """
    sources, static = header.inputs.sources, header.inputs.static_tables
    _, problems = _each(
        lambda catalogs, number: check_pinned(catalogs, sources[number], source_field(number)),
        len(sources),
    )
    problems += _each(
        lambda catalogs, number: check_pinned(catalogs, static[number], _static_field(number)),
        len(static),
    )[1]
    if problems:
        raise InvalidPlanInput(problems)


def verify_files(header: PlanHeader, workspace: Workspace) -> tuple[str, ...]:
    """Checks the files of a plan, and opens the data files that it reads, so that a missing or
    damaged one is found before anything runs.

    In plans with more than :data:`MOST_FILES_OPENED` data files, those are found when their steps
    are read.

    Returns:
        Warnings about columns that do not fit the table in some files. Which columns the
            application uses is not known yet.

    Raises:
        PlanCorrupt: a file of the plan is damaged or missing.
        InvalidPlanInput: files cannot be read; names each.
    """
    splits = PlanSplits(plan_directory(workspace, header.inputs.own_id()), header)
    if sum(source.files for source in header.sources) > MOST_FILES_OPENED:
        return ()
    catalogs = Catalogs()
    problems: list[Problem] = []
    warnings: list[str] = []
    for number, source in enumerate(header.inputs.sources):
        field = f"{source_field(number)}.table"
        table = catalogs.load_source(source.table, field)
        files, schema = files_of_source(splits, source.name), table.schemas()[source.schema_id]
        found: list[Unreadable] = []
        unfit: list[Unreadable] = []
        for file in unreadable_files(
            partial(open_file, table.io),
            files,
            schema,
            columns_read(source, schema),
            table.name_mapping(),
        ):
            (unfit if file.if_used else found).append(file)
        if unfit:
            warnings.append(
                f"source {source.name}: {count(len(unfit), 'data file')} of {source.table} cannot"
                " be read by a query that uses a certain column; the first:"
                f" {unfit[0].reason}; {unfit[0].fix}"
            )
        fix = "restore the file, or read a snapshot without it"
        problems += [
            Problem(
                field,
                f"a data file of {source.table}, {file.reason}",
                file.fix or fix,
                may_pass=file.unavailable,
                unavailable=file.unavailable,
            )
            for file in found
        ]
    if problems:
        raise InvalidPlanInput(problems)
    return tuple(warnings)


def owner_of(namespace: str, name: str, kept_in: str) -> str:
    """Names a Backfill in tags. ``kept_in`` is the cluster or state directory that it is stored in:
    tags have no owner of their own, and one of the same name somewhere else has others.
    """
    place = f"@{hashlib.sha256(kept_in.encode()).hexdigest()[:8]}" if kept_in else ""
    return f"{namespace}/{name}{place}"


def protect_snapshots(spec: BackfillSpec, header: PlanHeader, owner: str) -> None:
    """Tags the snapshots of sources with ``protect``, so that they do not expire before
    :func:`release_snapshots`.

    ``owner`` names the Backfill, as :func:`owner_of` does.

    Raises:
        InvalidPlanInput: a table cannot be written.
    """
    for number, (wish, pinned) in enumerate(zip(spec.sources, header.inputs.sources, strict=True)):
        if wish.snapshot.protect:
            protect(pinned, f"{tags_of(owner)}{wish.name}", source_field(number))


def release_snapshots(tables: Iterable[str], owner: str) -> None:
    """Removes the tags of a Backfill from some tables. Those that no longer exist are skipped.

    Raises:
        BackfillError: other commits came first each time, or a catalog does not answer.
    """
    unprotect(tables, tags_of(owner))


def tags_of(owner: str) -> str:
    """Start of the tags of a Backfill."""
    return f"backfill/{owner}/"


def plan_inputs(
    spec: BackfillSpec,
    pinned: Sequence[PinnedTable],
    parallelism: int,
    static: Sequence[StaticInput] = (),
) -> PlanInputs:
    """Everything that determines the plan."""
    return PlanInputs(
        start_us=to_us(spec.window.start),
        end_us=to_us(spec.window.end),
        live=True if spec.window.live else None,
        warm_up_us=to_us(spec.window.warm_up),
        drain_us=to_us(spec.window.drain),
        policy=spec.ordering.policy,
        allowed_lateness_us=to_us(spec.ordering.allowed_lateness),
        max_misalignment_us=to_us(spec.max_misalignment),
        target_step_bytes=spec.planning.target_step_bytes
        or STEP_SECONDS * TASK_BYTES_PER_SECOND * parallelism,
        parallelism=parallelism,
        sources=tuple(table.source for table in pinned),
        static_tables=tuple(static),
    )


def source_field(number: int) -> str:
    """Path of a source in the resource."""
    return f"spec.sources[{number}]"


def _static_field(number: int) -> str:
    return f"spec.staticTables[{number}]"


def _each(
    work: Callable[[Catalogs, int], _Result], sources: int
) -> tuple[list[_Result], list[Problem]]:
    """Calls a function for each source, or each static table.

    Returns the results, and the problems of all of them together.
    """
    catalogs = Catalogs()
    results: list[_Result] = []
    problems: list[Problem] = []
    for number in range(sources):
        try:
            results.append(work(catalogs, number))
        except InvalidPlanInput as error:
            problems += error.problems
    return results, problems
