"""Tables of many columns: Python talks to Spark's JVM by one message for each call, and a call for
each column, wherever there is one, makes minutes of them.
"""

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from planned_sources import planned
from py4j.java_gateway import GatewayClient
from pyiceberg.catalog import Catalog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backfill.api.spec import BackfillSpec
from backfill.runtime.batch.batch_sources import Leaves
from backfill.runtime.batch.look_back import analyze
from backfill.runtime.batch.rebind_plan import rebind
from backfill.runtime.batch.state_rows import kept_rows
from backfill.runtime.batch.straight_json import without_json
from backfill.runtime.batch.time_reach import Bounded
from backfill.runtime.catalyst import analyzed
from backfill.runtime.queries.logical_plan import columns_used, columns_used_by, sources_read
from backfill.runtime.switching.source_frames import SourceFrames

HOUR = datetime(2024, 3, 1, 2, tzinfo=UTC)
FEW, MANY = 20, 120
FORGET = "m\n"
"""Begins messages by which Python forgets objects. When it does is up to garbage collection."""


class Calls:
    """Counts what this thread asks Spark's JVM."""

    def __init__(self, patch: pytest.MonkeyPatch):
        self.number = 0
        send, mine = GatewayClient.send_command, threading.get_ident()

        def counted(client: GatewayClient, command: str, *args: object, **more: object) -> object:
            self.number += threading.get_ident() == mine and not command.startswith(FORGET)
            return send(client, command, *args, **more)

        patch.setattr(GatewayClient, "send_command", counted)

    def of(self, work: Callable[[], object]) -> int:
        before = self.number
        work()
        return self.number - before


def counts_of(records: DataFrame) -> DataFrame:
    value = F.from_json(F.col("value").cast("string"), "id bigint, c7 bigint, c8 string")
    rows = records.select(value.alias("e"), "timestamp").select("e.*", "timestamp")
    windows = rows.withWatermark("timestamp", "1 minute").groupBy(F.window("timestamp", "1 hour"))
    counts = windows.agg(F.count("id").alias("n"), F.sum("c7").alias("s"), F.max("c8").alias("t"))
    return counts.select(F.col("window.start").alias("start"), "n", "s", "t")


def calls_for(
    spark: SparkSession, lake: Catalog, directory: Path, calls: Calls, columns: int
) -> tuple[dict[str, int], int]:
    """What a program over a table of so many columns asks the JVM, by what it is for; and what one
    that uses all of them asks.
    """
    rows = {
        "id": pa.array([1, 2, 3]),
        "at": pa.array([HOUR] * 3, pa.timestamp("us", "UTC")),
        **{f"c{each}": pa.array([each] * 3) for each in range(columns) if each != 8},
        "c8": pa.array(["a", "b", None]),
    }
    name = f"lake.raw.{directory.name}"
    lake.create_table(name.removeprefix("lake."), pa.table(rows).schema).append(pa.table(rows))
    source = {"name": "events", "table": name, "timestampColumn": "at"}
    spec = BackfillSpec.model_validate(
        {
            "applicationRef": {"name": "app"},
            "window": {"start": HOUR, "end": "2024-03-01T03:00:00Z"},
            "sources": [{**source, "live": {"kafka": {"topic": "events"}}}],
        }
    )
    directory.mkdir()
    settings = planned(spec, directory).settings
    frames, leaves = SourceFrames(settings), Leaves(spark, settings)
    asked = {"its rows": calls.of(lambda: frames.rows(spark, "events"))}
    asked["its records"] = calls.of(lambda: frames.kafka(spark, "events", headers=False))
    frame = counts_of(frames.kafka(spark, "events", headers=False))
    asked["what is read"] = calls.of(lambda: (sources_read(frame), columns_used(frame)))
    assert isinstance(analyze(frame, "start", {"events": "at"}), Bounded)
    asked["look-back"] = calls.of(lambda: analyze(frame, "start", {"events": "at"}))
    asked["state"] = calls.of(lambda: kept_rows(frame, {"events": "at"}))
    asked["without JSON"] = calls.of(lambda: without_json(analyzed(frame), spark))
    plan = without_json(analyzed(frame), spark)
    used = frozenset(columns_used_by(plan, spark)["events"])
    assert used == {"id", "c7", "c8", "at"}

    def bound() -> DataFrame:
        return rebind(plan, spark, lambda of, topic: leaves.frame(of, range(1), topic, used))

    asked["a batch job"] = calls.of(bound)
    assert [row[1:] for row in bound().collect()] == [(3, 21, "b")]
    everything = ", ".join(f"c{each} bigint" for each in range(columns))
    value = F.from_json(F.col("value").cast("string"), everything)
    parsed = frames.kafka(spark, "events", headers=False).select(value.alias("e")).select("e.*")
    return asked, calls.of(lambda: analyze(parsed, None, {"events": "at"}))


def test_a_program_starts_as_fast_on_a_table_of_many_columns(
    spark: SparkSession, lake: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(monkeypatch)
    calls_for(spark, lake, tmp_path / "first", calls, FEW)  # looks up classes
    few, all_of_few = calls_for(spark, lake, tmp_path / "few", calls, FEW)
    many, all_of_many = calls_for(spark, lake, tmp_path / "many", calls, MANY)
    assert many == few
    assert all_of_many <= all_of_few * MANY / FEW
