"""Makes an archive of Spark's classes, with which a JVM of Spark needs half the time to start.

Usage: ``class_archive.py FILE``. It runs a few queries of every kind and keeps the classes that
they have loaded (JEP 350). A JVM that cannot use the archive, such as another version's, starts as
it would without.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backfill.runtime.spark_versions import to_arrow
from small_java import JAVA_OPTIONS


def main(archive: Path) -> None:
    """Makes the archive."""
    with tempfile.TemporaryDirectory(dir=archive.parent) as directory:
        made = Path(directory, "classes.jsa")
        os.environ["SPARK_SUBMIT_OPTS"] = (
            f'{JAVA_OPTIONS} -Xlog:disable "-XX:ArchiveClassesAtExit={made}"'
        )
        os.environ["PYSPARK_PYTHON"] = sys.executable
        settings = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.streaming.stateStore.providerClass": (
                "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
            ),
        }
        spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
        _batch(spark, directory)
        _stream(spark, directory)
        _end(spark)
        made.replace(archive)


def _batch(spark: SparkSession, directory: str) -> None:
    def same(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from rows

    rows = spark.range(100).mapInArrow(same, "id long").withColumn("at", F.timestamp_seconds("id"))
    windows = rows.groupBy(F.window("at", "1 minute")).count()
    joined = rows.join(windows, F.col("at") >= F.col("window.start"), "left_outer")
    joined.select("id", F.to_json(F.struct("*")).alias("row")).write.parquet(f"{directory}/rows")
    to_arrow(spark.read.parquet(f"{directory}/rows"))


def _stream(spark: SparkSession, directory: str) -> None:
    def read() -> DataFrame:
        files = spark.readStream.schema("id long, row string").parquet(f"{directory}/rows")
        return files.withColumn("at", F.timestamp_seconds("id")).withWatermark("at", "1 minute")

    counts = read().groupBy("id", F.session_window("at", "1 minute")).count()
    once = read().dropDuplicatesWithinWatermark(["id"])
    joined = read().alias("a").join(read().alias("b"), F.expr("a.id = b.id and a.at = b.at"))
    for number, frame in enumerate((counts, once, joined)):
        writer = frame.writeStream.format("noop").trigger(availableNow=True)
        writer.option("checkpointLocation", f"{directory}/{number}").start().awaitTermination()


def _end(spark: SparkSession) -> None:
    """Ends the JVM, which writes the archive then."""
    gateway = SparkContext._gateway
    assert gateway is not None
    jvm: subprocess.Popen[bytes] = gateway.proc  # type: ignore[attr-defined]  # set by pyspark
    spark.stop()
    gateway.shutdown()
    assert jvm.stdin is not None
    jvm.stdin.close()
    jvm.wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
