"""What one would otherwise run over the same files: Spark's own file stream with its state in
RocksDB, and a hand-written batch job.

Usage: ``spark_reference.py DIRECTORY pass-through|sessions|streaming-sessions|streaming-join``;
prints one JSON line with the job's seconds.
"""

import json
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import programs
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from spark_session import bench_session

from backfill.runtime.switching.state_store import PROVIDER, ROCKSDB

COLUMNS = (
    "user_id long, item_id long, event_ts timestamp_ntz, kafka_partition int, kafka_offset long,"
    " ingestion_ts timestamp_ntz"
)


def pass_through(spark: SparkSession, directory: Path) -> dict[str, float]:
    """Both tables as file streams into nothing."""
    return _run({name: _stream(spark, directory, name) for name in ("impressions", "playbacks")})


def streaming_sessions(spark: SparkSession, directory: Path) -> dict[str, float]:
    """All sessions of the day as a stream into nothing."""
    return _run({"sessions": sessions_of(_timed(_stream(spark, directory, "impressions")))})


def streaming_join(spark: SparkSession, directory: Path) -> dict[str, float]:
    """Plays with what was shown to the user up to half an hour before, as a stream into nothing."""
    return _run({"join": programs.join(lambda name: _timed(_stream(spark, directory, name)))})


def _stream(spark: SparkSession, directory: Path, name: str) -> DataFrame:
    """A table's files in the order of arrival, four a batch: 24 batches."""
    files = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 4)
    return files.parquet(str(directory / "plain" / name))


def _timed(rows: DataFrame) -> DataFrame:
    events = rows.withColumn("event_ts", F.col("event_ts").cast("timestamp"))
    return events.withWatermark("event_ts", "10 minutes")


def _run(frames: dict[str, DataFrame]) -> dict[str, float]:
    started = time.monotonic()
    with TemporaryDirectory() as checkpoints:
        queries = [
            frame.writeStream.format("noop")
            .queryName(name)
            .option("checkpointLocation", f"{checkpoints}/{name}")
            .trigger(availableNow=True)
            .start()
            for name, frame in frames.items()
        ]
        for query in queries:
            query.awaitTermination()
        seconds = time.monotonic() - started
    progress = [batch for query in queries for batch in query.recentProgress]
    rows = sum(batch.numInputRows for batch in progress)
    return {"seconds": seconds, "rows": rows, "batches": len(progress)}


def sessions_of(events: DataFrame) -> DataFrame:
    """Sessions of a user with a gap of half an hour."""
    return events.groupBy(F.session_window("event_ts", "30 minutes"), "user_id").count()


def sessions(spark: SparkSession, directory: Path) -> dict[str, float]:
    """All sessions of the day in one batch job into nothing."""
    started = time.monotonic()
    counted = Observation("sessions")
    found = sessions_of(
        spark.read.schema(COLUMNS).parquet(str(directory / "plain" / "impressions"))
    )
    found.observe(counted, F.count(F.lit(1)).alias("rows")).write.format("noop").mode(
        "overwrite"
    ).save()
    return {"seconds": time.monotonic() - started, "rows": counted.get["rows"]}


def main() -> None:
    directory, job = Path(sys.argv[1]), sys.argv[2]
    spark = bench_session({PROVIDER: ROCKSDB})
    spark.range(1).count()  # the first job pays for starting up, as it does on the other side
    jobs = {
        "pass-through": pass_through,
        "sessions": sessions,
        "streaming-sessions": streaming_sessions,
        "streaming-join": streaming_join,
    }
    print(json.dumps(jobs[job](spark, directory)))
    spark.stop()


if __name__ == "__main__":
    main()
