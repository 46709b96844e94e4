"""Rows that arrive when no span expects them never change a result without a word: too early ends
the run, too late is counted.
"""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from batch_runs import (
    COLUMNS,
    DELAY_US,
    HOURS,
    START,
    BatchRun,
    Events,
    show_lake_to_workers,
    staged,
)
from planned_sources import Backfill, committed, wait
from pyiceberg.catalog import Catalog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backfill.api.errors import InvalidPlanInput
from backfill.runtime.source.data_source import source_frame
from histories import HOUR_US, MINUTE_US

Program = Callable[[DataFrame], DataFrame]


@pytest.fixture
def events(
    spark: SparkSession, lake: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Events:
    show_lake_to_workers(spark, monkeypatch)
    return Events(lake, tmp_path)


def plain(rows: DataFrame) -> DataFrame:
    return rows


def computed(rows: DataFrame) -> DataFrame:
    """The event time is parsed, after a table is joined and rows are taken apart and united."""
    kinds = rows.sparkSession.createDataFrame([(0,), (1,), (2,)], "k long").distinct()
    parsed = rows.select(
        "id", "k", F.timestamp_seconds(F.col("said").cast("decimal(20,3)")).alias("t")
    )
    joined = F.broadcast(kinds).join(parsed, "k").where("id >= 0")
    apart = (
        joined.withColumn("half", F.explode(F.array(F.lit(0)))).select("id", "k", "t").alias("a")
    )
    return apart.where("id % 2 = 0").union(apart.where("id % 2 = 1").repartition(2))


def counted(rows: DataFrame) -> DataFrame:
    windows = rows.withWatermark("t", "30 minutes").groupBy(F.window("t", "10 minutes"), "k")
    found = windows.agg(F.count("*").alias("rows"), F.sum("id").alias("ids"))
    return found.select(F.col("window.start").alias("at"), "k", "rows", "ids")


def streamed(spark: SparkSession, backfill: Backfill, frame: DataFrame) -> pa.Table:
    """What Spark's own streaming gives of it."""
    query = backfill.start(frame)
    steps = backfill.header.steps
    backfill.release(steps)
    wait(lambda: committed(query) > steps, query)
    backfill.stop()
    return backfill.results(spark).toArrow()


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    columns = (table[name].cast(kind).to_pylist() for name, kind in COLUMNS.items())
    return sorted(zip(*columns, strict=True))


@pytest.mark.parametrize("program", [plain, computed])
def test_rows_that_arrive_too_early_end_the_run_before_there_is_a_result(
    spark: SparkSession, lake: Catalog, events: Events, program: Program
) -> None:
    early = events.some(100)
    events.arrived[early] = events.happened[early] - 20 * MINUTE_US
    backfill = events.planned(allowedLateness="1m")
    run = BatchRun(backfill)
    runner = run.prepared(
        counted(program(source_frame(spark, backfill.settings, "events"))), events.results, "at"
    )
    assert len(runner._spans) > 2
    error = run.finish(runner)
    assert isinstance(error, InvalidPlanInput)
    (problem,) = error.problems
    assert problem.field == "spec.ordering.allowedLateness"
    assert "is 1m, but" in problem.message
    assert "set it to 20m or more, or set spec.execution to Streaming" in str(error)
    assert run.run.tracker.queries[0].sources[0].committed < backfill.header.steps


def test_rows_that_arrive_early_within_the_allowed_lateness_are_in_the_result(
    spark: SparkSession, lake: Catalog, events: Events
) -> None:
    early = events.some(20)
    events.arrived[early] = events.happened[early] - 20 * MINUTE_US
    backfill = events.planned(allowedLateness="20m")
    frame = counted(source_frame(spark, backfill.settings, "events"))
    run = BatchRun(backfill)
    runner = run.prepared(frame, events.results, "at")
    assert len(runner._spans) > 2
    assert run.finish(runner) is None
    end = START + timedelta(hours=HOURS)
    expected = [row for row in rows_of(streamed(spark, backfill, frame)) if row[0] < end]
    assert rows_of(staged(lake, events.results)) == expected
    (query,) = run.run.tracker.queries
    assert query.arrived_late == 0


def test_rows_whose_arrival_a_function_of_the_program_hides_are_named(
    spark: SparkSession, events: Events, caplog: pytest.LogCaptureFixture
) -> None:
    backfill = events.planned()
    rows = source_frame(spark, backfill.settings, "events").select("id", "k", "t")
    frame = counted(rows.mapInArrow(lambda batches: batches, rows.schema))
    run = BatchRun(backfill)
    run.prepared(frame, events.results, "at")
    assert "rows of events arrive when they should is not known" in caplog.text
    assert "MapInArrow" in caplog.text


@pytest.mark.parametrize("program", [plain, computed])
def test_each_row_that_arrives_late_is_counted_once(
    spark: SparkSession, lake: Catalog, events: Events, program: Program
) -> None:
    late = events.some(20)
    events.arrived[late] = events.happened[late] + DELAY_US + 1
    punctual = events.some(15) & ~late
    events.arrived[punctual] = events.happened[punctual] + DELAY_US
    backfill = events.planned(allowedLateness="1m")
    run = BatchRun(backfill)
    frame = counted(program(source_frame(spark, backfill.settings, "events")))
    assert run.finish(run.prepared(frame, events.results, "at")) is None
    (query,) = run.run.tracker.queries
    assert query.arrived_late == late.sum()


@pytest.mark.parametrize("program", [plain, computed])
def test_event_times_that_lag_behind_end_the_run(
    spark: SparkSession, events: Events, program: Program
) -> None:
    events.arrived = events.arrived + DELAY_US + HOUR_US
    backfill = events.planned(allowedLateness="1m")
    run = BatchRun(backfill)
    frame = counted(program(source_frame(spark, backfill.settings, "events")))
    error = run.finish(run.prepared(frame, events.results, "at"))
    assert isinstance(error, InvalidPlanInput)
    (problem,) = error.problems
    assert problem.field == "spec.execution"
    assert "longer after their event time than the delay of withWatermark" in problem.message
