"""Measures when the rows of a query arrive, before its first span: of each watermark, by a job that
reads no more than what their event time is made of.
"""

from collections.abc import Iterable

import numpy as np
from py4j.java_gateway import JavaObject
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import _parse_datatype_json_string

from backfill.planning.plan import PlanHeader
from backfill.runtime.batch.arrivals import AtWatermark, Cells
from backfill.runtime.batch.leaves import Leaves
from backfill.runtime.batch.rebind import ARRIVAL, below_watermark, hides_arrival, rebind
from backfill.runtime.catalyst import (
    analyzed,
    column_of,
    elements,
    frame_of,
    kind_of,
    nodes_of,
    pruned,
)
from backfill.runtime.queries.logical_plan import columns_used_by, is_source, source_of
from backfill.runtime.source.timestamp_columns import microseconds

_LEAST_CELLS, _MOST_CELLS = 2_048, 16_384
"""Into how many parts the time that is read is cut: few enough for the driver."""
_CELLS_OF_STEP = 8
"""Into how many parts a step is cut, where there are not too many: a span is ten times longer than
what it shares with its neighbours, of which cells are a part.
"""
_PER_OCTAVE = 4
"""Cells of lags, from one to twice as long: the longer rows lag, the less it matters how long."""


def hiding_nodes(plan: JavaObject) -> dict[str, str]:
    """By source those kinds of nodes that hide from its watermark when its rows arrived."""
    found = {}
    for node in nodes_of(plan):
        below = below_watermark(node) or []
        hidden = next((kind_of(each) for each in below if hides_arrival(each)), None)
        if hidden is not None:
            found.update(dict.fromkeys(_sources(below), hidden))
    return found


def measure(
    plan: JavaObject, spark: SparkSession, leaves: Leaves, header: PlanHeader
) -> list[AtWatermark]:
    """The rows at each watermark of a query below which it is known when they arrived.

    Raises:
        Exception: Spark's own, with what failed in a task.
    """
    watermarks: list[JavaObject] = []
    for node in nodes_of(pruned(plan, spark)):  # a stream's watermark goes by filtered rows
        # those of a stream that is joined with itself are the same
        if _measurable(node) and not any(node.sameResult(other) for other in watermarks):
            watermarks.append(node)
    return [_at_watermark(node, spark, leaves, header) for node in watermarks]


def unseen_sources(plan: JavaObject) -> set[str]:
    """The sources of which a query reads rows that pass no such watermark."""
    if is_source(plan):
        return {source_of(plan)}
    if _measurable(plan):
        return set()
    return set().union(*map(unseen_sources, elements(plan.children())))


def _measurable(node: JavaObject) -> bool:
    below = below_watermark(node)
    return below is not None and not any(map(hides_arrival, below))


def _at_watermark(
    node: JavaObject, spark: SparkSession, leaves: Leaves, header: PlanHeader
) -> AtWatermark:
    time = node.eventTime().toAttribute()
    times = analyzed(frame_of(spark, node).select(column_of(spark, time)))
    used = columns_used_by(times, spark)
    found: list[JavaObject] = []

    def above(each: JavaObject, bound: JavaObject) -> JavaObject:
        if kind_of(each) == "EventTimeWatermark":
            found.append(bound)
        return bound

    rebind(
        times,
        spark,
        lambda source, topic: leaves.frame_with_arrivals(source, topic, frozenset(used[source])),
        above,
        with_arrival=True,
    )
    kind = _parse_datatype_json_string(time.dataType().json())
    event_us = microseconds(column_of(spark, time), kind)
    cells = _cells(frame_of(spark, found[-1]), event_us, header)
    sources = frozenset(_sources(nodes_of(node)))
    return AtWatermark(sources, int(node.getDelayMs(node.delay())) * 1_000, cells)


def _cells(rows: DataFrame, event_us: Column, header: PlanHeader) -> Cells:
    inputs = header.inputs
    number = min(max(_CELLS_OF_STEP * header.steps, _LEAST_CELLS), _MOST_CELLS)
    width_us = max((inputs.read_end_us - inputs.read_start_us) // number, 1)
    event, lag = F.col("event_us"), F.col("lag_us")
    lags = F.floor(_PER_OCTAVE * F.log2(1 + F.abs(lag / width_us))) * F.sign(lag)
    timed = rows.select(F.col(ARRIVAL).alias("arrival_us"), event_us.alias("event_us"))
    cells = (
        timed.withColumn("lag_us", F.try_subtract("arrival_us", event))
        .where(lag.isNotNull())  # without a time, a row has no part in any result
        .groupBy(F.floor(F.col("arrival_us") / width_us), lags)
        .agg(
            F.min("arrival_us"),
            F.max("arrival_us"),
            F.min(event),
            F.max(event),
            F.max(lag),
            F.count("*"),
        )
        .toArrow()
    )
    return Cells(*(column.to_numpy().astype(np.int64) for column in cells.columns[2:]))


def _sources(nodes: Iterable[JavaObject]) -> set[str]:
    return {source_of(each) for each in nodes if is_source(each)}
