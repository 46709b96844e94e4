"""Which queries are known to drop records of Kafka that are read again after history."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from planned_sources import Backfill, planned
from pyiceberg.catalog import Catalog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backfill.api.source import KafkaColumns, KafkaValue
from backfill.api.spec import BackfillSpec
from backfill.runtime.handoff.repeats import sources_read_twice
from backfill.runtime.source.data_source import source_frame
from backfill.runtime.switching.kafka_rows import kafka_frame
from cases import cases

START = datetime(2021, 7, 11, tzinfo=UTC)
SCHEMA = pa.schema([("id", pa.int64()), ("user", pa.string()), ("at", pa.timestamp("us", "UTC"))])
AVRO = KafkaValue.model_validate(
    {
        "format": "avro",
        "schema": '{"type": "record", "name": "event", "fields": [{"name": "id", "type": "long"}]}',
    }
)
Records = Callable[[str], DataFrame]


@pytest.fixture
def backfill(lake: Catalog, tmp_path: Path) -> Iterator[Backfill]:
    sources = []
    for name in ("events", "clicks", "kept"):
        rows = [{"id": n, "user": "u", "at": START + timedelta(seconds=n)} for n in range(3)]
        lake.create_table(f"raw.{name}", schema=SCHEMA).append(pa.Table.from_pylist(rows, SCHEMA))
        sources.append(
            {
                "name": name,
                "table": f"lake.raw.{name}",
                "timestampColumn": "at",
                "live": {"kafka": {"topic": name}},
            }
        )
    window = {"start": START, "end": START + timedelta(minutes=10)}
    spec = BackfillSpec.model_validate(
        {"applicationRef": {"name": "app"}, "window": window, "sources": sources}
    )
    made = planned(spec, tmp_path)
    yield made
    made.stop()


def rows(records: DataFrame) -> DataFrame:
    """What programs make of records."""
    decoded = records.select(
        F.from_json(F.col("value").cast("string"), "id long, user string, at timestamp").alias("e"),
        "timestamp",
    )
    return decoded.select("e.*", "timestamp").withWatermark("at", "1 minute")


def unique(records: DataFrame) -> DataFrame:
    return rows(records).dropDuplicates(["id", "at"])


def counted(frame: DataFrame) -> DataFrame:
    return frame.groupBy(F.window("at", "5 minutes"), "user").count()


def joined(left: DataFrame, right: DataFrame) -> DataFrame:
    near = F.expr("l.id = r.id and l.at = r.at")
    return left.alias("l").join(right.alias("r"), near)


def items(frame: DataFrame) -> DataFrame:
    return frame.withColumn("item", F.explode(F.sequence(F.lit(1), F.col("id"))))


@cases(
    ("query", "repeated"),
    {
        "a count": (lambda read: counted(rows(read("events"))), {"events"}),
        "rows as they are": (lambda read: rows(read("events")), {"events"}),
        "duplicates by a key": (lambda read: unique(read("events")), set()),
        "duplicates for as long as the watermark waits": (
            lambda read: rows(read("events")).dropDuplicatesWithinWatermark(["id"]),
            set(),
        ),
        "duplicates of whole rows": (
            lambda read: rows(read("events")).drop("timestamp").dropDuplicates(),
            set(),
        ),
        "a count without duplicates": (lambda read: counted(unique(read("events"))), set()),
        "duplicates of counts": (
            lambda read: counted(rows(read("events"))).select("window", "count").dropDuplicates(),
            {"events"},
        ),
        "a key that is computed": (
            lambda read: (
                rows(read("events"))
                .where("id > 1")
                .withColumn("key", F.sha2(F.concat("user", "id"), 256))
                .dropDuplicates(["key"])
            ),
            set(),
        ),
        "a key that is made up": (
            lambda read: rows(read("events")).withColumn("key", F.uuid()).dropDuplicates(["key"]),
            {"events"},
        ),
        "a key with the time of reading": (
            lambda read: (
                rows(read("events"))
                .withColumn("read", F.current_timestamp())
                .dropDuplicates(["id", "read"])
            ),
            {"events"},
        ),
        "the parts of a row": (
            lambda read: items(rows(read("events"))).dropDuplicates(["id", "item"]),
            set(),
        ),
        "parts that are made up": (
            lambda read: (
                rows(read("events"))
                .withColumn("part", F.explode(F.array(F.rand(), F.rand())))
                .dropDuplicates(["id", "part"])
            ),
            {"events"},
        ),
        "two topics together": (
            lambda read: (
                rows(read("events")).unionByName(rows(read("clicks"))).dropDuplicates(["id", "at"])
            ),
            set(),
        ),
        "two topics, of which one has another key": (
            lambda read: (
                rows(read("events"))
                .select("id", "at")
                .union(rows(read("clicks")).select(F.hash("timestamp").cast("long"), "at"))
                .dropDuplicates(["id"])
            ),
            {"events", "clicks"},
        ),
        "a join of which one side may have duplicates": (
            lambda read: joined(unique(read("events")), rows(read("clicks"))),
            {"clicks"},
        ),
        "a topic that is read a second time": (
            lambda read: joined(unique(read("events")), rows(read("events"))),
            {"events"},
        ),
        "a join with a source that goes on by offsets": (
            lambda read: joined(unique(read("events")), rows(read("kept"))),
            set(),
        ),
        "duplicates of a join": (
            lambda read: (
                joined(rows(read("events")), rows(read("clicks")))
                .select("l.id")
                .dropDuplicates(["id"])
            ),
            {"events", "clicks"},
        ),
        "the text of values": (
            lambda read: read("events").select("value").dropDuplicates(["value"]),
            {"events"},
        ),
        "a digest of values": (
            lambda read: read("events").select(F.md5("value").alias("id")).dropDuplicates(["id"]),
            {"events"},
        ),
        "the text of values beside what is decoded from it": (
            lambda read: (
                read("events")
                .select(F.col("value").cast("string").alias("value"))
                .withColumn("e", F.from_json("value", "id long"))
                .select("value", "e")
                .dropDuplicates()
            ),
            {"events"},
        ),
        "the record's time": (
            lambda read: rows(read("events")).dropDuplicates(["id", "timestamp"]),
            {"events"},
        ),
        "a watermark by the record's time": (
            lambda read: (
                read("events")
                .select(
                    F.from_json(F.col("value").cast("string"), "id long").alias("e"), "timestamp"
                )
                .withWatermark("timestamp", "1 minute")
                .dropDuplicatesWithinWatermark(["e"])
            ),
            {"events"},
        ),
        "the key of records": (lambda read: read("events").dropDuplicates(["key"]), set()),
        "code of the program below": (
            lambda read: (
                rows(read("events"))
                .mapInArrow(lambda batches: batches, "id long")
                .dropDuplicates(["id"])
            ),
            {"events"},
        ),
    },
)
def test_which_sources_a_query_may_give_twice(
    query: Callable[[Records], DataFrame],
    repeated: set[str],
    spark: SparkSession,
    backfill: Backfill,
) -> None:
    by_time = [each for each in backfill.settings.sources if each.name != "kept"]
    frame = query(lambda name: kafka_frame(spark, backfill.settings, name))
    assert sources_read_twice(frame, by_time) == repeated


def test_nothing_is_read_twice_of_sources_that_go_on_by_offsets(
    spark: SparkSession, backfill: Backfill
) -> None:
    frame = counted(rows(kafka_frame(spark, backfill.settings, "events")))
    assert sources_read_twice(frame, []) == set()


def test_rows_of_a_table_are_known_by_their_columns(
    spark: SparkSession, backfill: Backfill
) -> None:
    frame = source_frame(spark, backfill.settings, "events")
    sources = backfill.settings.sources
    assert sources_read_twice(frame.dropDuplicates(["id"]), sources) == set()
    assert sources_read_twice(frame.select("id"), sources) == {"events"}


def test_records_are_known_by_what_the_table_has_of_them(
    spark: SparkSession, backfill: Backfill
) -> None:
    source = backfill.settings.sources[0]
    assert source.live is not None

    def repeated(kafka: KafkaColumns, value: KafkaValue, *keys: str) -> set[str]:
        live = source.live.model_copy(
            update={"kafka": source.live.kafka.model_copy(update={"value": value})}
        )
        given = source.model_copy(update={"kafka": kafka, "live": live})
        settings = backfill.settings.model_copy(update={"sources": (given,)})
        frame = kafka_frame(spark, settings, "events")
        return sources_read_twice(frame.dropDuplicates(keys), [given])

    column = KafkaValue(format="column", column="user")
    assert repeated(KafkaColumns(timestamp_column="at"), KafkaValue(), "timestamp") == set()
    assert repeated(KafkaColumns(), KafkaValue(), "timestamp") == {"events"}
    assert repeated(KafkaColumns(), column, "value") == set()
    assert repeated(KafkaColumns(), AVRO, "value") == {"events"}
