"""An unmodified streaming application whose queries are run as batch jobs, but for one with state of
its own: killed, stopped and resumed, and every row there once.
"""

import os
import signal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from production import DEADLINE_SECONDS, Production, ended
from pyiceberg.catalog import Catalog

from histories import UTC_TIME, events, land, query, sorted_rows
from waiting import eventually

APPLICATION = """
import pandas as pd
from pyspark.sql import SparkSession, functions as F
from pyspark.sql.streaming.state import GroupStateTimeout

spark = SparkSession.builder.appName("events").getOrCreate()
SCHEMA = "id long, kind string, seconds int, happened timestamp, tags array<string>"


def records(topic):
    values = spark.readStream.format("kafka").option("subscribe", topic).load()
    decoded = values.select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("e"), "topic")
    return decoded.select("e.*", "topic")


@F.udf("int")
def doubled(seconds):
    return None if seconds is None else 2 * seconds


kinds = spark.createDataFrame([("play", "watching"), ("stop", "leaving")], "kind string, meaning string")
every = records("web").withWatermark("happened", "5 minutes").unionByName(records("mobile"))
every.createOrReplaceTempView("every")
kinds.createOrReplaceTempView("kinds")
told = spark.sql('''
    WITH known AS (SELECT e.*, k.meaning FROM every e LEFT JOIN kinds k ON e.kind = k.kind)
    SELECT id, topic, meaning, seconds, happened FROM known WHERE seconds IS NULL OR seconds % 7 <> 3
''')
told.select("id", "topic", F.col("meaning").alias("meaning.of kind"), doubled("seconds").alias("seconds"), "happened") \\
    .writeStream.queryName("told").format("delta").outputMode("update").start("/production/told")
tags = records("mobile").select("id", F.explode("tags").alias("tag"), "happened")
tags.writeStream.queryName("tags").toTable("lake.raw.tags")
web, mobile = (records(topic).withWatermark("happened", "5 minutes").alias(topic) for topic in ("web", "mobile"))
followed = web.join(mobile, F.expr('''
    web.kind = mobile.kind AND web.seconds = mobile.seconds
    AND mobile.happened >= web.happened AND mobile.happened < web.happened + INTERVAL 20 MINUTES
'''), "leftOuter")
hourly = followed.groupBy(F.window("web.happened", "1 hour"), "web.kind").agg(
    F.count("*").alias("rows"), F.count("mobile.id").alias("pairs"), F.sum("mobile.id").alias("ids")
)
hourly.select(F.col("window.start").alias("happened"), "kind", "rows", "pairs", "ids") \\
    .writeStream.queryName("hourly").format("delta").outputMode("complete").start("/production/hourly")
visits = web.where("seconds is not null").groupBy(F.session_window("happened", "12 minutes").alias("visit"), "seconds")
visits.agg(F.count("*").alias("rows"), F.sum("id").alias("ids")) \\
    .select(F.col("visit.start").alias("happened"), F.col("visit.end").alias("until"), "seconds", "rows", "ids") \\
    .writeStream.queryName("visits").format("delta").start("/production/visits")
parts = mobile.select((F.col("seconds") % 20).alias("part"), "happened").dropDuplicatesWithinWatermark(["part"])
parts.writeStream.format("parquet").start("/production/parts")


def first(key, frames, state):
    if not state.exists:
        state.update((True,))
        yield pd.DataFrame([{"seconds": key[0], "happened": pd.Timestamp("2024-03-01 03:00")}])


known = records("web").where("seconds IS NOT NULL").groupBy("seconds")
firsts = known.applyInPandasWithState(
    first, "seconds int, happened timestamp", "seen boolean", "append", GroupStateTimeout.NoTimeout
)
firsts.writeStream.queryName("firsts").toTable("lake.raw.firsts")
spark.streams.awaitAnyTermination()
"""
EVERY = """
    SELECT *, 'web' AS topic FROM web UNION ALL SELECT *, 'mobile' AS topic FROM mobile
"""
TOLD = f"""
    SELECT id, topic, CASE kind WHEN 'play' THEN 'watching' WHEN 'stop' THEN 'leaving' END AS "meaning.of kind",
        (2 * seconds)::INT AS seconds, happened
    FROM ({EVERY}) WHERE seconds IS NULL OR seconds % 7 <> 3
"""
TAGS = "SELECT id, unnest(tags) AS tag, happened FROM mobile"
HOURLY = """
    SELECT date_trunc('hour', w.happened) AS happened, w.kind, count(*) AS rows, count(m.id) AS pairs,
        sum(m.id)::BIGINT AS ids
    FROM web w LEFT JOIN mobile m ON w.kind = m.kind AND w.seconds = m.seconds
        AND m.happened >= w.happened AND m.happened < w.happened + INTERVAL 20 MINUTE
    GROUP BY ALL
"""
FIRSTS = """
    SELECT DISTINCT seconds, TIMESTAMPTZ '2024-03-01 03:00Z' AS happened FROM web WHERE seconds IS NOT NULL
"""
VISITS = """
    WITH apart AS (
        SELECT *, lag(happened) OVER same < happened - INTERVAL 12 MINUTE AS first
        FROM web WHERE seconds IS NOT NULL WINDOW same AS (PARTITION BY seconds ORDER BY happened)
    ), numbered AS (
        SELECT *, count(*) FILTER (first) OVER (PARTITION BY seconds ORDER BY happened) AS visit
        FROM apart
    )
    SELECT min(happened) AS happened, max(happened) + INTERVAL 12 MINUTE AS until, seconds,
        count(*) AS rows, sum(id)::BIGINT AS ids
    FROM numbered GROUP BY seconds, visit
"""
PARTS = """
    SELECT seconds % 20 AS part, happened FROM mobile
    QUALIFY coalesce(
        lag(happened) OVER (PARTITION BY part ORDER BY happened) < happened - INTERVAL 5 MINUTE, true
    )
"""
WINDOW = (
    "happened >= TIMESTAMPTZ '2024-03-01 02:00Z' AND happened < TIMESTAMPTZ '2024-03-01 08:00Z'"
)


def clicks(count: int, first_id: int, seed: int) -> tuple[pa.Table, np.ndarray]:
    """Clicks with fields that are missing now and then."""
    rows, arrived = events(count, "happened", {5}, seed)
    number = np.arange(rows.num_rows)
    seconds = pa.array(number % 50, pa.int32(), mask=number % 11 == 0)
    tags = [None if each % 3 == 0 else ["a", "b", None][: each % 4] for each in number.tolist()]
    columns = {
        "id": pa.array(number + first_id),
        "kind": pa.array(np.array(["play", "stop", "skip"])[number % 3]),
        "seconds": seconds,
        "tags": pa.array(tags, pa.list_(pa.string())),
        "happened": rows["happened"],
        "ingested": rows["ingested"],
    }
    return pa.table(columns), arrived


def as_stored(rows: pa.Table) -> pa.Schema:
    """The schema of a table for rows of DuckDB's."""
    return pa.schema(
        [
            field.with_type(UTC_TIME) if pa.types.is_timestamp(field.type) else field
            for field in rows.schema
        ]
    )


FILES = {"parts": {"publish": {"mode": "Export", "location": "files/parts"}}}


@pytest.mark.timeout(900)  # three starts of Spark
def test_an_application_run_as_batch_jobs_and_a_stream_and_killed_gives_every_row_once(
    lake: Catalog, tmp_path: Path
) -> None:
    history = {}
    for number, topic in enumerate(("web", "mobile")):
        rows, arrived = clicks(4_000, 1_000_000 * number, seed=number)
        history[topic] = rows
        land(lake.create_table(f"raw.{topic}", rows.schema), rows, arrived, files=30, seed=number)
    queries = {
        "told": TOLD,
        "tags": TAGS,
        "hourly": HOURLY,
        "visits": VISITS,
        "parts": PARTS,
        "firsts": FIRSTS,
    }
    truth = {name: query(sql, **history) for name, sql in queries.items()}
    for name, rows in truth.items():
        table = lake.create_table(f"raw.{name}", as_stored(rows))
        table.append(query("SELECT * FROM rows LIMIT 100", rows=rows).cast(as_stored(rows)))
    production = Production(tmp_path, lake)
    production.describe(
        APPLICATION,
        window={
            "start": "2024-03-01T02:00:00Z",
            "end": "2024-03-01T08:00:00Z",
            "warmUp": "30m",
            "drain": "90m",
        },
        sources=[
            {
                "name": topic,
                "table": f"lake.raw.{topic}",
                "timestampColumn": "ingested",
                "live": {"kafka": {"topic": topic}},
            }
            for topic in history
        ],
        maxMisalignment="30m",
        planning={"targetStepBytes": "12Ki"},
        outputs=[
            {
                "name": name,
                "table": f"lake.raw.{name}",
                "timestampColumn": "happened",
                # what its state holds at the end is unknown
                "publish": {
                    "mode": "Replace",
                    "approval": "Automatic",
                    "incomplete": "Publish",
                },
            }
            | FILES.get(name, {})
            for name in truth
        ],
    )

    def committed() -> int:
        found = production.store.load()
        return 0 if found is None else found.status.progress.committed

    run = production.start_run()
    eventually(lambda: committed() > 0, production.driver_log, DEADLINE_SECONDS)
    begun = committed()
    os.kill(production.driver(), signal.SIGKILL)
    eventually(lambda: committed() > begun, production.driver_log, DEADLINE_SECONDS)
    run.send_signal(signal.SIGINT)
    stopped = ended(run)
    steps = production.resource.status.progress.steps
    assert steps is not None
    assert begun < committed() < steps, stopped.err
    result = production.succeed()

    files = ds.dataset(production.directory / "files" / "parts", format="parquet").to_table()
    parts = query(f"SELECT * FROM rows WHERE {WINDOW}", rows=truth.pop("parts"))
    assert sorted_rows(files) == sorted_rows(parts)
    assert production.published_snapshots("raw.parts") == 1, "what was there"
    for name, rows in truth.items():
        fixed = query(f"SELECT * FROM rows WHERE {WINDOW}", rows=rows)
        kept = query(
            f"SELECT * FROM (SELECT * FROM rows LIMIT 100) WHERE NOT ({WINDOW})", rows=rows
        )
        assert sorted_rows(production.output(f"raw.{name}")) == sorted_rows(fixed, kept), name
        assert production.published_snapshots(f"raw.{name}") == 2, "what was there, and one more"
    outputs = {each.name: each for each in production.resource.status.outputs}
    visits = outputs.pop("visits")
    # None if an attempt that did not end itself has committed all of it
    assert visits.execution == "Batch"
    assert visits.open_at_end in {0, None}
    assert {name: (each.execution, each.open_at_end) for name, each in outputs.items()} == {
        "told": ("Batch", 0),
        "tags": ("Batch", 0),
        "hourly": ("Batch", 0),
        "parts": ("Batch", 0),
        "firsts": ("Streaming", None),
    }
    assert "FlatMapGroupsInPandasWithState" in outputs["firsts"].execution_reason
    assert (outputs["hourly"].look_back_seconds, outputs["hourly"].look_ahead_seconds) == (0, 5_100)
    assert result["maxObservedMisalignmentSeconds"] <= (30 + 5) * 60, "of the stream"
    assert result["rowsDroppedLate"] == 0
    kept = {path.name for path in production.store.directory.glob("checkpoints/*/*")}
    assert kept == {"firsts"}, "of the others no state is kept"
