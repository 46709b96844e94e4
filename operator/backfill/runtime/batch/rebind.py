"""A streaming query's logical plan over batch DataFrames.

The application's program runs once and its queries are captured as analyzed plans. For each span
the sources in such a plan are replaced by batch DataFrames of the span's rows; every expression
above keeps its identity, so functions, views and joined tables of the program work untouched. It is
what Spark's ``MicroBatchExecution`` does for each micro-batch, only that the sources are those of a
batch, and that no operator keeps state.
"""

from collections.abc import Callable
from datetime import timedelta

from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from backfill.runtime.batch.observing import column_of, frame_of
from backfill.runtime.queries.logical_plan import (
    analyzed,
    elements,
    event_times,
    id_of,
    is_source,
    kind_of,
    source_of,
    topic_of,
)

Leaf = Callable[[str, str | None], DataFrame]
"""The rows of a source, by its name and the Kafka topic that it stands for, if it does: columns of
the same names and types as the stream has.
"""
Above = Callable[[JavaObject, JavaObject], JavaObject]
"""What takes a node's place: by the node as it streams, and as it was rebound, or its child where
it says only something of a stream. It gives columns of the same identities.
"""
_NOTHING_IN_A_BATCH = {"CollectMetrics", "EventTimeWatermark", "UpdateEventTimeWatermarkColumn"}
"""Nodes that hand on their child's rows and only say something of a stream."""


def rebind(
    plan: JavaObject, spark: SparkSession, leaf: Leaf, above: Above | None = None
) -> DataFrame:
    """The result of a captured plan over batch DataFrames, in a session.

    Args:
        plan: of a query that reads sources of the backfill and no other stream.
        above: asked for each node that streams and has children, those below it first and those of
            a node from left to right.
    """
    return frame_of(spark, _Rebinding(spark, leaf, above).node(plan))


class _Rebinding:
    def __init__(self, spark: SparkSession, leaf: Leaf, above: Above | None):
        jvm = spark._jvm
        assert jvm is not None  # in classic PySpark
        self._jvm = jvm
        self._spark = spark
        self._leaf = leaf
        self._above = above

    def node(self, node: JavaObject) -> JavaObject:
        if is_source(node):
            return self._source(node)
        children = elements(node.children())
        if not children or not node.isStreaming():
            return node
        below = [self.node(child) for child in children]
        if kind_of(node) in _NOTHING_IN_A_BATCH:
            (bound,) = below
        elif kind_of(node) == "DeduplicateWithinWatermark":
            bound = self._first_within_delay(node, below[0])
        else:
            bound = node.withNewChildren(self._seq(below))
        return bound if self._above is None else self._above(node, bound)

    def _first_within_delay(self, node: JavaObject, child: JavaObject) -> JavaObject:
        """The child's rows of whose keys none is at most the watermark's delay before, by event
        time, whether that one is itself handed on or not. One of those at the same time stays, and
        one of those without a time.
        """
        ((time, delay_us),) = event_times(node.child())
        keys = {id_of(key) for key in elements(node.keys())}
        given = {id_of(each): column_of(self._spark, each) for each in elements(child.output())}
        at = given[id_of(time)]
        same_keys = [column for number, column in given.items() if number in keys]
        in_order = Window.partitionBy(*same_keys, at.isNull()).orderBy(at)
        late_enough = at > F.lag(at).over(in_order) + F.lit(timedelta(microseconds=delay_us))
        kept = (F.row_number().over(in_order) == 1) | late_enough
        marked = frame_of(self._spark, child).select(*given.values(), kept.alias("kept"))
        mark = column_of(self._spark, elements(analyzed(marked).output())[-1])
        return analyzed(marked.where(mark).select(*given.values()))

    def _source(self, relation: JavaObject) -> JavaObject:
        """The batch columns under the identities that the stream's columns have."""
        plan = analyzed(self._leaf(source_of(relation), topic_of(relation)))
        given = {str(column.name()): column for column in elements(plan.output())}
        catalyst = self._jvm.org.apache.spark.sql.catalyst
        aliases = [
            catalyst.expressions.Alias(
                given[str(column.name())],
                column.name(),
                column.exprId(),
                self._seq([]),
                self._jvm.scala.Option.apply(None),
                self._seq([]),
            )
            for column in elements(relation.output())
        ]
        return catalyst.plans.logical.Project(self._seq(aliases), plan)

    def _seq(self, items: list[JavaObject]) -> JavaObject:
        return self._jvm.PythonUtils.toSeq(items)
