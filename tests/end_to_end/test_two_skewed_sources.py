"""Two sources, fifty rows of one for each of the other, joined and counted by the hour; wrong
output is replaced.
"""

from pathlib import Path

from production import Production
from pyiceberg.catalog import Catalog

from histories import query, sorted_rows
from skewed_plays import HOURLY, land_plays

APPLICATION = """
from pyspark.sql import SparkSession, functions as F
from backfill.runtime import read_source, write_output

spark = SparkSession.builder.appName("summary").getOrCreate()
impressions = read_source(spark, "impressions").select("title", "viewer", "shown").withWatermark("shown", "10 minutes")
playbacks = read_source(spark, "playbacks").select(
    F.col("title").alias("played_title"), F.col("viewer").alias("player"), "played", "watched"
).withWatermark("played", "10 minutes")
joined = playbacks.join(
    impressions,
    F.expr("title = played_title and viewer = player and shown <= played and shown > played - interval 30 minutes"),
)
hourly = joined.groupBy(F.window("played", "1 hour"), "title").agg(F.count("*").alias("plays"), F.sum("watched").alias("watched"))
summary = hourly.select(F.col("window.start").alias("window_start"), "title", "plays", "watched")
write_output(summary, "summary").awaitTermination()
"""
WINDOW = (
    "window_start >= TIMESTAMPTZ '2024-03-01 06:00Z' AND window_start < TIMESTAMPTZ '2024-03-01"
    " 12:00Z'"
)


def test_wrong_hours_of_a_join_are_replaced_by_what_all_events_give(
    lake: Catalog, tmp_path: Path
) -> None:
    plays = land_plays(lake)
    truth = plays.hourly
    wrong = query("SELECT window_start, title, plays + 1 AS plays, watched FROM truth", truth=truth)
    lake.create_table("raw.summary", HOURLY).append(wrong.cast(HOURLY))

    production = Production(tmp_path, lake)
    production.describe(
        APPLICATION,
        execution="Streaming",
        window={
            "start": "2024-03-01T06:00:00Z",
            "end": "2024-03-01T12:00:00Z",
            "warmUp": "1h",
            "drain": "2h",
        },
        sources=[
            {
                "name": name,
                "table": f"lake.raw.{name}",
                "timestampColumn": "ingested",
                "allowIncomplete": True,  # nothing was shown from eight to nine
            }
            for name in ("impressions", "playbacks")
        ],
        ordering={"policy": "WithinLateness", "allowedLateness": "5m"},
        maxMisalignment="2h",
        outputs=[
            {
                "name": "summary",
                "table": "lake.raw.summary",
                "timestampColumn": "window_start",
                "publish": {"mode": "Replace"},
            }
        ],
    )
    result = production.succeed()

    fixed = query(f"SELECT * FROM truth WHERE {WINDOW}", truth=truth)
    kept = query(f"SELECT * FROM wrong WHERE NOT ({WINDOW})", wrong=wrong)
    assert sorted_rows(production.output("raw.summary")) == sorted_rows(fixed, kept)
    assert len(fixed) > 10
    assert len(kept) > 10
    read = (
        "ingested >= TIMESTAMPTZ '2024-03-01 05:00Z' AND ingested < TIMESTAMPTZ '2024-03-01 14:00Z'"
    )
    for source, rows in zip(result["sources"], (plays.impressions, plays.playbacks), strict=True):
        assert source["rows"] == len(query(f"SELECT 1 FROM rows WHERE {read}", rows=rows))
    assert result["rowsDroppedLate"] == 0
    assert result["openAtEnd"] == 0
    assert result["maxObservedMisalignmentSeconds"] <= (120 + 5) * 60
