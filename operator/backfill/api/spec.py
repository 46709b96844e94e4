"""The specification of a Backfill: what users write."""

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
TABLE_NAME_PATTERN = r"^[A-Za-z0-9]+([-_][A-Za-z0-9]+)*(\.[^.\s]+){2,}$"
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
    """What one unit of a ``long`` timestamp column is."""

    SECONDS = "s"
    MILLISECONDS = "ms"
    MICROSECONDS = "us"
    NANOSECONDS = "ns"


class OrderingPolicy(StrEnum):
    """How far rows may be read out of the order in which they arrived."""

    WITHIN_LATENESS = "WithinLateness"
    EXACT = "Exact"
    STRICT = "Strict"
    UNORDERED = "Unordered"


class PublishMode(StrEnum):
    """What becomes of the result."""

    NONE = "None"
    APPEND = "Append"
    REPLACE = "Replace"


class ApplicationRef(Model):
    """The production SparkApplication that is run again."""

    name: Annotated[str, Field(min_length=1, max_length=253)]
    """Its name, in the Backfill's namespace."""
    api_version: Annotated[str, Field(max_length=100)] = "sparkoperator.k8s.io/v1beta2"
    """Its API group and version."""


class Window(Model):
    """The stretch of history whose output is wanted, and what is read around it."""

    start: Time
    """The first moment of the window (inclusive)."""
    end: Time
    """The end of the window (exclusive)."""
    warm_up: Duration = Field(default="0s", validate_default=True)
    """How much is read before ``start`` to build state. Its output is not published."""
    drain: Duration = Field(default="0s", validate_default=True)
    """How much is read after ``end`` so that what is open at ``end`` can close. Its output is not published."""

    @model_validator(mode="after")
    def _start_before_end(self) -> Self:
        if self.start >= self.end:
            raise PydanticCustomError(
                "window_order",
                "end {end} is not after start {start}; end is exclusive and must be later than start",
                {"start": format_time(self.start), "end": format_time(self.end)},
            )
        return self


class SnapshotRef(Model):
    """Which state of the source table is read. Without ``id`` and ``asOf``: the current one, pinned when planned."""

    id: Annotated[int, Field(ge=0)] | None = None
    """A snapshot id of the table."""
    as_of: Time | None = None
    """The snapshot that was current at this moment."""
    protect: bool = False
    """Hold the snapshot with an Iceberg tag while the Backfill lives, so that expiration cannot take it away.
    Needs write permission on the source table."""

    @model_validator(mode="after")
    def _one_of(self) -> Self:
        if self.id is not None and self.as_of is not None:
            raise PydanticCustomError("snapshot_choice", "both id and asOf are given; keep one of them")
        return self

    @property
    def is_chosen(self) -> bool:
        """Whether a certain state was asked for, and not whatever is current."""
        return self.id is not None or self.as_of is not None


class Regions(Model):
    """The short form of a filter: a column must have one of the given values."""

    column: ColumnName
    """The column to compare."""
    in_: Annotated[tuple[Annotated[str, Field(max_length=1024)], ...], Field(alias="in", min_length=1, max_length=256)]
    """The values that are read."""


class KafkaColumns(Model):
    """Columns of the source table that hold what Kafka knew of each row."""

    partition_column: ColumnName | None = None
    """The Kafka partition. ``Strict`` order needs it."""
    offset_column: ColumnName | None = None
    """The Kafka offset. ``Strict`` order needs it."""
    key_column: ColumnName | None = None
    """The record's key, given to unmodified Kafka applications as ``key``. One that uses it needs this or ``keyless``."""
    keyless: bool = False
    """Whether records of the topic have no key, so that ``key`` is null. Default: false. Not together with ``keyColumn``."""
    timestamp_column: ColumnName | None = None
    """The record's timestamp, given to unmodified Kafka applications as ``timestamp``; default: the source's timestampColumn."""

    @model_validator(mode="after")
    def _one_key(self) -> Self:
        if self.keyless and self.key_column is not None:
            raise PydanticCustomError("kafka_keyless", "keyless is true and keyColumn is given; keep one of them")
        return self


class KafkaValue(Model):
    """How a row becomes the ``value`` of a Kafka record for an unmodified application."""

    format: Literal["json", "avro", "column"] = "json"
    """``json``: the row as a JSON object. ``avro``: the row encoded with ``schema``. ``column``: the bytes of ``column`` as
    they are."""
    column: ColumnName | None = None
    """The column that holds the record's value, for format ``column``."""
    avro_schema: Annotated[str | None, Field(alias="schema", max_length=65536)] = None
    """The Avro schema (JSON) to encode rows with, for format ``avro``."""
    framing: Literal["Plain", "Confluent"] = "Plain"
    """What stands before the encoded row, for formats ``json`` and ``avro``. ``Plain``: nothing. ``Confluent``: the five bytes
    of Confluent's serializers, a zero and ``schemaId``, for programs that skip them or look the schema up."""
    schema_id: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    """The id that production's schema registry gave the schema, for framing ``Confluent``."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.format == "column") != (self.column is not None):
            raise PydanticCustomError("kafka_value_column", "column goes with format: column, and format: column needs it")
        if (self.format == "avro") != (self.avro_schema is not None):
            raise PydanticCustomError("kafka_value_schema", "schema goes with format: avro, and format: avro needs it")
        if (self.framing == "Confluent") != (self.schema_id is not None):
            raise PydanticCustomError(
                "kafka_value_schema_id", "schemaId goes with framing: Confluent, and framing: Confluent needs it"
            )
        if self.framing != "Plain" and self.format == "column":
            raise PydanticCustomError(
                "kafka_value_framing", "format: column gives bytes as they are, framing and all; leave framing out"
            )
        return self


class LiveKafka(Model):
    """The Kafka topic that a source replaces when the application is run unmodified."""

    topic: Annotated[str, Field(min_length=1, max_length=249)]
    """The topic the application subscribes to."""
    value: KafkaValue = KafkaValue()
    """How rows become record values."""


class Live(Model):
    """What the source is in production."""

    kafka: LiveKafka
    """A Kafka topic."""


class Source(Model):
    """One input of the application, read from an Iceberg table."""

    name: InputName
    """The name the application knows the input by."""
    table: TableName
    """The Iceberg table as ``catalog.namespace.table``, the catalog as PyIceberg names it."""
    timestamp_column: ColumnName
    """When a row arrived: a timestamp, timestamptz or nanosecond timestamp column, or a long with ``timestampUnit``.
    Nested columns are written with dots."""
    timestamp_unit: TimestampUnit | None = None
    """The unit of a long ``timestampColumn``."""
    filter: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    """Only rows for which this PyIceberg expression holds are read, for example ``region == 'us-east-1'``."""
    regions: Regions | None = None
    """The short form of a filter on one column. Holds together with ``filter``."""
    snapshot: SnapshotRef = SnapshotRef()
    """Which state of the table is read."""
    kafka: KafkaColumns = KafkaColumns()
    """Columns with what Kafka knew of each row."""
    live: Live | None = None
    """What this source is in production."""


class Ordering(Model):
    """In which order history is read."""

    policy: OrderingPolicy = OrderingPolicy.WITHIN_LATENESS
    """``WithinLateness``: no row is read in a later step than a row that arrived more than ``allowedLateness`` after it.
    ``Exact``: rows of different steps are never out of order. ``Strict``: as ``Exact``, and the rows of one Kafka
    partition are read in offset order. ``Unordered``: any order, for stateless applications."""
    allowed_lateness: Duration = Field(default="5m", validate_default=True)
    """How far out of order the application tolerates its input, in arrival time; at most its watermark delay."""


class Validate(Model):
    """How the result is compared with production before it is published. Not available yet: a Backfill with it is refused."""

    against: Literal["Production"] = "Production"
    """What the result is compared with."""
    keys: Annotated[tuple[ColumnName, ...], Field(max_length=64)] = ()
    """Columns that identify a row; without them rows are compared as a multiset."""
    min_match: Percentage = "99.9"
    """The percentage of rows that must match."""


class Publish(Model):
    """What becomes of the result."""

    mode: PublishMode = PublishMode.NONE
    """``None``: the result stays in its branch. ``Append``: it is added. ``Replace``: the window's rows are replaced by it."""
    approval: Literal["Automatic", "Manual"] = "Automatic"
    """``Manual`` waits for a person before publishing. May change at any time."""
    incomplete: Literal["Wait", "Publish"] = "Wait"
    """What mode ``Replace`` does with a result that lacks rows which were still open when the input ended, or may lack some
    because they cannot be counted. ``Wait`` waits for a person, whatever ``approval`` says. ``Publish`` deletes production's
    rows without replacing those. May change at any time."""


class Output(Model):
    """One sink of the application and the table it writes."""

    name: InputName
    """The name of the sink or of the streaming query in the application."""
    table: TableName
    """The Iceberg table that production writes."""
    timestamp_column: ColumnName | None = None
    """The column that says whether a row belongs to the window. Without it every row written counts as the window's. Its
    timestamps without a zone are taken as UTC. A date counts as its midnight in UTC, and the window has to begin and end
    at one."""
    timestamp_unit: TimestampUnit | None = None
    """The unit of a long ``timestampColumn``."""
    validate_: Annotated[Validate | None, Field(alias="validate")] = None
    """How the result is compared with production before it is published. Not available yet, and refused so that nothing is
    published without a check that was asked for; with ``publish.approval: Manual`` a person can compare it first."""
    publish: Publish = Publish()
    """What becomes of the result."""


class Scaling(Model):
    """How many executors the run may use. Targets between the bounds follow the measured rate."""

    min_executors: Annotated[int, Field(ge=1, le=10000)] = 1
    """Never fewer than this."""
    max_executors: Annotated[int, Field(ge=1, le=10000)] = 1
    """Never more than this."""
    complete_within: Duration | None = None
    """How long the run should take."""

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        if self.min_executors > self.max_executors:
            raise PydanticCustomError(
                "scaling_bounds",
                "minExecutors {low} is greater than maxExecutors {high}; raise maxExecutors or lower minExecutors",
                {"low": self.min_executors, "high": self.max_executors},
            )
        return self


class PodOverrides(Model):
    """Fields of the production specification's driver or executor that the backfill sets otherwise."""

    model_config = {"extra": "allow"}

    cores: Annotated[int, Field(ge=1, le=1024)] | None = None
    """CPU cores of each pod."""
    memory: Annotated[str, Field(pattern=MEMORY_PATTERN, max_length=20)] | None = None
    """Memory of each pod, as Spark writes it (``4g``)."""


class Overrides(Model):
    """Tuning apart from production, merged over the production specification."""

    driver: PodOverrides = PodOverrides()
    """The driver."""
    executor: PodOverrides = PodOverrides()
    """The executors."""
    spark_conf: Annotated[dict[str, Annotated[str, Field(max_length=65536)]], Field(max_length=256)] = Field(default_factory=dict)
    """Spark properties."""


class SecretRef(Model):
    """A Secret of the Backfill's namespace."""

    name: Annotated[str, Field(min_length=1, max_length=253)]
    """Its name."""


class CatalogRef(Model):
    """An Iceberg catalog and where its connection properties are."""

    name: Annotated[str, Field(max_length=63, pattern=CATALOG_NAME_PATTERN)]
    """The catalog's name, as the tables' names begin: ASCII letters, digits, ``-`` and ``_``. PyIceberg does not distinguish
    upper and lower case, nor ``_`` from ``-``; two of them do not stand side by side."""
    secret_ref: SecretRef | None = None
    """A Secret whose keys are PyIceberg catalog properties. Without it the pods' own identity is used."""


class PodResources(Model):
    """What the pod of ``runIn: Pod`` requests, and may use."""

    cpu: Annotated[str, Field(pattern=CPU_PATTERN, max_length=10)] | None = None
    """CPU cores (``2``, ``500m``), requested and as the limit. Default: 250m are requested, and the limit is 2."""
    memory: Annotated[str, Field(pattern=QUANTITY_PATTERN, max_length=20)] = "2Gi"
    """Memory, requested and as the limit: at least 128Mi. Planning takes about 1Gi for a million files."""
    ephemeral_storage: Annotated[str, Field(pattern=QUANTITY_PATTERN, max_length=20)] = "1Gi"
    """Space on the node's disk for scratch files and the log, requested and as the limit."""

    @field_validator("memory")
    @classmethod
    def _enough_to_begin(cls, memory: str) -> str:
        if parse_bytes(memory) < LEAST_JOB_MEMORY:
            raise PydanticCustomError("too_little", "is too little for a job to begin; give at least 128Mi")
        return memory


class PlanningOptions(Model):
    """Where and how the plan is made."""

    run_in: RunIn | None = None
    """``Operator``: a worker process of the operator. ``Pod``: a pod in the Backfill's namespace, with its service account.
    Default: ``Operator`` where the operator may run jobs of the namespace (``--plan-in-operator-for``), else ``Pod``."""
    resources: PodResources = PodResources()
    """What the pod of ``runIn: Pod`` requests, and may use."""
    target_step_bytes: ByteSize | None = None
    """The most bytes a step reads where data is dense; default: about ten seconds of work for the executors allowed."""


class FailurePolicy(Model):
    """What happens when the application fails."""

    max_attempts: Annotated[int, Field(ge=1, le=100)] = 5
    """How many times in a row the application may fail without committing a step."""
    backoff: Duration = Field(default="30s", validate_default=True)
    """The wait before the second attempt; it doubles with each further one without progress, to ten minutes at the most."""


class BackfillSpec(Model):
    """Desired state."""

    application_ref: ApplicationRef
    """The production SparkApplication that is run again."""
    window: Window
    """The stretch of history."""
    sources: Annotated[tuple[Source, ...], Field(min_length=1, max_length=MOST_SOURCES)]
    """Every input the application reads."""
    ordering: Ordering = Ordering()
    """In which order history is read."""
    max_misalignment: Duration = Field(default="15m", validate_default=True)
    """How far, in arrival time, any source may be read ahead of the one that is furthest behind."""
    outputs: Annotated[tuple[Output, ...], Field(max_length=MOST_OUTPUTS)] = ()
    """Every sink of the application, apart from ``ignoredQueries``."""
    ignored_queries: Annotated[tuple[IgnoredQuery, ...], Field(max_length=MOST_IGNORED_QUERIES)] = ()
    """Queries of the application that are not run, by their ``queryName``; one without a name by the Kafka topic, table or path
    it writes to. For what is not an output of this Backfill, such as alerts to Kafka. Queries that write to the console, to
    memory or nowhere (``noop``) are left out anyway, unless an output has their name."""
    execution: Literal["Auto", "Streaming", "Batch"] = "Auto"
    """``Streaming``: micro-batches with state, in order. ``Auto`` is the same in this version, and ``Batch`` is refused."""
    scaling: Scaling = Scaling()
    """How many executors the run may use."""
    overrides: Overrides = Overrides()
    """Tuning apart from production."""
    workspace: WorkspaceBase | None = None
    """Where plans and checkpoints are kept: a directory or an object store's URI that all pods share, of ASCII letters, digits
    and ``_ = + @ , ~ . -``, without ``..``. An object store is opened with the properties of the first of ``catalogs`` that has a
    Secret, else with the pods' own identity."""
    catalogs: Annotated[tuple[CatalogRef, ...], Field(max_length=16)] = ()
    """The catalogs that the tables' names begin with."""
    planning: PlanningOptions = PlanningOptions()
    """Where and how the plan is made."""
    failure_policy: FailurePolicy = FailurePolicy()
    """What happens when the application fails."""
    suspend: bool = False
    """Stop the application after the steps under way (at most four), and keep everything needed to go on. One that is
    suspended from the beginning is planned and not started."""
    retry_nonce: Annotated[str, Field(max_length=64)] | None = None
    """Change this value to retry a failed Backfill, from where it stopped."""
    ttl_after_finished: Duration | None = None
    """How long what the backfill made (branch, plan, checkpoints) is kept after it finished; default: until it is deleted.
    What was published stays, and so does this resource. A failed backfill cannot be tried again after that."""

    @field_validator("max_misalignment")
    @classmethod
    def _some_misalignment(cls, value: Any) -> Any:
        if not value:
            raise PydanticCustomError("misalignment", "must be longer than nothing; a step spans half of it")
        return value

    @property
    def workspace_catalog(self) -> str:
        """The catalog whose connection properties open the workspace: the first with a Secret, else the first source's."""
        return next((each.name for each in self.catalogs if each.secret_ref), self.sources[0].table.partition(".")[0])
