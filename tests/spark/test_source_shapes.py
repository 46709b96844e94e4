"""What an application sees of a row: every type of column, and the shape of a Kafka record."""

import io
import json
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest
from planned_sources import Backfill, committed, planned, wait
from pyiceberg.catalog import Catalog
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

from backfill.api.backfill import BackfillSpec
from backfill.api.errors import InvalidPlanInput
from backfill.runtime.columns import microseconds
from backfill.runtime.kafka_rows import kafka_frame
from backfill.runtime.source import source_frame

START = datetime(2021, 7, 11, tzinfo=UTC)
AT = datetime(2021, 7, 11, 0, 5, 0, 123456)
ID = UUID("6f9619ff-8b86-d011-b42d-00c04fc964ff")
SCHEMA = pa.schema(
    [
        ("at", pa.timestamp("us")),
        ("zoned", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("clock", pa.time64("us")),
        ("uuid", pa.uuid()),
        ("code", pa.binary(3)),
        ("price", pa.decimal128(20, 4)),
        ("ratio", pa.float32()),
        ("flag", pa.bool_()),
        ("user", pa.string()),
        ("payload", pa.binary()),
        ("kafka", pa.struct([("partition", pa.int32()), ("offset", pa.int64()), ("sent_ms", pa.int64())])),
        ("tags", pa.list_(pa.string())),
        ("sizes", pa.map_(pa.string(), pa.int32())),
    ]
)
FULL = {
    "at": AT,
    "zoned": AT.replace(tzinfo=UTC),
    "day": date(2021, 7, 11),
    "clock": time(12, 30, 15, 123456),
    "uuid": ID.bytes,
    "code": b"abc",
    "price": Decimal("-1.0001"),
    "ratio": 0.5,
    "flag": True,
    "user": "ann",
    "payload": b"\x00\xff",
    "kafka": {"partition": 3, "offset": 2**40, "sent_ms": 1_625_961_900_001},
    "tags": ["a", None],
    "sizes": [("s", 7), ("none", None)],
}
EMPTY = dict.fromkeys(FULL) | {"at": AT}


@pytest.fixture
def rows_as(lake: Catalog, tmp_path: Path) -> Iterator[Callable[..., Backfill]]:
    """Plans a source over a table with the rows ``FULL`` and ``EMPTY``; arguments are more fields of the source."""
    made: list[Backfill] = []

    def plan(**source: object) -> Backfill:
        columns = [_column([FULL[name], EMPTY[name]], SCHEMA.field(name).type) for name in SCHEMA.names]
        lake.create_table("raw.events", schema=SCHEMA).append(pa.table(columns, schema=SCHEMA))
        described = {"name": "events", "table": "lake.raw.events", "timestampColumn": "at", **source}
        spec = BackfillSpec.model_validate(
            {
                "applicationRef": {"name": "app"},
                "window": {"start": START, "end": AT.replace(tzinfo=UTC, hour=1)},
                "sources": [described],
            }
        )
        made.append(planned(spec, tmp_path))
        return made[-1]

    yield plan
    for each in made:
        each.stop()


def _column(values: list[object], kind: pa.DataType) -> pa.Array:
    return pa.ExtensionArray.from_storage(kind, pa.array(values, pa.binary(16))) if kind == pa.uuid() else pa.array(values, kind)


def all_rows(backfill: Backfill, frame: DataFrame) -> list[Row]:
    """All rows of a frame, read as a stream."""
    rows: list[Row] = []
    checkpoint = f"{backfill.settings.checkpoints}/rows"
    writer = frame.writeStream.foreachBatch(lambda batch, number: rows.extend(batch.collect()))
    query = writer.queryName("rows").option("checkpointLocation", checkpoint).start()
    backfill.queries.append(query)
    backfill.release(backfill.header.steps)
    wait(lambda: committed(query) > backfill.header.steps, query)
    return rows


def test_every_type_of_column_reaches_the_application(spark: SparkSession, rows_as: Callable[..., Backfill]) -> None:
    backfill = rows_as()
    full, empty = all_rows(backfill, source_frame(spark, backfill.settings, "events"))
    expected = FULL | {"uuid": str(ID), "zoned": AT, "clock": "12:30:15.123456", "sizes": {"s": 7, "none": None}}
    assert full.asDict(recursive=True) == expected
    assert empty.asDict(recursive=True) == EMPTY


def test_a_long_of_nanoseconds_gives_exactly_the_microsecond_it_lies_in(spark: SparkSession) -> None:
    first = 1_625_961_900_123_456_789
    values = [first + 997 * number for number in range(100)] + [-1, -1_000, -1_001, 0, 999, 2**63 - 1, -(2**63)]
    frame = spark.createDataFrame([(value,) for value in values], "ns long")
    found = [row.us for row in frame.select(microseconds(F.col("ns"), LongType(), "ns").alias("us")).collect()]
    assert found == [value // 1_000 for value in values]


TOPIC = {"kafka": {"topic": "raw"}}


def test_the_value_of_a_record_is_the_row_as_json_with_microseconds(
    spark: SparkSession, rows_as: Callable[..., Backfill]
) -> None:
    backfill = rows_as(live=TOPIC)
    frame = kafka_frame(spark, backfill.settings, "events")
    names = "key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int"
    assert frame.schema.simpleString() == f"struct<{names}>"
    assert all(column.nullable for column in frame.schema)
    full, empty = all_rows(backfill, frame)
    value = json.loads(bytes(full.value))
    assert (value["at"], value["zoned"]) == ("2021-07-11T00:05:00.123456", "2021-07-11T00:05:00.123456Z")
    assert (value["user"], value["kafka"], value["tags"]) == ("ann", FULL["kafka"], ["a", None])
    assert json.loads(bytes(empty.value)) == {"at": "2021-07-11T00:05:00.123456"}
    assert (full.key, full.topic, full.partition, full.timestamp, full.timestampType) == (None, "raw", 0, AT, 0)
    assert full.offset != empty.offset


def test_a_program_that_parses_the_value_gets_the_table_back(spark: SparkSession, rows_as: Callable[..., Backfill]) -> None:
    backfill = rows_as(live=TOPIC)
    columns = "at timestamp_ntz, zoned timestamp, day date, price decimal(20, 4), user string, kafka struct<offset: long>"
    value = kafka_frame(spark, backfill.settings, "events").select(F.from_json(F.col("value").cast("string"), columns).alias("v"))
    full, empty = all_rows(backfill, value.select("v.*"))
    assert full.asDict(recursive=True) == {
        "at": AT,
        "zoned": AT,
        "day": FULL["day"],
        "price": FULL["price"],
        "user": "ann",
        "kafka": {"offset": 2**40},
    }
    assert empty.at == AT
    assert empty.user is None


def test_what_kafka_knew_of_a_row_is_taken_from_its_columns(spark: SparkSession, rows_as: Callable[..., Backfill]) -> None:
    columns = {
        "keyColumn": "user",
        "partitionColumn": "kafka.partition",
        "offsetColumn": "kafka.offset",
        "timestampColumn": "kafka.sent_ms",
    }
    value = {"format": "column", "column": "payload"}
    backfill = rows_as(kafka=columns, live={"kafka": {"topic": "raw", "value": value}})
    full, empty = all_rows(backfill, kafka_frame(spark, backfill.settings, "events"))
    assert (bytes(full.key), bytes(full.value), full.partition, full.offset) == (b"ann", b"\x00\xff", 3, 2**40)
    assert full.timestamp == datetime(2021, 7, 11, 0, 5, 0, 1000)
    assert (empty.key, empty.value, empty.offset) == (None, None, None)


def test_the_value_of_a_record_can_be_an_avro_record(spark: SparkSession, rows_as: Callable[..., Backfill]) -> None:
    moment = {"type": "long", "logicalType": "timestamp-micros"}
    fields = [{"name": "at", "type": moment}, {"name": "user", "type": ["null", "string"]}]
    schema = {"type": "record", "name": "Event", "fields": fields}
    value = {"format": "avro", "schema": json.dumps(schema)}
    backfill = rows_as(live={"kafka": {"topic": "raw", "value": value}})
    records = all_rows(backfill, kafka_frame(spark, backfill.settings, "events"))
    decoded = [fastavro.schemaless_reader(io.BytesIO(bytes(record.value)), schema, None) for record in records]
    assert decoded == [{"at": AT.replace(tzinfo=UTC), "user": name} for name in ("ann", None)]


def test_the_time_zone_of_the_session_changes_no_moment(spark: SparkSession, rows_as: Callable[..., Backfill]) -> None:
    backfill = rows_as(live=TOPIC)
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        frame = kafka_frame(spark, backfill.settings, "events")
        moments = frame.select(F.unix_micros("timestamp").alias("us"), F.col("value").cast("string").alias("value"))
        full, _ = all_rows(backfill, moments)
        observed = backfill.queries[0].recentProgress[0].observedMetrics["backfill.source.events"]
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    moment_us = 1_625_961_900_123_456
    assert full.us == observed.min_us == observed.max_us == moment_us
    assert json.loads(full.value)["zoned"] == "2021-07-11T00:05:00.123456Z"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"live": {"kafka": {"topic": "t", "value": {"format": "column", "column": "body"}}}}, "no column body"),
        ({"live": {"kafka": {"topic": "t", "value": {"format": "column", "column": "day"}}}}, "column day has the type date"),
        ({"live": TOPIC, "kafka": {"keyColumn": "kafka.key"}}, r"no column kafka\.key"),
        ({}, "which topic it replaces is not said"),
    ],
)
def test_a_column_that_does_not_fit_a_record_is_named(
    spark: SparkSession, rows_as: Callable[..., Backfill], source: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidPlanInput, match=message):
        kafka_frame(spark, rows_as(**source).settings, "events")
