"""Streaming DataFrames as the product's sources give them, without a plan: they can be analyzed,
and run over batch rows, but not started.
"""

from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame, SparkSession

from backfill.runtime.batch.rebind_plan import rebind
from backfill.runtime.catalyst import analyzed
from backfill.runtime.source.clock import clock

Read = Callable[[str], DataFrame]
"""Gives the streaming frame of a source."""


def streams(spark: SparkSession, schemas: Mapping[str, str]) -> Read:
    """Reads sources with these columns."""

    def read(source: str) -> DataFrame:
        return clock(spark, source, 0, 1, None).mapInArrow(lambda rows: rows, schemas[source])

    return read


def over_batch(frame: DataFrame, rows: Callable[[str], DataFrame]) -> DataFrame:
    """The same query, over batch rows of its sources."""
    return rebind(analyzed(frame), frame.sparkSession, lambda source, _: rows(source))
