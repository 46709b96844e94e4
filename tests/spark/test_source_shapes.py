"""What an application sees of a row: every type of column, and the shape of a Kafka record."""

import io
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import fastavro
import pytest
from every_type import AT, EMPTY, FULL, ID, SCHEMA, START, rows_of_every_type
from planned_sources import Backfill, committed, planned, wait
from pyiceberg.catalog import Catalog
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

from backfill.api.errors import InvalidPlanInput
from backfill.api.spec import BackfillSpec
from backfill.runtime.queries.progress_listener import committed_batch
from backfill.runtime.source.source_frame import source_frame
from backfill.runtime.source.timestamp_columns import column_of, microseconds
from backfill.runtime.switching.kafka_rows import kafka_frame, record_headers
from backfill.runtime.switching.source_frames import SourceFrames


@pytest.fixture
def rows_as(lake: Catalog, tmp_path: Path) -> Iterator[Callable[..., Backfill]]:
    """Plans a source over a table with the rows ``FULL`` and ``EMPTY``; arguments are more fields
    of the source.
    """
    made: list[Backfill] = []

    def plan(**source: object) -> Backfill:
        lake.create_table("raw.events", schema=SCHEMA).append(rows_of_every_type())
        described = {
            "name": "events",
            "table": "lake.raw.events",
            "timestampColumn": "at",
            **source,
        }
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


def all_rows(backfill: Backfill, frame: DataFrame) -> list[Row]:
    """All rows of a frame, read as a stream."""
    rows: list[Row] = []
    query = backfill.start(frame, sink=lambda batch, _number: rows.extend(batch.collect()))
    backfill.release(backfill.header.steps)
    wait(lambda: committed(query) > backfill.header.steps, query)
    return rows


def test_every_type_of_column_reaches_the_application(
    spark: SparkSession, rows_as: Callable[..., Backfill]
) -> None:
    backfill = rows_as()
    full, empty = all_rows(backfill, source_frame(spark, backfill.settings, "events"))
    expected = FULL | {
        "uuid": str(ID),
        "zoned": AT,
        "clock": "12:30:15.123456",
        "sizes": {"s": 7, "none": None},
    }
    assert full.asDict(recursive=True) == expected
    assert empty.asDict(recursive=True) == EMPTY


def test_a_long_of_nanoseconds_gives_exactly_the_microsecond_it_lies_in(
    spark: SparkSession,
) -> None:
    first = 1_625_961_900_123_456_789
    values = [first + 997 * number for number in range(100)] + [
        -1,
        -1_000,
        -1_001,
        0,
        999,
        2**63 - 1,
        -(2**63),
    ]
    frame = spark.createDataFrame([(value,) for value in values], "ns long")
    found = [
        row.us
        for row in frame.select(microseconds(F.col("ns"), LongType(), "ns").alias("us")).collect()
    ]
    assert found == [value // 1_000 for value in values]


TOPIC = {"kafka": {"topic": "raw"}}


def test_the_value_of_a_record_is_the_row_as_json_with_microseconds(
    spark: SparkSession, rows_as: Callable[..., Backfill]
) -> None:
    backfill = rows_as()
    frame = kafka_frame(spark, backfill.settings, "events")
    names = "key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>"
    assert frame.schema.simpleString() == f"struct<{names}>"
    assert all(column.nullable for column in frame.schema)
    full, empty = all_rows(backfill, frame)
    value = json.loads(bytes(full.value))
    assert (value["at"], value["zoned"]) == (
        "2021-07-11T00:05:00.123456",
        "2021-07-11T00:05:00.123456Z",
    )
    assert (value["user"], value["kafka"], value["tags"]) == ("ann", FULL["kafka"], ["a", None])
    assert json.loads(bytes(empty.value)) == {"at": "2021-07-11T00:05:00.123456"}
    assert (full.key, full.topic, full.partition, full.timestamp, full.timestampType) == (
        None,
        "events",
        0,
        AT,
        0,
    )
    assert full.offset != empty.offset
    assert full.headers is None


HEADERS = [Row(key="trace", value=bytearray(b"1")), Row(key="none", value=None)]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("array<struct<key: string, value: binary>>", HEADERS),
        (
            "array<struct<value: string, key: string>>",
            [Row(value="1", key="trace"), (None, "none")],
        ),
        ("map<string, string>", {"trace": "1", "none": None}),
        ("map<string, binary>", {"trace": bytearray(b"1"), "none": None}),
    ],
)
def test_headers_are_what_spark_reads_from_kafka_however_the_table_has_them(
    spark: SparkSession, kind: str, value: object
) -> None:
    empty: object = {} if kind.startswith("map") else []
    rows = spark.createDataFrame([(value,), (empty,), (None,)], f"h {kind}")
    found = rows.select(record_headers(rows, "h").alias("headers"))
    assert found.schema.simpleString() == "struct<headers:array<struct<key:string,value:binary>>>"
    assert [row.headers for row in found.collect()] == [HEADERS, None, None]


@pytest.mark.parametrize("kind", ["string", "array<string>", "map<string, int>"])
def test_a_column_that_cannot_be_headers_is_refused(spark: SparkSession, kind: str) -> None:
    rows = spark.createDataFrame([], f"h {kind}")
    with pytest.raises(
        InvalidPlanInput, match="use a list of structs with key and value, or a map"
    ):
        record_headers(rows, "h")


def test_a_program_that_parses_the_value_gets_the_table_back(
    spark: SparkSession, rows_as: Callable[..., Backfill]
) -> None:
    backfill = rows_as(live=TOPIC)
    columns = (
        "at timestamp_ntz, zoned timestamp, day date, price decimal(20, 4), user string, kafka"
        " struct<offset: long>"
    )
    value = kafka_frame(spark, backfill.settings, "events").select(
        F.from_json(F.col("value").cast("string"), columns).alias("v")
    )
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


def test_what_kafka_knew_of_a_row_is_taken_from_its_columns(
    spark: SparkSession, rows_as: Callable[..., Backfill]
) -> None:
    columns = {
        "keyColumn": "user",
        "partitionColumn": "kafka.partition",
        "offsetColumn": "kafka.offset",
        "timestampColumn": "kafka.sent_ms",
    }
    value = {"format": "column", "column": "payload"}
    backfill = rows_as(kafka=columns, live={"kafka": {"topic": "raw", "value": value}})
    full, empty = all_rows(backfill, kafka_frame(spark, backfill.settings, "events"))
    assert (bytes(full.key), bytes(full.value), full.partition, full.offset) == (
        b"ann",
        b"\x00\xff",
        3,
        2**40,
    )
    assert full.timestamp == datetime(2021, 7, 11, 0, 5, 0, 1000)
    assert (empty.key, empty.value, empty.offset) == (None, None, None)


def test_the_value_of_a_record_can_be_an_avro_record(
    spark: SparkSession, rows_as: Callable[..., Backfill]
) -> None:
    moment = {"type": "long", "logicalType": "timestamp-micros"}
    fields = [{"name": "at", "type": moment}, {"name": "user", "type": ["null", "string"]}]
    schema = {"type": "record", "name": "Event", "fields": fields}
    value = {"format": "avro", "schema": json.dumps(schema)}
    backfill = rows_as(live={"kafka": {"topic": "raw", "value": value}})
    records = all_rows(backfill, kafka_frame(spark, backfill.settings, "events"))
    decoded = [
        fastavro.schemaless_reader(io.BytesIO(bytes(record.value)), schema, None)
        for record in records
    ]
    assert decoded == [{"at": AT.replace(tzinfo=UTC), "user": name} for name in ("ann", None)]


def test_a_program_that_strips_confluents_framing_decodes_the_record(
    spark: SparkSession, rows_as: Callable[..., Backfill]
) -> None:
    schema = {
        "type": "record",
        "name": "Event",
        "fields": [{"name": "user", "type": ["null", "string"]}],
    }
    value = {
        "format": "avro",
        "schema": json.dumps(schema),
        "framing": "Confluent",
        "schemaId": 258,
    }
    backfill = rows_as(live={"kafka": {"topic": "raw", "value": value}})
    frame = kafka_frame(spark, backfill.settings, "events").select(
        "value", F.expr("substring(value, 6)").alias("body")
    )
    records = all_rows(backfill, frame)
    assert [bytes(record.value[:5]) for record in records] == [b"\x00\x00\x00\x01\x02"] * 2
    decoded = [
        fastavro.schemaless_reader(io.BytesIO(bytes(record.body)), schema, None)
        for record in records
    ]
    assert decoded == [{"user": "ann"}, {"user": None}]


def test_json_can_have_confluents_framing_too(
    spark: SparkSession, rows_as: Callable[..., Backfill]
) -> None:
    value = {"framing": "Confluent", "schemaId": 2**31 - 1}
    backfill = rows_as(live={"kafka": {"topic": "raw", "value": value}})
    full, _ = all_rows(backfill, kafka_frame(spark, backfill.settings, "events"))
    assert bytes(full.value[:5]) == b"\x00\x7f\xff\xff\xff"
    assert json.loads(bytes(full.value[5:]))["user"] == "ann"


def test_a_schema_that_is_none_is_refused_before_anything_runs(
    spark: SparkSession, rows_as: Callable[..., Backfill]
) -> None:
    value = {
        "format": "avro",
        "schema": '{"type": "record", "name": "E", "fields": [{"name": "a", "type": "text"}]}',
    }
    with pytest.raises(
        InvalidPlanInput, match=r"live\.kafka\.value\.schema is not a valid Avro schema: text"
    ):
        kafka_frame(
            spark, rows_as(live={"kafka": {"topic": "raw", "value": value}}).settings, "events"
        )


@pytest.fixture
def in_new_york(in_zone: Callable[[str], None]) -> None:
    """A session as a program makes it that counts days in local time."""
    in_zone("America/New_York")


@pytest.mark.usefixtures("in_new_york")
def test_the_time_zone_of_the_session_changes_no_moment(
    spark: SparkSession, rows_as: Callable[..., Backfill]
) -> None:
    backfill = rows_as(live=TOPIC)
    text = F.col("value").cast("string")
    parsed = F.from_json(text, "at timestamp_ntz, zoned timestamp")
    frame = kafka_frame(spark, backfill.settings, "events").select(
        F.unix_micros("timestamp").alias("us"),
        text.alias("value"),
        F.unix_micros(parsed["zoned"]).alias("zoned_us"),
        parsed["at"].cast("string").alias("at"),
    )
    full, _ = all_rows(backfill, frame)
    (observed,) = backfill.queries[0].recentProgress[0].observedMetrics.values()
    moment_us = 1_625_961_900_123_456
    assert full.us == full.zoned_us == observed.min_us == observed.max_us == moment_us
    value = json.loads(full.value)
    assert (value["at"], value["zoned"], value["day"]) == (
        AT.isoformat(),
        f"{AT.isoformat()}Z",
        "2021-07-11",
    )
    assert full.at == str(AT)


@pytest.mark.usefixtures("in_new_york")
def test_the_time_zone_of_the_session_changes_no_avro_value(
    spark: SparkSession, rows_as: Callable[..., Backfill]
) -> None:
    local = {"type": "long", "logicalType": "local-timestamp-micros"}
    schema = {
        "type": "record",
        "name": "Event",
        "fields": [
            {"name": "at", "type": local},
            {"name": "zoned", "type": ["null", local]},
            {"name": "sizes", "type": ["null", {"type": "map", "values": ["null", "int"]}]},
        ],
    }
    value = {"format": "avro", "schema": json.dumps(schema)}
    backfill = rows_as(live={"kafka": {"topic": "raw", "value": value}})
    full, empty = all_rows(backfill, kafka_frame(spark, backfill.settings, "events"))
    read = [
        fastavro.schemaless_reader(io.BytesIO(bytes(each.value)), schema, None)
        for each in (full, empty)
    ]
    assert read == [
        {"at": AT, "zoned": AT, "sizes": {"s": 7, "none": None}},
        {"at": AT, "zoned": None, "sizes": None},
    ]


def test_one_query_can_read_a_source_in_both_shapes_and_counts_its_rows_once(
    spark: SparkSession, rows_as: Callable[..., Backfill]
) -> None:
    backfill = rows_as(live=TOPIC)
    frames = SourceFrames(backfill.settings)
    users = F.from_json(F.col("value").cast("string"), "user string")["user"].alias("user")
    records, rows = frames.kafka(spark, "events", headers=False), frames.rows(spark, "events")
    both = (
        records.select("timestamp", users)
        .union(rows.select("at", "user"))
        .union(frames.rows(spark, "events").select("at", "user"))
    )
    found = all_rows(backfill, both)
    assert sorted(str(row.user) for row in found) == ["None"] * 3 + ["ann"] * 3
    assert {row.timestamp for row in found} == {AT}
    first = committed_batch(backfill.queries[0].recentProgress[0])
    assert first is not None
    assert (first.rows, first.end) == ({"events": 2}, 1)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            {"live": {"kafka": {"topic": "t", "value": {"format": "column", "column": "body"}}}},
            "no column body",
        ),
        (
            {"live": {"kafka": {"topic": "t", "value": {"format": "column", "column": "day"}}}},
            "column day has the type date",
        ),
        ({"live": TOPIC, "kafka": {"keyColumn": "kafka.key"}}, r"no column kafka\.key"),
    ],
)
def test_a_column_that_does_not_fit_a_record_is_named(
    spark: SparkSession, rows_as: Callable[..., Backfill], source: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidPlanInput, match=message):
        kafka_frame(spark, rows_as(**source).settings, "events")


def test_a_column_is_found_by_its_name_also_with_dots_in_it(spark: SparkSession) -> None:
    frame = spark.sql("select 1 as `a.b`, named_struct('b.c', 2, 'd', named_struct('e`f', 3)) as a")
    names = ["a.b", "a.b.c", "a.d.e`f"]
    assert [frame.select(column_of(frame, name)[0]).first()[0] for name in names] == [1, 2, 3]
    with pytest.raises(InvalidPlanInput, match=r"no column a\.c in the input"):
        column_of(frame, "a.c")
