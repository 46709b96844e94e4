"""One Spark session for all tests that need no driver of their own: starting one takes seconds."""

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark
import pytest
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

import backfill
from backfill.runtime.spark_versions import FILE_MANAGER, FORKS_TASKS
from iceberg_tables import configured_lake
from small_java import ON_A_FEW_ROWS

_SETTINGS = ON_A_FEW_ROWS | {
    "spark.sql.streaming.checkpointFileManagerClass": FILE_MANAGER,
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
if FORKS_TASKS:
    _SETTINGS["spark.python.daemon.module"] = "backfill.runtime.task_daemon"


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Two cores, up to four tries of a task, UTC, state in RocksDB. Real runs, which compile, are in
    ``end_to_end``.
    """
    with pytest.MonkeyPatch.context() as patch:
        package = str(Path(backfill.__file__).parents[1])
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYTHONPATH", package, prepend=os.pathsep)
        builder = SparkSession.builder.master("local[2,4]").appName("tests")
        session = builder.config(map=_SETTINGS).getOrCreate()
        yield session
        session.stop()


@pytest.fixture
def in_zone(spark: SparkSession) -> Iterator[Callable[[str], None]]:
    """Sets the session's time zone until the test has ended."""
    before = spark.conf.get("spark.sql.session.timeZone")
    assert before is not None
    yield lambda zone: spark.conf.set("spark.sql.session.timeZone", zone)
    spark.conf.set("spark.sql.session.timeZone", before)


@pytest.fixture
def small_jobs(spark: SparkSession) -> Iterator[Callable[[str, str], None]]:
    """Sets what a session has for the test."""
    wanted = {
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.session.timeZone": "UTC",
    }
    before = {name: spark.conf.get(name) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    yield spark.conf.set
    for name, value in before.items():
        spark.conf.set(name, value)


@pytest.fixture(scope="session")
def directory_of_workers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lake")


@pytest.fixture
def lake_of_workers(
    spark: SparkSession, directory_of_workers: Path, monkeypatch: pytest.MonkeyPatch
) -> Catalog:
    """An empty catalog ``lake`` as ``lake`` is, also for Spark's Python workers. They live on from
    one test to the next, since it is in the same place, and keep tables that they have written.
    """
    catalog = configured_lake(directory_of_workers, monkeypatch)
    for name in (each for each in os.environ if each.startswith("PYICEBERG_CATALOG__LAKE__")):
        monkeypatch.setitem(spark.sparkContext.environment, name, os.environ[name])
    return catalog


@pytest.fixture(scope="session")
def avro(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    """The session, in which queries with Spark's function ``from_avro`` can be analyzed. Its jar is
    not on Maven Central for every version of Spark, so that the one class of it is a fake.
    """
    made = tmp_path_factory.mktemp("avro")
    source = Path(__file__).with_name("AvroDataToCatalyst.java")
    classes = f"{Path(pyspark.__file__).parent}/jars/*"
    subprocess.run(["javac", "-nowarn", "-cp", classes, "-d", made, source], check=True)
    with zipfile.ZipFile(made / "avro.jar", "w") as jar:
        for each in made.rglob("*.class"):
            jar.write(each, each.relative_to(made))
    spark.sql(f"ADD JAR {made / 'avro.jar'}")
    return spark
