"""Queries that hand on columns as they are: which these are, and what is written of them without
a way through the JVM.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from batch_runs import BatchRun, staged
from captured_streams import streams
from every_type import SCHEMA, START, rows_of_every_type
from planned_sources import planned
from pyiceberg.catalog import Catalog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backfill.api.spec import BackfillSpec
from backfill.runtime.batch import prepare_query
from backfill.runtime.batch.pass_through import HandedOn, handed_on
from backfill.runtime.catalyst import analyzed
from backfill.runtime.source.source_frame import source_frame
from backfill.runtime.spark_versions import to_arrow_schema
from plain_values import plain_rows

SCHEMAS = {"events": "k int, t timestamp, `a.b` struct<c: int>", "others": "k int, t timestamp"}
Read = Callable[[str], DataFrame]


@pytest.fixture
def lake(lake_of_workers: Catalog) -> Catalog:
    return lake_of_workers


def of_a_view(read: Read) -> DataFrame:
    events = read("events")
    events.createOrReplaceTempView("handed_on_events")
    return events.sparkSession.sql("select t as at, k from (select * from handed_on_events) as e")


def columns(*pairs: tuple[str, str]) -> HandedOn:
    """Of the source, and as the query names them."""
    given, names = zip(*pairs, strict=True)
    return HandedOn("events", given, names)


ALL = columns(("k", "k"), ("t", "t"), ("a.b", "a.b"))
PROGRAMS: dict[str, tuple[Callable[[Read], DataFrame], HandedOn | None]] = {
    "all": (lambda read: read("events"), ALL),
    "watermark": (lambda read: read("events").withWatermark("t", "1 hour"), ALL),
    "observed": (lambda read: read("events").observe("seen", F.count("*").alias("n")), ALL),
    "view": (of_a_view, columns(("t", "at"), ("k", "k"))),
    "one name after the other": (
        lambda read: read("events").withColumnRenamed("k", "m").select("t", F.col("m").alias("t2")),
        columns(("t", "t"), ("k", "t2")),
    ),
    "names exchanged": (
        lambda read: read("events").select(F.col("k").alias("t"), F.col("t").alias("k")),
        columns(("k", "t"), ("t", "k")),
    ),
    "twice": (
        lambda read: read("events").select("k", F.col("k").alias("again")),
        columns(("k", "k"), ("k", "again")),
    ),
    "computed and dropped": (
        lambda read: read("events").withColumn("m", F.col("k") + 1).drop("m"),
        ALL,
    ),
    "computed": (lambda read: read("events").withColumn("k", F.col("k") + 1), None),
    "cast": (lambda read: read("events").select(F.col("k").cast("long")), None),
    "of no type change": (lambda read: read("events").select(F.col("k").cast("int")), None),
    "literal": (lambda read: read("events").withColumn("m", F.lit(1)), None),
    "field of a struct it makes": (
        lambda read: (
            read("events")
            .select(F.struct("t", F.struct("k")).alias("s"))
            .select("s.*")
            .select(F.col("col2.k"), "t")
        ),
        columns(("k", "k"), ("t", "t")),
    ),
    "struct it makes": (lambda read: read("events").select(F.struct("t", "k")), None),
    "field": (lambda read: read("events").select(F.col("`a.b`.c")), None),
    "filter": (lambda read: read("events").where("k > 0"), None),
    "filter of nulls": (lambda read: read("events").where("k is not null"), None),
    "union": (lambda read: read("events").select("k", "t").union(read("others")), None),
    "repartitioned": (lambda read: read("events").repartition(3), None),
    "exploded": (lambda read: read("events").select("k", F.explode(F.array("t"))), None),
    "once": (lambda read: read("events").withWatermark("t", "1 hour").dropDuplicates(["k"]), None),
    "sampled": (lambda read: read("events").sample(0.5, seed=1), None),
    "joined": (lambda read: read("events").crossJoin(read("others").sparkSession.range(1)), None),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_queries_hand_on(spark: SparkSession, name: str) -> None:
    program, expected = PROGRAMS[name]
    assert handed_on(analyzed(program(streams(spark, SCHEMAS)))) == expected


FILTERED: dict[str, tuple[Callable[[Read], DataFrame], HandedOn | None]] = {
    "none": (lambda read: read("events").select("t"), columns(("t", "t"))),
    "nulls": (
        lambda read: (
            read("events")
            .where("t is not null and k is not null")
            .where("k is not null")
            .select("t")
        ),
        replace(columns(("t", "t")), present=("k", "t")),
    ),
    "nulls of a field of a struct it makes": (
        lambda read: (
            read("events")
            .select("t", F.struct(F.col("k").alias("m")).alias("s"))
            .where("s.m is not null")
            .select("t")
        ),
        replace(columns(("t", "t")), present=("k",)),
    ),
    "either of two": (lambda read: read("events").where("t is not null or k is not null"), None),
    "nulls only": (lambda read: read("events").where("k is null"), None),
    "nulls of what it computes": (lambda read: read("events").where("k + 1 is not null"), None),
    "nulls of a field": (lambda read: read("events").where("`a.b`.c is not null"), None),
    "nulls and values": (lambda read: read("events").where("k is not null and k > 0"), None),
}
"""What queries hand on that may leave out rows."""


@pytest.mark.parametrize("name", FILTERED)
def test_rows_that_queries_leave_out(spark: SparkSession, name: str) -> None:
    program, expected = FILTERED[name]
    assert handed_on(analyzed(program(streams(spark, SCHEMAS))), filtered=True) == expected


def test_what_is_handed_on_is_written_as_all_else(
    spark: SparkSession, lake: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In columns of every type, some of them under the names of others."""
    lake.create_table("raw.every_type", schema=SCHEMA).append(rows_of_every_type())
    source = {"name": "events", "table": "lake.raw.every_type", "timestampColumn": "at"}
    window = {"start": START, "end": START + timedelta(hours=1)}
    spec = {"applicationRef": {"name": "app"}, "window": window, "sources": [source]}
    backfill = planned(BackfillSpec.model_validate(spec), tmp_path)
    events = source_frame(spark, backfill.settings, "events")
    renamed = {"user": "sizes", "sizes": "user", "is.flag": "a flag"}
    frame = events.toDF(*(renamed.get(name, name) for name in events.columns))

    def written(table: str) -> list[str]:
        lake.create_table(f"raw.{table}", schema=to_arrow_schema(frame.schema))
        attempt = BatchRun(backfill)
        assert attempt.finish(attempt.prepared(frame, table, "at")) is None
        batches = staged(lake, table).to_batches()
        return sorted(repr(row) for batch in batches for row in plain_rows(batch))

    with monkeypatch.context() as patch:
        patch.setattr(prepare_query, "write", lambda *_: pytest.fail("it went through the JVM"))
        directly = written("directly")
    with monkeypatch.context() as patch:
        patch.setattr(prepare_query, "handed_on", lambda _: None)
        assert written("through_jvm") == directly
    assert len(directly) == 2
