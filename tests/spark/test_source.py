"""The Iceberg source in real queries: what is read, in which batch, whatever stops and fails in
between.
"""

import json
import os
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from planned_sources import Backfill, committed, planned, wait
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from backfill.api.errors import InvalidPlanInput
from backfill.api.spec import BackfillSpec
from backfill.runtime.source.data_source import source_frame, source_observed
from backfill.runtime.source.split_reading import count_rows

START = datetime(2021, 7, 11, tzinfo=UTC)
START_US = 1_625_961_600_000_000
STEP = timedelta(minutes=10)
STEPS = 4
ROWS = 40
"""Of each source in each step."""
TYPES = {
    "events": pa.schema([("id", pa.int64()), ("user", pa.string()), ("at", pa.timestamp("us"))]),
    "plays": pa.schema(
        [("id", pa.int64()), ("user", pa.string()), ("at", pa.timestamp("us", "UTC"))]
    ),
}


def rows_of(name: str, step: int) -> pa.Table:
    ids = [step * ROWS + number for number in range(ROWS)]
    zone = UTC if name == "plays" else None
    at = [
        (START + step * STEP + timedelta(seconds=5, microseconds=each)).replace(tzinfo=zone)
        for each in ids
    ]
    return pa.table({"id": ids, "user": [f"u{each % 3}" for each in ids], "at": at}, TYPES[name])


def stop_when_idle(backfill: Backfill, query: StreamingQuery, released: int) -> None:
    backfill.release(released, stop=True)
    wait(
        lambda: not query.status["isTriggerActive"] and "Waiting" in query.status["message"], query
    )
    query.stop()


@pytest.fixture
def backfill(lake: Catalog, tmp_path: Path) -> Iterator[Backfill]:
    sources = []
    for name, schema in TYPES.items():
        table = lake.create_table(f"raw.{name}", schema=schema)
        for step in range(STEPS):
            table.append(rows_of(name, step))
        live = {"kafka": {"topic": f"raw-{name}"}}
        sources.append(
            {"name": name, "table": f"lake.raw.{name}", "timestampColumn": "at", "live": live}
        )
    spec = BackfillSpec.model_validate(
        {
            "applicationRef": {"name": "app"},
            "window": {"start": START, "end": START + STEPS * STEP},
            "sources": sources,
            "ordering": {"policy": "Exact"},
            "maxMisalignment": "20m",
        }
    )
    made = planned(spec, tmp_path)
    yield made
    made.stop()


def test_a_batch_is_one_step_and_nothing_is_read_before_it_is_released(
    spark: SparkSession, backfill: Backfill
) -> None:
    assert backfill.header.steps == STEPS
    frame = source_frame(spark, backfill.settings, "events")
    assert frame.schema.simpleString() == "struct<id:bigint,user:string,at:timestamp>"
    query = backfill.start(frame)
    wait(lambda: query.status["isTriggerActive"], query)
    backfill.release(2)
    wait(lambda: committed(query) >= 2, query)
    backfill.release(STEPS)
    wait(lambda: committed(query) >= STEPS + 1, query)
    batches = [progress for progress in query.recentProgress if progress.batchId <= STEPS]
    assert [progress.numInputRows for progress in batches] == [ROWS] * STEPS + [0]
    offsets = [json.loads(progress.sources[0].endOffset) for progress in batches]
    assert offsets == [{"source": "events", "step": step} for step in range(1, STEPS + 2)]
    assert sorted(row.id for row in backfill.results(spark).collect()) == list(range(ROWS * STEPS))


def test_progress_tells_what_was_really_read(spark: SparkSession, backfill: Backfill) -> None:
    frames = [source_frame(spark, backfill.settings, name) for name in TYPES]
    query = backfill.start(frames[0].select("id").unionAll(frames[1].select("id")))
    backfill.release(1)
    wait(lambda: committed(query) >= 1, query)
    metrics = {
        source_observed(name): row.asDict()
        for name, row in query.lastProgress.observedMetrics.items()
    }
    first = START_US + 5_000_000
    expected = {"rows": ROWS, "min_us": first, "max_us": first + ROWS - 1}
    assert metrics == dict.fromkeys(TYPES, expected)


def test_a_query_goes_on_where_it_stopped_and_ends_with_the_flush(
    spark: SparkSession, backfill: Backfill
) -> None:
    backfill.release(2)
    first = backfill.start(source_frame(spark, backfill.settings, "events"))
    wait(lambda: committed(first) >= 2, first)
    stop_when_idle(backfill, first, released=2)
    backfill.release(STEPS)
    second = backfill.start(source_frame(spark, backfill.settings, "events"))
    wait(lambda: committed(second) >= STEPS + 1, second)
    assert sorted(row.id for row in backfill.results(spark).collect()) == list(range(ROWS * STEPS))


def test_the_flush_closes_what_the_last_step_has_passed(
    spark: SparkSession, backfill: Backfill
) -> None:
    plays = source_frame(spark, backfill.settings, "plays").withWatermark("at", "1 second")
    query = backfill.start(plays.groupBy(F.window("at", "10 minutes")).count())
    backfill.release(STEPS)
    wait(lambda: committed(query) >= STEPS + 1, query)
    closed = backfill.results(spark).select("window.start", "count").orderBy("start").collect()
    starts = [(START + step * STEP).replace(tzinfo=None) for step in range(STEPS - 1)]
    assert [(row.start, row["count"]) for row in closed] == [(start, ROWS) for start in starts]


def test_sources_of_one_query_are_always_at_the_same_step(
    spark: SparkSession, backfill: Backfill
) -> None:
    events, plays = (source_frame(spark, backfill.settings, name) for name in TYPES)
    query = backfill.start(events.join(plays, "id").select("id"))
    for step in range(1, STEPS + 1):
        backfill.release(step)
        wait(lambda: committed(query) >= step, query)  # noqa: B023
    wait(lambda: committed(query) >= STEPS + 1, query)
    ends = [
        [json.loads(source.endOffset)["step"] for source in progress.sources]
        for progress in query.recentProgress
    ]
    assert all(first == second for first, second in ends)
    assert backfill.results(spark).count() == ROWS * STEPS


def test_a_killed_python_worker_is_replaced_and_its_rows_are_read_again(
    spark: SparkSession, backfill: Backfill
) -> None:
    marker = Path(backfill.settings.scratch) / "killed"

    @F.udf("long")
    def die_once(value: int) -> int:
        """Kills this worker and its siblings, the one that reads the rows among them."""
        if value == ROWS + 7 and not marker.exists():
            marker.touch()
            children = (
                Path(f"/proc/{os.getppid()}/task/{os.getppid()}/children").read_text().split()
            )
            for child in sorted(map(int, children), key=lambda each: each == os.getpid()):
                os.kill(child, signal.SIGKILL)
        return value

    query = backfill.start(
        source_frame(spark, backfill.settings, "events").select(die_once("id").alias("id"))
    )
    backfill.release(STEPS)
    wait(lambda: committed(query) >= STEPS + 1, query)
    assert marker.exists()
    assert sorted(row.id for row in backfill.results(spark).collect()) == list(range(ROWS * STEPS))


def test_rows_of_a_step_are_counted_from_the_plan(backfill: Backfill) -> None:
    plan = backfill.settings.plan_workspace
    assert [count_rows(plan, "plays", step) for step in range(STEPS)] == [ROWS] * STEPS


def test_a_snapshot_that_is_gone_is_named_before_anything_is_read(
    spark: SparkSession, backfill: Backfill, lake: Catalog
) -> None:
    lake.drop_table("raw.events")
    with pytest.raises(InvalidPlanInput, match=r"lake\.raw\.events"):
        source_frame(spark, backfill.settings, "events")
