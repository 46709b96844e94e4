"""The Spark session that both sides of a comparison use."""

import os
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

FILE_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)


def bench_session(changes: Mapping[str, str] | None = None) -> SparkSession:
    """``local[2]``, collector and partitions as a backfill on two cores has them, no user interface;
    with ``changes`` of properties.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.driver.memory": "6g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.streaming.checkpointFileManagerClass": FILE_MANAGER,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
        "spark.sql.streaming.sessionWindow.merge.sessions.in.local.partition": "true",
    }
    builder = SparkSession.builder.master("local[2]").appName("benchmark")
    for key, value in {**settings, **(changes or {})}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark
