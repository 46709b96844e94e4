"""One Spark session for all tests that need no driver of their own: starting one takes seconds."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import backfill
from small_java import JAVA_OPTIONS, PLANNED_NOT_COMPILED

_SETTINGS = PLANNED_NOT_COMPILED | {
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Two cores, up to four tries of a task, UTC, state in RocksDB. Real runs, which compile, are in
    ``end_to_end`` and with the drivers.
    """
    with pytest.MonkeyPatch.context() as patch:
        package = str(Path(backfill.__file__).parents[1])
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYTHONPATH", package, prepend=os.pathsep)
        builder = SparkSession.builder.master("local[2,4]").appName("tests")
        session = builder.config(map=_SETTINGS).getOrCreate()
        yield session
        session.stop()
