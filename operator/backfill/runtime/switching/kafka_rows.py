"""Rows of a table in the shape of Spark's Kafka source, for unmodified applications."""

import struct
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DataType, IntegralType, StringType, TimestampType

from backfill.api.errors import InvalidPlanInput, Problem
from backfill.api.source import KafkaValue, LiveKafka, Source
from backfill.runtime.settings import RuntimeSettings
from backfill.runtime.source.data_source import source_frame
from backfill.runtime.source.json_values import json_value
from backfill.runtime.source.record_columns import KEY, OFFSET, PARTITION, RECORD_COLUMNS, TOPIC
from backfill.runtime.source.timestamp_columns import column_of, microseconds
from backfill.runtime.switching.avro_values import avro_values

_CONFLUENT = struct.Struct(">bi")
"""Prefix of values by Confluent's serializers: a zero byte and the ID of the schema."""
_CREATE_TIME = 0
"""Kafka's code for a timestamp that the producer has set."""


def kafka_frame(spark: SparkSession, settings: RuntimeSettings, source: str) -> DataFrame:
    """A source of the plan with exactly the columns and types of Spark's Kafka source.

    ``value`` follows ``live.kafka.value``: the row as a JSON object or an Avro record, or one of
    its columns. ``key``, ``partition``, ``offset`` and ``timestamp`` come from the source's
    ``kafka`` columns. Without them, ``timestamp`` is the arrival time, and nothing may depend on
    the others (:func:`missing_record_columns`): ``key`` is null, ``partition`` is 0, and ``offset``
    is unique in the source and the same whenever a step is read, but not Kafka's.

    Raises:
        InvalidPlanInput: a column is missing or has an unsuitable type; see also
            :func:`source_frame`.
    """
    described = next(each for each in settings.sources if each.name == source)
    live = _live(described)
    frame = source_frame(spark, settings, source, topic=live.topic)
    rows = [name for name in frame.columns if name not in RECORD_COLUMNS]
    value, frame = _value(frame, rows, live.value)
    columns = described.kafka
    # With expressions over nullable columns the whole result is nullable,
    # as are the columns of Spark's Kafka source.
    return frame.select(
        _bytes(frame, columns.key_column or KEY).alias("key"),
        value.alias("value"),
        F.col(TOPIC).alias("topic"),
        _number(frame, columns.partition_column or PARTITION).cast("int").alias("partition"),
        _number(frame, columns.offset_column or OFFSET).cast("bigint").alias("offset"),
        _timestamp(frame, described).alias("timestamp"),
        F.when(F.col(TOPIC).isNotNull(), F.lit(_CREATE_TIME)).alias("timestampType"),
    )


def missing_record_columns(
    sources: Sequence[Source], used: Mapping[str, AbstractSet[str]]
) -> list[Problem]:
    """Columns of Kafka records that a query uses and that no column of its source provides.

    Args:
        sources: all sources of the Backfill.
        used: the columns that the query uses, by source.
    """
    return [
        Problem(
            f"spec.sources[{place}].kafka.{field}",
            f"the application uses the {what} of Kafka records, but source {source.name} does not"
            " specify which column contains it",
            f"{fix}; if the {what} does not matter, select the columns that do before passing"
            " whole rows to a function",
        )
        for place, source in enumerate(sources)
        for column, what, field, given, fix in (
            (
                KEY,
                "key",
                "keyColumn",
                source.kafka.keyless or source.kafka.key_column,
                "set it, or set keyless: true if records have no key",
            ),
            (PARTITION, "partition", "partitionColumn", source.kafka.partition_column, "set it"),
            (OFFSET, "offset", "offsetColumn", source.kafka.offset_column, "set it"),
        )
        if not given and column in used.get(source.name, ())
    ]


def _live(source: Source) -> LiveKafka:
    if source.live is None:
        message = f"source {source.name} is read like a Kafka topic, but has no live.kafka.topic"
        raise InvalidPlanInput(Problem("spec.sources", message, "add live.kafka.topic to it"))
    return source.live.kafka


def _value(frame: DataFrame, rows: list[str], value: KafkaValue) -> tuple[Column, DataFrame]:
    """The record's value, and the frame that has it as a column."""
    if value.column is not None:
        return _bytes(frame, value.column), frame
    if value.avro_schema is not None:
        return _framed(F.col("value"), value), avro_values(frame, rows, value.avro_schema)
    return _framed(json_value(rows), value), frame


def _framed(encoded: Column, value: KafkaValue) -> Column:
    if value.schema_id is None:
        return encoded
    header = F.lit(_CONFLUENT.pack(0, value.schema_id))
    # a legacy property of Spark turns concatenated bytes into strings
    return F.concat(header, encoded).cast("binary")


def _bytes(frame: DataFrame, name: str) -> Column:
    column, kind = column_of(frame, name)
    if not isinstance(kind, StringType | BinaryType):
        raise _misfit(name, kind, "a string or binary column")
    return column.cast("binary")


def _number(frame: DataFrame, name: str) -> Column:
    column, kind = column_of(frame, name)
    if not isinstance(kind, IntegralType):
        raise _misfit(name, kind, "an integer column")
    return column


def _timestamp(frame: DataFrame, source: Source) -> Column:
    """The record's timestamp. A number in a column of its own is in milliseconds, as in Kafka."""
    name, unit = source.kafka.timestamp_column, "ms"
    if name is None:
        name, unit = source.timestamp_column, source.timestamp_unit or "us"
    column, kind = column_of(frame, name)
    return (
        column
        if isinstance(kind, TimestampType)
        else F.timestamp_micros(microseconds(column, kind, unit))
    )


def _misfit(name: str, kind: DataType, wanted: str) -> InvalidPlanInput:
    return InvalidPlanInput(
        Problem(
            "spec.sources", f"column {name} has the type {kind.simpleString()}", f"use {wanted}"
        )
    )
