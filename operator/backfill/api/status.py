"""The status of a Backfill: what the controller records."""

from typing import Annotated, Any, Final, Literal

from pydantic import AliasChoices, Field, field_validator

from backfill.api.base import Message, Model
from backfill.api.conditions import Condition, ConditionType, Reason
from backfill.api.quantities import Time
from backfill.api.spec import MOST_OUTPUTS, MOST_SOURCES, InputName, TableName

PlanId = Annotated[str, Field(max_length=128)]
WorkspaceUri = Annotated[str, Field(min_length=1, max_length=2048)]
MOST_ATTEMPTS_KEPT: Final = 20


class SourceStatus(Model):
    """Where one source stands."""

    model_config = {"extra": "ignore"}

    name: InputName
    """The source."""
    files: int = 0
    """Files of the plan."""
    rows: int = 0
    """Rows read by committed steps; before the run: rows expected by the plan."""
    bytes: int = 0
    """Bytes of the plan's splits."""
    watermark: Time | None = None
    """Everything of this source that arrived before it is read and committed."""


class OutputStatus(Model):
    """Where one output stands."""

    model_config = {"extra": "ignore"}

    name: InputName
    """The output."""
    table: TableName
    """The table."""
    branch: Annotated[str, Field(max_length=255)] | None = None
    """The branch that holds the result until it is published, and as long as it is kept after."""
    rows: int = 0
    """Rows of the window in the branch."""
    rows_outside_window: int = 0
    """Rows the application wrote for warm-up and drain; left out."""
    base_snapshot_id: int | None = None
    """The table's snapshot when the backfill began; publishing checks for conflicts since."""
    snapshot_id: int | None = None
    """The snapshot that published the result."""
    open_at_end: int | None = None
    """Results of the window that were still open when the input ended and are not in ``rows``; null if unknown."""
    open_from: Time | None = None
    """The time of the earliest of them."""
    needed_drain_seconds: float | None = None
    """A ``window.drain`` longer than this would have closed them; null if unknown."""
    open_unknown: Annotated[str, Field(max_length=512)] = ""
    """Why their number is unknown."""
    by_clock: Annotated[str, Field(max_length=128)] = ""
    """Where its query selects, joins or groups rows by the time of day, so that history may be dropped; empty if nowhere."""
    match: Annotated[str, Field(max_length=16)] | None = None
    """The percentage of rows equal to production; empty in this version, which does not compare them."""


class Attempt(Model):
    """One run of the application."""

    model_config = {"extra": "ignore"}

    number: int
    """Counts from one."""
    child: Annotated[str, Field(max_length=63)] | None = None
    """The SparkApplication that ran it; none without a cluster."""
    generation: int = 1
    """The generation of the spec when it was decided on."""
    started_at: Time
    """When it was decided on."""
    finished_at: Time | None = None
    """When it was seen to have ended."""
    outcome: Literal["Running", "Succeeded", "Stopped", "Failed"] = "Running"
    """How it ended."""
    steps_at_start: int = 0
    """Committed steps when it began; more of them later is progress."""
    fruitless: int = 0
    """How many attempts in a row, this one included, failed without a committed step."""
    unheard_since: Time | None = None
    """Since when the driver has sent no heartbeat."""
    stopping_since: Time | None = None
    """When its driver was told to stop."""
    message: Message = ""
    """Why it ended."""


class Progress(Model):
    """How far the run is."""

    model_config = {"extra": "ignore"}

    steps: int = 0
    """Steps of the plan."""
    committed: int = 0
    """Steps that every source of every query has committed."""
    summary: Annotated[str, Field(max_length=64)] = ""
    """The two for people: ``12/48 (25%)``."""
    rows_read: int = 0
    """Rows read by committed steps."""
    rows_dropped_late: int = 0
    """Rows the application's watermark dropped as too late."""
    open_at_end: int | None = None
    """Results of the window still open when the drain ended; null if unknown, see ``outputs`` for why."""
    rows_per_second: float | None = None
    """Rows read per second of late."""
    rate: Annotated[str, Field(max_length=32)] = ""
    """The same for people: ``12.5k/s``."""
    eta: Time | None = None
    """When the run is expected to finish."""
    executors: int = 0
    """Executors at work."""
    executor_target: int | None = None
    """Executors wanted."""
    executor_reason: Message = ""
    """Why that many, in one sentence."""
    executor_target_since: Time | None = None
    """When that number last changed."""
    max_observed_misalignment_seconds: float | None = None
    """The furthest any row really read was ahead of the global watermark at that moment."""


class JobRetry(Model):
    """A piece of the controller's own work that failed and is tried again."""

    model_config = {"extra": "ignore"}

    job: Annotated[str, Field(max_length=32)]
    """What it does: ``plan``, ``recover``, ``verify``, ``settle``, ``publish`` or ``discard``."""
    failures: int
    """How many times in a row it has failed."""
    since: Time
    """When it first failed."""
    next_at: Time
    """When it is tried again."""
    message: Annotated[str, Field(max_length=1024)]
    """Why it failed last."""


class BackfillStatus(Model):
    """Observed state."""

    model_config = {"extra": "ignore"}  # a newer operator may have recorded more

    observed_generation: int = 0
    """The generation of the spec that the rest of the status speaks of."""
    spec_digest: Annotated[str, Field(max_length=64, validation_alias=AliasChoices("specDigest", "tried"))] = ""
    """Identifies the content of the spec that was worked on last. A Backfill that has failed is tried again once its spec has
    another content; a change of ``ttlAfterFinished`` does not count."""
    plan_id: PlanId | None = None
    """The plan, once made."""
    plan_digest: Annotated[str, Field(max_length=64)] = ""
    """SHA-256 of the plan's header, so that another one in its place is noticed."""
    workspace: WorkspaceUri | None = None
    """Where this Backfill's plan and checkpoints are."""
    started_at: Time | None = None
    """When work began."""
    finished_at: Time | None = None
    """When it ended."""
    next_attempt_at: Time | None = None
    """When the next attempt may start, while backing off."""
    discarded_at: Time | None = None
    """When what the backfill made was removed because ``ttlAfterFinished`` was over."""
    retry: JobRetry | None = None
    """Work that failed and is tried again."""
    attempts: Annotated[tuple[Attempt, ...], Field(max_length=MOST_ATTEMPTS_KEPT)] = ()
    """Every run of the application, the last 20."""
    progress: Progress = Progress()
    """How far the run is."""
    watermark: Time | None = None
    """The global watermark: the least of all sources'."""
    sources: Annotated[tuple[SourceStatus, ...], Field(max_length=MOST_SOURCES)] = ()
    """Where each source stands."""
    outputs: Annotated[tuple[OutputStatus, ...], Field(max_length=MOST_OUTPUTS)] = ()
    """Where each output stands."""
    conditions: Annotated[tuple[Condition, ...], Field(max_length=16)] = ()
    """Planned, Running, Validated, Published, Succeeded: how far it is. Ready, Reconciling, Stalled: the same in short."""

    @field_validator("conditions", mode="before")
    @classmethod
    def _known_conditions(cls, value: Any) -> Any:
        """A newer operator may have said what this one has no word for."""
        if not isinstance(value, list | tuple):
            return value
        return tuple(item for item in value if not isinstance(item, dict) or _is_known(item))

    def to_manifest(self) -> dict[str, object]:
        """The status as it is stored: without what is empty, which people would read as a name with nothing behind it."""
        return _without_empty(super().to_manifest())


def _is_known(condition: dict[str, Any]) -> bool:
    return condition.get("type") in set(ConditionType) and condition.get("reason") in set(Reason)


def _without_empty(fields: dict[str, Any]) -> dict[str, object]:
    return {name: _pruned(value) for name, value in fields.items() if value not in ("", [])}


def _pruned(value: Any) -> object:
    if isinstance(value, list):
        return [_pruned(item) for item in value]
    return _without_empty(value) if isinstance(value, dict) else value
