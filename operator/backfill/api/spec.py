"""The spec of a Backfill: the desired state, written by users."""

from enum import StrEnum
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from backfill.api.base import Model
from backfill.api.locations import LOCATION_PATTERN
from backfill.api.quantities import ByteSize, Duration, Time, format_time, parse_bytes

NAME_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
INPUT_NAME_PATTERN = r"^[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?$"
CATALOG_NAME_PATTERN = r"^[A-Za-z0-9]+([-_][A-Za-z0-9]+)*$"
TABLE_NAME_PATTERN = r"^[A-Za-z0-9]+([-_][A-Za-z0-9]+)*(\.[^.\s\x00-\x1f\x7f]+){2,}$"
PERCENTAGE_PATTERN = r"^(100(\.0+)?|\d{1,2}(\.\d+)?)$"
QUANTITY_PATTERN = r"^[1-9]\d*(Ki|Mi|Gi|Ti|k|M|G|T)?$"
CPU_PATTERN = r"^(0\.[1-9]\d{0,2}|[1-9]\d{0,2}(\.\d{1,3})?|[1-9]\d{1,5}m)$"
MEMORY_PATTERN = r"^\d+[kKmMgGtT]?$"

Name = Annotated[str, Field(max_length=63, pattern=NAME_PATTERN)]
InputName = Annotated[str, Field(max_length=63, pattern=INPUT_NAME_PATTERN)]
TableName = Annotated[str, Field(max_length=255, pattern=TABLE_NAME_PATTERN)]
ColumnName = Annotated[str, Field(min_length=1, max_length=255)]
WorkspaceBase = Annotated[str, Field(min_length=1, max_length=1024, pattern=LOCATION_PATTERN)]
IgnoredQuery = Annotated[str, Field(min_length=1, max_length=255)]
Percentage = Annotated[str, Field(pattern=PERCENTAGE_PATTERN, max_length=16)]

LEAST_JOB_MEMORY: Final = 128 * 2**20
"""In bytes. A job's program takes about 90 MiB before it opens a table."""
RunIn = Literal["Operator", "Pod"]

MOST_SOURCES: Final = 64
MOST_OUTPUTS: Final = 64
MOST_IGNORED_QUERIES: Final = 64


class TimestampUnit(StrEnum):
    """Unit of a ``long`` timestamp column."""

    SECONDS = "s"
    MILLISECONDS = "ms"
    MICROSECONDS = "us"
    NANOSECONDS = "ns"


class OrderingPolicy(StrEnum):
    """How strictly rows are read in the order of arrival."""

    WITHIN_LATENESS = "WithinLateness"
    EXACT = "Exact"
    STRICT = "Strict"
    UNORDERED = "Unordered"


class PublishMode(StrEnum):
    """How a result becomes part of the output table."""

    NONE = "None"
    APPEND = "Append"
    REPLACE = "Replace"


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

    start: Time
    """Start of the window, inclusive."""
    end: Time
    """End of the window, exclusive. Must be after ``start``."""
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
                {"start": format_time(self.start), "end": format_time(self.end)},
            )
        return self


class SnapshotRef(Model):
    """Iceberg snapshot of a source table. Without ``id`` and ``asOf`` it is the one that is current
    when the plan is made.
    """

    id: Annotated[int, Field(ge=0)] | None = None
    """ID of the snapshot to read. Cannot be combined with ``asOf``."""
    as_of: Time | None = None
    """Read the snapshot that was current at this time. Cannot be combined with ``id``."""
    protect: bool = False
    """Whether to tag the snapshot until the Backfill is deleted, so that snapshot expiration does
    not remove it. Requires write permission on the source table.
    """

    @model_validator(mode="after")
    def _one_of(self) -> Self:
        if self.id is not None and self.as_of is not None:
            raise PydanticCustomError(
                "snapshot_choice", "both id and asOf are given; keep one of them"
            )
        return self

    @property
    def is_chosen(self) -> bool:
        """Whether the spec names a snapshot, instead of whatever is current."""
        return self.id is not None or self.as_of is not None


class Regions(Model):
    """Shorthand for a filter: reads the rows in which a column has one of the given values."""

    column: ColumnName
    """Column to compare."""
    in_: Annotated[
        tuple[Annotated[str, Field(max_length=1024)], ...],
        Field(alias="in", min_length=1, max_length=256),
    ]
    """Values to read."""


class KafkaColumns(Model):
    """Columns of the source table that hold the Kafka metadata of each row."""

    partition_column: ColumnName | None = None
    """Column with the Kafka partition. Required by ordering policy ``Strict``."""
    offset_column: ColumnName | None = None
    """Column with the Kafka offset. Required by ordering policy ``Strict``."""
    key_column: ColumnName | None = None
    """Column with the record key, which an unmodified Kafka application reads as ``key``. An
    application that reads ``key`` needs either this or ``keyless: true``.
    """
    keyless: bool = False
    """Whether records of the topic have no key, so that ``key`` is null. Cannot be combined with
    ``keyColumn``.
    """
    timestamp_column: ColumnName | None = None
    """Column with the record timestamp, which an unmodified Kafka application reads as
    ``timestamp``. Default: the source's ``timestampColumn``.
    """

    @model_validator(mode="after")
    def _one_key(self) -> Self:
        if self.keyless and self.key_column is not None:
            raise PydanticCustomError(
                "kafka_keyless", "keyless is true and keyColumn is given; keep one of them"
            )
        return self


class KafkaValue(Model):
    """How a row is encoded as the ``value`` of a Kafka record, for an unmodified application."""

    format: Literal["json", "avro", "column"] = "json"
    """``json``: the row as a JSON object. ``avro``: the row in Avro, encoded with ``schema``.
    ``column``: the bytes of ``column``, unchanged.
    """
    column: ColumnName | None = None
    """Column with the record value. Required by format ``column``, not allowed with any other."""
    avro_schema: Annotated[str | None, Field(alias="schema", max_length=65536)] = None
    """Avro schema, in JSON, to encode rows with. Required by format ``avro``, not allowed with any
    other.
    """
    framing: Literal["Plain", "Confluent"] = "Plain"
    """Prefix of each encoded row, for formats ``json`` and ``avro``. ``Plain``: none.
    ``Confluent``: the five bytes that Confluent's serializers write (a zero byte, then
    ``schemaId``), for applications that skip them or look the schema up.
    """
    schema_id: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    """ID of the schema in production's schema registry. Required by framing ``Confluent``, not
    allowed with any other.
    """

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.format == "column") != (self.column is not None):
            raise PydanticCustomError(
                "kafka_value_column", "column goes with format: column, and format: column needs it"
            )
        if (self.format == "avro") != (self.avro_schema is not None):
            raise PydanticCustomError(
                "kafka_value_schema", "schema goes with format: avro, and format: avro needs it"
            )
        if (self.framing == "Confluent") != (self.schema_id is not None):
            raise PydanticCustomError(
                "kafka_value_schema_id",
                "schemaId goes with framing: Confluent, and framing: Confluent needs it",
            )
        if self.framing != "Plain" and self.format == "column":
            raise PydanticCustomError(
                "kafka_value_framing",
                "format: column keeps the bytes unchanged, including any framing; leave"
                " framing out",
            )
        return self


class LiveKafka(Model):
    """Kafka topic that the source replaces when the application runs unmodified."""

    topic: Annotated[str, Field(min_length=1, max_length=249)]
    """Topic that the application subscribes to. Unique among the sources."""
    value: KafkaValue = KafkaValue()
    """How rows are encoded as record values."""


class Live(Model):
    """Input that the source replaces in production."""

    kafka: LiveKafka
    """Kafka topic that the source replaces."""


class Source(Model):
    """Input of the application, read from an Iceberg table."""

    name: InputName
    """Name of the input in the application, unique among the sources. At most 63 letters, digits,
    ``-``, ``_`` and ``.``.
    """
    table: TableName
    """Iceberg table to read, as ``catalog.namespace.table``, with the catalog's name in
    PyIceberg.
    """
    timestamp_column: ColumnName
    """Column with the arrival time of each row: a timestamp, timestamptz or nanosecond timestamp,
    or a long with ``timestampUnit``. Separate the names of nested columns with dots.
    """
    timestamp_unit: TimestampUnit | None = None
    """Unit of a long ``timestampColumn``, counted from 1970-01-01 UTC: seconds (``s``),
    milliseconds (``ms``), microseconds (``us``) or nanoseconds (``ns``). Required for a long
    column.
    """
    filter: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    """PyIceberg expression that rows must satisfy to be read, for example ``region ==
    'us-east-1'``. Default: all rows are read.
    """
    regions: Regions | None = None
    """Shorthand for a filter on one column. Rows must satisfy both ``filter`` and this."""
    snapshot: SnapshotRef = SnapshotRef()
    """Snapshot of the table to read. Default: the one that is current when the plan is made."""
    kafka: KafkaColumns = KafkaColumns()
    """Columns that hold the Kafka metadata of each row."""
    live: Live | None = None
    """Input that the source replaces in production, for an unmodified application."""


class Ordering(Model):
    """Order in which history is read."""

    policy: OrderingPolicy = OrderingPolicy.WITHIN_LATENESS
    """How strictly rows are read in the order of arrival. ``WithinLateness``: rows of different
    steps are out of order by at most ``allowedLateness``. ``Exact``: rows of different steps are
    never out of order. ``Strict``: rows of one Kafka partition are read in offset order, also
    within a step; rows of different steps are out of order by at most ``allowedLateness``.
    ``Unordered``: any order, for stateless applications.
    """
    allowed_lateness: Duration = Field(default="5m", validate_default=True)
    """How far out of order rows of different steps may be read, in arrival time. Should be at most
    the watermark delay of the application. Policies ``Exact`` and ``Unordered`` ignore it.
    """


class Validate(Model):
    """How the result is compared with production before it is published. Not available yet: a
    Backfill that sets it is refused.
    """

    against: Literal["Production"] = "Production"
    """What to compare the result with."""
    keys: Annotated[tuple[ColumnName, ...], Field(max_length=64)] = ()
    """Columns that identify a row. Without any, rows are compared as a multiset."""
    min_match: Percentage = "99.9"
    """Minimum percentage of rows that must match, from 0 to 100."""


class Publish(Model):
    """How the result of an output is published."""

    mode: PublishMode = PublishMode.NONE
    """``None``: the result stays in its branch. ``Append``: its rows are added to the table.
    ``Replace``: its rows replace the table's rows of the window.
    """
    approval: Literal["Automatic", "Manual"] = "Automatic"
    """``Automatic``: publish as soon as the result is complete. ``Manual``: wait for approval
    first. May change at any time.
    """
    incomplete: Literal["Wait", "Publish"] = "Wait"
    """How mode ``Replace`` treats a result that lacks rows because they were still open when the
    input ended, or may lack rows because their number is unknown. ``Wait``: wait for approval, even
    if ``approval`` is ``Automatic``. ``Publish``: publish it, which also deletes rows of production
    that it does not replace. May change at any time.
    """


class Output(Model):
    """Sink of the application, and the table that it writes."""

    name: InputName
    """Name of the sink or of the streaming query (``queryName``) in the application, unique among
    the outputs. At most 63 letters, digits, ``-``, ``_`` and ``.``.
    """
    table: TableName
    """Iceberg table that the application writes in production, as ``catalog.namespace.table``.
    Unique among the outputs.
    """
    timestamp_column: ColumnName | None = None
    """Column that decides whether a row belongs to the window. Timestamps without a time zone are
    read as UTC. A date counts as midnight UTC, and the window must then start and end at midnight
    UTC. Required by publish mode ``Replace``, and by ``window.warmUp`` and ``window.drain``.
    Default: every row that is written belongs to the window.
    """
    timestamp_unit: TimestampUnit | None = None
    """Unit of a long ``timestampColumn``, counted from 1970-01-01 UTC: seconds (``s``),
    milliseconds (``ms``), microseconds (``us``) or nanoseconds (``ns``). Required for a long
    column.
    """
    validate_: Annotated[Validate | None, Field(alias="validate")] = None
    """How the result is compared with production before it is published. Not available yet: a
    Backfill that sets it is refused, so that nothing is published unchecked. To compare the result
    yourself, set ``publish.approval:
    Manual``.
    """
    publish: Publish = Publish()
    """How the result is published. Default: it stays in its branch."""


class Scaling(Model):
    """Number of executors of the run."""

    min_executors: Annotated[int, Field(ge=1, le=10000)] = 1
    """Minimum number of executors. Must not be greater than ``maxExecutors``."""
    max_executors: Annotated[int, Field(ge=1, le=10000)] = 1
    """Maximum number of executors. ``kubectl scale`` sets this field."""
    complete_within: Duration | None = None
    """Target duration of the run. The number of executors then follows the measured rate, between
    the minimum and the maximum. Default: none, and ``maxExecutors`` are used throughout.
    """

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        if self.min_executors > self.max_executors:
            raise PydanticCustomError(
                "scaling_bounds",
                "minExecutors {low} is greater than maxExecutors {high}; raise maxExecutors or"
                " lower minExecutors",
                {"low": self.min_executors, "high": self.max_executors},
            )
        return self


class PodOverrides(Model):
    """Fields of the production SparkApplication's driver or executor to override. Any of its fields
    may be set. Mappings are merged field by field and lists of named items by name; other lists are
    replaced, and ``null`` removes a field.
    """

    model_config = {"extra": "allow"}

    cores: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Number of CPU cores of each pod."""
    memory: Annotated[str, Field(pattern=MEMORY_PATTERN, max_length=20)] | None = None
    """Memory of each pod, in Spark's notation, such as ``4g``."""


class Overrides(Model):
    """Settings that differ from production, merged over the production SparkApplication."""

    driver: PodOverrides = PodOverrides()
    """Overrides of the driver."""
    executor: PodOverrides = PodOverrides()
    """Overrides of the executors."""
    spark_conf: Annotated[
        dict[str, Annotated[str, Field(max_length=65536)]], Field(max_length=256)
    ] = Field(default_factory=dict)
    """Spark properties to add or replace. They take precedence over those that the application
    sets. Properties that would break the run, such as ``spark.master``, are refused.
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
    """Secret whose keys are PyIceberg's properties of the catalog. Default: none, and pods use
    their own identity.
    """


class PodResources(Model):
    """Compute resources of a job pod (``runIn: Pod``)."""

    cpu: Annotated[str, Field(pattern=CPU_PATTERN, max_length=10)] | None = None
    """CPU request and limit, in cores, such as ``2`` or ``500m``. Default: a request of 250m and a
    limit of 2.
    """
    memory: Annotated[str, Field(pattern=QUANTITY_PATTERN, max_length=20)] = "2Gi"
    """Memory request and limit, in bytes or with a suffix such as ``Gi``. At least 128Mi. Planning
    takes about 1Gi for a million files.
    """
    ephemeral_storage: Annotated[str, Field(pattern=QUANTITY_PATTERN, max_length=20)] = "1Gi"
    """Request and limit of disk space on the node for scratch files and the log, in bytes or with a
    suffix such as ``Gi``.
    """

    @field_validator("memory")
    @classmethod
    def _enough_to_begin(cls, memory: str) -> str:
        if parse_bytes(memory) < LEAST_JOB_MEMORY:
            raise PydanticCustomError(
                "too_little", "is too little for a job to start; give at least 128Mi"
            )
        return memory


class PlanningOptions(Model):
    """Where planning and the operator's other jobs for this Backfill run, and how the plan is
    made.
    """

    run_in: RunIn | None = None
    """``Operator``: jobs run in the operator's pod. ``Pod``: each job runs in a pod of the
    Backfill's namespace, with the service account of the application's driver. Default:
    ``Operator`` if the operator may run jobs of the namespace (``--plan-in-operator-for``), else
    ``Pod``.
    """
    resources: PodResources = PodResources()
    """Compute resources of job pods. Ignored with ``runIn: Operator``."""
    target_step_bytes: ByteSize | None = None
    """Most bytes to read in a step where data is dense. Default: about ten seconds of work for
    ``maxExecutors``.
    """


class FailurePolicy(Model):
    """How failed attempts are retried."""

    max_attempts: Annotated[int, Field(ge=1, le=100)] = 5
    """Number of consecutive attempts that may fail without committing a step before the Backfill
    fails.
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
    sources: Annotated[tuple[Source, ...], Field(min_length=1, max_length=MOST_SOURCES)]
    """Inputs of the application. List every input that it reads."""
    ordering: Ordering = Ordering()
    """Order in which history is read."""
    max_misalignment: Duration = Field(default="15m", validate_default=True)
    """How far ahead of the slowest source any other source may be read, in arrival time. A step
    spans at most half of it. Must be greater than zero, and large enough that the window has at
    most 1,000,000 steps. Policy ``Unordered`` does not align sources.
    """
    outputs: Annotated[tuple[Output, ...], Field(max_length=MOST_OUTPUTS)] = ()
    """Sinks of the application. List every sink here, or its query in ``ignoredQueries``."""
    ignored_queries: Annotated[
        tuple[IgnoredQuery, ...], Field(max_length=MOST_IGNORED_QUERIES)
    ] = ()
    """Queries of the application that must not run, by their ``queryName``; a query without a name
    by the Kafka topic, table or path that it writes to. Use it for queries that are no output of
    this Backfill, such as alerts to Kafka. Queries that write to the console, to memory or to
    ``noop`` are never run, unless an output has their name.
    """
    execution: Literal["Auto", "Streaming", "Batch"] = "Auto"
    """``Streaming``: micro-batches with state, in order. ``Auto``: the same in this version.
    ``Batch``: not available yet, and refused.
    """
    scaling: Scaling = Scaling()
    """Number of executors of the run."""
    overrides: Overrides = Overrides()
    """Settings that differ from production. The next attempt uses a new value."""
    workspace: WorkspaceBase | None = None
    """Directory or object store prefix for plans, checkpoints and staged results, which all pods
    can access. ASCII letters, digits and ``_ = + @ , ~ . -``, without ``..``. An object store is
    accessed with the properties of the first of ``catalogs`` that has a Secret, else with the pods'
    own identity. Default: the operator's workspace (``--default-workspace``); for ``backfill run``,
    the state directory.
    """
    catalogs: Annotated[tuple[CatalogRef, ...], Field(max_length=16)] = ()
    """Catalogs of the source and output tables. If any is listed, every table must be in one of
    them.
    """
    planning: PlanningOptions = PlanningOptions()
    """Where planning and the operator's other jobs run, and how the plan is made."""
    failure_policy: FailurePolicy = FailurePolicy()
    """How failed attempts are retried."""
    suspend: bool = False
    """Whether to stop the application. Steps in progress, at most four, are committed first, and
    everything needed to resume is kept. A Backfill that is created suspended is planned but not
    started.
    """
    retry_nonce: Annotated[str, Field(max_length=64)] | None = None
    """Change this value to retry a failed Backfill from where it stopped."""
    ttl_after_finished: Duration | None = None
    """How long to keep branches, plan and checkpoints after the Backfill has finished. What was
    published is kept, and so is this resource. A failed Backfill cannot be retried afterwards.
    Default: until the Backfill is deleted.
    """

    @field_validator("max_misalignment")
    @classmethod
    def _some_misalignment(cls, value: Any) -> Any:
        if not value:
            raise PydanticCustomError(
                "misalignment", "must be longer than nothing; a step spans half of it"
            )
        return value

    @property
    def workspace_catalog(self) -> str:
        """Name of the catalog whose connection properties open the workspace: the first with a
        Secret, else the first source's.
        """
        return next(
            (each.name for each in self.catalogs if each.secret_ref),
            self.sources[0].table.partition(".")[0],
        )
