"""Rows of a table in the shape of Spark's Kafka source, for unmodified applications."""

import logging
import struct
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from py4j.java_gateway import JavaObject
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegralType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from backfill.api.errors import InvalidPlanInput, Problem, UnsupportedProgram
from backfill.api.source import KafkaValue, Source
from backfill.runtime.catalyst import (
    Catalyst,
    analyzed,
    children_of,
    elements,
    frame_of,
    kind_of,
    nodes_of,
)
from backfill.runtime.queries.decoded_fields import (
    decoded_fields,
    decoded_of_batch,
    records_in,
)
from backfill.runtime.settings import RuntimeSettings
from backfill.runtime.source.clock import is_source, source_of, topic_of
from backfill.runtime.source.json_values import is_json_value, json_value
from backfill.runtime.source.record_columns import (
    HEADERS,
    HEADERS_TYPE,
    KEY,
    OFFSET,
    PARTITION,
    RECORD_COLUMNS,
    TOPIC,
)
from backfill.runtime.source.record_fields import DecodedField, RecordFields
from backfill.runtime.source.schemas import refuse_names_alike
from backfill.runtime.source.source_frame import planned_tables, source_frame, source_schema
from backfill.runtime.source.timestamp_columns import column_of, microseconds
from backfill.runtime.switching.avro_values import avro_values

_log = logging.getLogger(__name__)
_CONFLUENT = struct.Struct(">bi")
"""Prefix of values by Confluent's serializers: a zero byte and the ID of the schema."""
_CREATE_TIME = 0
"""Kafka's code for a timestamp that the producer has set."""


def kafka_frame(spark: SparkSession, settings: RuntimeSettings, source: str) -> DataFrame:
    """A source of the plan with exactly the columns and types of Spark's Kafka source, including
    ``headers``.

    ``value`` follows ``live.kafka.value``: the row as a JSON object or an Avro record, or one of
    its columns. ``key``, ``partition``, ``offset``, ``timestamp`` and ``headers`` come from the
    source's ``kafka`` columns. Without them, ``timestamp`` is the arrival time, and nothing may
    depend on the others (:func:`missing_record_columns`): ``key`` and ``headers`` are null,
    ``partition`` is 0, and ``offset`` is unique in the source and the same whenever a step is read,
    but not Kafka's.

    Raises:
        InvalidPlanInput: a column is missing or has an unsuitable type, or several differ only in
            case; see also :func:`source_frame`.
    """
    described = next(each for each in settings.sources if each.name == source)
    live = described.live.kafka
    if live.value.column is None and spark.conf.get("spark.sql.caseSensitive") != "true":
        table = planned_tables(settings.plan_workspace)[source]
        refuse_names_alike(source_schema(table, with_record=True), table.source.table)
    frame = source_frame(spark, settings, source, topic=described.topic)
    value, frame = _value(frame, live.value)
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
        record_headers(frame, columns.headers_column or HEADERS).alias("headers"),
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
            (
                HEADERS,
                "headers",
                "headersColumn",
                source.kafka.headerless or source.kafka.headers_column,
                "set it, or set headerless: true if records have no headers",
            ),
        )
        if not given and column in used.get(source.name, ())
    ]


def as_decoded(frame: DataFrame, settings: RuntimeSettings) -> tuple[DataFrame, list[str]]:
    """The frame of a query, with records whose fields have the names and the text that the query
    decodes; and warnings of times that may differ from those in production's records.

    Raises:
        UnsupportedProgram: it decodes fields that no column gives, or not in one way only.
    """
    plan = analyzed(frame)
    sources = {source_of(each) for each in nodes_of(plan) if is_source(each) and topic_of(each)}
    if not sources:
        return frame, []
    try:
        found = decoded_fields(plan, frame.sparkSession)
    except Exception:
        _log.warning(
            "the fields that the application decodes could not be compared with the tables: those"
            " that no column has are decoded as null",
            exc_info=True,
        )
        return frame, []
    fields = _compared({source: found.get(source, []) for source in sources}, settings)
    adapted = {name: each for name, each in fields.items() if each.adapted and name in found}
    if adapted:
        frame = frame_of(frame.sparkSession, _adapted(plan, adapted, frame.sparkSession))
    return frame, _doubtful_times(fields, settings)


def records_of_query(frame: DataFrame) -> dict[int, tuple[str, ...]]:
    """By place, the columns of a query that are whole records, with their sources. Empty if that is
    not known.
    """
    try:
        return records_in(analyzed(frame), frame.sparkSession)
    except Exception:
        _log.warning("what functions of foreachBatch decode is not compared", exc_info=True)
        return {}


def check_decoded_in_function(
    frame: DataFrame,
    rows: AbstractSet[int],
    records: Mapping[int, tuple[str, ...]],
    settings: RuntimeSettings,
) -> list[str]:
    """Checks what a function of ``foreachBatch`` decodes for a frame that it writes, made of these
    rows of a batch. Returns warnings of times that may differ from those in production's records.

    Raises:
        UnsupportedProgram: it decodes fields that the records do not have.
    """
    try:
        found = decoded_of_batch(analyzed(frame), rows, records, frame.sparkSession)
    except Exception:
        _log.warning("what a function of foreachBatch decodes was not compared", exc_info=True)
        return []
    return _doubtful_times(_compared(found, settings, in_function=True), settings)


def _doubtful_times(fields: Mapping[str, RecordFields], settings: RuntimeSettings) -> list[str]:
    return [
        warning
        for place, source in enumerate(settings.sources)
        if source.name in fields and source.live.kafka.value.format == "json"
        for warning in fields[source.name].doubtful_times(place, source.topic)
    ]


def _compared(
    found: Mapping[str, Sequence[DecodedField]],
    settings: RuntimeSettings,
    *,
    in_function: bool = False,
) -> dict[str, RecordFields]:
    """By source, how records give what is decoded.

    Raises:
        UnsupportedProgram: no column gives some of it, or not in one way only.
    """
    sources = [(place, each) for place, each in enumerate(settings.sources) if each.name in found]
    tables, fields = planned_tables(settings.plan_workspace), {}
    for _, source in sources:
        row = _row(source_schema(tables[source.name], with_record=True))
        fields[source.name] = RecordFields(row, source.live.kafka.value)
    mismatches = {
        name: each.fit(found[name], in_function=in_function) for name, each in fields.items()
    }
    lacking = {name: {each.path for each in those} for name, those in mismatches.items()}
    unlike = {
        name: {each.path for each in those if not each.can_be_set}
        for name, those in mismatches.items()
    }
    problems = []
    for place, source in sources:
        those = [
            each
            for each in mismatches[source.name]
            if all(
                each.path in (lacking if each.can_be_set else unlike)[other] for other in each.among
            )
        ]
        if those:
            problem = fields[source.name].problem(place, source.table, source.topic, those)
            problems.append(problem)
    if problems:
        raise UnsupportedProgram(problems)
    return fields


def _adapted(
    node: JavaObject, fields: Mapping[str, RecordFields], spark: SparkSession
) -> JavaObject:
    """The same plan with other records."""
    children = children_of(node)
    if is_source(node) or not children or not node.isStreaming():
        return node
    catalyst = Catalyst(spark)
    if kind_of(node) == "Project" and any(map(_has_json, elements(node.projectList()))):
        (source,) = {source_of(each) for each in nodes_of(node) if is_source(each)}
        if source not in fields:
            return node
        written = frame_of(spark, node.child()).select(json_value(fields[source].written(spark)))
        json = analyzed(written).projectList().apply(0).child().child()

        def changed(expression: JavaObject) -> JavaObject:
            return (
                json if is_json_value(expression) else catalyst.with_operands(expression, changed)
            )

        return catalyst.project(
            [changed(each) for each in elements(node.projectList())], node.child()
        )
    return catalyst.with_children(node, [_adapted(each, fields, spark) for each in children])


def _has_json(expression: JavaObject) -> bool:
    return is_json_value(expression) or any(map(_has_json, children_of(expression)))


def _row(schema: StructType) -> StructType:
    return StructType([each for each in schema if each.name not in RECORD_COLUMNS])


def _value(frame: DataFrame, value: KafkaValue) -> tuple[Column, DataFrame]:
    """The record's value, and the frame that has it as a column."""
    if value.column is not None:
        return _bytes(frame, value.column), frame
    row = _row(frame.schema)
    if value.avro_schema is not None:
        return _framed(F.col("value"), value), avro_values(frame, row.names, value.avro_schema)
    fields = RecordFields(row, value).written(frame.sparkSession)
    return _framed(json_value(fields), value), frame


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


def record_headers(frame: DataFrame, name: str) -> Column:
    """The headers of records, from a column of a frame. Spark gives null for a record without any.

    Raises:
        InvalidPlanInput: there is no such column, or its type is unsuitable.
    """
    column, kind = column_of(frame, name)
    if isinstance(kind, MapType):
        pairs, values = F.map_entries(column), {"key": kind.keyType, "value": kind.valueType}
    elif isinstance(kind, ArrayType) and isinstance(kind.elementType, StructType):
        pairs, values = column, {each.name: each.dataType for each in kind.elementType}
    else:
        pairs, values = column, {}
    if not (
        values.keys() >= {"key", "value"}
        and isinstance(values["key"], StringType)
        and isinstance(values["value"], StringType | BinaryType)
    ):
        wanted = "a list of structs with key and value, or a map of strings to strings or binaries"
        raise _misfit(name, kind, wanted)
    headers = F.transform(
        pairs,
        lambda pair: F.struct(
            pair["key"].alias("key"), pair["value"].cast("binary").alias("value")
        ),
    )
    return F.when(F.size(pairs) > 0, headers).cast(HEADERS_TYPE)


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
