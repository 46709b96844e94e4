"""What the plan of a query says of its inputs, its event times, and what identifies its rows."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import ArrayType, StringType, StructField, StructType

from backfill.runtime.surveying.plans import QueryPlan
from backfill.runtime.surveying.streams import FoundInputs, SurveyingReader, unread_stream
from backfill.runtime.switching.stream_reader import RECORD_KINDS


@pytest.fixture
def clicks(spark: SparkSession) -> DataFrame:
    """Records of a topic, decoded as programs do it."""
    records = unread_stream(spark, "clicks", RECORD_KINDS)
    fields = "id long, happened string, place struct<city string, seen timestamp>"
    decoded = records.select(F.from_json(F.col("value").cast("string"), fields).alias("e"))
    at = F.to_timestamp("e.happened").alias("at")
    return decoded.select(at, "e.id", "e.place").withWatermark("at", "10 minutes")


def test_inputs_fields_and_watermarks_are_followed_to_the_records(clicks: DataFrame) -> None:
    plan = QueryPlan(clicks.select("id"))
    assert plan.inputs == ("clicks",)
    decoded = plan.decoded["clicks"]
    assert (decoded.value, decoded.framed) == ("Json", False)
    assert list(decoded.fields) == ["id", "happened", "place"]
    (watermark,) = plan.watermarks
    assert (watermark.column, watermark.delay_seconds) == ("at", 600)
    assert (watermark.inputs, watermark.fields) == (("clicks",), ("happened",))


def test_times_within_a_field_and_the_record_s_own_are_named(spark: SparkSession) -> None:
    records = unread_stream(spark, "clicks", RECORD_KINDS)
    by_record = QueryPlan(records.withWatermark("timestamp", "1 minute"))
    assert by_record.watermarks[0].fields == ("timestamp",)
    nested = records.select(
        F.from_json(F.col("value").cast("string"), "place struct<seen timestamp>").alias("e")
    ).select(F.col("e.place.seen").alias("seen"))
    assert QueryPlan(nested.withWatermark("seen", "1 minute")).watermarks[0].fields == (
        "place.seen",
    )


def test_values_behind_a_header_are_framed(spark: SparkSession) -> None:
    records = unread_stream(spark, "clicks", RECORD_KINDS)
    text = F.expr("substring(value, 6, length(value) - 5)").cast("string")
    plan = QueryPlan(records.select(F.from_json(text, "id long").alias("e")).select("e.*"))
    assert plan.decoded["clicks"].framed


def test_avro_values_are_known_by_their_schema(avro: SparkSession) -> None:
    schema = """{"type": "record", "name": "click", "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}}
    ]}"""
    value = F.expr("substring(value, 6, length(value) - 5)")
    records = unread_stream(avro, "clicks", RECORD_KINDS)
    clicks = records.select(from_avro(value, schema).alias("e")).select("e.*")
    plan = QueryPlan(clicks.withWatermark("at", "10 minutes"))
    decoded = plan.decoded["clicks"]
    assert (decoded.value, decoded.avro_schema, decoded.framed) == ("Avro", schema, True)
    assert list(decoded.fields) == ["id", "at"]
    assert plan.watermarks[0].fields == ("at",)


def test_a_table_may_have_fields_with_any_names(spark: SparkSession) -> None:
    names = ("user-agent", "@type", "größe", "a.b", "a`b", "a:b", "1st", "select")
    struct = StructType([StructField(each, StringType()) for each in names])
    schema = StructType(
        [StructField(each, StringType()) for each in names]
        + [StructField("all", struct), StructField("list", ArrayType(struct))]
    )
    table = SimpleNamespace(schema=lambda written: ("lake.default.events", schema), inputs={})
    run: Any = None
    read = SurveyingReader(spark, run, cast(FoundInputs, table))._table("default.events")
    assert read.schema == schema


@pytest.mark.parametrize(
    ("query", "groups", "keys"),
    [
        (
            lambda rows: (
                rows.groupBy(F.window("at", "1 hour"), "id")
                .count()
                .select(F.col("window.start").alias("began"), F.col("id").alias("who"), "count")
            ),
            ("window", "id"),
            ("began", "who"),
        ),
        (
            lambda rows: rows.groupBy(F.window("at", "1 hour"), "id").count(),
            ("window", "id"),
            ("window.start", "id"),
        ),
        (
            lambda rows: rows.groupBy(F.window("at", "1 hour"), "id").count().select("window"),
            ("window", "id"),
            (),
        ),
        (
            lambda rows: (
                rows.groupBy(F.session_window("at", "5 minutes"), "id")
                .count()
                .select("session_window.end", "session_window.start", "id")
            ),
            ("session_window", "id"),
            ("start", "id"),
        ),
        (
            lambda rows: rows.dropDuplicates(["id", "at"]).filter("id > 1"),
            ("id", "at"),
            ("id", "at"),
        ),
        (lambda rows: rows.select("id").distinct(), ("id",), ("id",)),
        (lambda rows: rows.filter("id > 1"), (), ()),
    ],
    ids=["window", "struct", "incomplete", "session", "dropDuplicates", "distinct", "stateless"],
)
def test_keys_are_the_columns_that_rows_are_grouped_by(
    clicks: DataFrame,
    query: Callable[[DataFrame], DataFrame],
    groups: tuple[str, ...],
    keys: tuple[str, ...],
) -> None:
    words, found = QueryPlan(query(clicks)).groups
    assert (sorted(words), sorted(found)) == (sorted(groups), sorted(keys))


def test_columns_say_which_of_them_are_event_times(clicks: DataFrame) -> None:
    hourly = clicks.groupBy(F.window("at", "1 hour")).agg(F.max("at").alias("last"))
    plan = QueryPlan(hourly.select(F.col("window.start").alias("began"), "window.end", "last"))
    assert [(each.name, each.is_event_time) for each in plan.columns] == [
        ("began", True),
        ("end", False),
        ("last", False),
    ]
    assert not plan.sessions
    assert QueryPlan(clicks.groupBy(F.session_window("at", "5 minutes")).count()).sessions
    renamed = QueryPlan(clicks.select(F.col("at").alias("moment"), "id")).columns
    assert [each.is_event_time for each in renamed] == [True, False]
