"""Columns that no query looks at are not read, and no query can tell."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from generated_programs import COLUMNS, SOURCES, Step, programs, run
from hypothesis import HealthCheck, Phase, given, settings
from planned_sources import Backfill, committed, planned, wait
from pyiceberg.catalog import Catalog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.streaming.state import GroupStateTimeout

from backfill.api.source import KafkaColumns, KafkaValue
from backfill.api.spec import BackfillSpec
from backfill.runtime.queries.clock_dependence import comparison_with_clock
from backfill.runtime.queries.logical_plan import columns_used, sources_read
from backfill.runtime.settings import RuntimeSettings
from backfill.runtime.source.source_frame import source_frame
from backfill.runtime.switching.kafka_rows import kafka_frame, missing_record_columns
from backfill.runtime.switching.source_frames import SourceFrames
from cases import cases

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
PROGRAMS = 12
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
    source = {
        "name": "events",
        "table": "lake.raw.events",
        "timestampColumn": "at",
        "live": {"kafka": {"topic": "events"}},
    }
    window = {"start": START, "end": START + timedelta(minutes=10)}
    spec = BackfillSpec.model_validate(
        {"applicationRef": {"name": "app"}, "window": window, "sources": [source]}
    )
    made = planned(spec, tmp_path)
    yield made
    made.stop()


def copied(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def joined(frame: DataFrame) -> DataFrame:
    left, right = (
        frame.withWatermark("at", "1 minute").alias("l"),
        frame.withWatermark("at", "1 minute").alias("r"),
    )
    return left.join(right, F.expr("l.id = r.id and l.at = r.at")).select("l.id", "r.place.city")


@cases(
    ("query", "used"),
    {
        "a selection reads what it names": (lambda frame: frame.select("user"), {"user"}),
        "a filter reads what it compares": (
            lambda frame: frame.where("id > 3").select("user"),
            {"id", "user"},
        ),
        "a field of a struct reads the struct": (
            lambda frame: frame.select("place.city"),
            {"place"},
        ),
        "a count reads no more than times": (
            lambda frame: frame.groupBy(F.window("at", "1 minute")).count(),
            set(),
        ),
        "what is given out is read": (lambda frame: frame.drop("user"), {"id", "place", "kind"}),
        "both sides of a join with itself count": (joined, {"id", "place"}),
        "a function of whole rows reads everything": (
            lambda frame: frame.mapInArrow(
                copied,
                "id long, user string, place struct<city string, zone int>, kind string, at"
                " timestamp",
            ),
            {"id", "user", "place", "kind"},
        ),
    },
)
def test_what_a_query_uses(
    query: Callable[[DataFrame], DataFrame], used: set[str], spark: SparkSession, backfill: Backfill
) -> None:
    frame = source_frame(spark, backfill.settings, "events")
    assert columns_used(query(frame)) == {"events": used | ALWAYS}


def test_a_kafka_record_uses_every_column_as_far_as_its_value_is_looked_at(
    spark: SparkSession, backfill: Backfill
) -> None:
    frame = kafka_frame(spark, backfill.settings, "events")
    assert {"id", "user", "place", "kind"} <= columns_used(frame.select("value"))["events"]
    assert "user" not in columns_used(frame.select("offset"))["events"]


@pytest.mark.parametrize(
    ("query", "missing"),
    [
        (lambda frame: frame.select("key", "value"), ["keyColumn"]),
        (
            lambda frame: frame.groupBy("partition").agg(F.max("offset")),
            ["partitionColumn", "offsetColumn"],
        ),
        (
            lambda frame: frame.where("key is null or offset > 3").select("value"),
            ["keyColumn", "offsetColumn"],
        ),
        (lambda frame: frame.select("value", F.size("headers")), ["headersColumn"]),
        (lambda frame: frame.select("*").drop("key", "partition", "offset", "headers"), []),
        (
            lambda frame: frame.selectExpr(
                "cast(value as string)", "timestamp", "topic", "timestampType"
            ),
            [],
        ),
    ],
)
def test_what_of_a_record_nobody_gives_is_not_made_up_where_the_program_uses_it(
    query: Callable[[DataFrame], DataFrame],
    missing: list[str],
    spark: SparkSession,
    backfill: Backfill,
) -> None:
    for value in (KafkaValue(), AVRO):
        settings = with_value(backfill, value)
        used = columns_used(query(kafka_frame(spark, settings, "events")))
        problems = missing_record_columns(settings.sources, used)
        assert [problem.field for problem in problems] == [
            f"spec.sources[0].kafka.{field}" for field in missing
        ]


def test_a_topic_whose_records_have_no_keys_or_headers_gives_null_for_them(
    spark: SparkSession, backfill: Backfill
) -> None:
    (source,) = backfill.settings.sources
    keyless = source.model_copy(update={"kafka": KafkaColumns(keyless=True, headerless=True)})
    records = kafka_frame(spark, backfill.settings, "events")
    used = columns_used(records.select("key", "value", "headers"))
    assert missing_record_columns((keyless,), used) == []


AVRO = KafkaValue.model_validate(
    {
        "format": "avro",
        "schema": '{"type": "record", "name": "event", "fields": [{"name": "id", "type": "long"}]}',
    }
)


def with_value(backfill: Backfill, value: KafkaValue) -> RuntimeSettings:
    """The settings of a Backfill whose only source has such values."""
    (source,) = backfill.settings.sources
    live = source.live.model_copy(
        update={"kafka": source.live.kafka.model_copy(update={"value": value})}
    )
    return backfill.settings.model_copy(
        update={"sources": (source.model_copy(update={"live": live}),)}
    )


def test_rows_are_right_in_the_columns_used_and_the_others_are_null(
    spark: SparkSession, backfill: Backfill
) -> None:
    frame = source_frame(spark, backfill.settings, "events")
    used = columns_used(frame.select("id", "place.zone"))
    query = backfill.start(frame, used=used)  # gives out more than is said to matter
    backfill.release(backfill.header.steps)
    wait(lambda: committed(query) == backfill.header.steps + 1, query)
    rows = [row.asDict(recursive=True) for row in backfill.results(spark).orderBy("id").collect()]
    assert [row["id"] for row in rows] == [row["place"]["zone"] for row in rows] == list(range(10))
    assert {(row["user"], row["kind"]) for row in rows} == {(None, None)}


ROWS = 12
TEXTS = pa.schema([*((name, pa.string()) for name in COLUMNS), ("at", pa.timestamp("us", "UTC"))])


def texts(source: str) -> pa.Table:
    """Rows some of whose values are in both sources and in several columns, and none is null."""
    shift = SOURCES.index(source)
    rows = [
        {
            name: f"{name if (number + shift) % 4 else 'x'}-{number // (place + 2)}"
            for place, name in enumerate(COLUMNS)
        }
        | {"at": START + timedelta(seconds=number)}
        for number in range(ROWS)
    ]
    return pa.Table.from_pylist(rows, TEXTS)


@pytest.fixture
def two_sources(lake: Catalog, tmp_path: Path) -> Iterator[Backfill]:
    sources = []
    for name in SOURCES:
        lake.create_table(f"raw.{name}", schema=TEXTS).append(texts(name))
        sources.append({"name": name, "table": f"lake.raw.{name}", "timestampColumn": "at"})
    window = {"start": START, "end": START + timedelta(minutes=10)}
    made = planned(
        BackfillSpec.model_validate(
            {"applicationRef": {"name": "app"}, "window": window, "sources": sources}
        ),
        tmp_path,
    )
    yield made
    made.stop()


@pytest.fixture
def frames(two_sources: Backfill) -> SourceFrames:
    return SourceFrames(two_sources.settings)


def batch_of(spark: SparkSession, source: str, columns: set[str]) -> DataFrame:
    """A source's rows as they are read when these columns are used."""
    table = texts(source)
    read = [
        table[name] if name in columns else pa.nulls(ROWS, table.schema.field(name).type)
        for name in table.column_names
    ]
    return spark.createDataFrame(pa.table(read, schema=TEXTS))


@pytest.mark.parametrize(
    ("query", "used"),
    [
        pytest.param(
            lambda web, mobile: web.union(mobile),
            {"web": {*COLUMNS}, "mobile": {*COLUMNS}},
            id="all rows of two",
        ),
        pytest.param(
            lambda web, mobile: (
                web.select("a", "b").union(mobile.select("c", "d")).toDF("x", "y").select("y")
            ),
            {"web": {"b"}, "mobile": {"d"}},
            id="columns by their place",
        ),
        pytest.param(
            lambda web, mobile: (
                web.select("a", "b")
                .unionByName(mobile.select("b", "a"))
                .dropDuplicates(["a"])
                .select("b")
            ),
            {"web": {"a", "b"}, "mobile": {"a", "b"}},
            id="columns by their names, below what drops duplicates",
        ),
    ],
)
def test_the_second_of_two_sources_in_a_union_is_read_as_the_first_one(
    query: Callable[[DataFrame, DataFrame], DataFrame],
    used: dict[str, set[str]],
    spark: SparkSession,
    frames: SourceFrames,
) -> None:
    web, mobile = (frames.rows(spark, source).drop("at") for source in ("web", "mobile"))
    assert columns_used(query(web, mobile)) == {
        source: columns | ALWAYS for source, columns in used.items()
    }


def test_a_common_table_expression_is_read_like_a_view(
    spark: SparkSession, frames: SourceFrames
) -> None:
    frames.rows(spark, "web").createOrReplaceTempView("web")
    text = (
        "WITH long AS (SELECT a, b FROM web WHERE length(c) > 3) SELECT l.a FROM long l UNION ALL"
        " SELECT b FROM long"
    )
    frame = spark.sql(text)
    assert sources_read(frame) == {"web"}
    assert columns_used(frame) == {"web": {"a", "b", "c"} | ALWAYS}


@pytest.mark.parametrize(
    ("condition", "where"),
    [
        ("at > current_timestamp() - interval 7 days", "current_timestamp() in a filter"),
        ("to_date(at) = current_date() and a is not null", "current_date() in a filter"),
        ("a like '%now()%'", ""),
    ],
)
def test_a_program_that_drops_what_is_old_by_the_clock_is_seen(
    condition: str, where: str, spark: SparkSession, frames: SourceFrames
) -> None:
    assert comparison_with_clock(frames.rows(spark, "web").where(condition)) == where
    computed = (
        frames.rows(spark, "web").withColumn("keep", F.expr(condition)).where("keep").drop("keep")
    )
    assert comparison_with_clock(computed) == where


def test_a_clock_behind_many_columns_or_in_a_unions_second_source_is_seen(
    spark: SparkSession, frames: SourceFrames
) -> None:
    web, mobile = frames.rows(spark, "web"), frames.rows(spark, "mobile")
    age = (F.current_timestamp() - F.col("at")).alias("age")
    wide = web.select(*(F.col("a").alias(f"a{number}") for number in range(40)), age)
    assert (
        comparison_with_clock(wide.where("age < interval 7 days"))
        == "current_timestamp() in a filter"
    )
    both = web.select(F.expr("interval 0 seconds").alias("age")).union(mobile.select(age))
    assert (
        comparison_with_clock(both.where("age < interval 7 days"))
        == "current_timestamp() in a filter"
    )


def test_a_column_that_says_when_a_row_was_processed_drops_nothing(
    spark: SparkSession, frames: SourceFrames
) -> None:
    stamped = frames.rows(spark, "web").withColumn("processed_at", F.current_timestamp())
    assert comparison_with_clock(stamped.where("a = 'x'")) == ""
    counted = (
        frames.rows(spark, "web")
        .groupBy("a")
        .agg(F.expr("count(*) FILTER (WHERE at > current_timestamp())"))
    )
    assert comparison_with_clock(counted) == "current_timestamp() in a comparison"
    grouped = stamped.groupBy(F.window("processed_at", "1 minute")).count()
    assert comparison_with_clock(grouped) == "current_timestamp() in a grouping key"


@pytest.mark.parametrize(
    ("time_mode", "timeout", "seen"),
    [
        ("ProcessingTime", GroupStateTimeout.ProcessingTimeTimeout, "a processing-time timer"),
        ("EventTime", GroupStateTimeout.EventTimeTimeout, ""),
        ("None", GroupStateTimeout.NoTimeout, ""),
    ],
)
def test_timers_of_processing_time_are_seen(
    time_mode: str, timeout: str, seen: str, spark: SparkSession
) -> None:
    rate = spark.readStream.format("rate").load().withWatermark("timestamp", "1 minute")
    groups = rate.groupBy("value")
    timers = groups.transformWithStateInPandas(StatefulProcessor, "n long", "append", time_mode)
    assert comparison_with_clock(timers) == seen
    timeouts = groups.applyInPandasWithState(
        lambda *_: iter(()), "n long", "n long", "append", timeout
    )
    assert comparison_with_clock(timeouts) == seen


@settings(
    max_examples=PROGRAMS,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
)
@given(program=programs())
def test_no_program_can_tell_what_was_left_out(
    program: tuple[str, tuple[Step, ...]],
    spark: SparkSession,
    two_sources: Backfill,
    frames: SourceFrames,
) -> None:
    everything = {source: set(TEXTS.names) for source in SOURCES}
    used = everything | columns_used(run(program, lambda source: frames.rows(spark, source)))
    pruned = run(program, lambda source: batch_of(spark, source, used[source]))
    whole = run(program, lambda source: batch_of(spark, source, set(TEXTS.names)))
    assert sorted(map(str, pruned.collect())) == sorted(map(str, whole.collect()))
