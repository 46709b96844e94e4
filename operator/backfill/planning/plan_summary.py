"""A plan for people, before anything runs:
how much is read, how skewed it is, how long it takes.
"""

from collections.abc import Sequence
from datetime import datetime

from backfill.api.base import Model, printable
from backfill.api.quantities import Time, from_us
from backfill.planning.plan import TASK_BYTES_PER_SECOND, PlanHeader, SourceTotals

STEP_OVERHEAD_SECONDS = 0.3
"""Overhead of a micro-batch besides reading its rows: planning, log, state and commit."""
_US_PER_SECOND = 1_000_000


class SourceSummary(Model):
    """What the plan reads of one source."""

    name: str
    """Name of the source."""
    table: str
    """Table of the source."""
    snapshot_id: int
    """ID of the snapshot that is read."""
    files: int
    """Number of distinct files."""
    rows: int
    """Number of rows by the files' metadata."""
    bytes: int
    """Compressed bytes."""
    first: Time | None
    """Least timestamp that is read, by the bounds; null for a source without rows."""
    last: Time | None
    """Greatest timestamp that is read, by the bounds; null for a source without rows."""
    wide_files: int
    """Number of files of which several steps read a part."""
    files_without_bounds: int
    """Number of files without bounds in the manifest,
    for which the footer or the partition was used.
    """
    complete: bool | None
    """Whether the snapshot has everything that arrived in what is read; null if unknown."""
    completeness: tuple[str, ...]
    """What is missing, why that is unknown, or what shows that nothing is."""


class StaticSummary(Model):
    """A table that is read as it is at one time."""

    table: str
    """Name of the table."""
    snapshot_id: int
    """ID of the snapshot that is read."""


class StepsSummary(Model):
    """Steps of a plan."""

    count: int
    """Number of steps."""
    longest_seconds: float
    """Longest time that a step spans."""
    most_rows: int
    """Number of rows of the step with the most."""
    most_bytes: int
    """Compressed bytes of the step with the most."""


class MeasuredEstimate(Model):
    """What a run will take if its bytes take as long as those of earlier runs."""

    seconds: float
    """Duration, in seconds, with as many executors as the earlier runs had."""
    executor_seconds: float
    """Time of all executors, in seconds. A run on one machine counts as one executor."""
    backfills: tuple[str, ...]
    """Names of the earlier runs' Backfills, the latest first."""
    bytes_read: int
    """Compressed bytes that the earlier runs have read."""


class PlanSummary(Model):
    """A plan in a few figures."""

    plan_id: str
    """ID of the plan."""
    read_from: Time
    """Start of what is read."""
    read_to: Time
    """End of what is read (exclusive). For ``window.end: Live``, right after the newest row."""
    live: bool = False
    """Whether live traffic follows."""
    rows: int
    """Number of rows of all sources."""
    bytes: int
    """Compressed bytes of all sources."""
    sources: tuple[SourceSummary, ...]
    """Sources, in the order of the resource."""
    static_tables: tuple[StaticSummary, ...] = ()
    """Static tables, in the order of the resource."""
    rows_skew: float
    """Ratio of the rows of the source with the most to those of the source with the fewest, among
    those with rows.
    """
    bytes_skew: float
    """The same ratio for bytes."""
    steps: StepsSummary
    """Steps of the plan."""
    estimated_seconds: float
    """Estimated duration of the run, as far as reading determines it."""
    measured: MeasuredEstimate | None = None
    """Estimate by earlier Backfills of the same application; null without any."""
    greatest_disorder_seconds: float
    """Proved limit: by how much a row can be older than one of an earlier step."""
    greatest_misalignment_seconds: float
    """Proved limit: by how much a row can be ahead of the global watermark when it is read."""
    warnings: tuple[str, ...]
    """Warnings about the sources."""


def summarize(
    header: PlanHeader,
    now: datetime,
    *,
    bytes_per_second_per_task: float = TASK_BYTES_PER_SECOND,
    rows_per_second: int | None = None,
    measured: MeasuredEstimate | None = None,
) -> PlanSummary:
    """The summary of a plan, for a run with the number of tasks that it was planned for.

    Args:
        now: the time at which it is judged whether rows are missing.
        bytes_per_second_per_task: how fast a task reads.
        rows_per_second: the Backfill's limit for all tasks; None without one.
        measured: the estimate by earlier runs.
    """
    rate = bytes_per_second_per_task * header.inputs.parallelism
    step_bytes = _per_step([source.step_bytes for source in header.sources])
    step_rows = _per_step([source.step_rows for source in header.sources])
    read_seconds = [size / rate for size in step_bytes]
    if rows_per_second is not None:
        read_seconds = [
            max(seconds, rows / rows_per_second)
            for seconds, rows in zip(read_seconds, step_rows, strict=True)
        ]
    spans = [
        end - start for start, end in zip(header.step_starts_us, header.step_ends_us, strict=True)
    ]
    return PlanSummary(
        plan_id=printable(header.plan_id),
        read_from=from_us(header.inputs.read_start_us),
        read_to=from_us(header.inputs.read_end_us),
        live=bool(header.inputs.live),
        rows=header.rows,
        bytes=header.bytes,
        sources=tuple(
            _source(header, number, totals, now) for number, totals in enumerate(header.sources)
        ),
        static_tables=tuple(
            StaticSummary(table=printable(static.table), snapshot_id=static.snapshot_id)
            for static in header.inputs.static_tables
        ),
        rows_skew=_skew([source.rows for source in header.sources]),
        bytes_skew=_skew([source.bytes for source in header.sources]),
        steps=StepsSummary(
            count=header.steps,
            longest_seconds=max(spans, default=0) / _US_PER_SECOND,
            most_rows=max(step_rows, default=0),
            most_bytes=max(step_bytes, default=0),
        ),
        estimated_seconds=round(sum(STEP_OVERHEAD_SECONDS + each for each in read_seconds), 1),
        measured=measured,
        greatest_disorder_seconds=header.proof.greatest_disorder_us / _US_PER_SECOND,
        greatest_misalignment_seconds=header.proof.greatest_misalignment_us / _US_PER_SECOND,
        warnings=tuple(map(printable, header.warnings)),
    )


def _source(header: PlanHeader, number: int, totals: SourceTotals, now: datetime) -> SourceSummary:
    pinned = header.inputs.sources[number]
    check = totals.input.at(now, from_us(header.inputs.read_end_us))
    return SourceSummary(
        name=printable(totals.name),
        table=printable(pinned.table),
        snapshot_id=pinned.snapshot_id,
        files=totals.files,
        rows=totals.rows,
        bytes=totals.bytes,
        first=None if totals.lower_us is None else from_us(totals.lower_us),
        last=None if totals.upper_us is None else from_us(totals.upper_us),
        wide_files=totals.wide_files,
        files_without_bounds=totals.files_without_bounds,
        complete=check.complete,
        completeness=tuple(map(printable, check.reasons)),
    )


def _per_step(of_sources: list[Sequence[int]]) -> list[int]:
    return [sum(amounts) for amounts in zip(*of_sources, strict=True)]


def _skew(amounts: list[int]) -> float:
    present = [amount for amount in amounts if amount]
    return round(max(present) / min(present), 1) if present else 1.0
