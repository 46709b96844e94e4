"""Values that a program parses from JSON are the same when the text is left out."""

from collections import Counter
from collections.abc import Callable
from dataclasses import fields
from datetime import UTC, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from every_type import AT, SCHEMA, START, rows_of_every_type
from planned_sources import Backfill, planned
from pyiceberg.catalog import Catalog
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from backfill.api.spec import BackfillSpec
from backfill.runtime.batch import measure_arrivals
from backfill.runtime.batch.arrival_lags import Cells
from backfill.runtime.batch.batch_sources import Leaves
from backfill.runtime.batch.measure_arrivals import measure
from backfill.runtime.batch.rebind_plan import rebind
from backfill.runtime.batch.straight_json import without_json
from backfill.runtime.catalyst import analyzed, elements, kind_of, nodes_of
from backfill.runtime.queries.logical_plan import columns_used_by
from backfill.runtime.switching.kafka_rows import kafka_frame

METRICS = {"write.metadata.metrics.default": "none", "write.metadata.metrics.column.at": "full"}
"""Python has no dates as odd as those below."""


def text() -> Column:
    return F.col("value").cast("string")


def plan_of(lake: Catalog, directory: Path, rows: pa.Table) -> Backfill:
    lake.create_table("raw.events", schema=rows.schema, properties=METRICS).append(rows)
    spec = {
        "applicationRef": {"name": "app"},
        "window": {"start": START, "end": START + timedelta(hours=1)},
        "sources": [
            {
                "name": "events",
                "table": "lake.raw.events",
                "timestampColumn": "at",
                "live": {"kafka": {"topic": "raw"}},
            }
        ],
    }
    return planned(BackfillSpec.model_validate(spec), directory)


def both_ways(
    spark: SparkSession, backfill: Backfill, program: Callable[[DataFrame], DataFrame]
) -> tuple[DataFrame, DataFrame]:
    """A program over JSON text, and without it where that is possible."""
    plan = analyzed(program(kafka_frame(spark, backfill.settings, "events")))
    leaves = Leaves(spark, backfill.settings)

    def leaf(source: str, topic: str | None) -> DataFrame:
        return leaves.frame(source, range(backfill.header.steps), topic)

    return rebind(plan, spark, leaf), rebind(without_json(plan, spark), spark, leaf)


def rows_of(frame: DataFrame) -> Counter[str]:
    return Counter(row.r for row in frame.select(F.to_json(F.struct("*")).alias("r")).collect())


def parses_json(frame: DataFrame) -> bool:
    return "from_json" in frame._jdf.queryExecution().optimizedPlan().toString()


def check(
    spark: SparkSession,
    backfill: Backfill,
    program: Callable[[DataFrame], DataFrame],
    *,
    straight: bool,
) -> None:
    by_text, direct = both_ways(spark, backfill, program)
    assert direct.columns == by_text.columns
    assert parses_json(by_text)
    assert parses_json(direct) != straight
    assert rows_of(direct) == rows_of(by_text)
    assert sum(rows_of(by_text).values()) > 0


@pytest.fixture
def every_type(lake: Catalog, tmp_path: Path) -> Backfill:
    return plan_of(lake, tmp_path, rows_of_every_type())


def through_views(records: DataFrame) -> DataFrame:
    records.createOrReplaceTempView("records")
    return records.sparkSession.sql(
        "WITH parsed AS (SELECT from_json(CAST(value AS STRING), 'user STRING, at TIMESTAMP_NTZ')"
        " AS e FROM records WHERE topic = 'raw') SELECT e.user, e.at FROM parsed"
    )


PROGRAMS: dict[str, Callable[[DataFrame], DataFrame]] = {
    "star": lambda records: records.select(
        F.from_json(text(), "at timestamp_ntz, day date, user string, missing int").alias("e"),
        "timestamp",
    ).select("e.*", "timestamp"),
    "text first": lambda records: records.selectExpr("CAST(value AS STRING) AS body").select(
        F.from_json("body", "user string, `is.flag` boolean").alias("e"), "body"
    ),
    "in a filter": lambda records: records.where(
        F.from_json(text(), "ratio float")["ratio"] > 0.25
    ).select(F.from_json(text(), "price decimal(20,4)")["price"].alias("price")),
    "a struct within": lambda records: records.select(
        F.from_json(text(), "kafka struct<offset: bigint, partition: bigint, more: string>").alias(
            "e"
        )
    ).select("e", F.col("e.kafka").isNull().alias("none"), "e.kafka.offset"),
    "a time without zone as one with": lambda records: records.select(
        F.from_json(text(), "at timestamp")["at"].alias("at")
    ).withWatermark("at", "1 minute"),
    "through views": through_views,
    "with a window over it": lambda records: (
        records.select(F.from_json(text(), "zoned timestamp, user string").alias("e"))
        .select("e.*")
        .withWatermark("zoned", "1 minute")
        .groupBy(F.window("zoned", "5 minutes"), "user")
        .count()
    ),
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_values_that_text_gives_back_go_straight_through(
    spark: SparkSession, every_type: Backfill, program: str
) -> None:
    check(spark, every_type, PROGRAMS[program], straight=True)


KEPT: dict[str, Callable[[DataFrame], DataFrame]] = {
    "options": lambda records: records.select(
        F.from_json(text(), "user string", {"mode": "FAILFAST"}).alias("e")
    ),
    "a number as text": lambda records: records.select(
        F.from_json(text(), "zoned string, user string").alias("e")
    ),
    "the name of corrupt records": lambda records: records.select(
        F.from_json(text(), "user string, _corrupt_record string").alias("e")
    ),
    "a field twice": lambda records: records.select(
        F.from_json(text(), "user string, kafka struct<offset: int>, sizes map<string, int>").alias(
            "e"
        )
    ),
    "text that was changed": lambda records: records.select(
        F.from_json(F.replace(text(), F.lit("ann"), F.lit("eve")), "user string").alias("e")
    ),
    "a union of two texts": lambda records: (
        records.select(text().alias("text"))
        .union(records.select(F.lit('{"user": "eve"}')))
        .select(F.from_json("text", "user string").alias("e"))
    ),
    "text after an explode": lambda records: records.withColumn(
        "part", F.explode(F.array(F.lit(1), F.lit(2)))
    ).select(F.from_json(text(), "user string").alias("e"), "part"),
}


@pytest.mark.parametrize("program", KEPT)
def test_whatever_might_differ_keeps_its_text(
    spark: SparkSession, every_type: Backfill, program: str
) -> None:
    check(spark, every_type, KEPT[program], straight=False)


def test_only_the_columns_that_are_parsed_are_read(
    spark: SparkSession, every_type: Backfill
) -> None:
    records = kafka_frame(spark, every_type.settings, "events")
    plan = analyzed(records.select(F.from_json(text(), "user string").alias("e")).select("e.user"))
    assert columns_used_by(plan, spark)["events"] == set(SCHEMA.names)
    assert columns_used_by(without_json(plan, spark), spark)["events"] == {"at", "user"}


@pytest.mark.parametrize("column", ["at", "zoned"])
def test_when_rows_arrive_is_measured_where_they_are_read(
    spark: SparkSession, every_type: Backfill, monkeypatch: pytest.MonkeyPatch, column: str
) -> None:
    """And not in the JVM; it is the same by either way."""
    records = kafka_frame(spark, every_type.settings, "events")
    parsed = records.select(F.from_json(text(), f"{column} timestamp").alias("e")).select("e.*")
    plan = without_json(analyzed(parsed.withWatermark(column, "1 minute")), spark)
    leaves = Leaves(spark, every_type.settings)

    def measured() -> list[tuple[int, ...]]:
        (found,) = measure(plan, spark, leaves, every_type.header)
        return sorted(
            zip(*(getattr(found.cells, each.name) for each in fields(Cells)), strict=True)
        )

    with monkeypatch.context() as patch:
        patch.setattr(
            measure_arrivals, "_cells_by_spark", lambda *_: pytest.fail("it went by the JVM")
        )
        directly = measured()
    with monkeypatch.context() as patch:
        patch.setattr(measure_arrivals, "handed_on", lambda *_, **__: None)
        assert measured() == directly
    assert directly


ODD = {
    "tiny": (pa.int32(), [-(2**31), 0, 2**31 - 1]),
    "long": (pa.int64(), [-(2**63), 0, 2**63 - 1]),
    "double": (pa.float64(), [float("nan"), float("-inf"), -0.0, 4.9e-324, 1e21, 0.1]),
    "float": (pa.float32(), [float("nan"), float("inf"), -0.0, 1.4e-45, 3.4028235e38, 0.1]),
    "decimal": (pa.decimal128(38, 10), [Decimal("-1E-10"), Decimal("9" * 28), Decimal(0)]),
    "day": (pa.date32(), [-719162, -719163, -141428, 2932896, 2932897, 0]),
    "moment": (
        pa.timestamp("us", "UTC"),
        [-62135596800000001, -62135596800000000, -1, 253402300799999999, 253402300800000000],
    ),
    "local": (
        pa.timestamp("us"),
        [-62135596800000000, -1, 1616898600000000, 1635643800000000, 253402300800000000],
    ),
    "text": (pa.string(), ["", '"\\\n\u2028', "\U0001f600\0", "null", '{"a": 1}']),
}


def odd_rows() -> pa.Table:
    size = max(len(values) for _, values in ODD.values())
    columns = {
        name: pa.array(values + [None] * (size - len(values)), kind)
        for name, (kind, values) in ODD.items()
    }
    raw = [b"\xff\xfe", b"a\xc3", b"\xed\xa0\x80b", b"\xf0\x9f\x98x\x80", b"ok", b""]
    broken = pa.array(raw[:size], pa.binary()).view(pa.string())
    at = pa.array([AT.replace(tzinfo=UTC)] * size, pa.timestamp("us", "UTC"))
    return pa.table({"at": at, **columns, "broken": broken})


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Asia/Kolkata"])
def test_odd_values_are_those_that_parsing_gives(
    spark: SparkSession,
    lake: Catalog,
    tmp_path: Path,
    in_zone: Callable[[str], None],
    zone: str,
) -> None:
    backfill = plan_of(lake, tmp_path, odd_rows())
    schema = (
        "tiny bigint, long bigint, double double, float float, decimal decimal(38,10), day date,"
        " moment timestamp, local timestamp_ntz, text string, broken string"
    )
    in_zone(zone)
    check(
        spark,
        backfill,
        lambda records: records.select(
            F.from_json(text(), schema).alias("e"),
            F.from_json(text(), "local timestamp")["local"].alias("local_moment"),
        ).select("e.*", "local_moment", F.hex("e.broken").alias("bytes")),
        straight=True,
    )


def test_a_program_that_uses_a_hundred_fields_starts_in_seconds(
    spark: SparkSession, lake: Catalog, tmp_path: Path
) -> None:
    """Spark's optimizer would put a struct of all fields into each of them, twice: its time grows
    with the third power of their number.
    """
    names = [f"c{number}" for number in range(100)]
    rows = pa.table(
        {"at": pa.array([START], pa.timestamp("us", "UTC"))}
        | {name: pa.array([number]) for number, name in enumerate(names)}
    )
    backfill = plan_of(lake, tmp_path, rows)
    schema = ", ".join(f"{name} bigint" for name in names)
    records = kafka_frame(spark, backfill.settings, "events")
    parsed = records.select(F.from_json(text(), schema).alias("e")).select("e.*")
    plan = without_json(analyzed(parsed.select(F.hash(*names))), spark)
    taken_apart = [
        expression
        for node in nodes_of(plan)
        for expression in elements(node.expressions())
        if kind_of(expression) == "Alias" and kind_of(expression.child()) == "GetStructField"
    ]
    assert not taken_apart
    assert columns_used_by(plan, spark) == {"events": {"at", *names}}
