"""Rows for sinks that no backfill can isolate: they are staged, approved, and delivered by the
application's own code, batch by batch.
"""

import os
import signal
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from production import DEADLINE_SECONDS, Production, ended
from pyiceberg.catalog import Catalog

from histories import events, land, query
from waiting import eventually

READ = """
    SELECT * FROM clicks
    WHERE ingested >= TIMESTAMPTZ '2024-03-01 02:00Z' AND ingested < TIMESTAMPTZ '2024-03-01 08:00Z'
"""
APPLICATION = """
import os
import sqlite3
import time
from pyspark.sql import SparkSession, functions as F

spark = SparkSession.builder.getOrCreate()
records = spark.readStream.format("kafka").option("subscribe", "clicks").load()
schema = "title long, viewer long, at timestamp"
clicks = records.select(F.from_json(F.col("value").cast("string"), schema).alias("e")).select("e.*")


def store(batch, number):
    if "BACKFILL_SETTINGS" in os.environ:
        return
    rows = [tuple(row) for row in batch.select("title", "viewer", F.col("at").cast("string")).collect()]
    database = sqlite3.connect("DIRECTORY/rows.db", timeout=60)
    with database:
        if number == POISONED and not os.path.exists("DIRECTORY/healed"):
            raise ValueError("a row that nobody expected")
        database.executemany(f"INSERT INTO rows VALUES ({number}, ?, ?, ?)", rows)
        database.execute("INSERT INTO calls VALUES (?, ?)", (number, time.time()))
    database.close()
    batch.write.mode("overwrite").parquet("DIRECTORY/last")
    while os.path.exists("DIRECTORY/hold") and number >= 2:
        time.sleep(0.05)


class Lines:
    def open(self, partition, number):
        self.file = open(f"DIRECTORY/lines/{number}-{partition}", "w")
        return True

    def process(self, row):
        print(row.title, row['count'], file=self.file)

    def close(self, error):
        self.file.close()


clicks.writeStream.foreachBatch(store).start()
clicks.groupBy("title").count().writeStream.queryName("lines").outputMode("update").foreach(Lines()).start()
spark.streams.awaitAnyTermination()
"""


def delivering(name: str, **deliver: Any) -> dict[str, Any]:
    publish = {"mode": "Deliver", **({"deliver": deliver} if deliver else {})}
    return {"name": name, "table": f"lake.staged.{name}", "publish": publish}


def landed(
    lake: Catalog, tmp_path: Path, poisoned: int = -1, **deliver: Any
) -> tuple[Production, pa.Table]:
    clicks, arrived = events(1_500, "at", set(), seed=3)
    land(lake.create_table("raw.clicks", clicks.schema), clicks, arrived, files=12, seed=3)
    (tmp_path / "lines").mkdir()
    with sqlite3.connect(tmp_path / "rows.db") as database:
        database.execute("CREATE TABLE rows (batch int, title int, viewer int, at text)")
        database.execute("CREATE TABLE calls (batch int, at real)")
    production = Production(tmp_path, lake)
    text = APPLICATION.replace("DIRECTORY", str(tmp_path)).replace("POISONED", str(poisoned))
    production.describe(
        text,
        window={"start": "2024-03-01T02:00:00Z", "end": "2024-03-01T08:00:00Z"},
        sources=[
            {
                "name": "clicks",
                "table": "lake.raw.clicks",
                "timestampColumn": "ingested",
                "live": {"kafka": {"topic": "clicks"}},
            }
        ],
        maxMisalignment="2h",
        failurePolicy={"maxAttempts": 2, "backoff": "0s"},
        outputs=[delivering("store", **deliver), delivering("lines")],
    )
    return production, query(READ, clicks=clicks)


def stored(tmp_path: Path) -> list[tuple[Any, ...]]:
    with sqlite3.connect(tmp_path / "rows.db", timeout=60) as database:
        return database.execute("SELECT batch, title, viewer, at FROM rows").fetchall()


def calls(tmp_path: Path) -> list[int]:
    with sqlite3.connect(tmp_path / "rows.db", timeout=60) as database:
        return [number for (number,) in database.execute("SELECT batch FROM calls ORDER BY at")]


def expected(read: pa.Table) -> Counter[tuple[int, int]]:
    return Counter((row["title"], row["viewer"]) for row in read.to_pylist())


@pytest.mark.timeout(900)
def test_rows_are_delivered_once_they_are_approved(lake: Catalog, tmp_path: Path) -> None:
    production, read = landed(lake, tmp_path)
    end = production.run()
    assert end.status == 3, f"{end.err}\n{production.driver_log()}"
    assert stored(tmp_path) == [], "nothing before approval"
    assert "cannot be undone" in end.err
    (tmp_path / "hold").touch()
    approving = production.start("approve", "again", "--state-dir", str(production.state))
    eventually(lambda: len(calls(tmp_path)) >= 3, production.driver_log, DEADLINE_SECONDS)
    os.kill(production.driver(), signal.SIGKILL)
    (tmp_path / "hold").unlink()
    end = ended(approving)
    assert end.status == 0, f"{end.err}\n{production.driver_log()}"
    numbers = calls(tmp_path)
    assert sorted(numbers) == numbers
    again = [number for number, times in Counter(numbers).items() if times > 1]
    assert again == [2], "the batch whose call was interrupted, with its number"
    rows = Counter((title, viewer) for number, title, viewer, _ in stored(tmp_path) if number != 2)
    twice = Counter((title, viewer) for number, title, viewer, _ in stored(tmp_path) if number == 2)
    rows.update({key: times // 2 for key, times in twice.items()})
    assert rows == expected(read)
    status = {each.name: each for each in production.resource.status.outputs}
    delivery = status["store"].delivery
    assert delivery is not None and delivery.delivered == delivery.batches == len(set(numbers))
    last = {}
    for file in sorted(
        (tmp_path / "lines").iterdir(), key=lambda path: int(path.name.partition("-")[0])
    ):
        for line in file.read_text().splitlines():
            title, count = map(int, line.split())
            last[title] = count
    assert last == dict(Counter(row["title"] for row in read.to_pylist()))
    undo = ended(
        production.start("undo", "again", "--state-dir", str(production.state), "--reason", "x")
    )
    assert undo.status == 2, undo.err
    assert "cannot be undone" in undo.err
    cancel = ended(production.start("cancel", "again", "--state-dir", str(production.state)))
    assert cancel.status == 0, cancel.err
    assert not lake.table_exists("staged.store")


@pytest.mark.timeout(900)
def test_a_batch_that_fails_is_skipped_and_the_rest_is_paced_and_goes_on_after_a_suspension(
    lake: Catalog, tmp_path: Path
) -> None:
    production, read = landed(lake, tmp_path, poisoned=1)
    assert production.run().status == 3
    end = ended(production.start("approve", "again", "--state-dir", str(production.state)))
    assert end.status == 1, end.err
    attempts = production.resource.status.attempts
    assert [each.outcome for each in attempts] == ["Succeeded", *["Failed"] * 3]
    assert calls(tmp_path) == [0], "it is not delivered again"
    for words in (
        "failed to deliver a batch",
        "the function store failed for batch 1 of output store: ValueError: a row that nobody",
        "app.py",
        "or list the batch in publish.deliver.skip, and retry",
    ):
        assert words in end.err
    text = production.file.read_text()
    skip = "mode: Deliver\n      deliver:\n        skip: [{batch: 1, reason: broken}]\n        maxRowsPerSecond: 40\n    table: lake.staged.store"
    assert "mode: Deliver\n    table: lake.staged.store" in text
    text = text.replace("mode: Deliver\n    table: lake.staged.store", skip)
    production.file.write_text(text)
    delivering_slowly = production.start_run()
    eventually(lambda: len(calls(tmp_path)) >= 2, production.driver_log, DEADLINE_SECONDS)
    delivering_slowly.send_signal(signal.SIGINT)
    assert ended(delivering_slowly).status == 3
    some = len(calls(tmp_path))
    assert production.resource.status.attempts[-1].outcome == "Stopped"
    text = text.replace("maxRowsPerSecond: 40", "maxRowsPerSecond: 100000")
    production.file.write_text(text)
    end = production.run()
    assert end.status == 0, f"{end.err}\n{production.driver_log()}"
    delivery = production.resource.status.outputs[0].delivery
    assert delivery is not None
    numbers = calls(tmp_path)
    assert some < len(numbers) == len(set(numbers))
    assert delivery.delivered == delivery.batches == len(numbers) + 1
    assert 1 not in numbers
    rows = Counter((title, viewer) for _, title, viewer, _ in stored(tmp_path))
    assert delivery.rows == rows.total() < expected(read).total()
    assert rows <= expected(read), "each row once, but for those of the batch that was skipped"
