"""The spec of a Backfill: the desired state, written by users."""

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from backfill.api.base import Model
from backfill.api.field_types import CATALOG_NAME_PATTERN, DirectoryUri
from backfill.api.hand_off import HandOff
from backfill.api.output import Output
from backfill.api.pods import Overrides, PlanningOptions, Scaling
from backfill.api.quantities import (
    MOMENT_FORMATS,
    MOMENT_PATTERN,
    Duration,
    Moment,
    format_time,
    parse_moment,
)
from backfill.api.source import Source
from backfill.api.static_table import MOST_STATIC_TABLES, StaticTable

IgnoredQuery = Annotated[str, Field(min_length=1, max_length=255)]
PublishAll = Literal["None", "Append", "Replace", "Upsert", "Deliver"]
"""Publish modes that require nothing else of an output."""
Execution = Literal["Auto", "Streaming", "Batch"]
Effect = Literal["Connections", "ForeachPartition", "Jvm", "Processes", "Statements", "Writes"]

MOST_SOURCES: Final = 64
MOST_OUTPUTS: Final = 64
MOST_IGNORED_QUERIES: Final = 64
MOST_EFFECTS: Final = 6


LIVE: Final = "Live"
LIVE_END: Final = datetime(9999, 12, 30, tzinfo=UTC)
"""The end of a window that live traffic follows: later than any row."""


def _parse_end(value: object) -> datetime:
    if value == LIVE:
        return LIVE_END
    try:
        return parse_moment(value)
    except ValueError as error:
        raise ValueError(f"{error}, or as {LIVE}") from None


def _format_end(value: datetime) -> str:
    return LIVE if value == LIVE_END else format_time(value)


WindowEnd = Annotated[
    datetime,
    BeforeValidator(_parse_end),
    PlainSerializer(_format_end, when_used="json"),
    WithJsonSchema(
        {
            "type": "string",
            "maxLength": 40,
            "pattern": f"^(?:{LIVE}|{MOMENT_PATTERN})$",
            "anyOf": [*MOMENT_FORMATS, {"enum": [LIVE]}],
            "examples": ["2021-07-12", "2021-07-12T06:30:00Z", LIVE],
        }
    ),
]
"""The end of a window as users write it."""


class OrderingPolicy(StrEnum):
    """How strictly rows are read in the order of arrival."""

    WITHIN_LATENESS = "WithinLateness"
    EXACT = "Exact"
    STRICT = "Strict"
    UNORDERED = "Unordered"


class ApplicationRef(Model):
    """Reference to the production SparkApplication to run on history."""

    name: Annotated[str, Field(min_length=1, max_length=253)]
    """Name of the SparkApplication, in the Backfill's namespace."""
    api_version: Annotated[str, Field(max_length=100)] = "sparkoperator.k8s.io/v1beta2"
    """API version of the SparkApplication: ``sparkoperator.k8s.io/v1beta2`` for Kubeflow's Spark
    operator, ``spark.apache.org/v1`` for Apache's.
    """


class Window(Model):
    """Range of history to produce results for, and the input to read around it."""

    start: Moment
    """Start of the window, inclusive. A date is midnight UTC."""
    end: WindowEnd
    """End of the window, exclusive. Must be later than ``start``. ``Live``: the window extends to
    the newest row in the tables when the plan is made, and live traffic follows as configured in
    ``handOff``. Rows more than a day later than their table was last written are left out.
    """
    warm_up: Duration = Field(default="0s", validate_default=True)
    """How much input to read before ``start``, by arrival time, so that state is complete when the
    window begins. Results before ``start`` are not published.
    """
    drain: Duration = Field(default="0s", validate_default=True)
    """How much input to read after ``end``, by arrival time, so that results still open at ``end``
    can close. Results at or after ``end`` are not published.
    """

    @model_validator(mode="after")
    def _start_before_end(self) -> Self:
        if self.start >= self.end:
            raise PydanticCustomError(
                "window_order",
                "end {end} is not after start {start}; end is exclusive and must be later than"
                " start",
                {"start": format_time(self.start), "end": _format_end(self.end)},
            )
        return self

    @property
    def live(self) -> bool:
        """Whether live traffic follows, so that the window has no end."""
        return self.end == LIVE_END


class Ordering(Model):
    """Order in which history is read."""

    policy: OrderingPolicy = OrderingPolicy.WITHIN_LATENESS
    """How strictly rows are read in the order of arrival. ``WithinLateness``: rows of different
    steps may be out of order by at most ``allowedLateness``. ``Exact``: rows of different steps are
    never out of order. ``Strict``: like ``WithinLateness``, and the rows of each Kafka partition
    are read in offset order, even within a step. ``Unordered``: rows may be read in any order; use
    this for stateless applications only.
    """
    allowed_lateness: Duration = Field(default="5m", validate_default=True)
    """How far out of order rows of different steps may be read, in arrival time. Set it to at most
    the application's watermark delay. With policies ``Exact`` and ``Unordered``, ``Streaming``
    execution ignores it. In ``Batch`` execution, with any policy, it is also the assumed maximum
    time by which rows arrive before their event time, if this cannot be measured.
    """


class SecretRef(Model):
    """Reference to a Secret in the Backfill's namespace."""

    name: Annotated[str, Field(min_length=1, max_length=253)]
    """Name of the Secret."""


class CatalogRef(Model):
    """Iceberg catalog, and the Secret with its connection properties."""

    name: Annotated[str, Field(max_length=63, pattern=CATALOG_NAME_PATTERN)]
    """Name of the catalog, which is the first part of its tables' names. At most 63 ASCII letters
    and digits, with single ``-`` or ``_`` between them. Two catalogs must differ in more than case,
    ``-`` and ``_``, which PyIceberg does not distinguish.
    """
    secret_ref: SecretRef | None = None
    """Secret whose keys are the catalog's PyIceberg properties. Default: none; the catalog is
    opened with the application's Spark properties, and with the pods' own identity.
    """


class FailurePolicy(Model):
    """How failed attempts are retried."""

    max_attempts: Annotated[int, Field(ge=1, le=100)] = 5
    """Number of consecutive attempts that may fail without committing a step before the Backfill
    fails. Three are enough if they fail with the same error of the program or its rows.
    """
    backoff: Duration = Field(default="30s", validate_default=True)
    """Delay before the second attempt. It doubles with each further attempt without progress, up to
    ten minutes.
    """


class BackfillSpec(Model):
    """Desired state."""

    application_ref: ApplicationRef
    """Production SparkApplication to run on history."""
    window: Window
    """Range of history to produce results for."""
    publish: PublishAll | None = None
    """Publish mode of all outputs that have none, which no output may set to ``None`` then. Only
    used if ``sources`` is empty. Default: none; the results stay in their branches.
    """
    sources: Annotated[tuple[Source, ...], Field(max_length=MOST_SOURCES)] = ()
    """Inputs of the application. List every input that the application reads, or none: what is read
    and written is then found by running the main program up to the point where its queries start,
    and looking up its tables, and recorded in ``status.resolved``. Default: none.
    """
    static_tables: Annotated[tuple[StaticTable, ...], Field(max_length=MOST_STATIC_TABLES)] = ()
    """Iceberg tables that the application reads once, not as a stream, such as dimension tables.
    Default: none; Spark then reads the current state of such tables with its own configuration.
    """
    wait_for_input: Duration = Field(default="0s", validate_default=True)
    """How long planning waits for rows that are missing from the tables, counted from when they are
    first found missing or from the last change of the spec since then. While waiting, the tables
    are checked at intervals of one sixtieth of this duration, but at least ten seconds and at most
    five minutes. If rows are still missing afterwards, the Backfill is planned without them or
    refused, exactly as without waiting (see ``sources[].allowIncomplete``). Cannot be combined with
    ``snapshot.id`` or ``snapshot.asOf`` of a source. With ``0s``, planning does not wait.
    """
    ordering: Ordering = Ordering()
    """Order in which history is read."""
    max_misalignment: Duration = Field(default="15m", validate_default=True)
    """How far, in arrival time, any source may be read ahead of the slowest one. A step spans at
    most half of this duration. Must be greater than zero, and large enough to divide the window
    into at most 1,000,000 steps. Policy ``Unordered`` does not align sources.
    """
    outputs: Annotated[tuple[Output, ...], Field(max_length=MOST_OUTPUTS)] = ()
    """Sinks of the application. List every sink here, or its query in ``ignoredQueries``."""
    ignored_queries: Annotated[
        tuple[IgnoredQuery, ...], Field(max_length=MOST_IGNORED_QUERIES)
    ] = ()
    """Queries of the application that must not run because they are not outputs of this Backfill,
    such as alerts to Kafka. Identify a query by its ``queryName`` or, if it has none, by the Kafka
    topic, table or path that it writes to, or by the name of its function. To skip a single write
    of the main program or of a ``foreachBatch`` function, list the table, topic or path that it
    writes to, or the last part of that name. Queries that write to the console, to memory or to
    ``noop`` never run unless an output has their name.
    """
    allowed_effects: Annotated[tuple[Effect, ...], Field(max_length=MOST_EFFECTS)] = ()
    """Side effects that the application may have, apart from its queries and the writes of its
    ``foreachBatch`` functions. They are not isolated from production: they occur in every attempt
    and, within a function, for every batch, and again if a batch is repeated after a failure.
    ``Connections``: in a function, the driver's Python code opens connections or sends data to
    other hosts. ``ForeachPartition``: a function calls ``foreach``, ``foreachPartition`` or the
    ``saveAs`` methods of RDDs. ``Jvm``: a function uses Spark's JVM directly, for example for JDBC.
    ``Processes``: in a function, the driver starts other processes. ``Statements``: a function or
    the main program runs SQL statements that write or define something. ``Writes``: the main
    program writes DataFrames itself, outside of functions. Default: none; the first side effect
    ends the run.
    """
    execution: Execution = "Auto"
    """How the application's queries run. ``Streaming``: as micro-batches with state, in order.
    ``Batch``: as batch jobs over spans of steps, several at a time, which is faster and keeps no
    state; if a query cannot run this way, the Backfill fails before anything is read. Not available
    with ordering policy ``Strict``. ``Auto``: each query as ``Batch`` if possible, otherwise as
    ``Streaming``; ``status.outputs`` and ``backfill plan --explain`` show the choice and the
    reason.
    """
    max_rows_per_second: Annotated[int, Field(ge=1, le=10**9)] | None = None
    """Maximum number of rows that each query reads per second, from all its sources together. Use
    it for applications that call a rate-limited service. Every query then runs as ``Streaming``, so
    this cannot be combined with ``execution: Batch``. A change takes effect with the next attempt;
    to apply it right away, suspend and resume the Backfill. Default: no limit.
    """
    hand_off: HandOff | None = None
    """How the state is handed over to live traffic. Requires ``window.end: Live``. Default: no
    hand-off.
    """
    scaling: Scaling = Scaling()
    """Number of executors of the run."""
    overrides: Overrides = Overrides()
    """Settings that differ from production. A change takes effect with the next attempt."""
    workspace: DirectoryUri | None = None
    """Directory or object store prefix for plans, checkpoints and staged results. All pods must
    have access to it. Its parts may contain ASCII letters, digits and ``_ = + @ , ~ . -``; ``..``
    is not allowed. An object store is accessed with the properties of the first catalog in
    ``catalogs`` that has a Secret, or else with those of the first source's catalog in the
    application's Spark properties, and with the pods' own identity. Default: the operator's
    workspace (``--default-workspace``); for ``backfill run``, the state directory.
    """
    catalogs: Annotated[tuple[CatalogRef, ...], Field(max_length=16)] = ()
    """Catalogs of the source and output tables. If you list any, every table must be in one of
    them.
    """
    planning: PlanningOptions = PlanningOptions()
    """Where planning and the operator's other jobs run, and how the plan is made."""
    failure_policy: FailurePolicy = FailurePolicy()
    """How failed attempts are retried."""
    suspend: bool = False
    """Whether to suspend the Backfill. The application stops after committing the steps in progress
    (in ``Streaming`` execution at most four; in ``Batch`` execution all spans that have begun), and
    everything needed to resume is kept. A Backfill created with ``suspend: true`` is planned but
    not started.
    """
    retry_nonce: Annotated[str, Field(max_length=64)] | None = None
    """Change this value to retry a failed Backfill from where it stopped."""
    ttl_after_finished: Duration | None = None
    """How long to keep branches, plan and checkpoints after the Backfill has finished. Published
    data and this resource are kept. After this time, a failed Backfill can no longer be retried.
    Default: they are kept until the Backfill is deleted.
    """

    @field_validator("max_misalignment")
    @classmethod
    def _some_misalignment(cls, value: Any) -> Any:
        if not value:
            raise PydanticCustomError(
                "misalignment", "must be greater than zero; a step spans half of it"
            )
        return value

    @property
    def is_short(self) -> bool:
        """Whether it leaves out what the application reads and writes, so that this is to be
        found.
        """
        return not self.sources

    @property
    def workspace_catalog(self) -> str:
        """Name of the catalog whose connection properties open the workspace.

        It is the first one with a Secret, or else that of the first source. Empty if there is
        neither.
        """
        return next(
            (each.name for each in self.catalogs if each.secret_ref),
            self.sources[0].table.partition(".")[0] if self.sources else "",
        )
