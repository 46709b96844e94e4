"""An unmodified application whose queries change what they have written, run as streams and killed:
their newest rows replace wrong ones in production's tables, and nothing else.
"""

import os
import signal
from pathlib import Path

import pyarrow as pa
import pytest
from production import DEADLINE_SECONDS, Production, ended
from pyiceberg.catalog import Catalog

from histories import UTC_TIME, events, land, query, sorted_rows
from waiting import eventually

APPLICATION = """
from pyspark.sql import SparkSession, functions as F

spark = SparkSession.builder.getOrCreate()
records = spark.readStream.format("kafka").option("subscribe", "clicks").load()
schema = "title long, viewer long, at timestamp"
clicks = records.select(F.from_json(F.col("value").cast("string"), schema).alias("e")).select("e.*")
hourly = clicks.withWatermark("at", "10 minutes").groupBy(F.window("at", "1 hour"), "title").count()
hourly.select(F.col("window.start").alias("began"), "title", "count") \\
    .writeStream.queryName("hourly").outputMode("update").start()
totals = clicks.groupBy("title", "viewer").agg(F.max("at").alias("last"), F.count("*").alias("count"))
totals.writeStream.queryName("totals").outputMode("update").start()
titles = clicks.groupBy("title").agg(F.max("at").alias("last"), F.count("*").alias("count"))
titles.writeStream.queryName("titles").outputMode("complete").start()
spark.streams.awaitAnyTermination()
"""
READ = """
    SELECT * FROM clicks
    WHERE ingested >= TIMESTAMPTZ '2024-03-01 02:00Z' AND ingested < TIMESTAMPTZ '2024-03-01 08:00Z'
"""
IN_WINDOW = "{0} >= TIMESTAMPTZ '2024-03-01 02:00Z' AND {0} < TIMESTAMPTZ '2024-03-01 08:00Z'"
HOURLY = """SELECT date_trunc('hour', "at") AS began, title, count(*) AS count FROM clicks GROUP BY ALL"""
TOTALS = """SELECT title, viewer, max("at") AS last, count(*) AS count FROM clicks GROUP BY ALL"""
TITLES = """SELECT title, max("at") AS last, count(*) AS count FROM clicks GROUP BY ALL"""
WRONG_HOURLY = f"""
    SELECT began, title, CASE WHEN title = 1 THEN count + 1000 ELSE count END AS count
    FROM hourly WHERE title <> 2 OR NOT ({IN_WINDOW.format("began")})
    UNION ALL SELECT TIMESTAMPTZ '2024-03-01 05:00Z', 99, 7
"""
"""In the table before: wrong counts, missing ones, and one that the result does not have."""
WRONG_TOTALS = """
    SELECT title, viewer, last - CASE WHEN viewer < 3 THEN INTERVAL 10 HOUR ELSE INTERVAL 4 HOUR END AS last,
        3::BIGINT AS count FROM totals WHERE viewer < 9
    UNION ALL SELECT 99, 1, TIMESTAMPTZ '2024-03-02 01:00Z', 7
"""
"""Older rows, some from before the window; and a newer one of a key that the result does not have."""


@pytest.mark.timeout(900)  # two starts of Spark
def test_the_newest_row_of_each_key_replaces_that_of_production_and_no_other(
    lake: Catalog, tmp_path: Path
) -> None:
    clicks, arrived = events(3_000, "at", set(), seed=3)
    land(lake.create_table("raw.clicks", clicks.schema), clicks, arrived, files=20, seed=3)
    read = query(READ, clicks=clicks)
    everywhere = query(HOURLY, clicks=clicks)
    right = {"hourly": query(HOURLY, clicks=read), "totals": query(TOTALS, clicks=read)}
    right["titles"] = query(TITLES, clicks=read)
    wrong = {
        "hourly": query(WRONG_HOURLY, hourly=everywhere),
        "totals": query(WRONG_TOTALS, totals=right["totals"]),
        "titles": right["titles"].slice(0, 0),
    }
    for name, rows in wrong.items():
        schema = pa.schema(
            [
                each.with_type(UTC_TIME if pa.types.is_timestamp(each.type) else pa.int64())
                for each in rows.schema
            ]
        )
        lake.create_table(f"raw.{name}", schema).append(rows.cast(schema))
    production = Production(tmp_path, lake)
    times = {"hourly": "began", "totals": "last", "titles": "last"}
    keys = {"hourly": ["began", "title"], "totals": ["title", "viewer"], "titles": []}
    production.describe(
        APPLICATION,
        execution="Streaming",
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
        outputs=[
            {
                "name": name,
                "table": f"lake.raw.{name}",
                "timestampColumn": times[name],
                "keys": keys[name],
                # the last hour goes on after the window
                "publish": {"mode": "Upsert" if keys[name] else "Append", "incomplete": "Publish"},
                "validate": {"minMatch": "0"},
            }
            for name in times
        ],
    )

    def committed() -> int:
        found = production.store.load()
        return 0 if found is None else found.status.progress.committed

    run = production.start_run()
    eventually(lambda: committed() > 1, production.driver_log, DEADLINE_SECONDS)
    os.kill(production.driver(), signal.SIGKILL)
    end = ended(run)
    assert end.status == 0, f"{end.err}\n{production.driver_log()}"

    result = query(
        f"SELECT * FROM hourly WHERE {IN_WINDOW.format('began')}", hourly=right["hourly"]
    )
    stays = query(
        f"SELECT * FROM hourly WHERE NOT ({IN_WINDOW.format('began')}) OR title = 99",
        hourly=wrong["hourly"],
    )
    assert sorted_rows(production.output("raw.hourly")) == sorted_rows(result, stays)
    stays = query("SELECT * FROM totals WHERE title = 99", totals=wrong["totals"])
    late = query(f"SELECT * FROM totals WHERE {IN_WINDOW.format('last')}", totals=right["totals"])
    assert late.num_rows == right["totals"].num_rows, "nothing of the window is missing here"
    assert sorted_rows(production.output("raw.totals")) == sorted_rows(right["totals"], stays)
    assert sorted_rows(production.output("raw.titles")) == sorted_rows(right["titles"])
    for name in times:
        assert production.published_snapshots(f"raw.{name}") == 2, "what was there, and one more"
    outputs = {each.name: each for each in production.resource.status.outputs}
    assert {name: each.output_mode for name, each in outputs.items()} == {
        "hourly": "update",
        "totals": "update",
        "titles": "complete",
    }
    assert (outputs["hourly"].open_at_end, outputs["totals"].open_at_end) == (4, 0)
    compared = outputs["hourly"].comparison
    assert compared is not None
    assert (compared.missing, compared.extra) == (1, 6), "by the output's keys"

    explained = ended(production.start("plan", "--explain", str(production.file)))
    assert explained.status == 0, f"a plan can be explained after the run as well: {explained.err}"
    assert "totals" in explained.out
