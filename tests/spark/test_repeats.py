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
from pyspark.sql.avro.functions import from_avro

from backfill.api.source import KafkaColumns, KafkaValue
from backfill.api.spec import BackfillSpec
from backfill.runtime.hand_off.repeated_records import sources_read_twice
from backfill.runtime.named_sources import _as_declared
from backfill.runtime.source.source_frame import source_frame
from backfill.runtime.switching.kafka_rows import kafka_frame
from cases import cases

START = datetime(2021, 7, 11, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("user", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(10, 2)),
        ("place", pa.struct([("city", pa.string()), ("code", pa.int32())])),
        (
            "visits",
            pa.list_(pa.struct([("page", pa.string()), ("left", pa.timestamp("us", "UTC"))])),
        ),
        ("tags", pa.map_(pa.string(), pa.string())),
    ]
)
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


def decoded_as(
    fields: str, options: dict[str, str] | None = None
) -> Callable[[Records], DataFrame]:
    """What programs make of records that they decode otherwise."""

    def read_as(read: Records) -> DataFrame:
        value = F.col("value").cast("string")
        return read("events").select(F.from_json(value, fields, options or {}).alias("e"))

    return read_as


def whole_rows(
    fields: str, options: dict[str, str] | None = None
) -> Callable[[Records], DataFrame]:
    decoded = decoded_as(fields, options)
    return lambda read: decoded(read).select("e.*").dropDuplicates()


def by(key: str, fields: str) -> Callable[[Records], DataFrame]:
    decoded = decoded_as(fields)
    return lambda read: decoded(read).selectExpr(f"{key} AS key").dropDuplicates(["key"])


def unique(records: DataFrame) -> DataFrame:
    return rows(records).dropDuplicates(["id", "at"])


def counted(frame: DataFrame) -> DataFrame:
    return frame.groupBy(F.window("at", "5 minutes"), "user").count()


def joined(left: DataFrame, right: DataFrame) -> DataFrame:
    near = F.expr("l.id = r.id and l.at = r.at")
    return left.alias("l").join(right.alias("r"), near)


def items(frame: DataFrame) -> DataFrame:
    return frame.withColumn("item", F.explode(F.sequence(F.lit(1), F.col("id"))))


DECODED: dict[str, tuple[Callable[[Records], DataFrame], set[str]]] = {
    "a time as text": (by("e.at", "id long, at string"), {"events"}),
    "a digest with a time as text": (
        by("sha2(concat(e.id, e.at), 256)", "id long, at string"),
        {"events"},
    ),
    "rows with a time as text": (whole_rows("id long, at string"), {"events"}),
    "another field of rows with a time as text": (by("e.id", "id long, at string"), set()),
    "a time as a number": (by("e.at", "at long"), {"events"}),
    "text as a time": (by("e.user", "user timestamp"), set()),
    "text as a number": (by("e.user", "user long"), {"events"}),
    "a number as another one": (by("e.id", "id double"), set()),
    "a fraction as a whole number": (by("e.price", "price long"), {"events"}),
    "a fraction as another one": (by("e.price", "price double"), set()),
    "a fraction as text": (by("e.price", "price string"), {"events"}),
    "all fields in a map": (
        lambda read: (
            read("events")
            .select(
                F.from_json(F.col("value").cast("string"), "map<string,string>")["id"].alias("key")
            )
            .dropDuplicates()
        ),
        {"events"},
    ),
    "a field that is a map": (by("e.tags['a']", "tags map<string,string>"), {"events"}),
    "an object": (by("e.place", "place struct<city:string,code:int>"), set()),
    "an object as text": (by("e.place", "place string"), {"events"}),
    "a number in an object as text": (
        by("e.place", "place struct<city:string,code:string>"),
        {"events"},
    ),
    "another field of such an object": (
        by("e.place.city", "place struct<city:string,code:string>"),
        set(),
    ),
    "a field that an object of the table lacks": (
        by("e.place", "place struct<city:string,street:string>"),
        {"events"},
    ),
    "a list": (by("e.visits", "visits array<struct<page:string,left:timestamp>>"), set()),
    "a list as text": (by("e.visits", "visits string"), {"events"}),
    "a time in a list as text": (
        by("e.visits", "visits array<struct<left:string>>"),
        {"events"},
    ),
    "parts of a list with a time as text": (
        lambda read: (
            decoded_as("id long, visits array<struct<page:string,left:string>>")(read)
            .select("e.id", F.explode("e.visits").alias("visit"))
            .select("id", "visit.page")
            .dropDuplicates()
        ),
        {"events"},
    ),
    "rows with a field that the table lacks": (
        whole_rows("id long, version string"),
        {"events"},
    ),
    "a field in another case than the table's": (by("e.ID", "ID long"), {"events"}),
    "another field of rows with one that the table lacks": (
        by("e.id", "id long, version string"),
        set(),
    ),
    "rows with the text that is no record": (
        whole_rows("id long, _corrupt_record string"),
        {"events"},
    ),
    "rows with times of a form of their own": (
        whole_rows("id long, at timestamp", {"timestampFormat": "yyyy-MM-dd"}),
        {"events"},
    ),
    "a record in the text of a record": (
        lambda read: (
            decoded_as("user string")(read)
            .select(F.from_json("e.user", "name string").alias("user"))
            .dropDuplicates()
        ),
        set(),
    ),
    "a record in the text of an object": (
        lambda read: (
            decoded_as("place string")(read)
            .select(F.from_json("e.place", "city string").alias("place"))
            .dropDuplicates()
        ),
        {"events"},
    ),
    "a part of a record that is decoded": (
        lambda read: (
            read("events")
            .select(F.get_json_object(F.col("value").cast("string"), "$.place").alias("text"))
            .select(F.from_json("text", "id long").alias("place"))
            .dropDuplicates()
        ),
        {"events"},
    ),
    "records without their prefix": (
        lambda read: (
            read("events")
            .select(
                F.from_json(
                    F.decode(F.expr("substring(value, 6, length(value) - 5)"), "UTF-8"),
                    "id long",
                ).alias("e")
            )
            .dropDuplicates()
        ),
        set(),
    ),
}
"""Queries by what they decode and compare, and the sources that they may give twice."""


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


def test_a_key_is_known_if_it_is_decoded_as_what_the_table_has(
    spark: SparkSession, backfill: Backfill
) -> None:
    found = {
        name: sources_read_twice(
            query(lambda source: kafka_frame(spark, backfill.settings, source)),
            backfill.settings.sources,
        )
        for name, (query, _) in DECODED.items()
    }
    assert found == {name: repeated for name, (_, repeated) in DECODED.items()}


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


def test_rows_of_a_named_source_are_known_by_the_types_that_are_declared(
    spark: SparkSession, backfill: Backfill
) -> None:
    rows = source_frame(spark, backfill.settings, "events")

    def repeated(declared: str, key: str) -> bool:
        frame = _as_declared(rows, declared, "events").dropDuplicates([key])
        return bool(sources_read_twice(frame, backfill.settings.sources))

    assert not repeated("id long, user string, at timestamp", "at")
    assert repeated("id long, at string", "at")
    assert not repeated("id long, at string", "id")
    assert repeated("price string", "price")
    assert not repeated("ID double", "ID")
    assert not repeated("place struct<city:string,code:int>", "place")
    assert repeated("place struct<city:string,code:string>", "place")


def test_text_that_the_program_makes_of_declared_columns_is_known(
    spark: SparkSession, backfill: Backfill
) -> None:
    frame = _as_declared(source_frame(spark, backfill.settings, "events"), "at timestamp", "events")
    frame = frame.select(F.col("at").cast("string").alias("at"))
    assert sources_read_twice(frame.dropDuplicates(["at"]), backfill.settings.sources) == set()


def test_records_are_known_by_what_the_table_has_of_them(
    spark: SparkSession, backfill: Backfill
) -> None:
    source = backfill.settings.sources[0]

    def repeated(
        kafka: KafkaColumns, value: KafkaValue, *keys: str, decoded: str = "id long"
    ) -> set[str]:
        live = source.live.model_copy(
            update={"kafka": source.live.kafka.model_copy(update={"value": value})}
        )
        given = source.model_copy(update={"kafka": kafka, "live": live})
        settings = backfill.settings.model_copy(update={"sources": (given,)})
        frame = kafka_frame(spark, settings, "events")
        frame = frame.withColumn("e", F.from_json(F.col("value").cast("string"), decoded))
        return sources_read_twice(frame.dropDuplicates(keys), [given])

    column = KafkaValue(format="column", column="user")
    assert repeated(KafkaColumns(timestamp_column="at"), KafkaValue(), "timestamp") == set()
    assert repeated(KafkaColumns(), KafkaValue(), "timestamp") == {"events"}
    assert repeated(KafkaColumns(), column, "value") == set()
    assert repeated(KafkaColumns(), AVRO, "value") == {"events"}
    assert repeated(KafkaColumns(), column, "e", decoded="payload struct<any:string>") == set()


def test_fields_of_avro_records_are_known_by_the_types_of_the_table(
    avro: SparkSession, backfill: Backfill
) -> None:
    kinds = {"id": '"long"', "user": '"string"', "at": '"string"', "extra": '"long"'}
    fields = ", ".join(f'{{"name": "{name}", "type": {kind}}}' for name, kind in kinds.items())
    schema = f'{{"type": "record", "name": "event", "fields": [{fields}]}}'

    def repeated(value: str, key: str, options: dict[str, str] | None = None) -> set[str]:
        records = kafka_frame(avro, backfill.settings, "events")
        decoded = records.select(from_avro(F.expr(value), schema, options).alias("e"))
        keys = decoded.selectExpr(f"{key} AS key").dropDuplicates(["key"])
        return sources_read_twice(keys, backfill.settings.sources)

    framed = "substring(value, 6, length(value) - 5)"
    assert repeated("value", "e.id") == set()
    assert repeated(framed, "e.user", {"mode": "FAILFAST"}) == set()
    assert repeated(framed, "e.at") == {"events"}, "the text of a time"
    assert repeated("value", "e.extra") == {"events"}, "not in the table"
    assert repeated("value", "e") == {"events"}
