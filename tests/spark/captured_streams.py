"""Streaming DataFrames as the product's sources give them, without a plan: they can be analyzed,
and run over batch rows, but not started.
"""

from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource

from backfill.runtime.batch.rebind_plan import rebind
from backfill.runtime.catalyst import analyzed
from backfill.runtime.source.data_source import SOURCE_FORMAT

Read = Callable[[str], DataFrame]
"""Gives the streaming frame of a source."""


class _NeverStarted(DataSource):
    @classmethod
    def name(cls) -> str:
        return SOURCE_FORMAT


def streams(spark: SparkSession, schemas: Mapping[str, str]) -> Read:
    """Reads sources with these columns."""
    spark.dataSource.register(_NeverStarted)

    def read(source: str) -> DataFrame:
        reader = spark.readStream.format(SOURCE_FORMAT).option("source", source)
        return reader.schema(schemas[source]).load()

    return read


def over_batch(frame: DataFrame, rows: Callable[[str], DataFrame]) -> DataFrame:
    """The same query, over batch rows of its sources."""
    return rebind(analyzed(frame), frame.sparkSession, lambda source, _: rows(source))
