"""Columns that no query looks at are not read, and no query can tell."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from planned_sources import Backfill, committed, planned, wait
from pyiceberg.catalog import Catalog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backfill.api.backfill import BackfillSpec
from backfill.runtime.kafka_rows import kafka_frame
from backfill.runtime.plans import columns_used
from backfill.runtime.source import source_frame
from backfill.runtime.used_columns import add_used_columns, used_columns_path

START = datetime(2021, 7, 11, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("user", pa.string()),
        ("place", pa.struct([("city", pa.string()), ("zone", pa.int32())])),
        pa.field("kind", pa.string(), nullable=False),
        ("at", pa.timestamp("us", "UTC")),
    ]
)
ALWAYS = {"at"}
"""It is observed what was read of it."""


@pytest.fixture
def backfill(lake: Catalog, tmp_path: Path) -> Iterator[Backfill]:
    rows = [
        {
            "id": number,
            "user": f"u{number % 2}",
            "place": {"city": "Oslo", "zone": number},
            "kind": "play",
            "at": START + timedelta(seconds=number),
        }
        for number in range(10)
    ]
    lake.create_table("raw.events", schema=SCHEMA).append(pa.Table.from_pylist(rows, SCHEMA))
    source = {"name": "events", "table": "lake.raw.events", "timestampColumn": "at", "live": {"kafka": {"topic": "events"}}}
    window = {"start": START, "end": START + timedelta(minutes=10)}
    spec = BackfillSpec.model_validate({"applicationRef": {"name": "app"}, "window": window, "sources": [source]})
    made = planned(spec, tmp_path)
    yield made
    made.stop()


def copied(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def joined(frame: DataFrame) -> DataFrame:
    left, right = frame.withWatermark("at", "1 minute").alias("l"), frame.withWatermark("at", "1 minute").alias("r")
    return left.join(right, F.expr("l.id = r.id and l.at = r.at")).select("l.id", "r.place.city")


@pytest.mark.parametrize(
    ("query", "used"),
    [
        pytest.param(lambda frame: frame.select("user"), {"user"}, id="a selection reads what it names"),
        pytest.param(lambda frame: frame.where("id > 3").select("user"), {"id", "user"}, id="a filter reads what it compares"),
        pytest.param(lambda frame: frame.select("place.city"), {"place"}, id="a field of a struct reads the struct"),
        pytest.param(
            lambda frame: frame.groupBy(F.window("at", "1 minute")).count(), set(), id="a count reads no more than times"
        ),
        pytest.param(lambda frame: frame.drop("user"), {"id", "place", "kind"}, id="what is given out is read"),
        pytest.param(joined, {"id", "place"}, id="both sides of a join with itself count"),
        pytest.param(
            lambda frame: frame.mapInArrow(
                copied, "id long, user string, place struct<city string, zone int>, kind string, at timestamp"
            ),
            {"id", "user", "place", "kind"},
            id="a function of whole rows reads everything",
        ),
    ],
)
def test_what_a_query_uses(
    query: Callable[[DataFrame], DataFrame], used: set[str], spark: SparkSession, backfill: Backfill
) -> None:
    frame = source_frame(spark, backfill.settings, "events")
    assert columns_used(query(frame)) == {"events": used | ALWAYS}


def test_a_kafka_record_uses_every_column_as_far_as_its_value_is_looked_at(spark: SparkSession, backfill: Backfill) -> None:
    frame = kafka_frame(spark, backfill.settings, "events")
    assert {"id", "user", "place", "kind"} <= columns_used(frame.select("value"))["events"]
    assert "user" not in columns_used(frame.select("offset"))["events"]


def test_rows_are_right_in_the_columns_used_and_the_others_are_null(spark: SparkSession, backfill: Backfill) -> None:
    path = used_columns_path(backfill.settings.scratch, "events")
    frame = source_frame(spark, backfill.settings, "events")
    add_used_columns(path, columns_used(frame.select("id"))["events"])
    add_used_columns(path, columns_used(frame.select("place.zone"))["events"])
    query = backfill.start(frame)  # gives out more than was told of
    backfill.release(backfill.header.steps)
    wait(lambda: committed(query) == backfill.header.steps + 1, query)
    rows = [row.asDict(recursive=True) for row in backfill.results(spark).orderBy("id").collect()]
    assert [row["id"] for row in rows] == [row["place"]["zone"] for row in rows] == list(range(10))
    assert {(row["user"], row["kind"]) for row in rows} == {(None, None)}
