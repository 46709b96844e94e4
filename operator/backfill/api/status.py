"""The status of a Backfill: the observed state, written by the controller."""

from enum import StrEnum
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, field_validator

from backfill.api.base import Message, Model, printable, shortened
from backfill.api.conditions import Condition, ConditionType, Reason
from backfill.api.field_types import ColumnName, InputName, PlanId, TableName
from backfill.api.hand_off import HandOffStatus
from backfill.api.quantities import Time, count
from backfill.api.resolved import Resolved
from backfill.api.spec import MOST_OUTPUTS, MOST_SOURCES

HowRun = Literal["Streaming", "Batch"]
ChangingMode = Literal["update", "complete"]
MOST_REASON_CHARACTERS: Final = 512
MOST_WARNING_CHARACTERS: Final = 1024
ExecutionReason = Annotated[
    str, BeforeValidator(shortened), Field(max_length=MOST_REASON_CHARACTERS)
]
"""Text of a driver, which is shown to people: what steers a terminal is escaped."""
DriverWarning = Annotated[
    str, BeforeValidator(shortened), Field(max_length=MOST_WARNING_CHARACTERS)
]
"""The same, for a warning with names of fields and columns."""
WorkspaceUri = Annotated[str, Field(min_length=1, max_length=2048)]
MOST_ATTEMPTS_KEPT: Final = 20
MOST_STRETCHES: Final = 20
MOST_NULL_COLUMNS: Final = 20
MOST_CAUSES: Final = 8
NullColumns = Annotated[tuple[ColumnName, ...], Field(max_length=MOST_NULL_COLUMNS)]
ReportUri = Annotated[str, BeforeValidator(shortened), Field(max_length=2304)]
"""Location that a driver has reported, and that is shown to people: what steers a terminal is
escaped.
"""
CompareCount = Annotated[int, Field(ge=0, le=10**15)]
"""Bounded, because it is reported by a tenant's driver, and calculated with."""


def execution_in_words(execution: HowRun, reason: str) -> str:
    """How a query is run and, if as a stream that could have been batch jobs, why."""
    if execution == "Streaming" and reason:
        return f"runs in Streaming execution, because {reason}"
    return f"runs in {execution} execution"


ResultId = Annotated[str, Field(max_length=16, pattern="^[0-9a-f]{16}$")]
MOST_DECISION_REASON: Final = 1024
"""Characters of the reason of a decision."""


def in_one_line(text: object) -> object:
    """The text as it may be shown within a sentence, cut where escapes make it too long."""
    if not isinstance(text, str):
        return text
    return printable(" ".join(text.split()))[:MOST_DECISION_REASON]


DecisionReason = Annotated[
    str, BeforeValidator(in_one_line), Field(max_length=MOST_DECISION_REASON)
]
"""Text of a person, which others are shown."""


class Verdict(StrEnum):
    """What a person decides about a result."""

    APPROVE = "Approve"
    REJECT = "Reject"
    UNDO = "Undo"


class SourceStatus(Model):
    """Observed state of a source."""

    model_config = {"extra": "ignore"}

    name: InputName
    """Name of the source."""
    files: int = 0
    """Number of files in the plan."""
    rows: int = 0
    """Number of rows read by committed steps. Before the first attempt, the number of rows that the
    plan expects.
    """
    bytes: int = 0
    """Size of the plan's splits, in bytes."""
    watermark: Time | None = None
    """Source watermark: all rows that arrived before it have been read and committed."""


class Comparison(Model):
    """Rows of a result, compared with those of production or of a reference table."""

    model_config = {"extra": "ignore"}

    settings: Annotated[str, Field(max_length=64)]
    """Digest of the settings that the rows were compared with: all of ``validate`` except
    ``minMatch``.
    """
    matching: CompareCount = 0
    """Number of rows that are equal in both."""
    different: CompareCount = 0
    """Number of rows in production or the reference whose keys the result contains with different
    values.
    """
    missing: CompareCount = 0
    """Number of rows found only in production or the reference."""
    extra: CompareCount = 0
    """Number of rows found only in the result."""
    duplicate_keys: CompareCount = 0
    """Number of keys that occur more than once in production or the reference."""
    reference: TableName | None = None
    """Reference table that the result was compared with; unset for production."""
    snapshot_id: int | None = None
    """ID of the snapshot that was read, of the output's table or of the reference; null if the
    table had none.
    """
    report: ReportUri = ""
    """Location of the report: an HTML page with figures by column and by time, and sample rows. A
    JSON file with the same name is next to it.
    """
    causes: Annotated[tuple[DriverWarning, ...], Field(max_length=MOST_CAUSES)] = ()
    """What the figures suggest about why rows do not match, the most likely cause first."""
    problem: Message = ""
    """Why the rows could not be compared; otherwise empty."""


class LostStretch(Model):
    """Stretch of the window in which a result has fewer rows than production."""

    model_config = {"extra": "ignore"}

    start: Time
    """Start of the stretch."""
    end: Time
    """End of the stretch, exclusive."""
    production_rows: CompareCount = 0
    """Number of rows that production has in it."""
    result_rows: CompareCount = 0
    """Number of rows that the result has in it."""


class WindowLosses(Model):
    """Rows that ``Replace`` removes, and rows that it adds."""

    model_config = {"extra": "ignore"}

    production_rows: CompareCount = 0
    """Number of rows that production has in the window."""
    result_rows: CompareCount = 0
    """Number of rows that the result has."""
    stretches: Annotated[tuple[LostStretch, ...], Field(max_length=MOST_STRETCHES)] = ()
    """Stretches of the window in which the result has fewer rows than production, in order; at most
    20, those that lose the greatest share. A stretch in which the result has some rows has at least
    1,000 rows of production, unless the whole window has fewer; stretches in which it has none are
    listed separately.
    """
    further: CompareCount = 0
    """Number of further stretches, which are not listed."""
    problem: Message = ""
    """Why the rows could not be counted; otherwise empty."""


class ExportStatus(Model):
    """Files that a result was exported to."""

    model_config = {"extra": "ignore"}

    location: WorkspaceUri
    """Directory or object store prefix of the files."""
    files: CompareCount = 0
    """Number of data files."""
    rows: CompareCount = 0
    """Number of rows in them."""
    bytes: Annotated[int, Field(ge=0, le=2**60)] = 0
    """Size of the data files, in bytes."""
    undone: bool = False
    """Whether ``undo`` has removed the files."""


class DeliveryStatus(Model):
    """Delivery of a result to the application's own sink."""

    model_config = {"extra": "ignore"}

    batches: CompareCount = 0
    """Number of staged batches that have rows."""
    delivered: CompareCount = 0
    """Number of batches that were delivered or skipped."""
    rows: CompareCount = 0
    """Number of rows in delivered batches."""
    last_batch: int | None = None
    """Number of the last batch that was delivered or skipped."""
    started_at: Time | None = None
    """When the delivery began; unset while it waits for approval."""
    finished_at: Time | None = None
    """When all batches had been delivered."""

    @property
    def in_words(self) -> str:
        """How many batches were delivered."""
        return f"{self.delivered:,} of {self.batches:,} batch{'' if self.batches == 1 else 'es'}"

    @property
    def in_progress(self) -> bool:
        """Whether it has begun, and is not done."""
        return self.started_at is not None and self.finished_at is None


class OutputStatus(Model):
    """Observed state of an output."""

    model_config = {"extra": "ignore"}

    name: InputName
    """Name of the output."""
    table: TableName
    """Table of the output."""
    branch: Annotated[str, Field(max_length=255)] | None = None
    """Iceberg branch with the result. Set once all steps are committed, and unset once the branch
    is removed.
    """
    rows: int = 0
    """Number of staged rows that belong to the window."""
    rows_outside_window: int = 0
    """Number of rows written for warm-up and drain, which are not part of the result."""
    staged_snapshot_id: int | None = None
    """ID of the branch's snapshot that contains the result."""
    base_snapshot_id: int | None = None
    """ID of the table's snapshot when the Backfill began. Rows of the window that changed since
    then are a publish conflict.
    """
    snapshot_id: int | None = None
    """ID of the snapshot that published the result."""
    undo_snapshot_id: int | None = None
    """ID of the snapshot that undid the publication."""
    exported: ExportStatus | None = None
    """Files written by publish mode ``Export``; unset until then, and in other modes."""
    delivery: DeliveryStatus | None = None
    """Progress of publish mode ``Deliver``; unset until all steps are committed, and in other
    modes.
    """
    open_at_end: int | None = None
    """Number of results of the window that were still open when the input ended; null if unknown.
    ``rows`` does not include them unless ``outputMode`` is set.
    """
    open_from: Time | None = None
    """Time of the earliest result that was still open."""
    needed_drain_seconds: float | None = None
    """A ``window.drain`` longer than this, in seconds, would have closed the open results; null if
    unknown.
    """
    open_unknown: Annotated[str, Field(max_length=512)] = ""
    """Why the number of open results is unknown."""
    by_clock: Annotated[str, Field(max_length=128)] = ""
    """Where the output's query selects, joins or groups rows by the current time, which may drop
    rows of history; empty if it does not.
    """
    warnings: DriverWarning = ""
    """What may be wrong in the result without being noticed, and the setting that decides it: times
    in the records that the output's query decodes whose text or number may differ from that in
    production's records, or a watermark delay shorter than the disorder in which rows are read.
    Empty if nothing is known.
    """
    execution: HowRun | None = None
    """How the output's query runs: ``Streaming`` or ``Batch``. Unset until the driver has reported
    it.
    """
    execution_reason: ExecutionReason = ""
    """Why the query runs as ``Streaming`` if ``spec.execution`` is ``Auto``; otherwise empty."""
    output_mode: ChangingMode | None = None
    """Output mode of a streaming query that changes rows it has already written. With ``update``,
    the result contains the newest row of each key; with ``complete``, the rows of the last
    micro-batch. Open results are included with values that are not final. Unset for other queries.
    """
    look_back_seconds: float | None = None
    """Maximum time by which rows that a result depends on can precede it, in seconds of event time.
    A shorter ``window.warmUp`` may leave the first results incomplete. Unset if there is no bound
    or if it is unknown.
    """
    look_ahead_seconds: float | None = None
    """Maximum time after a result within which rows can arrive that it depends on or, in
    ``Streaming`` execution, that close it, in seconds, including the watermark delay or, once
    measured, the lag of rows. A shorter ``window.drain`` may leave the last results incomplete or
    open. Unset if there is no bound or if it is unknown.
    """
    match: Annotated[str, Field(max_length=16)] | None = None
    """Percentage of rows that match, rounded down; unset if they were not compared."""
    comparison: Comparison | None = None
    """How the result compares with production or the reference. Unset until it has been compared,
    and if the output has no ``validate``.
    """
    null_columns: NullColumns = ()
    """Columns that are null in every row of the result although rows of production have values; at
    most 20. Empty until all steps are committed.
    """
    losses: WindowLosses | None = None
    """Rows of production that publishing would remove, and those that replace them. Only for
    ``Replace``; unset until all steps are committed.
    """

    @property
    def is_published(self) -> bool:
        """Whether the result was published, whether or not that was undone."""
        delivered = self.delivery is not None and self.delivery.finished_at is not None
        return delivered or self.snapshot_id is not None or self.exported is not None

    @property
    def rows_published(self) -> int:
        """Number of rows that were published."""
        return self.rows if self.delivery is None else self.delivery.rows

    @property
    def without_progress(self) -> "OutputStatus":
        """The same without how far a delivery is, which may change often."""
        if self.delivery is None:
            return self
        fields = {"delivered": 0, "rows": 0, "last_batch": None}
        delivery = self.delivery.model_copy(update=fields)
        return self.model_copy(update={"delivery": delivery})

    @property
    def is_undone(self) -> bool:
        """Whether its publication was undone."""
        exported = self.exported
        return self.undo_snapshot_id is not None or (exported is not None and exported.undone)

    @property
    def destination(self) -> str:
        """What the result was published to."""
        if self.delivery is not None:
            return f"the application's own sink ({self.name})"
        return self.exported.location if self.exported is not None else self.table


class Attempt(Model):
    """One attempt to run the application."""

    model_config = {"extra": "ignore"}

    number: int
    """Number of the attempt, counted from 1."""
    child: Annotated[str, Field(max_length=63)] | None = None
    """Name of the attempt's SparkApplication. Unset for a run on one machine."""
    generation: int = 1
    """Generation of the spec that the attempt was started with."""
    started_at: Time
    """When the controller started the attempt."""
    finished_at: Time | None = None
    """When the attempt ended."""
    outcome: Literal["Running", "Succeeded", "Stopped", "Failed"] = "Running"
    """``Running``: in progress. ``Succeeded``: all steps are committed. ``Stopped``: stopped on
    request. ``Failed``: ended before all steps were committed.
    """
    steps_at_start: int = 0
    """Number of committed steps and delivered batches when the attempt started."""
    fruitless: int = 0
    """Number of consecutive attempts, including this one, that failed without committing a step or
    delivering a batch.
    ``failurePolicy.maxAttempts`` limits it."""
    unheard_since: Time | None = None
    """Since when the driver has sent no heartbeat."""
    stopping_since: Time | None = None
    """When the driver was asked to stop."""
    message: Message = ""
    """Why the attempt ended."""


class Cost(Model):
    """Time and bytes used by all attempts so far, updated when ``progress`` changes and when an
    attempt ends.
    """

    driver_seconds: float = 0.0
    """Total duration of all attempts, in seconds."""
    executor_seconds: float = 0.0
    """Total running time of all executors, in seconds: the duration of attempts multiplied by the
    number of executors. A run on one machine counts as one executor.
    """
    bytes_read: int = 0
    """Compressed size of the committed steps, in bytes. Data that attempts read but did not commit
    is not counted.
    """
    counted_until: Time | None = None
    """Time up to which the durations are counted."""


class Progress(Model):
    """Progress of the run."""

    model_config = {"extra": "ignore"}

    steps: int = 0
    """Number of steps in the plan."""
    committed: int = 0
    """Number of steps that every query has committed for all of its sources."""
    summary: Annotated[str, Field(max_length=64)] = ""
    """Committed steps out of total, for display: ``12/48 (25%)``."""
    rows_read: int = 0
    """Number of rows read by committed steps."""
    rows_dropped_late: int = 0
    """Number of rows that the application's watermark dropped as late."""
    rows_arrived_late: int = 0
    """Number of rows that arrived so late that a stream would certainly have dropped them. Counted
    for queries that run as ``Batch``, which keep such rows if they read them.
    """
    open_at_end: int | None = None
    """Number of results of the window that were still open when the input ended; null if unknown
    (see ``outputs``).
    """
    batch_steps: int = 0
    """Number of steps after the last committed one that batch jobs are reading."""
    batch_tasks_percent: int | None = None
    """How many of the tasks of these jobs' stages in progress have ended, as a percentage in tens;
    null if unknown.
    """
    rows_per_second: float | None = None
    """Recent read rate, in rows per second."""
    rate: Annotated[str, Field(max_length=32)] = ""
    """Recent read rate, for display: ``12.5k/s``."""
    eta: Time | None = None
    """Estimated time of completion."""
    executors: int = 0
    """Number of running executors."""
    executor_target: int | None = None
    """Desired number of executors."""
    executor_reason: Message = ""
    """Why this number of executors is desired."""
    executor_target_since: Time | None = None
    """When the desired number of executors last changed."""
    max_observed_misalignment_seconds: float | None = None
    """Greatest observed misalignment, in seconds: how far ahead of the global watermark a stream
    has read a row. Batch jobs keep no state, and may read further ahead.
    """

    @property
    def batch_in_words(self) -> str:
        """What batch jobs are doing; empty if there are none."""
        if not self.batch_steps:
            return ""
        tasks = self.batch_tasks_percent
        done = "" if tasks is None else f", {tasks} % of their tasks done"
        return f"batch jobs read {count(self.batch_steps, 'step')}{done}"

    @property
    def late_in_words(self) -> str:
        """How many rows were late, of streams and of batch jobs."""
        dropped = f"{self.rows_dropped_late:,} dropped as late"
        arrived = f", {self.rows_arrived_late:,} arrived late" if self.rows_arrived_late else ""
        return dropped + arrived


class JobRetry(Model):
    """A job of the controller that failed and is being retried."""

    model_config = {"extra": "ignore"}

    job: Annotated[str, Field(max_length=32)]
    """The job: ``resolve``, ``plan``, ``extend``, ``recover``, ``verify``, ``settle``, ``publish``,
    ``undo`` or ``discard``.
    """
    failures: int
    """Number of consecutive failures."""
    since: Time
    """When the job first failed."""
    next_at: Time
    """When the job is retried next."""
    message: Annotated[str, Field(max_length=1024)]
    """Why the job last failed."""


class DecisionStatus(Model):
    """What a person has decided about the result."""

    model_config = {"extra": "ignore"}

    decision: Verdict
    """``Approve``: publish the result. ``Reject``: do not publish it. ``Undo``: restore what the
    tables held before.
    """
    result: ResultId
    """ID of the result that the decision applies to."""
    by: Annotated[str, Field(max_length=1024)]
    """User who made the decision."""
    by_verified: bool = False
    """Whether the API server has verified ``by``. If not, it is what the client claimed."""
    at: Time
    """When it was decided."""
    reason: DecisionReason = ""
    """Reason given for the decision."""
    number: int = 1
    """Number of the request to undo, counted from 1."""
    refused: Message = ""
    """Why the decision was not carried out; otherwise empty."""

    def __str__(self) -> str:
        """Who decided, and why."""
        why = f": {self.reason}" if self.reason else ""
        return f"{self.by}{why}"


class InputWait(Model):
    """Waiting for rows that are missing from the tables."""

    model_config = {"extra": "ignore"}

    since: Time
    """When rows were first found missing."""
    next_check_at: Time
    """When the tables are checked next."""


class BackfillStatus(Model):
    """Observed state."""

    model_config = {"extra": "ignore"}  # a newer operator may have recorded more

    observed_generation: int = 0
    """Generation of the spec that the status was computed from."""
    spec_digest: Annotated[str, Field(max_length=64)] = ""
    """Digest of the spec that the controller acted on last. A failed Backfill is retried when its
    spec changes, except for ``ttlAfterFinished``.
    """
    resolved: Resolved | None = None
    """What was found of the application because ``spec.sources`` is empty. Unset otherwise."""
    plan_id: PlanId | None = None
    """ID of the plan. Unset until the plan is made."""
    plan_digest: Annotated[str, Field(max_length=64)] = ""
    """SHA-256 of the plan header, to detect a plan that was replaced."""
    application_digest: Annotated[str, Field(max_length=64)] = ""
    """SHA-256 of the SparkApplication that was stored with the plan and that attempts are made
    from. One that differs is not used.
    """
    workspace: WorkspaceUri | None = None
    """Directory or object store prefix of this Backfill's plan and checkpoints."""
    tagged_tables: Annotated[tuple[TableName, ...], Field(max_length=MOST_SOURCES)] = ()
    """Tables in which snapshots may have been tagged (``snapshot.protect``), including tables of
    sources that are no longer in the spec.
    """
    started_at: Time | None = None
    """When work on the Backfill began."""
    finished_at: Time | None = None
    """When the Backfill succeeded or failed."""
    next_attempt_at: Time | None = None
    """Earliest start of the next attempt, during backoff."""
    discarded_at: Time | None = None
    """When branches, plan and checkpoints were removed because ``ttlAfterFinished`` had passed."""
    retry: JobRetry | None = None
    """Job of the controller that failed and is being retried."""
    input_wait: InputWait | None = None
    """Waiting for rows that are missing (``spec.waitForInput``). Unset otherwise."""
    attempts: Annotated[tuple[Attempt, ...], Field(max_length=MOST_ATTEMPTS_KEPT)] = ()
    """Attempts to run the application, the oldest first. Only the last 20 are kept."""
    progress: Progress = Progress()
    """Progress of the run."""
    cost: Cost | None = None
    """Time and bytes used by all attempts so far; null until the first attempt has reported."""
    watermark: Time | None = None
    """Global watermark: the earliest of all source watermarks."""
    sources: Annotated[tuple[SourceStatus, ...], Field(max_length=MOST_SOURCES)] = ()
    """Observed state of each source."""
    outputs: Annotated[tuple[OutputStatus, ...], Field(max_length=MOST_OUTPUTS)] = ()
    """Observed state of each output."""
    hand_off: HandOffStatus | None = None
    """Observed state of the hand-off. Unset without ``spec.handOff``, and before the plan is
    made.
    """
    result: ResultId | None = None
    """Digest of what is staged for all outputs. Decisions refer to the result by this digest. Unset
    until all steps are committed.
    """
    decision: DecisionStatus | None = None
    """Who approved or rejected the result, when and why. Unset if nobody has."""
    undo: DecisionStatus | None = None
    """Who last asked to undo the publication, when and why. Unset if nobody has."""
    conditions: Annotated[tuple[Condition, ...], Field(max_length=16)] = ()
    """``Planned``, ``Running``, ``Validated``, ``Published``, ``HandedOver`` and ``Succeeded``
    describe the stages of the Backfill; ``Ready``, ``Reconciling`` and ``Stalled`` summarize them
    for other tools.
    """

    @property
    def newest_plan_id(self) -> str | None:
        """The ID of the plan that is read, which may extend others; None before it is made."""
        extensions = self.hand_off.extensions if self.hand_off is not None else None
        return extensions[-1].plan_id if extensions else self.plan_id

    @property
    def delivering(self) -> tuple[OutputStatus, ...]:
        """Outputs whose rows are being delivered."""
        return tuple(each for each in self.outputs if each.delivery and each.delivery.in_progress)

    @property
    def advance(self) -> int:
        """Number of committed steps and delivered batches."""
        delivered = (each.delivery.delivered for each in self.outputs if each.delivery)
        return self.progress.committed + sum(delivered)

    @field_validator("conditions", mode="before")
    @classmethod
    def _known_conditions(cls, value: Any) -> Any:
        """Drops conditions that only a newer operator knows."""
        if not isinstance(value, list | tuple):
            return value
        return tuple(item for item in value if not isinstance(item, dict) or _is_known(item))

    def to_manifest(self) -> dict[str, object]:
        """The status as it is stored.

        Empty values are left out: they would look like fields with no content.
        """
        return _without_empty(super().to_manifest())


def _is_known(condition: dict[str, Any]) -> bool:
    return condition.get("type") in set(ConditionType) and condition.get("reason") in set(Reason)


def _without_empty(fields: dict[str, Any]) -> dict[str, object]:
    return {name: _pruned(value) for name, value in fields.items() if value not in ("", [])}


def _pruned(value: Any) -> object:
    if isinstance(value, list):
        return [_pruned(item) for item in value]
    return _without_empty(value) if isinstance(value, dict) else value
