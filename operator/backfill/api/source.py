"""Sources in the spec of a Backfill: the tables that are read in the place of the application's
inputs.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from backfill.api.base import Model
from backfill.api.field_types import ColumnName, InputName, TableName, TimestampUnit
from backfill.api.quantities import Moment

FieldPath = Annotated[str, Field(min_length=1, max_length=512, pattern=r"^[^.]+(\.[^.]+)*$")]
"""Field of a record; the names of nested ones are separated by dots."""
_OF_JSON = ("fields", "absent", "envelope", "timestamp_format", "timestamp_unit", "time_zone")


class SnapshotRef(Model):
    """Iceberg snapshot of a source table. Default: the one that is current when the plan is
    made.
    """

    id: Annotated[int, Field(ge=0)] | None = None
    """ID of the snapshot to read. Cannot be combined with ``asOf``."""
    as_of: Moment | None = None
    """Read the snapshot that was current at this time. Cannot be combined with ``id``."""
    protect: bool = False
    """Whether to tag the snapshot until the Backfill is deleted, so that snapshot expiration does
    not remove it. Requires write permission on the source table.
    """

    @model_validator(mode="after")
    def _one_of(self) -> Self:
        if self.id is not None and self.as_of is not None:
            raise PydanticCustomError(
                "snapshot_choice", "both id and asOf are set; remove one of them"
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
    """Columns of the source table with the Kafka metadata of each row."""

    partition_column: ColumnName | None = None
    """Column with the Kafka partition. Required by ordering policy ``Strict``."""
    offset_column: ColumnName | None = None
    """Column with the Kafka offset. Required by ordering policy ``Strict``. If both columns are
    set, condition ``InputComplete`` also reports which offsets are missing or duplicated.
    """
    drop_duplicates: bool = False
    """Whether to read only one of several rows with the same Kafka partition and offset. Such
    duplicates arise when ingestion writes a record more than once. Requires ``partitionColumn`` and
    ``offsetColumn``, which planning then reads from every file.
    """
    key_column: ColumnName | None = None
    """Column with the record key, which an unmodified Kafka application reads as ``key``. An
    application that reads ``key`` needs either this or ``keyless: true``.
    """
    keyless: bool = False
    """Whether the topic's records have no key; ``key`` is then null. Cannot be combined with
    ``keyColumn``.
    """
    headers_column: ColumnName | None = None
    """Column with the record headers, which an unmodified Kafka application that sets
    ``includeHeaders`` reads as ``headers``: a list of structs with a string ``key`` and a string or
    binary ``value``, or a map of strings to strings or binaries. An application that uses
    ``headers`` needs either this or ``headerless: true``.
    """
    headerless: bool = False
    """Whether the topic's records have no headers; ``headers`` is then null. Cannot be combined
    with ``headersColumn``.
    """
    timestamp_column: ColumnName | None = None
    """Column with the record timestamp, which an unmodified Kafka application reads as
    ``timestamp``. Default: the source's ``timestampColumn``.
    """

    @property
    def identifies_records(self) -> bool:
        """Whether each row's Kafka partition and offset are known."""
        return None not in (self.partition_column, self.offset_column)

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        if self.keyless and self.key_column is not None:
            raise PydanticCustomError(
                "kafka_keyless", "keyless is true, but keyColumn is set; remove one of them"
            )
        if self.headerless and self.headers_column is not None:
            raise PydanticCustomError(
                "kafka_headerless",
                "headerless is true, but headersColumn is set; remove one of them",
            )
        return self

    @model_validator(mode="after")
    def _offsets_to_compare(self) -> Self:
        if self.drop_duplicates and not self.identifies_records:
            raise PydanticCustomError(
                "kafka_drop_duplicates",
                "dropDuplicates requires the Kafka partition and offset of each row; set"
                " partitionColumn and offsetColumn",
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
    fields: Annotated[dict[str, ColumnName], Field(max_length=1024)] = Field(default_factory=dict)
    """Fields of the record and the columns that they are written from, where names, nesting or
    types differ, for example ``{userId: uid, address.city: city}``. Separate the names of nested
    fields with dots, starting at the record's outermost object. A value is converted to the type
    that the application decodes. Every other column is a field of its own name, in the case that
    the application decodes it in. For format ``json``.
    """
    absent: Annotated[tuple[FieldPath, ...], Field(max_length=1024)] = ()
    """Fields that the application decodes and that no column has: it decodes them as null. For
    format ``json``.
    """
    envelope: FieldPath | None = None
    """Field of the record that the row is written into, for example ``after`` or ``payload.after``
    for applications that decode change events. Fields in ``fields`` and ``absent`` include it.
    Default: the row is the record. For format ``json``.
    """
    timestamp_format: Annotated[str | None, Field(min_length=1, max_length=128)] = None
    """Pattern, in Spark's notation, in which times and dates are written as text. Default: the
    pattern with which the application parses them, otherwise ISO 8601 with microseconds. For format
    ``json``.
    """
    timestamp_unit: TimestampUnit | None = None
    """Unit of times that the application decodes as numbers, counted from 1970-01-01 UTC: seconds
    (``s``), milliseconds (``ms``), microseconds (``us``) or nanoseconds (``ns``). Required if it
    decodes any. Numbers that it decodes as ``float``, ``double`` or ``decimal`` have fractions of
    the unit; others are rounded down. For format ``json``.
    """
    time_zone: Annotated[str | None, Field(min_length=1, max_length=64)] = None
    """Time zone in which times are written as text, for example ``Europe/Berlin``. Default: UTC.
    Required if the application parses text without a zone in a session whose zone is not UTC. Times
    of columns without a time zone are written as they are. For format ``json``.
    """

    @property
    def reshapes(self) -> bool:
        """Whether the record has other fields than the row's columns as they are."""
        return any(getattr(self, name) for name in _OF_JSON)

    @model_validator(mode="after")
    def _only_json(self) -> Self:
        if self.format != "json" and self.reshapes:
            names = ", ".join(map(to_camel, _OF_JSON))
            raise PydanticCustomError("kafka_value_json", f"{names} require format: json")
        return self

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.format == "column") != (self.column is not None):
            raise PydanticCustomError(
                "kafka_value_column",
                "column is required with format: column, and not allowed with any other format",
            )
        if (self.format == "avro") != (self.avro_schema is not None):
            raise PydanticCustomError(
                "kafka_value_schema",
                "schema is required with format: avro, and not allowed with any other format",
            )
        if (self.framing == "Confluent") != (self.schema_id is not None):
            raise PydanticCustomError(
                "kafka_value_schema_id",
                "schemaId is required with framing: Confluent, and not allowed with any other"
                " framing",
            )
        if self.framing != "Plain" and self.format == "column":
            raise PydanticCustomError(
                "kafka_value_framing",
                "format: column keeps the bytes unchanged, including any framing; remove framing",
            )
        return self


class LiveKafka(Model):
    """Kafka topic that the source replaces when the application runs unmodified."""

    topic: Annotated[str, Field(min_length=1, max_length=249)] | None = None
    """Topic that the application subscribes to. Unique among the sources. Default: the source's
    name.
    """
    value: KafkaValue = KafkaValue()
    """How rows are encoded as record values."""


class Live(Model):
    """Input that the source replaces in production."""

    kafka: LiveKafka = LiveKafka()
    """Kafka topic that the source replaces."""


class IngestionWatermark(Model):
    """Snapshot property in which ingestion records the time up to which it has written all rows."""

    property: Annotated[str, Field(min_length=1, max_length=255)]
    """Key of the property in snapshot summaries."""
    unit: TimestampUnit | None = None
    """Unit of a numeric value, counted from 1970-01-01 UTC: seconds (``s``), milliseconds (``ms``),
    microseconds (``us``) or nanoseconds (``ns``). Default: the value is a time in ISO 8601.
    """


class Source(Model):
    """Input of the application, read from an Iceberg table."""

    name: InputName
    """Name of the input in the application, unique among the sources. At most 63 letters, digits,
    ``-``, ``_`` and ``.``.
    """
    table: TableName
    """Iceberg table to read, as ``catalog.namespace.table``, where ``catalog`` is the catalog's
    name in PyIceberg.
    """
    timestamp_column: ColumnName
    """Column with the arrival time of each row: a timestamp, timestamptz or nanosecond timestamp,
    or a long with ``timestampUnit``. Separate the names of nested columns with dots. A value in a
    map with string keys is ``map['key']``; planning then reads this column of all files.
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
    deletes: Literal["Apply", "Ignore"] = "Apply"
    """Whether rows that delete files of the table delete are left out (``Apply``) or read
    (``Ignore``). A table that is written by upserts, as by Flink or Kafka Connect, has each version
    of a row as it arrived until the table is compacted, which ``Ignore`` reads like the topic. It
    also reads rows that were deleted for other reasons.
    """
    kafka: KafkaColumns = KafkaColumns()
    """Columns with the Kafka metadata of each row."""
    watermark: IngestionWatermark | None = None
    """Snapshot property in which ingestion records the time up to which it has written all rows, by
    ``timestampColumn``. Default: ``kafka.connect.valid-through-ts``, which Iceberg's sink for Kafka
    Connect writes, if snapshots have it.
    """
    allow_incomplete: bool = False
    """Whether to allow publish modes ``Replace`` and ``Upsert`` even if rows of the window, its
    warm-up or its drain are known to be missing from this table, as reported by the condition
    ``InputComplete``. If false, such a Backfill is refused before anything runs, because it would
    remove production rows without recomputing them. With other modes, missing rows only cause a
    warning. What is published is limited by ``publish.maxLoss`` all the same.
    """
    live: Live = Live()
    """Input that the source replaces in production, for an unmodified application. Default: the
    Kafka topic with the source's name, whose values are JSON.
    """

    @property
    def topic(self) -> str:
        """Kafka topic that the source replaces, if the application reads it."""
        return self.live.kafka.topic or self.name
