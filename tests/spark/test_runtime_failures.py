"""Drivers that are stopped and killed: the next attempt goes on, and no row is lost, doubled or
counted twice.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from drivers import (
    DEADLINE_SECONDS,
    ROWS_PER_STEP,
    START,
    STEP,
    Lake,
    assign,
    committed,
    driver,
    status,
    wait_until,
)
from pyiceberg.catalog import Catalog

from backfill.planning.plan import read_splits
from backfill.runtime.queries.earlier_attempts import begun_with, checkpoint_of
from backfill.runtime.queries.run_state import identity
from backfill.runtime.switching.state_store import HEAP, PROVIDER, ROCKSDB

STEPS = 10
CHECKPOINT = identity("counts-production", "counts")
"""Of the query, whose name is made of its output and the location of its checkpoint."""
APPLICATION = """
import uuid
from pyspark.sql import SparkSession, functions as F

spark = SparkSession.builder.config("spark.sql.shuffle.partitions", "7").getOrCreate()
records = spark.readStream.format("kafka").option("subscribe", "raw-events").load()
events = records.select(F.from_json(F.col("value").cast("string"), "id long, user long, at timestamp").alias("e")).select("e.*")
counts = events.withWatermark("at", "1 minute").groupBy(F.window("at", "10 minutes"), "user").agg(F.count("*").alias("n"))
query = (
    counts.select("window.start", "user", "n")
    .writeStream.queryName(f"counts-{uuid.uuid4()}")  # another name for each attempt
    .option("checkpointLocation", "/production/checkpoint")
    .trigger(processingTime="1 minute")
    .toTable("default.counts")
)
query.awaitTermination()
print("the application ended normally")
spark.stop()
"""


@pytest.mark.slow
def test_whatever_ends_a_driver_the_next_one_goes_on_and_every_row_counts_once(
    tmp_path: Path, lake: Catalog
) -> None:
    history = Lake(tmp_path, lake, STEPS)
    program = tmp_path / "app.py"
    program.write_text(APPLICATION)

    first = history.settings("counts", program, 1, ("counts",))
    assign(first, history.header, 3)
    with driver(first) as process:
        wait_until(lambda: committed(first) >= 1, process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_SECONDS) == 0
    assert (status(first).phase, committed(first)) == (
        "Stopped",
        3,
    ), "what was released is committed before it stops"

    second = history.settings("counts", program, 2, ("counts",))
    assign(second, history.header, STEPS)
    with driver(second) as process:
        wait_until(lambda: committed(second) >= 5, process)
        assign(second, history.header, STEPS, attempt=3)
        assert process.wait(DEADLINE_SECONDS) == 1
    assert status(second).phase == "Running", (
        "a driver that another attempt replaces writes nothing more"
    )

    third = history.settings("counts", program, 3, ("counts",))
    with driver(third) as process:
        wait_until(lambda: committed(third) >= 7, process)
        os.kill(_jvm_of(process.pid), signal.SIGKILL)
        assert process.wait(DEADLINE_SECONDS) == 1
    assert (status(third).phase, status(third).reason) == ("Failed", "ApplicationFailed")

    fourth = history.settings("counts", program, 4, ("counts",))
    assign(fourth, history.header, STEPS)
    with driver(fourth) as process:
        assert process.wait(DEADLINE_SECONDS) == 0
    end = status(fourth)
    query = end.queries[0]
    assert (end.phase, committed(fourth)) == ("Finished", STEPS + 1)
    assert [source.rows for source in query.sources] == [STEPS * ROWS_PER_STEP]
    assert (query.open_at_end, query.needed_drain_seconds) == (
        3,
        60.0,
    ), "the last window was not closed by any event"
    log = (tmp_path / "counts" / "driver.log").read_text()
    assert "the application ended normally" in log
    assert "keeps its state in memory: it needs" in log
    assert log.count("keeps its state in memory, as in earlier attempts") == 3
    assert begun_with(checkpoint_of(CHECKPOINT, fourth.checkpoint_workspace))[PROVIDER] == HEAP

    assert [path.name for path in Path(fourth.checkpoints).iterdir()] == [CHECKPOINT], (
        "each attempt goes on where the last one was"
    )
    expected = [
        (START + step * STEP, user, ROWS_PER_STEP // 3)
        for step in range(STEPS - 1)
        for user in range(3)
    ]
    assert (
        sorted((row["start"], row["user"], row["n"]) for row in history.result("counts", "counts"))
        == expected
    )  # type: ignore[type-var]


def test_a_stream_keeps_its_state_where_it_began_whatever_a_later_attempt_sets(
    tmp_path: Path, lake: Catalog
) -> None:
    steps = 4
    history = Lake(tmp_path, lake, steps)
    program = tmp_path / "app.py"
    program.write_text(APPLICATION)
    for attempt, provider, released in ((1, ROCKSDB, 2), (2, HEAP, steps)):
        settings = history.settings("counts", program, attempt, ("counts",))
        settings.spark_conf[PROVIDER] = provider
        assign(settings, history.header, released)
        with driver(settings) as process:
            if released < steps:
                wait_until(lambda mine=settings, least=released: committed(mine) >= least, process)
                process.kill()
                process.wait()
            else:
                assert process.wait(DEADLINE_SECONDS) == 0
        checkpoint = checkpoint_of(CHECKPOINT, settings.checkpoint_workspace)
        assert begun_with(checkpoint)[PROVIDER] == ROCKSDB, attempt
    log = (tmp_path / "counts" / "driver.log").read_text()
    assert (
        log.count(
            "keeps its state in RocksDB, as set by the program, the SparkApplication or the Backfill"
        )
        == 1
    )
    assert log.count("keeps its state in RocksDB, as in earlier attempts") == 1
    assert status(settings).queries[0].open_at_end == 3, "the state is read with its own store"
    rows = history.result("counts", "counts")
    assert {row["n"] for row in rows} == {ROWS_PER_STEP // 3}
    assert len(rows) == 3 * (steps - 1)


def test_a_data_file_that_is_damaged_after_planning_is_bad_input_at_once(
    tmp_path: Path, lake: Catalog
) -> None:
    history = Lake(tmp_path, lake, 2)
    program = tmp_path / "app.py"
    program.write_text(APPLICATION)
    settings = history.settings("counts", program, 1, ("counts",))
    (split,) = read_splits(settings.plan_workspace, 1, "events")
    damaged = Path(split.path.removeprefix("file://"))
    damaged.write_bytes(damaged.read_bytes()[:40])

    assign(settings, history.header, 2)
    with driver(settings) as process:
        assert process.wait(DEADLINE_SECONDS) == 2
    end = status(settings)
    assert (end.phase, end.reason, committed(settings)) == ("Failed", "InvalidInput", 1)
    assert end.message.startswith(
        f"spec.sources: {split.path} of lake.default.events cannot be read: "
    )


WATCHED = """
import time
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
events = spark.readStream.table("lake.default.events")
query = events.writeStream.queryName("copies").toTable("default.copies")
first = query.runId
while query.isActive and query.runId == first:
    time.sleep(0.1)
(known,) = spark.streams.active
assert known is query and spark.streams.get(query.id) is query
print("the application sees", "another run" if query.runId != first else "the run that failed")
query.awaitTermination()
"""
SLOW_ONCE = """#!/bin/sh
case "$*" in *pyspark.worker*) ls {checkpoints}/*/commits/0 2>/dev/null && mkdir "{marker}" && sleep 11;; esac >&2
exec "{python}" "$@"
"""


def test_a_query_whose_python_process_was_slow_to_start_is_started_again_in_the_same_attempt(
    tmp_path: Path, lake: Catalog
) -> None:
    """Spark waits ten seconds for a process that no daemon starts, whatever is configured."""
    history = Lake(tmp_path, lake, 2)
    program, python = tmp_path / "app.py", tmp_path / "slow-python"
    program.write_text(WATCHED)
    settings = history.settings("copies", program)
    settings.spark_conf["spark.python.use.daemon"] = "false"
    settings.spark_conf["spark.master"] = "local[2]"  # else Spark tries the task again itself
    paths = {"checkpoints": settings.checkpoints, "marker": tmp_path / "was-slow"}
    python.write_text(SLOW_ONCE.format(**paths, python=sys.executable))
    python.chmod(0o755)

    assign(settings, history.header, 2)
    with driver(settings, python) as process:
        process.wait(DEADLINE_SECONDS)
    log = (tmp_path / "copies" / "driver.log").read_text()
    assert (process.returncode, (tmp_path / "was-slow").exists()) == (0, True), log
    (source,) = status(settings).queries[0].sources
    assert (source.committed, source.rows) == (3, 2 * ROWS_PER_STEP)
    rows = history.result("copies", "copies")
    assert sorted(row["id"] for row in rows) == list(range(2 * ROWS_PER_STEP))  # type: ignore[type-var]
    assert "restarting the query copies: " in log
    assert "the application sees another run" in log


def _jvm_of(driver_process: int) -> int:
    found = subprocess.run(
        ["pgrep", "-P", str(driver_process), "java"], capture_output=True, text=True, check=True
    )
    return int(found.stdout)
