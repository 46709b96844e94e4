"""The Iceberg source in real queries: what is read, in which batch, whatever stops and fails in
between.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from planned_sources import Backfill, committed, planned, wait
from pyiceberg.catalog import Catalog
from pyspark.errors import PythonException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backfill.api.errors import InvalidPlanInput
from backfill.api.spec import BackfillSpec
from backfill.runtime.queries.earlier_attempts import checkpoint_of
from backfill.runtime.queries.logical_plan import divides_into_ranges
from backfill.runtime.source.clock import read_of_offset
from backfill.runtime.source.source_frame import source_frame, source_observed
from backfill.runtime.source.split_reading import count_rows
from backfill.runtime.spark_versions import COUNTS_SAMPLES
from cases import cases
from waiting import PATIENCE_SECONDS

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


def read_so_far(backfill: Backfill, batch: int) -> list[tuple[int, int]]:
    """By the checkpoint, how far a batch has read each source."""
    checkpoint = checkpoint_of("q", backfill.settings.checkpoint_workspace)
    return list(map(read_of_offset, checkpoint.read(f"offsets/{batch}").decode().split("\n")[2:]))


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
    batches = [progress for progress in query.recentProgress if progress["batchId"] <= STEPS]
    offsets = [read_so_far(backfill, progress["batchId"]) for progress in batches]
    assert offsets == [[(0, step)] for step in range(1, STEPS + 2)]
    assert sorted(row.id for row in backfill.results(spark).collect()) == list(range(ROWS * STEPS))


def test_progress_tells_what_was_really_read(spark: SparkSession, backfill: Backfill) -> None:
    frames = [source_frame(spark, backfill.settings, name) for name in TYPES]
    query = backfill.start(frames[0].select("id").unionAll(frames[1].select("id")))
    backfill.release(1)
    wait(lambda: committed(query) >= 1, query)
    metrics = {
        source_observed(name): {each: row[each] for each in ("rows", "min_us", "max_us")}
        for name, row in query.lastProgress["observedMetrics"].items()
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
    first.stop()
    backfill.release(STEPS)
    second = backfill.start(source_frame(spark, backfill.settings, "events"))
    wait(lambda: committed(second) >= STEPS + 1, second)
    assert sorted(row.id for row in backfill.results(spark).collect()) == list(range(ROWS * STEPS))


def test_a_query_that_waits_for_a_step_ends_without_an_error_when_it_is_stopped(
    spark: SparkSession, backfill: Backfill
) -> None:
    """Also if it is stopped between two batches, where Spark 3.5 may lose the interrupt."""
    backfill.release(1)
    for number in range(6):
        query = backfill.start(source_frame(spark, backfill.settings, "events"), f"q{number}")
        wait(lambda: committed(query) >= 1, query)  # noqa: B023
        query.stop()
        assert (query.isActive, query.exception()) == (False, None)
    backfill.release(STEPS)
    for number in range(6):
        assert backfill.results(spark, f"q{number}").count() == ROWS


def repartitioned(events: DataFrame) -> DataFrame:
    return events.repartition(3, "user").select("id")


def sorted_by_user(events: DataFrame) -> DataFrame:
    return events.repartitionByRange(3, "user").select("id")


def broadcast(events: DataFrame) -> DataFrame:
    ids = events.sparkSession.range(ROWS * STEPS)
    return ids.join(F.broadcast(events), "id").select("id")


@cases(
    "program",
    {"repartitioned": repartitioned, "sorted": sorted_by_user, "broadcast": broadcast},
)
def test_what_spark_computes_before_it_gives_a_batch_to_its_sink_is_of_the_same_step(
    spark: SparkSession, backfill: Backfill, program: Callable[[DataFrame], DataFrame]
) -> None:
    frame = program(source_frame(spark, backfill.settings, "events"))
    query = backfill.start(frame)
    for step in range(1, STEPS + 1):
        backfill.release(step)
        wait(lambda: committed(query) >= step, query)  # noqa: B023
    wait(lambda: committed(query) >= STEPS + 1, query)
    assert sorted(row.id for row in backfill.results(spark).collect()) == list(range(ROWS * STEPS))
    told = [
        row["rows"] for each in query.recentProgress for row in each["observedMetrics"].values()
    ]
    again = COUNTS_SAMPLES and divides_into_ranges(frame)
    assert [rows for rows in told if rows] == [ROWS * (1 + again)] * STEPS


def test_rows_of_a_batch_are_not_there_for_a_thread_that_is_unknown_to_it(
    spark: SparkSession, backfill: Backfill
) -> None:
    """They are neither none nor those of another step."""
    found: list[str] = []

    def read(rows: DataFrame, step: int) -> None:
        def count() -> None:
            try:
                found.append(f"{rows.count()} rows")
            except PythonException as error:
                found.append(str(error))

        thread = threading.Thread(target=count)
        thread.start()
        thread.join()
        count()

    query = backfill.start(source_frame(spark, backfill.settings, "events"), sink=read)
    backfill.release(1)
    wait(lambda: committed(query) >= 1, query)
    unknown, known = found[:2]
    assert "rows of events are read in a thread that cannot be attributed to a batch" in unknown
    assert known == f"{ROWS} rows"
    assert spark.sparkContext.getLocalProperty("backfill.step.events") is None, "of this thread"


def test_a_query_whose_sources_have_changed_their_order_is_refused(
    spark: SparkSession, backfill: Backfill
) -> None:
    """Otherwise the state of one would be gone on with by the rows of the other."""
    events, plays = (source_frame(spark, backfill.settings, name).select("id") for name in TYPES)
    backfill.release(1)
    first = backfill.start(events.unionAll(plays))
    wait(lambda: committed(first) >= 1, first)
    first.stop()
    backfill.release(STEPS)
    second = backfill.start(plays.unionAll(events))
    with pytest.raises(StreamingQueryException, match="the order of its sources has changed"):
        second.awaitTermination(PATIENCE_SECONDS)


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
    ends = [read_so_far(backfill, batch) for batch in range(STEPS + 1)]
    assert ends == [[(0, step), (1, step)] for step in range(1, STEPS + 2)]
    assert backfill.results(spark).count() == ROWS * STEPS


def test_a_killed_python_worker_is_replaced_and_its_rows_are_read_again(
    spark: SparkSession, backfill: Backfill
) -> None:
    marker = Path(backfill.settings.channel).parent / "killed"

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
