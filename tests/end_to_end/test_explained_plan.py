"""``backfill plan --explain``: how each query of an unmodified application would be run, and why,
before anything is run.
"""

from pathlib import Path

import pyarrow as pa
import pytest
from production import Production, ended
from pyiceberg.catalog import Catalog

from histories import UTC_TIME, events, land
from local_runs import Ended

APPLICATION = """
from pyspark.sql import SparkSession, functions as F

spark = SparkSession.builder.getOrCreate()
records = spark.readStream.format("kafka").option("subscribe", "clicks").load()
clicks = records.select(F.from_json(F.col("value").cast("string"), "title long, at timestamp").alias("e")).select("e.*")
hourly = clicks.withWatermark("at", "10 minutes").groupBy(F.window("at", "1 hour"), "title").count()
hourly.select(F.col("window.start").alias("began"), "title", "count").writeStream.queryName("hourly").start()
latest = clicks.groupBy("title").agg(F.max("at").alias("began"), F.count("*").alias("count"))
latest.writeStream.queryName("latest").outputMode("update").start()
spark.streams.awaitAnyTermination()
"""


@pytest.fixture
def production(lake: Catalog, tmp_path: Path) -> Production:
    rows, arrived = events(500, "at", set(), seed=1)
    land(lake.create_table("raw.clicks", rows.schema), rows, arrived, files=4, seed=1)
    for name in ("hourly", "latest"):
        lake.create_table(f"raw.{name}", columns())
    return Production(tmp_path, lake)


def columns() -> pa.Schema:
    """Those of what the queries write."""
    return pa.schema([("began", UTC_TIME), ("title", pa.int64()), ("count", pa.int64())])


def explained(production: Production, *options: str) -> Ended:
    return ended(production.start("plan", "--explain", str(production.file), *options))


def describe(
    production: Production, application: str, *others: str, execution: str = "Auto"
) -> None:
    """The application, with other outputs besides those of its two queries."""
    production.describe(
        application,
        execution=execution,
        window={"start": "2024-03-01T02:00:00Z", "end": "2024-03-01T08:00:00Z"},
        sources=[
            {
                "name": "clicks",
                "table": "lake.raw.clicks",
                "timestampColumn": "ingested",
                "live": {"kafka": {"topic": "clicks"}},
            }
        ],
        outputs=[
            {
                "name": name,
                "table": f"lake.raw.{name}",
                "timestampColumn": "began",
                "keys": ["title"] if name == "latest" else [],
            }
            for name in ("hourly", "latest", *others)
        ],
    )


def test_each_query_is_told_as_it_would_be_run_and_nothing_is_written(
    production: Production,
) -> None:
    describe(production, APPLICATION)
    end = explained(production, "--output", "json")
    assert end.status == 0, end.err
    hourly, latest = end.document["queries"]
    assert hourly == {
        "query": "hourly",
        "output": "hourly",
        "execution": "Batch",
        "executionReason": "",
        "outputMode": None,
        "lookBackSeconds": 0,
        "lookAheadSeconds": 4_200,
        "compared": True,
        "dropsWithinWatermark": False,
        "reads": {"clicks": ["at", "ingested", "title"]},
        "warnings": [
            "its results depend on rows up to 1h10m later, but window.drain is only 0s: the last"
            " results may be incomplete or still open; set window.drain to 1h10m to complete them"
        ],
    }
    assert (latest["execution"], latest["lookBackSeconds"]) == ("Streaming", None)
    assert latest["outputMode"] == "update"
    assert "viewer" in latest["reads"]["clicks"], "all that the text of records has"
    assert latest["executionReason"].startswith("Aggregate groups by title, and no time window")
    assert end.document["steps"]["count"] > 10

    for name in ("hourly", "latest"):
        metadata = production.catalog.load_table(f"raw.{name}").metadata
        assert (metadata.refs, metadata.snapshots) == ({}, [])
    assert not production.state.exists()


JOINED = """
from pyspark.sql import SparkSession, functions as F

spark = SparkSession.builder.getOrCreate()
records = spark.readStream.format("kafka").option("subscribe", "clicks").load()
clicks = records.select(F.from_json(F.col("value").cast("string"), "title long, at timestamp").alias("e")).select("e.*")
first = clicks.withWatermark("at", "10 minutes")
then = first.select(F.col("title").alias("other"), F.col("at").alias("later"))
near = F.expr("title = other AND later BETWEEN at AND at + INTERVAL 30 MINUTES")
hourly = first.join(then, near).groupBy(F.window("later", "1 hour"), "title").count()
hourly.select(F.col("window.start").alias("began"), "title", "count").writeStream.queryName("hourly").start()
clicks.groupBy("title").agg(F.max("at").alias("began"), F.count("*").alias("count")).writeStream.queryName("latest").outputMode("update").start()
"""


def test_what_a_stream_waits_for_is_shown_with_the_join_before_its_windows(
    production: Production,
) -> None:
    """Rows of the join come up to half an hour apart, and Spark closes windows so much later."""
    describe(production, JOINED, execution="Streaming")
    end = explained(production, "--output", "json")
    assert end.status == 0, end.err
    hourly, latest = end.document["queries"]
    assert (hourly["execution"], latest["execution"]) == ("Streaming", "Streaming")
    assert (hourly["lookBackSeconds"], hourly["lookAheadSeconds"]) == (1_800, 6_001)
    assert (latest["lookBackSeconds"], latest["lookAheadSeconds"]) == (None, None)
    assert any("window.warmUp is only 0s" in each for each in hourly["warnings"])


TEXT = """
text = F.get_json_object(F.col("value").cast("string"), "$.at")
texts = records.select(F.length(text).cast("long").alias("title"), F.col("timestamp").alias("began"))
texts.writeStream.queryName("texts").start()
clicks.writeStream.queryName("called").foreachBatch(exit).start()
spark.streams"""


def test_a_function_is_told_as_a_stream_and_not_called_and_times_used_as_text_are_warned_of(
    production: Production,
) -> None:
    for name in ("called", "texts"):
        production.catalog.create_table(f"raw.{name}", columns())
    describe(production, APPLICATION.replace("\nspark.streams", TEXT), "called", "texts")
    end = explained(production)
    assert end.status == 0, end.err
    words = " ".join(end.out.split())
    assert "latest runs in Streaming execution, because" in words
    assert "the result of latest is the newest row of each title (output mode update)" in words
    assert "warning: hourly: its results depend on rows up to 1h10m later" in words
    assert "called by foreachBatch Streaming" in words
    assert (
        "called runs in Streaming execution, because its function (foreachBatch) is called with"
        in words
    )
    assert words.count("uses the text of times") == 1
    assert "warning: texts: of clicks, the application uses the text of times, which" in words
    assert "at (column at, as 2021-07-11T00:05:00.123456Z); set" in words
    assert "spec.sources[0].live.kafka.value.timestampFormat" in words


def test_errors_of_the_program_are_those_of_a_run(production: Production) -> None:
    describe(production, APPLICATION.replace('("update").start', '("update").foreach(print).start'))
    end = explained(production)
    assert end.status == 2
    assert "error: " in end.err
    assert "foreach (app.py, line 10) runs the application's own code" in end.err

    describe(production, "raise ValueError('out of coffee')")
    end = explained(production)
    assert end.status == 1
    assert "before it started a query: ValueError: out of coffee" in end.err
