"""Finds watermarks of the same rows: a query that joins a stream with itself, or reads a source
twice, has one at each place.
"""

from collections.abc import Sequence

from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame, SparkSession

from backfill.runtime.batch.rebind_plan import rebind
from backfill.runtime.catalyst import (
    analyzed,
    column_of,
    frame_of,
    nodes_of,
    optimized,
    schema_of,
)
from backfill.runtime.source.clock import is_source, source_of, topic_of


def without_copies(watermarks: Sequence[JavaObject], spark: SparkSession) -> list[JavaObject]:
    """The watermarks without repetitions: each differs from all before it in its rows, its event
    times or its delay.
    """
    if len(watermarks) < 2:
        return list(watermarks)
    rows = _Rows(watermarks, spark)
    found: list[tuple[JavaObject, JavaObject, int]] = []
    for node in watermarks:
        times, delay_ms = rows.times(node), int(node.getDelayMs(node.delay()))
        if not any(delay_ms == other and times.sameResult(same) for _, same, other in found):
            found.append((node, times, delay_ms))
    return [node for node, _, _ in found]


class _Rows:
    """Rows of each source, the same ones wherever it is read: for Spark, every place where a stream
    is defined has its own.
    """

    def __init__(self, watermarks: Sequence[JavaObject], spark: SparkSession):
        self._spark = spark
        self._of: dict[tuple[str, str | None], DataFrame] = {
            (source_of(each), topic_of(each)): spark.createDataFrame([], schema_of(each))
            for node in watermarks
            for each in nodes_of(node)
            if is_source(each)
        }

    def times(self, watermark: JavaObject) -> JavaObject:
        """The optimized plan of its event times, over these rows."""
        time = column_of(self._spark, watermark.eventTime().toAttribute())
        times = analyzed(frame_of(self._spark, watermark).select(time))
        bound = rebind(times, self._spark, lambda source, topic: self._of[source, topic])
        return optimized(analyzed(bound), self._spark)
