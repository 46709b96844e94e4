"""Two batch jobs that meet have computed the same results there, or the run ends: what a wrong
analysis would lose is missed.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import batch_runs
import pytest
from batch_runs import (
    DELAY_US,
    HOURS,
    START,
    START_US,
    BatchRun,
    Events,
    staged,
)
from captured_streams import over_batch, streams
from pyiceberg.catalog import Catalog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from backfill.api.errors import UnsupportedProgram
from backfill.runtime.batch import spans as spans_module
from backfill.runtime.batch.determined_columns import Lasting
from backfill.runtime.batch.overlap_check import SharedResults, compared_columns
from backfill.runtime.batch.span_runner import SpanRunner
from backfill.runtime.batch.split_frames import arrow_frame
from backfill.runtime.batch.time_reach import Bounded, Reach, Sessions, Unbounded
from backfill.runtime.catalyst import analyzed
from backfill.runtime.queries.run_state import FINISHED, unsupported
from backfill.runtime.source.source_frame import source_frame
from histories import HOUR_US, MINUTE_US
from waiting import eventually

Program = Callable[[DataFrame, str], DataFrame]


@pytest.fixture
def lake(lake_of_workers: Catalog) -> Catalog:
    return lake_of_workers


@pytest.fixture
def events(lake: Catalog, tmp_path: Path) -> Events:
    return Events(lake, tmp_path)


def followed(rows: DataFrame, time: str) -> DataFrame:
    """Those of the hour before with the same k."""
    timed = rows.select("id", "k", F.col(time).alias("at")).withWatermark("at", "30 minutes")
    before = timed.select(
        F.col("id").alias("id2"), F.col("k").alias("k2"), F.col("at").alias("at2")
    )
    near = F.expr("k = k2 and at2 >= at - interval 1 hour and at2 < at")
    return timed.join(before, near).select(
        "at", "k", F.col("id2").alias("rows"), F.col("id").alias("ids")
    )


def hourly(rows: DataFrame, time: str) -> DataFrame:
    """As many results, whatever is read."""
    windows = rows.withWatermark(time, "30 minutes").groupBy(
        F.window(time, "1 hour", "10 minutes"), "k"
    )
    found = windows.agg(F.count("*").alias("rows"), F.sum("id").alias("ids"))
    return found.select(F.col("window.end").alias("at"), "k", "rows", "ids")


def begun_hourly(rows: DataFrame, time: str) -> DataFrame:
    """By the start of their windows, so that they depend on rows after them."""
    found = hourly(rows, time)
    return found.withColumn("at", F.col("at") - F.expr("interval 1 hour"))


def halved(found: Bounded | Unbounded) -> Bounded | Unbounded:
    """What an analysis with a wrong rule would say."""
    assert isinstance(found, Bounded)
    sources = {
        name: replace(reach, back_us=reach.back_us // 2, ahead_us=reach.ahead_us // 2)
        for name, reach in found.sources.items()
    }
    return replace(found, sources=sources)


@pytest.mark.parametrize("program", [followed, hourly, begun_hourly])
def test_an_analysis_with_a_wrong_rule_ends_the_run(
    spark: SparkSession,
    lake: Catalog,
    events: Events,
    program: Program,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backfill = events.planned("20m")
    right = batch_runs.analyze
    frame = program(source_frame(spark, backfill.settings, "events"), "at")
    monkeypatch.setattr(batch_runs, "analyze", lambda *given: halved(right(*given)))
    committed: list[int] = []
    while len(committed) < 2 or committed[-1] > committed[-2]:  # no attempt gets past it
        run = BatchRun(backfill)
        error = run.finish(run.prepared(frame, events.results, "at"))
        assert isinstance(error, UnsupportedProgram)
        assert unsupported(error).reason == "BatchResultsDiffer"
        (problem,) = error.problems
        assert (problem.field, problem.fix) == ("spec.execution", "use Streaming")
        differ = "differ between the two batch jobs that computed them"
        assert (differ if committed else f"{differ}: at 2024-03-0") in problem.message
        committed.append(run.run.tracker.queries[0].sources[0].committed)
        assert committed[-1] < backfill.header.steps


def with_a_table_twice(rows: DataFrame, time: str) -> DataFrame:
    """A column of the table is handed on, which is also read to say which rows count."""
    rows.withWatermark(time, "30 minutes").createOrReplaceTempView("timed")
    rows.sparkSession.range(3).toDF("k").createOrReplaceTempView("kinds")
    return rows.sparkSession.sql(
        f"WITH hours AS (SELECT window({time}, '1 hour').end AS at, k, count(*) AS rows,"
        f" sum(id) AS ids FROM timed WHERE k IN (SELECT k FROM kinds WHERE k < 2)"
        f" GROUP BY window({time}, '1 hour'), k)"
        " SELECT h.at, n.k, h.rows, h.ids FROM hours h JOIN kinds n ON n.k = h.k"
    )


def test_rows_without_a_time_are_computed_where_none_depends_on_another(
    spark: SparkSession, lake: Catalog, events: Events
) -> None:
    backfill = events.planned("20m")
    rows = source_frame(spark, backfill.settings, "events")
    odd = rows.where("id % 2 = 1").select((F.col("id") * 10).alias("ids"))
    run = BatchRun(backfill)
    assert run.finish(run.prepared(odd, events.results, None)) is None
    found = staged(lake, events.results)["ids"].to_pylist()
    read = events.ids[events.arrived < START_US + (HOURS + 2) * HOUR_US]
    assert sorted(found) == [10 * each for each in read.tolist() if each % 2]


@pytest.mark.parametrize("program", [followed, hourly, with_a_table_twice])
def test_what_is_computed_twice_is_written_once(
    spark: SparkSession, lake: Catalog, events: Events, program: Program
) -> None:
    backfill = events.planned("20m")
    frame = program(source_frame(spark, backfill.settings, "events"), "at")
    run = BatchRun(backfill)
    runner = run.prepared(frame, events.results, "at")
    assert run.finish(runner) is None
    assert all(first.after_us + second.before_us for first, second in pairwise(runner._spans))
    rows = lake.load_table(events.table).scan().to_arrow()
    whole = over_batch(frame, lambda _source: spark.createDataFrame(rows)).where(
        (F.col("at") >= START) & (F.col("at") < START + timedelta(hours=HOURS))
    )
    expected = sorted(tuple(row) for row in whole.select("k", "rows", "ids").collect())
    given = staged(lake, events.results)
    columns = (given[name].to_pylist() for name in ("k", "rows", "ids"))
    assert sorted(zip(*columns, strict=True)) == expected


def weighed(rows: DataFrame, weights: DataFrame) -> DataFrame:
    found = hourly(rows, "t").join(F.broadcast(weights), "k")
    return found.select("at", "k", (F.col("rows") * F.col("weight")).alias("rows"), "ids")


def test_a_table_that_changes_between_attempts_is_not_taken_for_a_wrong_rule(
    spark: SparkSession, events: Events, tmp_path: Path
) -> None:
    backfill = events.planned("20m", allowedLateness="1m")
    weights = str(tmp_path / "weights")

    def attempt(weight: int) -> tuple[BatchRun, SpanRunner]:
        table = spark.range(3).selectExpr("id AS k", f"{weight} AS weight")
        table.write.mode("overwrite").parquet(weights)
        run, rows = BatchRun(backfill), source_frame(spark, backfill.settings, "events")
        frame = weighed(rows, spark.read.parquet(weights))
        return run, run.prepared(frame, events.results, "at")

    first, begun = attempt(1)
    first.run.release(backfill.header.steps // 2)
    begun.start()
    tracker = first.run.tracker
    eventually(lambda: tracker.queries[0].sources[0].committed, "committed", 60)
    first.run.end(FINISHED)
    eventually(lambda: not any(thread.is_alive() for thread in begun.threads), "ended")
    second, runner = attempt(2)
    assert second.finish(runner) is None
    assert 0 < runner._spans[0].steps.start < backfill.header.steps


def database(spark: SparkSession) -> DataFrame:
    class Database(DataSource):  # here, since Spark's workers cannot import this module
        @classmethod
        def name(cls) -> str:
            return "overlap_database"

        def schema(self) -> str:
            return "k long"

    spark.dataSource.register(Database)
    return spark.read.format("overlap_database").load()


def test_how_long_what_a_query_reads_stays_the_same(spark: SparkSession, tmp_path: Path) -> None:
    rows = streams(spark, {"events": "k long, t timestamp"})("events")
    rows.createOrReplaceTempView("overlap_rows")
    spark.range(3).toDF("k").write.parquet(f"{tmp_path}/files")
    files = spark.read.parquet(f"{tmp_path}/files")
    files.createOrReplaceTempView("overlap_files")
    in_files = spark.sql("SELECT * FROM overlap_rows WHERE k IN (SELECT k FROM overlap_files)")
    nothing: Any = None
    pinned = arrow_frame(spark, nothing, [], StructType().add("k", "long"))
    given = spark.createDataFrame([(1,)], "k long")
    always = [rows, rows.join(spark.range(3).toDF("k"), "k"), rows.join(pinned, "k")]
    in_attempt = [in_files, rows.join(files, "k"), rows.join(given.join(pinned, "k"), "k")]
    for frames, expected in (
        (always, Lasting.RUN),
        (in_attempt, Lasting.ATTEMPT),
        ([rows.join(database(spark).union(given), "k")], Lasting.JOB),
    ):
        for frame in frames:
            found = SharedResults.of(spark, analyzed(frame), "t")
            assert found.lasting is expected
            assert len(found.places) == 2, "all columns are compared"
    digests = [
        SharedResults.of(spark, analyzed(frame), "t").digest
        for frame in (rows, rows, rows.select("k", F.col("t").cast("date")), rows.select("t"))
    ]
    assert digests[0] == digests[1]
    assert len({*digests}) == 3


def visits(rows: DataFrame, time: str) -> DataFrame:
    """By their start."""
    timed = rows.withWatermark(time, "30 minutes").withColumn("k", F.col("id") % 80)
    found = timed.groupBy(F.session_window(time, "40 minutes").alias("w"), "k").agg(
        F.count("*").alias("rows"), F.sum("id").alias("ids")
    )
    return found.select(F.col("w.start").alias("at"), "k", "rows", "ids")


def with_half_of_what_is_before(reach: Reach) -> Reach:
    return replace(reach, back_us=reach.back_us // 2)


def with_half_of_what_is_after(reach: Reach) -> Reach:
    return replace(reach, ahead_us=reach.ahead_us // 2, sessions_ahead=0)


def by_the_other_edge(sessions: Sessions) -> Sessions:
    return replace(sessions, edge="end")


@pytest.fixture
def visitors(events: Events, monkeypatch: pytest.MonkeyPatch) -> Events:
    """Of eighty visitors ten come for seven hours, one after the other, and the others for some
    minutes. Spans are as short as their reach allows, and strips as long as a quarter of them.
    """
    monkeypatch.setattr(spans_module, "_LEAST_TIMES_OVERLAP", 1)
    monkeypatch.setattr(spans_module, "_STRIPS", 4)
    visitor, visit = events.ids % 80, events.ids // 80
    long = visitor < 10
    regular = START_US + (48 * visitor + 20 * visit + 60 * (visit // 21)) * MINUTE_US
    events.happened[long] = regular[long]
    events.arrived = events.happened.copy()
    return events


def test_sessions_that_are_computed_twice_are_the_same(
    spark: SparkSession, lake: Catalog, visitors: Events, caplog: pytest.LogCaptureFixture
) -> None:
    backfill = visitors.planned("10m", drain="10h")
    frame = visits(source_frame(spark, backfill.settings, "events"), "at")
    run = BatchRun(backfill)
    runner = run.prepared(frame, visitors.results, "at")
    assert run.finish(runner) is None
    assert len(runner._spans) > 2
    assert all(first.after_us + second.before_us for first, second in pairwise(runner._spans))
    assert max(span.session_us for span in runner._spans) > 7 * HOUR_US, "one was read further"
    assert "differ between" not in caplog.text
    rows = lake.load_table(visitors.table).scan().to_arrow()
    whole = over_batch(frame, lambda _source: spark.createDataFrame(rows))
    # Spark would apply a condition on the start of a session to its rows
    every = whole.select(F.unix_micros("at"), "k", "rows", "ids").collect()
    end_us = START_US + HOURS * HOUR_US
    expected = sorted(tuple(row)[1:] for row in every if START_US <= row[0] < end_us)
    given = staged(lake, visitors.results)
    columns = (given[name].to_pylist() for name in ("k", "rows", "ids"))
    assert sorted(zip(*columns, strict=True)) == expected


@pytest.mark.parametrize(
    "wrong", [with_half_of_what_is_before, with_half_of_what_is_after, by_the_other_edge]
)
def test_a_wrong_rule_for_sessions_ends_the_run(
    spark: SparkSession, visitors: Events, wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    backfill = visitors.planned("10m", drain="10h")
    right = batch_runs.analyze
    frame = visits(source_frame(spark, backfill.settings, "events"), "at")

    def analyzed_wrongly(*given: Any) -> Bounded:
        found = right(*given)
        assert isinstance(found, Bounded)
        if wrong is by_the_other_edge:
            return replace(found, sessions=tuple(map(wrong, found.sessions)))
        sources = {name: wrong(reach) for name, reach in found.sources.items()}
        return replace(found, sources=sources)

    monkeypatch.setattr(batch_runs, "analyze", analyzed_wrongly)
    run = BatchRun(backfill)
    error = run.finish(run.prepared(frame, visitors.results, "at"))
    assert isinstance(error, UnsupportedProgram)
    assert "differ between the two batch jobs" in str(error)


def test_rows_that_arrive_late_explain_what_differs(
    spark: SparkSession, lake: Catalog, events: Events, caplog: pytest.LogCaptureFixture
) -> None:
    late = events.some(16)
    events.arrived[late] = events.happened[late] + DELAY_US + 3 * HOUR_US
    backfill = events.planned("20m", allowedLateness="1m")
    frame = hourly(source_frame(spark, backfill.settings, "events"), "t")
    run = BatchRun(backfill)
    assert run.finish(run.prepared(frame, events.results, "at")) is None
    assert "batch jobs that computed them: rows arrived late" in caplog.text
    assert run.run.tracker.queries[0].arrived_late == late.sum()


def test_it_is_said_that_nothing_is_compared(
    spark: SparkSession, events: Events, caplog: pytest.LogCaptureFixture
) -> None:
    backfill = events.planned("20m", allowedLateness="1m")
    rows = hourly(source_frame(spark, backfill.settings, "events"), "t")
    some = F.udf("boolean")(lambda k: k < 2)
    for frame, said in ((rows, False), (rows.where(some("k")), True)):
        spans = BatchRun(backfill).prepared(frame, events.results, "at")._work.spans()
        assert any(span.before_us + span.after_us for span in spans)
        assert ("two adjacent batch jobs both compute are not compared" in caplog.text) == said


def test_only_what_follows_from_the_rows_is_compared(spark: SparkSession) -> None:
    stream = streams(
        spark, {"events": "id long, k int, t timestamp, x double, tags array<string>"}
    )("events")
    rows = stream.withWatermark("t", "5 minutes")
    windows = rows.groupBy(F.window("t", "10 minutes"), "k")
    doubled = F.udf("int")(lambda k: 2 * k)

    def compared(frame: DataFrame, column: str = "t") -> list[str]:
        places = compared_columns(spark, analyzed(frame), column)
        return [frame.columns[place] for place in places]

    aggregates: list[Any] = [
        F.count("*").alias("rows"), F.sum("id").alias("ids"), F.sum("x").alias("rounded"),
        F.first("k").alias("one"), F.collect_list("id").alias("list"), F.max_by("id", "x").alias("some"),
        F.max("t").alias("latest"), F.avg("id").cast("long").alias("average"),
        F.avg(F.col("id").cast("decimal(20)")).alias("exact average"),
    ]  # fmt: skip
    assert compared(windows.agg(*aggregates), "window.start") == [
        "window", "k", "rows", "ids", "latest", "exact average",
    ]  # fmt: skip
    assert compared(windows.agg(F.avg("id").alias("a")).where("a > 1"), "window.start") == []
    assert compared(rows.dropDuplicates(["id", "t"])) == ["id", "t"]
    assert compared(rows.dropDuplicates(["id", "t"]), "T") == ["id", "t"]
    # of texts that are equal any may stand for its group
    named = rows.select("t", F.collate(F.col("tags")[0], "UTF8_LCASE").alias("name"))
    names = F.collate("name", "UTF8_BINARY")
    assert compared(named.select("t", names.alias("text"))) == ["t", "text"]
    assert compared(named.distinct().select("t", names.alias("text"))) == ["t"]
    assert compared(named.dropDuplicates(["t", "name"])) == ["t"]
    grouped = named.groupBy(F.window("t", "10 minutes"), "name").count()
    assert compared(grouped.withColumn("text", names), "window.start") == ["window", "count"]
    assert compared(rows.withColumn("d", doubled("k"))) == ["id", "k", "t", "tags", "d"][:4]
    assert compared(rows.withColumn("r", F.rand())) == ["id", "k", "t", "tags"]
    assert compared(rows.union(rows.withColumn("id", F.rand().cast("long")))) == ["k", "t", "tags"]
    assert compared(rows.where(F.rand() < 1)) == []
    assert compared(rows.where(doubled("k") < 1)) == []
    assert compared(rows.groupBy(F.window("t", "1 hour"), doubled("k")).count(), "window.end") == []
    assert compared(rows.withColumn("t", F.current_timestamp())) == []
    assert compared(rows.dropDuplicates(["id", "t"]).where("k = 1")) == []
    key = F.lit("0123456789abcdef")
    assert compared(
        rows.withColumn("e", F.aes_encrypt(F.col("k").cast("string").cast("binary"), key))
    ) == ["id", "k", "t", "tags"]
    rows.createOrReplaceTempView("overlap_rows")
    some = "SELECT * FROM overlap_rows WHERE k {} (SELECT {}(id) FROM range(9))".format
    assert compared(spark.sql(some("<", "max"))) == ["id", "k", "t", "tags"]
    assert compared(spark.sql(some("<", "first"))) == []
    assert compared(spark.sql(some("IN", "avg"))) == []
    assert compared(rows.crossJoin(spark.range(9).sample(0.5))) == []
    assert compared(rows.mapInArrow(lambda batches: batches, rows.schema)) == []
