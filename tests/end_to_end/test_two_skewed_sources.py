"""Two sources, fifty rows of one for each of the other, joined and counted by the hour; wrong
output is compared with the result, and replaced once a person has approved it.
"""

import json
from pathlib import Path
from typing import Any

from production import Production, ended
from pyiceberg.catalog import Catalog

from backfill.cli.exit_status import WAITS
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


def approved(production: Production) -> dict[str, Any]:
    arguments = ("approve", "again", "--state-dir", str(production.state), "--output", "json")
    end = ended(production.start(*arguments))
    assert end.status == 0, end.err
    return end.document


def test_wrong_hours_of_a_join_are_replaced_by_what_all_events_give(
    lake: Catalog, tmp_path: Path
) -> None:
    plays = land_plays(lake)
    truth = plays.hourly
    wrong = query(
        "SELECT window_start, title, plays + title % 2 AS plays, watched FROM truth", truth=truth
    )
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
                "validate": {"keys": ["window_start", "title"], "minMatch": "99.9"},
                "publish": {"mode": "Replace"},
            }
        ],
    )
    waiting = production.run()
    fixed = query(f"SELECT * FROM truth WHERE {WINDOW}", truth=truth)
    different = len(query("SELECT * FROM fixed WHERE title % 2 = 1", fixed=fixed))
    assert waiting.status == WAITS, f"{waiting.err}\n{production.driver_log()}"
    compared = production.resource.status.outputs[0].comparison
    assert compared is not None
    assert (compared.matching, compared.different) == (len(fixed) - different, different)
    assert (compared.missing, compared.extra) == (0, 0)
    report = json.loads(Path(compared.report).with_suffix(".json").read_bytes())
    assert report["byColumn"] == {"plays": different, "watched": 0}
    assert f"{different:,} different" in waiting.err, "what to know before it is approved"
    assert sorted_rows(production.output("raw.summary")) == sorted_rows(wrong)
    result = approved(production)
    assert result["outputs"][0]["match"] == report["match"]

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
