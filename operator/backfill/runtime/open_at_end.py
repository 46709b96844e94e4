"""What a query leaves open when its plan has ended: results of the window that its watermark has not closed.

They are counted in the query's checkpoint with Spark's own state reader, after the flush.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType, TimestampNTZType, TimestampType

from backfill.api.backfill import Window
from backfill.api.quantities import to_us

_AGGREGATIONS = {"stateStoreSave", "sessionWindowStateStoreSaveExec"}
_NOTHING_PENDING = {"dedupe", "dedupeWithinWatermark", "symmetricHashJoin", "globalLimit"}
"""Operators that have already given all they can for the rows read. Outer joins are told apart by the query's plan."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OpenResults:
    """What a query's state holds of the window. Both are None where it can not be told."""

    count: int | None
    needed_drain_seconds: float | None
    """The drain that would have closed them."""


UNKNOWN = OpenResults(None, None)


def open_results(spark: SparkSession, checkpoint: str, window: Window, watermark_delay_us: int) -> OpenResults:
    """Counts the window's results in a query's state: those whose time window or session begins within it.

    It can not be told for arbitrary state, and for aggregations that are not by a time window.
    """
    reader = spark.newSession()
    reader.conf.set("spark.sql.session.timeZone", "UTC")  # windows over times without a zone are taken as UTC
    found = [_operator(reader, checkpoint, operator, window) for operator in _operators(reader, checkpoint)]
    if None in found:
        return UNKNOWN
    known = [row for row in found if row is not None]
    ends = [row.latest_end_us for row in known if row.latest_end_us is not None]
    drain_us = max(ends) + watermark_delay_us - to_us(window.end) if ends else 0
    return OpenResults(sum(row.results for row in known), max(drain_us, 0) / 1e6)


def _operators(spark: SparkSession, checkpoint: str) -> Iterator[Row]:
    """The stateful operators of a query that may hold results; a join has several stores, of which none is looked at."""
    for row in spark.read.format("state-metadata").load(checkpoint).collect():
        if row.operatorName not in _NOTHING_PENDING:
            yield row


def _operator(spark: SparkSession, checkpoint: str, operator: Row, window: Window) -> Row | None:
    """How many results begin within the window, and when the last of them ends."""
    if operator.operatorName not in _AGGREGATIONS:
        return None
    state = spark.read.format("statestore").option("operatorId", operator.operatorId).load(checkpoint)
    column = _time_window(state)
    if column is None:
        _log.info("an aggregation is not by a time window: its open results are not counted")
        return None
    start, end = (F.unix_micros(F.col(f"{column}.{edge}").cast("timestamp")) for edge in ("start", "end"))
    within = state.where((start >= to_us(window.start)) & (start < to_us(window.end)))
    return within.agg(F.count(F.lit(1)).alias("results"), F.max(end).alias("latest_end_us")).first()


def _time_window(state: DataFrame) -> str | None:
    """The column that holds the time window: in the key of a windowed aggregation, in the value of a session's."""
    for part in ("key", "value"):
        fields = state.schema[part].dataType
        if isinstance(fields, StructType):
            for field in fields:
                if _is_time_window(field.dataType):
                    return f"{part}.`{field.name}`"
    return None


def _is_time_window(kind: DataType) -> bool:
    return (
        isinstance(kind, StructType)
        and kind.names == ["start", "end"]
        and all(isinstance(field.dataType, TimestampType | TimestampNTZType) for field in kind)
    )
