"""A streaming query's logical plan over batch DataFrames.

The application's program runs once and its queries are captured as analyzed plans. For each span
the sources in such a plan are replaced by batch DataFrames of the span's rows; every expression
above keeps its identity, so functions, views and joined tables of the program work untouched.
Spark's ``MicroBatchExecution`` does the same for each micro-batch; here, the sources are those of a
batch, and no operator keeps state.
"""

from collections.abc import Callable

from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from backfill.runtime.catalyst import (
    Catalyst,
    analyzed,
    children_of,
    column_of,
    elements,
    frame_of,
    id_of,
    keeps_moments,
    kind_of,
    made_or_handed_on,
    names_of,
    nodes_of,
    type_of,
)
from backfill.runtime.queries.logical_plan import (
    HAND_ON_COLUMNS,
    STATE_OF_ONE_CHILD,
    event_times,
    is_session_window,
)
from backfill.runtime.source.clock import is_clock, is_source, source_of, topic_of
from backfill.runtime.source.timestamp_columns import microseconds

Leaf = Callable[[str, str | None], DataFrame]
"""The rows of a source, by its name and the Kafka topic that it stands for, if it does: columns of
the same names and types as the stream has.
"""
Above = Callable[[JavaObject, JavaObject], JavaObject]
"""What takes a node's place: by the node as it streams, and as it was rebound, or its child where
it says only something of a stream. It gives columns of the same identities.
"""
ARRIVAL = "__backfill_arrival"
"""When a row arrived, in microseconds since the epoch; null where it is not known."""
NOTHING_IN_A_BATCH = {"CollectMetrics", "EventTimeWatermark", "UpdateEventTimeWatermarkColumn"}
"""Nodes that pass on their child's rows and only say something of a stream."""
_HANDS_ON = HAND_ON_COLUMNS | {"Filter", "Generate", "Join", "Project", "Union"}
"""Nodes that pass on their children's columns, or a Project that can be made to."""


def rebind(
    plan: JavaObject,
    spark: SparkSession,
    leaf: Leaf,
    above: Above | None = None,
    *,
    with_arrival: bool = False,
) -> DataFrame:
    """The result of a captured plan over batch DataFrames, in a session.

    Args:
        plan: of a query that reads sources of the backfill and no other stream.
        above: asked for each node that streams and has children, those below it first and those of
            a node from left to right.
        with_arrival: each leaf has the column ``ARRIVAL``, and ``above`` finds it also in the rows
            at those watermarks below all state to which it can be passed on.
    """
    return frame_of(spark, _Rebinding(spark, leaf, above, with_arrival).node(plan))


def is_state(node: JavaObject) -> bool:
    """Whether a node that streams keeps rows to compare them with others."""
    if kind_of(node) == "Join":
        return all(child.isStreaming() for child in children_of(node))
    return bool(kind_of(node) in STATE_OF_ONE_CHILD and node.isStreaming())


def below_watermark(node: JavaObject) -> list[JavaObject] | None:
    """The nodes whose rows a watermark is for; None if a node is none, or one for the times of
    results.
    """
    if kind_of(node) != "EventTimeWatermark":
        return None
    below = list(nodes_of(node.child()))
    return None if any(map(is_state, below)) else below


def hides_arrival(node: JavaObject) -> bool:
    """Whether a node returns something else if its rows have one more column, or does not pass it
    on.
    """
    known = is_source(node) or is_clock(node) or kind_of(node) in _HANDS_ON | NOTHING_IN_A_BATCH
    return bool(node.isStreaming() and (is_state(node) or not known))


class _Rebinding:
    def __init__(self, spark: SparkSession, leaf: Leaf, above: Above | None, with_arrival: bool):
        self._spark = spark
        self._catalyst = Catalyst(spark)
        self._leaf = leaf
        self._above = above
        self._with_arrival = with_arrival

    def node(self, node: JavaObject, carries: bool = False) -> JavaObject:
        """The node over batch rows; if it ``carries`` when they arrived, with that column, too."""
        if is_source(node):
            return self._source(node, carries)
        children = children_of(node)
        if not children or not node.isStreaming():
            return node
        ends = not carries and self._with_arrival and _is_watermark_of_arrivals(node)
        below = [self.node(child, carries or ends) for child in children]
        if kind_of(node) in NOTHING_IN_A_BATCH:
            (bound,) = below
            if carries:  # a watermark above it counts
                return bound
        elif kind_of(node) == "DeduplicateWithinWatermark":
            bound = self._first_within_delay(node, below[0])
        else:
            bound = self._over(node, below, carries)
        bound = bound if self._above is None else self._above(node, bound)
        return self._catalyst.project(elements(children[0].output()), bound) if ends else bound

    def _over(self, node: JavaObject, below: list[JavaObject], carries: bool) -> JavaObject:
        if kind_of(node) == "Project":
            (child,) = below
            columns = node.projectList()
            for place, column in enumerate(made_or_handed_on(node)):
                if not isinstance(column, int):
                    cheap = self._with_cheap_casts(column)
                    columns = self._catalyst.updated(columns, place, cheap)
            return self._catalyst.selection(
                self._catalyst.appended(columns, _arrival(child)) if carries else columns, child
            )
        bound = self._catalyst.with_children(node, below)
        if kind_of(node) == "Deduplicate":
            bound = self._with_separate_sessions(bound)
        if not carries or kind_of(node) == "Union":
            return bound
        # the last one, since a union is by position
        return self._catalyst.selection(
            self._catalyst.appended(node.output(), _arrival(bound)), bound
        )

    def _with_separate_sessions(self, node: JavaObject) -> JavaObject:
        """A batch job groups rows by the keys, and would merge sessions that overlap."""
        keys = elements(node.keys())
        if not any(map(is_session_window, keys)):
            return node
        return self._catalyst.deduplicate_by(node, [self._catalyst.unmarked(key) for key in keys])

    def _with_cheap_casts(self, column: JavaObject) -> JavaObject:
        """The same column, where casts change only the type of timestamps."""
        if not self._catalyst.has_cast(column):
            return column
        kind = kind_of(column)
        if kind == "Cast" and keeps_moments(column):
            return self._catalyst.same_moment(column)
        if kind not in {"Alias", "CreateNamedStruct"}:
            return column
        return self._catalyst.with_operands(column, self._with_cheap_casts)

    def _first_within_delay(self, node: JavaObject, child: JavaObject) -> JavaObject:
        """The child's rows of whose keys none is at most the watermark's delay before, by event
        time, whether that one is itself passed on or not. One of those at the same time stays, and
        one of those without a time.
        """
        ((time, delay_us),) = event_times(node.child())
        keys = {id_of(key) for key in elements(node.keys())}
        given = {id_of(each): column_of(self._spark, each) for each in elements(child.output())}
        at = given[id_of(time)]
        same_keys = [column for number, column in given.items() if number in keys]
        in_order = Window.partitionBy(*same_keys, at.isNull()).orderBy(at)
        # an interval of a day is one of the session's time zone, of 23 to 25 hours
        at_us = microseconds(at, type_of(time))
        late_enough = at_us > F.lag(at_us).over(in_order) + F.lit(delay_us)
        kept = (F.row_number().over(in_order) == 1) | late_enough
        marked = frame_of(self._spark, child).select(*given.values(), kept.alias("kept"))
        mark = column_of(self._spark, elements(analyzed(marked).output())[-1])
        return analyzed(marked.where(mark).select(*given.values()))

    def _source(self, relation: JavaObject, carries: bool) -> JavaObject:
        """The batch columns under the identities that the stream's columns have."""
        plan = analyzed(self._leaf(source_of(relation), topic_of(relation)))
        wanted = [*names_of(relation.output()), *([ARRIVAL] if carries else [])]
        given = names_of(plan.output())
        if given != wanted:
            column_of_name = dict(zip(given, elements(plan.output()), strict=True))
            plan = self._catalyst.project([column_of_name[name] for name in wanted], plan)
        output = relation.output()
        return self._catalyst.renumbered(
            plan,
            self._catalyst.appended(output, plan.output().last()) if carries else output,
        )


def _is_watermark_of_arrivals(node: JavaObject) -> bool:
    below = below_watermark(node)
    return below is not None and not any(map(hides_arrival, below))


def _arrival(plan: JavaObject) -> JavaObject:
    return next(column for column in elements(plan.output()) if column.name() == ARRIVAL)
