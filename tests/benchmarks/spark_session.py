"""The Spark session that both sides of a comparison use."""

import os
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

FILE_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)

_OF_A_BACKFILL = {
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC -XX:GCTimeRatio=19",
    "spark.python.daemon.module": "backfill.runtime.task_daemon",
}
"""Properties that a backfill on one machine has besides."""
_ENVIRONMENT = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "2"}
"""Environment variables that its processes have."""


def session_of_a_backfill(changes: Mapping[str, str]) -> SparkSession:
    """The same as a backfill has it on one machine."""
    os.environ.update(_ENVIRONMENT)
    return bench_session(_OF_A_BACKFILL | changes)


def bench_session(changes: Mapping[str, str] | None = None) -> SparkSession:
    """``local[2]``, partitions as a backfill on two cores has them, no user interface;
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
