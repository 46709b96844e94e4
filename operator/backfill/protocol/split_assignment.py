"""The SplitAssignment: what the controller has released to a driver,
and what the driver has committed.

The controller writes ``spec`` and the driver writes ``status``. Neither waits for the other, and
either may be read late, twice or not at all, so within an attempt both only ever advance.
"""

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field

from backfill.api.backfill import ObjectMeta
from backfill.api.base import Message, Model
from backfill.api.field_types import InputName, Name, PlanId
from backfill.api.quantities import Time
from backfill.api.spec import MOST_OUTPUTS, MOST_SOURCES
from backfill.api.status import ChangingMode, Comparison, DriverWarning, ExecutionReason, HowRun
from backfill.protocol.bounded_fields import Count, QueryName, Seconds
from backfill.protocol.hand_off_messages import HandOffReport, LiveReport

ASSIGNMENT_FILE = "assignment.json"
"""File with the spec, in the channel's directory of a run on one machine."""
DRIVER_MANAGER = "backfill-driver"
"""Field manager of the status, on a cluster."""
STATUS_FILE = "status.json"
"""File with the status, in the channel's directory of a run on one machine."""
LOCK_FILE = "controller.lock"
"""File in the channel's directory that a running
controller holds a lock (``flock``) on, on one machine.
"""
FAILED_ON_ROWS = "FailedOnRows"
"""Reason of a driver whose program raised an error that comes from the rows or from itself, and not
from a server.
"""


class SplitAssignmentSpec(Model):
    """How far the driver may read. Written by the controller only."""

    backfill: Name
    """Name of the Backfill."""
    plan_id: PlanId
    """ID of the plan whose steps are counted."""
    attempt: Annotated[int, Field(ge=1)]
    """Number of the attempt that the assignment is for. Drivers of other attempts must stop."""
    steps: Annotated[int, Field(ge=0)]
    """Number of steps in the plan. Offset ``steps + 1`` is the flush, a micro-batch without rows
    that lets the final watermark take effect.
    """
    released: Annotated[int, Field(ge=0)] = 0
    """Number of steps that may be read. It never decreases within an attempt; a new attempt starts
    from the committed steps.
    """
    released_ahead: Annotated[int, Field(ge=0)] = 0
    """Number of steps that queries in ``Batch`` execution may read, if it is greater than
    ``released``. It never decreases within an attempt.
    """
    watermark: Time
    """Global watermark that both numbers were computed from."""
    executor_target: int | None = None
    """Desired number of executors; null leaves it to the driver."""
    stop: bool = False
    """Whether the driver must commit the steps in progress and exit."""


class SourceProgress(Model):
    """Progress of one source within one query."""

    name: InputName
    """Name of the source."""
    committed: Count = 0
    """Number of committed steps; ``steps + 1`` after the flush."""
    rows: Count = 0
    """Number of rows read by committed steps."""


class QueryProgress(Model):
    """Progress of one streaming query of the application."""

    name: QueryName
    """Name of the query."""
    output: QueryName | None = None
    """Name of the output that the query writes."""
    sources: Annotated[tuple[SourceProgress, ...], Field(max_length=MOST_SOURCES)] = ()
    """Progress of each source that the query reads."""
    late_rows: Count = 0
    """Number of rows that the query's watermark dropped as late."""
    arrived_late: Count = 0
    """Number of rows that arrived so late that a stream would certainly have dropped them. Counted
    for queries in ``Batch`` execution, whose results include such rows if a span has read them.
    """
    open_at_end: Count | None = None
    """Number of results of the window that were still in state after the flush; null if unknown."""
    open_from: Time | None = None
    """Time of the earliest result that was still open."""
    needed_drain_seconds: Annotated[float, Field(ge=0, le=10**12)] | None = None
    """A ``window.drain`` longer than this, in seconds,
    would have closed the open results; null if unknown.
    """
    open_unknown: Annotated[str, Field(max_length=512)] = ""
    """Why the number of open results is unknown."""
    by_clock: Annotated[str, Field(max_length=128)] = ""
    """Where the query selects, joins or groups rows by the current time; empty if it does not."""
    warnings: DriverWarning = ""
    """What may be wrong in the query's result without being noticed; empty if nothing is known."""
    execution: HowRun | None = None
    """How the query runs: ``Streaming`` or ``Batch``."""
    execution_reason: ExecutionReason = ""
    """Why the query runs as ``Streaming`` although ``Batch`` is allowed; otherwise empty."""
    output_mode: ChangingMode | None = None
    """Output mode of a streaming query that changes rows it has written; unset for others."""
    look_back_seconds: Seconds | None = None
    """Maximum time by which rows that a result depends on can precede it, in seconds of event time;
    unset if there is no bound or if it is unknown.
    """
    look_ahead_seconds: Seconds | None = None
    """Maximum time after a result within which rows can arrive that it depends on or, in
    ``Streaming`` execution, that close it, in seconds; unset if there is no bound or if it is
    unknown.
    """


def of_output(queries: Iterable[QueryProgress], output: str) -> QueryProgress | None:
    """The progress of all queries that write an output, as if they were one, without their late
    rows; None if there is none.
    """
    found = [query for query in queries if query.output == output]
    if len(found) < 2:
        return next(iter(found), None)
    numbers = [query.open_at_end for query in found]
    drains = [query.needed_drain_seconds for query in found if query.open_at_end != 0]
    said = {
        field: next(filter(None, (getattr(query, field) for query in found)), None)
        for field in ("by_clock", "open_unknown", "output_mode", "warnings")
    }
    return found[0].model_copy(
        update={
            "open_at_end": None if None in numbers else sum(filter(None, numbers)),
            "open_from": min(filter(None, (query.open_from for query in found)), default=None),
            "needed_drain_seconds": None
            if None in drains
            else max(filter(None, drains), default=0.0),
            **{field: known for field, known in said.items() if known is not None},
        }
    )


class OutputComparison(Comparison):
    """How the result of an output compares with production, or with its reference."""

    output: InputName
    """Name of the output."""


class OutputDelivery(Model):
    """How far the rows of an output are delivered."""

    output: InputName
    """Name of the output."""
    batches: Count = 0
    """Number of staged batches that have rows."""
    delivered: Count = 0
    """Number of batches that were delivered or skipped."""
    rows: Count = 0
    """Number of rows in delivered batches."""
    last_batch: Count | None = None
    """Number of the last batch that was delivered or skipped."""
    done: bool = False
    """Whether all of them were."""


class SplitAssignmentStatus(Model):
    """Progress of the driver. Written by the driver only."""

    attempt: int
    """Number of the attempt that reports."""
    phase: Literal["Starting", "Running", "Finished", "Stopped", "Failed"] = "Starting"
    """``Starting``: not all queries are known yet.
    ``Running``: queries are running. ``Finished``: every query has committed the flush.
    ``Stopped``: ended on request. ``Failed``: ended by an error.
    """
    queries: Annotated[tuple[QueryProgress, ...], Field(max_length=64)] = ()
    """Progress of each query. Complete once ``phase`` is no longer ``Starting``."""
    waiting_sources: Annotated[tuple[InputName, ...], Field(max_length=MOST_SOURCES)] = ()
    """Sources that only queries read which the application starts after others have ended. They do
    not hold the watermark.
    """
    comparing: Annotated[str, Field(max_length=63)] = ""
    """Output whose result is being compared; otherwise empty."""
    comparisons: Annotated[tuple[OutputComparison, ...], Field(max_length=MOST_OUTPUTS)] = ()
    """Results that were compared, after all queries have committed the flush."""
    deliveries: Annotated[tuple[OutputDelivery, ...], Field(max_length=MOST_OUTPUTS)] = ()
    """How far rows are delivered to the application's own sinks."""
    executors: Annotated[int, Field(ge=0, le=10**6)] = 0
    """Number of running executors; a run on one machine counts as one."""
    heartbeat: Time
    """When the driver last reported."""
    processing_seconds: Annotated[float, Field(ge=0, le=10**12)] = 0.0
    """Time that this attempt has spent in micro-batches, in seconds."""
    max_observed_misalignment_seconds: Annotated[float, Field(ge=-(10**12), le=10**12)] | None = (
        None
    )
    """Greatest observed misalignment, in seconds: how far ahead of the global watermark a stream
    has read a row.
    """
    reads_ahead_steps: Count = 0
    """Number of steps after the last committed one that queries in ``Batch`` execution read
    concurrently.
    """
    tasks_percent: Annotated[int, Field(ge=0, le=100)] | None = None
    """How many of the tasks of Spark's stages in progress have ended, as a percentage in tens,
    while queries in ``Batch`` execution read; null if unknown.
    """
    hand_off: HandOffReport | None = None
    """The hand-off of the state to live Kafka, once it has begun; null without ``spec.handOff``."""
    live: LiveReport | None = None
    """What the live application reports. Written by its driver, after the last attempt."""
    reason: Annotated[str, Field(max_length=64)] = ""
    """Reason for a failure, as one CamelCase word. ``UnsupportedProgram`` and ``InvalidInput`` are
    not retried.
    """
    message: Message = ""
    """Why the driver failed or, while ``Starting``, what it waits for."""

    @property
    def each_query(self) -> tuple[QueryProgress, ...]:
        """Progress of each query, once: ``queries`` has one with a function of ``foreachBatch`` for
        each output that it writes.
        """
        first: dict[str, QueryProgress] = {}
        for query in self.queries:
            first.setdefault(query.name, query)
        return tuple(first.values())

    @property
    def has_spans(self) -> bool:
        """Whether a query runs as batch jobs."""
        return any(query.execution == "Batch" for query in self.queries)


class SplitAssignment(Model):
    """Internal: messages between the controller and the driver of a Backfill."""

    api_version: Literal["backfill.dev/v1alpha1"] = "backfill.dev/v1alpha1"
    """API version of the resource."""
    kind: Literal["SplitAssignment"] = "SplitAssignment"
    """Kind of the resource."""
    metadata: ObjectMeta
    """Standard object metadata. The object has the name and namespace of the Backfill, which owns
    it.
    """
    spec: SplitAssignmentSpec
    """How far the driver may read. Written by the controller."""
    status: SplitAssignmentStatus | None = None
    """Progress of the driver. Written by the driver."""
