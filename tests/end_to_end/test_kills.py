"""Everything of a real run is killed in turn, at moments of no plan; what is published is as if
nothing had happened.
"""

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
from production import DEADLINE_SECONDS, Production
from pyiceberg.catalog import Catalog

from backfill.api.conditions import ConditionType, Reason, find_condition
from histories import DAY_US, HOUR_US, MINUTE_US, UTC_TIME, land, query, sorted_rows, times
from waiting import eventually

APPLICATION = """
from pyspark.sql import SparkSession, functions as F
from backfill.runtime import read_source, write_output

spark = SparkSession.builder.getOrCreate()
clicks = read_source(spark, "clicks").withWatermark("clicked", "10 minutes").dropDuplicatesWithinWatermark(["id"])
counts = clicks.groupBy(F.window("clicked", "10 minutes"), "page").agg(F.count("*").alias("clicks"), F.sum("id").alias("ids"))
write_output(counts.select(F.col("window.start").alias("began"), "page", "clicks", "ids"), "counts").awaitTermination()
"""
COUNTS = """
    SELECT time_bucket(INTERVAL 10 MINUTE, clicked) AS began, page, count(*) AS clicks, sum(id)::BIGINT AS ids
    FROM (SELECT DISTINCT id, page, clicked FROM clicks) GROUP BY ALL
"""
WINDOW = "began >= TIMESTAMPTZ '2024-03-01 01:00Z' AND began < TIMESTAMPTZ '2024-03-01 03:00Z'"


def clicks() -> tuple[pa.Table, np.ndarray]:
    """Five hours of clicks, a tenth of them delivered twice."""
    random = np.random.default_rng(11)
    clicked = np.sort(random.integers(DAY_US, DAY_US + 5 * HOUR_US, 3_000))
    rows = np.sort(
        np.concatenate([np.arange(len(clicked)), np.flatnonzero(random.random(len(clicked)) < 0.1)])
    )
    arrived = clicked[rows] + random.integers(0, 2 * MINUTE_US, len(rows))
    return (
        pa.table(
            {
                "id": rows,
                "page": rows % 5,
                "clicked": times(clicked[rows]),
                "ingested": times(arrived),
            }
        ),
        arrived,
    )


class Assailant:
    """Kills parts of a run, and waits for moments of it."""

    def __init__(self, production: Production):
        self._production = production
        self._random = random.Random(3)

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        eventually(condition, lambda: f"{what}\n{self._production.driver_log()}", DEADLINE_SECONDS)

    def wait_for_batches(self, count: int) -> None:
        """Until so many more batches than now are committed, and a moment longer: it is not to hit
        between batches only.
        """
        wanted = self.batches() + count
        self.wait_until(lambda: self.batches() >= wanted, f"{wanted} batches")
        time.sleep(self._random.uniform(0, 0.6))

    def batches(self) -> int:
        commits = self._production.store.directory.glob("checkpoints/*/counts/commits/*")
        return sum(1 for path in commits if path.name.isdigit())

    def kill_a(self, mark: str) -> None:
        """kill -9 of a process that the driver started, by a part of its command line."""

        def killed() -> bool:
            # an attempt that was just recorded has no driver yet, and a process may end by itself
            with suppress(FileNotFoundError, ProcessLookupError):
                if found := self._below_driver(mark):
                    os.kill(self._random.choice(found), signal.SIGKILL)
                    return True
            return False

        self.wait_until(killed, f"a process {mark}")

    def _below_driver(self, mark: str) -> list[int]:
        listed = subprocess.check_output(
            ["ps", "-A", "-ww", "-o", "pid=,ppid=,args="], text=True
        ).splitlines()
        processes = [
            (int(pid), int(parent), command)
            for pid, parent, command in (line.split(maxsplit=2) for line in listed)
        ]
        family = {self._production.driver()}
        for _ in range(5):
            family |= {pid for pid, parent, _ in processes if parent in family}
        return [pid for pid, _, command in processes if pid in family and mark in command]

    def kill(self, process: "subprocess.Popen[str]") -> None:
        """kill -9 of the command."""
        process.kill()
        process.communicate()

    def publishes(self) -> bool:
        """Whether the publication has begun. It is short, and may be over between two looks."""
        published = find_condition(
            self._production.resource.status.conditions, ConditionType.PUBLISHED
        )
        return published is not None and published.reason in (
            Reason.PUBLISHING,
            Reason.PUBLISHED,
        )


def described(lake: Catalog, directory: Path, max_misalignment: str = "30m") -> Production:
    production = Production(directory, lake)
    production.describe(
        APPLICATION,
        execution="Streaming",
        # three kills, each of which may cost an attempt: also that of a task's process, if that
        # commits a batch, which Spark does not repeat
        failurePolicy={"maxAttempts": 5, "backoff": "0s"},
        window={
            "start": "2024-03-01T01:00:00Z",
            "end": "2024-03-01T03:00:00Z",
            "warmUp": "30m",
            "drain": "30m",
        },
        sources=[{"name": "clicks", "table": "lake.raw.clicks", "timestampColumn": "ingested"}],
        ordering={"policy": "WithinLateness", "allowedLateness": "5m"},
        maxMisalignment=max_misalignment,
        outputs=[
            {
                "name": "counts",
                "table": "lake.raw.counts",
                "timestampColumn": "began",
                "publish": {"mode": "Replace", "approval": "Automatic"},
            },
        ],
    )
    return production


def test_a_run_of_which_everything_is_killed_publishes_what_an_undisturbed_one_would(
    lake: Catalog, tmp_path: Path
) -> None:
    rows, arrived = clicks()
    land(
        lake.create_table("raw.clicks", rows.schema),
        rows,
        arrived,
        files=14,
        seed=4,
        straggle_us=3 * MINUTE_US,
    )
    truth = query(COUNTS, clicks=rows)
    schema = pa.schema(
        [
            field.with_type(UTC_TIME) if pa.types.is_timestamp(field.type) else field
            for field in truth.schema
        ]
    )
    output = lake.create_table("raw.counts", schema)
    output.append(
        query("SELECT began, page, clicks * 2 AS clicks, ids FROM truth", truth=truth).cast(schema)
    )
    production = described(lake, tmp_path)
    assailant = Assailant(production)

    run = production.start_run()
    assailant.wait_for_batches(1)
    assailant.kill_a("backfill.runtime.task_daemon")
    assailant.wait_for_batches(1)
    assailant.kill_a("bin/java")
    assailant.wait_for_batches(1)
    assailant.kill(run)
    run = production.start_run()
    assailant.wait_for_batches(1)
    os.kill(production.driver(), signal.SIGKILL)
    assailant.kill(run)
    run = production.start_run()
    assailant.wait_until(assailant.publishes, "the result to be published")
    assailant.kill(run)
    result = production.succeed()

    fixed = query(f"SELECT * FROM truth WHERE {WINDOW}", truth=truth)
    kept = query(
        f"SELECT began, page, clicks * 2 AS clicks, ids FROM truth WHERE NOT ({WINDOW})",
        truth=truth,
    )
    assert sorted_rows(production.output("raw.counts")) == sorted_rows(fixed, kept)
    read = query(
        "SELECT 1 FROM rows WHERE ingested >= TIMESTAMPTZ '2024-03-01 00:30Z' AND ingested <"
        " TIMESTAMPTZ '2024-03-01 03:30Z'",
        rows=rows,
    )
    assert (result["rowsRead"], result["openAtEnd"]) == (len(read), 0)
    assert production.published_snapshots("raw.counts") == 2, "what was there, and one more"

    again = production.run()
    assert again.status == 0
    assert "has already succeeded" in again.err
    changed = described(lake, tmp_path, max_misalignment="1h").run()
    assert changed.status == 2
    assert "maxMisalignment" in changed.err
    assert sorted_rows(production.output("raw.counts")) == sorted_rows(fixed, kept)
