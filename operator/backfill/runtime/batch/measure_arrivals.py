"""Measures when the rows of a query arrive, before its first span: of each watermark, by a job that
reads no more than what their event time is made of.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from functools import partial
from threading import Thread

from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame, SparkSession

from backfill.planning.plan import PlanHeader
from backfill.runtime.batch.arrival_cells import cells_of_frame, width_us
from backfill.runtime.batch.arrival_lags import AtWatermark, Cells
from backfill.runtime.batch.batch_sources import Leaves
from backfill.runtime.batch.pass_through import handed_on
from backfill.runtime.batch.rebind_plan import below_watermark, hides_arrival, is_state, rebind
from backfill.runtime.catalyst import (
    analyzed,
    children_of,
    column_of,
    elements,
    frame_of,
    keeps_moments,
    kind_of,
    nodes_of,
    optimized,
    pruned,
    schema_of,
    type_of,
)
from backfill.runtime.queries.logical_plan import (
    columns_used_by,
    event_times,
    is_event_time,
)
from backfill.runtime.source.clock import is_source, source_of, topic_of
from backfill.runtime.source.timestamp_columns import microseconds
from backfill.runtime.spark_versions import as_thread

_AT_ONCE = 2
"""Jobs at a time: one alone may have too few tasks for all cores."""


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
    plan: JavaObject,
    spark: SparkSession,
    leaves: Leaves,
    header: PlanHeader,
    *,
    complete: bool = False,
) -> list[AtWatermark]:
    """The rows at each watermark of a query below which it is known when they arrived.

    Args:
        complete: whether the query writes in output mode complete.

    Raises:
        Exception: Spark's own, with what failed in a task.
    """
    # a stream's watermark goes by filtered rows
    found = list(_watermarks(pruned(plan, spark), complete=complete))
    used = [node for node, dropped in found if not dropped]
    # first: where the same rows are in two places, these count
    nodes = without_copies([*used, *(node for node, dropped in found if dropped)], spark)
    jobs = [
        partial(_at_watermark, each, spark, leaves, header, any(each is node for node in used))
        for each in nodes
    ]
    return _at_once(jobs, spark)


def _watermarks(
    node: JavaObject, *, complete: bool, dropped: bool = False
) -> Iterator[tuple[JavaObject, bool]]:
    """The watermarks at which rows can be measured, and whether a stream drops those that arrive
    after they have passed.
    """
    if _measurable(node):
        yield node, dropped
    for child in children_of(node):
        drops = is_state(node) and _drops_late(node, child, complete=complete)
        yield from _watermarks(child, complete=complete, dropped=dropped or drops)


def _drops_late(node: JavaObject, child: JavaObject, *, complete: bool) -> bool:
    """Whether Spark drops the rows of a child that come too late for a node with state: it goes by
    columns that are event times, not by what is computed from them. An aggregation needs one among
    its keys, and drops nothing in output mode complete.
    """
    if kind_of(node) == "Aggregate":
        return not complete and any(map(is_event_time, elements(node.groupingExpressions())))
    return bool(event_times(child))


def _at_once(jobs: Sequence[Callable[[], AtWatermark]], spark: SparkSession) -> list[AtWatermark]:
    """The results of the jobs. When one fails, nothing waits for those in progress, and no other
    begins.
    """
    found: dict[int, AtWatermark] = {}
    left = deque(enumerate(jobs))

    def work() -> None:
        while True:
            try:
                number, job = left.popleft()
            except IndexError:
                return
            found[number] = job()

    def watched(end: Future[None], inherited: Callable[[], None]) -> None:
        try:
            inherited()
        except BaseException as error:
            left.clear()
            end.set_exception(error)
        else:
            end.set_result(None)

    ends: list[Future[None]] = [Future() for _ in jobs[:_AT_ONCE]]
    for number, end in enumerate(ends):
        # daemons, for which the end of the process does not wait, unlike those of an executor
        Thread(
            target=watched,
            args=(end, as_thread(spark, work)),
            name=f"backfill-measuring-{number}",
            daemon=True,
        ).start()
    for ended in wait(ends, return_when=FIRST_EXCEPTION).done:
        ended.result()
    return [found[number] for number in range(len(jobs))]


def unseen_sources(plan: JavaObject) -> set[str]:
    """The sources of which a query reads rows that pass no such watermark."""
    if is_source(plan):
        return {source_of(plan)}
    if _measurable(plan):
        return set()
    return set().union(*map(unseen_sources, children_of(plan)))


def _measurable(node: JavaObject) -> bool:
    below = below_watermark(node)
    return below is not None and not any(map(hides_arrival, below))


def _at_watermark(
    node: JavaObject, spark: SparkSession, leaves: Leaves, header: PlanHeader, uses_late: bool
) -> AtWatermark:
    time = node.eventTime().toAttribute()
    times = analyzed(frame_of(spark, node).select(column_of(spark, time)))
    read = handed_on(times, keeps_moments, of_records=True, filtered=True)
    if read is None:
        cells = _cells_by_spark(node, times, spark, leaves, header)
    else:
        (column,) = read.columns
        cells = leaves.cells(read.source, column, read.present)
    sources = frozenset(_sources(nodes_of(node)))
    delay_us = int(node.getDelayMs(node.delay())) * 1_000
    return AtWatermark(sources, delay_us, cells, uses_late)


def _cells_by_spark(
    node: JavaObject, times: JavaObject, spark: SparkSession, leaves: Leaves, header: PlanHeader
) -> Cells:
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
    time = node.eventTime().toAttribute()
    event_us = microseconds(column_of(spark, time), type_of(time))
    return cells_of_frame(frame_of(spark, found[-1]), event_us, width_us(header))


def _sources(nodes: Iterable[JavaObject]) -> set[str]:
    return {source_of(each) for each in nodes if is_source(each)}


def without_copies(watermarks: Sequence[JavaObject], spark: SparkSession) -> list[JavaObject]:
    """The watermarks without repetitions: each differs from all before it in its rows, its event
    times or its delay. A query that joins a stream with itself, or reads a source twice, has one at
    each place.
    """
    if len(watermarks) < 2:
        return list(watermarks)
    rows = _SameRows(watermarks, spark)
    found: list[tuple[JavaObject, JavaObject, int]] = []
    for node in watermarks:
        times, delay_ms = rows.times(node), int(node.getDelayMs(node.delay()))
        if not any(delay_ms == other and times.sameResult(same) for _, same, other in found):
            found.append((node, times, delay_ms))
    return [node for node, _, _ in found]


class _SameRows:
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
