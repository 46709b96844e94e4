"""What one would otherwise run over the same files: Spark's own file stream, and a hand-written
batch job.

Usage: ``spark_reference.py DIRECTORY pass-through|sessions``; prints one JSON line with the job's
seconds.
"""

import json
import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from spark_session import bench_session

COLUMNS = (
    "user_id long, item_id long, event_ts timestamp_ntz, kafka_partition int, kafka_offset long,"
    " ingestion_ts timestamp_ntz"
)


def pass_through(spark: SparkSession, directory: Path) -> dict[str, float]:
    """Both tables as file streams into nothing, four files a batch: 24 batches."""
    started = time.monotonic()
    queries = [
        spark.readStream.schema(COLUMNS)
        .option("maxFilesPerTrigger", 4)
        .parquet(str(directory / "plain" / name))
        .writeStream.format("noop")
        .queryName(name)
        .option(
            "checkpointLocation", str(directory / "checkpoints" / f"reference-{time.time_ns()}")
        )
        .trigger(availableNow=True)
        .start()
        for name in ("impressions", "playbacks")
    ]
    for query in queries:
        query.awaitTermination()
    progress = [batch for query in queries for batch in query.recentProgress]
    rows = sum(batch.numInputRows for batch in progress)
    return {"seconds": time.monotonic() - started, "rows": rows, "batches": len(progress)}


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
    spark = bench_session()
    spark.range(1).count()  # the first job pays for starting up, as it does on the other side
    print(json.dumps({"pass-through": pass_through, "sessions": sessions}[job](spark, directory)))
    spark.stop()


if __name__ == "__main__":
    main()
