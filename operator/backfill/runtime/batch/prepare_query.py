"""Prepares a query of the application to be run by spans."""

import logging
import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from backfill.api.output import Output
from backfill.outputs.staging import Part, StagedBatch
from backfill.planning.plan import PlanHeader, step_bounds
from backfill.protocol.explanation import FIRST_OF_MANY, NOT_COMPARED
from backfill.runtime.batch.arrival_lags import Lags, StepBounds
from backfill.runtime.batch.batch_sources import Leaves
from backfill.runtime.batch.measure_arrivals import hiding_nodes, measure, unseen_sources
from backfill.runtime.batch.null_keys import with_null_keys
from backfill.runtime.batch.overlap_check import Between, OverlapCheck, SharedResults
from backfill.runtime.batch.pass_through import handed_on
from backfill.runtime.batch.rebind_plan import rebind
from backfill.runtime.batch.sessions import SessionQuery, SessionWatch
from backfill.runtime.batch.span_runner import Computed, SpanRunner
from backfill.runtime.batch.span_writing import batch_of, write, write_handed_on
from backfill.runtime.batch.spans import (
    LookAround,
    Span,
    closed_until_us,
    left_from,
    row_wise_spans,
    spans_of_time,
    with_strips,
)
from backfill.runtime.batch.straight_json import without_json
from backfill.runtime.batch.time_reach import Bounded
from backfill.runtime.catalyst import analyzed, copied
from backfill.runtime.queries.logical_plan import (
    columns_used_by,
    drops_within_watermark,
    gives_at_once,
)
from backfill.runtime.queries.run_state import Run
from backfill.runtime.queries.tracker import OpenResults, Traits
from backfill.runtime.sink import SinkSettings, SinkWriter
from backfill.runtime.source.step_tasks import planned_splits
from backfill.runtime.spark_versions import properties as session_properties

_log = logging.getLogger(__name__)

_HIDDEN = (
    "it is unknown when the rows of %s arrive, on which results of the query %s depend: they pass"
    " %s before their watermark"
)
_PARTITIONS_OF_CORE, _MOST_PARTITIONS = 16, 1_024
"""How many parts a shuffle is cut into, of which Spark then puts small ones together: a stream has
one for each core, for which the rows of a span are too many.
"""
_PARTITION = "32MB"
"""What Spark puts together, and then joins without sorting it. It is compressed; a task has four
times as much for its hash table with the least memory that Spark takes.
"""


@dataclass(frozen=True, slots=True)
class SpanOutput:
    """Where the rows of a query go."""

    query: str
    """The query's name."""
    output: Output
    place: int
    """Its place in ``spec.outputs``."""
    sink: SinkSettings
    writer: SinkWriter
    staged: Part | None
    """What earlier attempts of the query have staged; None if nothing."""


def prepare_spans(
    run: Run,
    frame: DataFrame,
    target: SpanOutput,
    header: PlanHeader,
    found: Bounded,
    *,
    used: Mapping[str, set[str]],
    complete: bool = False,
) -> SpanRunner:
    """What runs the query of a streaming DataFrame, from where its branch ends; not begun.

    Args:
        run: what the driver shares.
        frame: what the query writes.
        target: where it writes.
        header: the plan's.
        found: what its results depend on.
        used: the columns that it uses of each source that it reads.
        complete: whether it writes in output mode complete.
    """
    committed = 0 if target.staged is None else target.staged.batch_id + 1
    run.tracker.add(
        target.query,
        target.output.name,
        dict.fromkeys(sorted(used), committed),
        traits(found, header),
    )
    work = _Work(run, frame, target, header, found, committed=committed, complete=complete)
    return SpanRunner(run, target.query, work)


def traits(found: Bounded, header: PlanHeader) -> Traits:
    """What is known of a query that is run by spans."""
    return Traits(
        execution="Batch",
        look_back_seconds=whole_seconds(each.back_us for each in found.sources.values()),
        look_ahead_seconds=_look_ahead_seconds(_around(found, header)),
    )


def _look_ahead_seconds(around: Mapping[str, LookAround]) -> int:
    return whole_seconds(each.after_us for each in around.values())


def whole_seconds(lengths_us: Iterable[int]) -> int:
    """The longest one, rounded up: without its end it is a microsecond less."""
    return math.ceil(max(0, *lengths_us) / 1e6)


def _around(found: Bounded, header: PlanHeader) -> dict[str, LookAround]:
    """Which rows of each source results depend on, as far as is known before any is read."""
    arrival = header.inputs.arrival_columns
    return {
        source: LookAround.of(reach, arrival[source], header.inputs.allowed_lateness_us)
        for source, reach in found.sources.items()
    }


def _not_reported(around: Mapping[str, LookAround]) -> OpenResults:
    """What is known of the results that are left open before the last span."""
    needed_us = max(each.after_us for each in around.values())
    return OpenResults(
        needed_drain_seconds=needed_us / 1e6, unknown="the driver ended before it reported them"
    )


def depends_on_arrival(found: Bounded, header: PlanHeader) -> bool:
    """Whether results depend on when rows arrive seen from their event times."""
    return not found.stateless and _by_arrival(found, header) != found.sources.keys()


def _by_arrival(found: Bounded, header: PlanHeader) -> set[str]:
    """The sources whose event time is the time of arrival."""
    arrival = header.inputs.arrival_columns
    return {
        source for source, reach in found.sources.items() if reach.event_column == arrival[source]
    }


class _Work:
    """The jobs of one query."""

    def __init__(
        self,
        run: Run,
        frame: DataFrame,
        target: SpanOutput,
        header: PlanHeader,
        found: Bounded,
        *,
        committed: int,
        complete: bool,
    ):
        self._run = run
        self._target = target
        self._sink = target.writer
        self._header = header
        self._found = found
        self._first = committed
        self._complete = complete
        self._session = _session_of(frame, header.inputs.parallelism)
        self._plan = with_null_keys(without_json(analyzed(frame), self._session), self._session)
        used = columns_used_by(self._plan, self._session)
        self._used = {source: frozenset(columns) for source, columns in used.items()}
        splits = planned_splits(run.settings.plan_workspace)
        self._bounds = {source: StepBounds(step_bounds(splits, source)) for source in found.sources}
        self._leaves = Leaves(self._session, run.settings)
        self._handed_on = handed_on(self._plan)
        self._hidden = hiding_nodes(self._plan)
        self._lock = threading.Lock()
        self._rows_open = 0 if target.staged is None else target.staged.rows_open
        self._open_results = OpenResults(count=0, needed_drain_seconds=0.0)
        self._watch: SessionWatch | None = None
        self._lags: Lags | None = None
        self._overlap = self._overlap_check([])
        if drops_within_watermark(frame):
            _log.warning("the query %s: %s", target.query, FIRST_OF_MANY)

    def spans(self) -> list[Span]:
        """All spans that are left, once it is measured how their rows arrive."""
        header, found = self._header, self._found
        if found.stateless:
            return row_wise_spans(header, found.sources, self._first)
        around = self._around()
        if found.sessions:
            arrives = {source: each.arrives for source, each in around.items()}
            query = SessionQuery(self._target.query, header, found, arrives, self._bounds)
            self._watch = SessionWatch(query, self._session)
            by_rows = query.sessions_closed_us is None
            self._open_results = self._left_open(
                query.around(query.first_us), counted=by_rows, measured=False
            )
            spans = left_from(self._first, query.spans)
            self._overlap = self._overlap_check(spans)
            return spans
        end_us = header.inputs.end_us
        at_once = gives_at_once(self._plan)
        closed_us = end_us if at_once else closed_until_us(header, around.values())
        # without any step left, it is not measured how rows arrive, and how many results were left
        # open is in the branch
        unmeasured = self._first == header.steps and depends_on_arrival(found, header)
        if closed_us < end_us or (unmeasured and not at_once):
            self._open_results = self._left_open(around, measured=not unmeasured)
        spans = left_from(
            self._first,
            lambda step: with_strips(
                spans_of_time(header, around, self._bounds, step, closed_us), around, self._bounds
            ),
        )
        self._overlap = self._overlap_check(spans)
        return spans

    def _around(self) -> dict[str, LookAround]:
        """Which rows of each source results depend on, as they arrive."""
        header, found = self._header, self._found
        around, by_arrival = _around(found, header), _by_arrival(found, header)
        query = self._target.query
        if not depends_on_arrival(found, header) or self._first == header.steps:
            return around
        for source, node in self._hidden.items():
            _log.warning(_HIDDEN, source, query, node)
        self._session.sparkContext.setJobDescription(f"{query}: when its rows arrived")
        _log.info("the query %s: measuring when its rows arrived", query)
        reaches = found.sources.values()
        self._lags = Lags(
            measure(self._plan, self._session, self._leaves, header, complete=self._complete),
            self._bounds,
            steps=header.steps,
            read_end_us=header.inputs.read_end_us,
            waits_us=max(each.back_us for each in reaches) + max(each.ahead_us for each in reaches),
            hidden=bool(self._hidden),
        )
        unseen = unseen_sources(self._plan)
        for source in around.keys() - by_arrival:
            also = around[source].arrives if source in unseen else None
            measured = self._lags.of(source, also=also)
            if measured is not None:
                around[source] = replace(around[source], arrives=measured)
        ahead = _look_ahead_seconds(around)
        self._run.tracker.record_look_ahead(query, ahead)
        _log.info("the query %s: results are complete %s s after their time", query, ahead)
        return around

    def reads(self, span: Span) -> Span:
        """The same span, with all that it should read by what is known of its sessions."""
        return span if self._watch is None else self._watch.reads(span)

    def write(self, span: Span) -> Computed | None:
        """Computes a span's results and writes them into files. None where a session is longer than
        was assumed: nothing refers to the files.
        """
        self._session.sparkContext.setJobDescription(self._in_words(span))
        sink = SinkWriter(self._target.sink, span.stretch)
        if self._handed_on is not None:
            (steps,) = span.reads.values()
            files = write_handed_on(self._leaves, steps, self._handed_on, sink)
            return Computed(
                batch_of(self._target.query, span, sink.spec_id, files), self._rows_read(span)
            )
        rows = self._overlap.observe(span, self._rows(span))
        written, seen = write(rows, sink)
        if self._watch is not None and not self._watch.enough(span, seen):
            return None
        overlap = self._overlap.compare(span, seen, self._may_differ)
        self._count_open(span, sum(each.rows_open for each in written), seen)
        batch = batch_of(self._target.query, span, sink.spec_id, written)
        batch = replace(batch, overlap=overlap)
        late = 0 if self._lags is None else self._lags.late_rows(span.steps)
        return Computed(batch, self._rows_read(span), late)

    def _rows_read(self, span: Span) -> dict[str, int]:
        """Without those that it reads before and after its steps, which other spans count."""
        return {source: self._leaves.count(source, span.steps) for source in span.reads}

    def commit(self, batch: StagedBatch) -> None:
        """Adds the files to the branch, unless they are there."""
        self._sink.stage(batch)

    @property
    def open_results(self) -> OpenResults:
        """What the last span left open."""
        return self._open_results

    def _left_open(
        self, around: Mapping[str, LookAround], *, counted: bool = True, measured: bool
    ) -> OpenResults:
        """What is known of the results that are left open before the last span. Once that is
        committed, the branch says how many there are.

        Args:
            around: which rows results depend on.
            counted: whether they are counted with what each span writes.
            measured: whether it is known when all these rows have arrived.
        """
        before = _not_reported(around)
        if not counted or self._first < self._header.steps:
            return before
        needed = before.needed_drain_seconds if measured else None
        return OpenResults(self._rows_open, needed_drain_seconds=needed if self._rows_open else 0.0)

    def _count_open(self, span: Span, rows: int, seen: Mapping[str, Mapping[str, Any]]) -> None:
        """With the results that a span leaves open, all those that are there and were written."""
        stretch, watch = span.stretch, self._watch
        if stretch is None:
            return
        if watch is not None and span.steps.stop == self._header.steps:
            if (found := watch.open_results(span, seen)) is not None:
                self._open_results = found
                return
        elif stretch.end_us == stretch.open_us:
            return
        with self._lock:
            self._rows_open += rows
            needed = self._open_results if watch is None else _not_reported(watch.around)
            self._open_results = OpenResults(
                count=self._rows_open,
                needed_drain_seconds=needed.needed_drain_seconds if self._rows_open else 0.0,
            )

    def _rows(self, span: Span) -> DataFrame:
        return rebind(
            self._plan,
            self._session,
            lambda source, topic: self._leaves.frame(
                source, span.reads[source], topic, self._used[source]
            ),
            None if self._watch is None else self._watch.above(span),
        )

    def _may_differ(self, strip: Between, session_us: int) -> bool:
        """Whether results of a strip depend on rows that not both spans need to read, if no session
        is longer.
        """
        if self._lags is None:
            return False
        reaches = self._found.sources.values()
        wide = [reach.with_sessions(session_us) for reach in reaches]
        return bool(self._hidden) or self._lags.any_late(
            strip[0] - max(reach.back_us for reach in wide),
            strip[1] + max(reach.ahead_us for reach in wide),
            strip[1] + max(reach.ahead_us for reach in reaches),
        )

    def _overlap_check(self, spans: Sequence[Span]) -> OverlapCheck:
        column, staged = self._target.output.timestamp_column, self._target.staged
        before = None if staged is None else staged.overlap
        strips = before is not None or any(span.before_us + span.after_us for span in spans)
        compared = SharedResults()
        if column is not None and spans and strips:
            compared = SharedResults.of(self._session, self._plan, column)
            if not compared.places:
                _log.warning("the query %s: %s", self._target.query, NOT_COMPARED)
        return OverlapCheck(
            self._target.query,
            spans,
            compared=compared,
            compute=self._rows,
            before=before,
        )

    def _in_words(self, span: Span) -> str:
        """For Spark's own screens."""
        query, steps = self._target.query, span.steps
        return f"{query}: steps {steps.start + 1} to {steps.stop} of {self._header.steps}"


def _session_of(frame: DataFrame, cores: int) -> SparkSession:
    """A copy of the session in which the query was defined, as a streaming query takes one: what
    the program sets later does not change it. Its joins and aggregations are for batch jobs, unless
    the program or the SparkApplication has set something else.
    """
    session = copied(frame.sparkSession)
    given = session_properties(session)
    partitions = max(
        min(_PARTITIONS_OF_CORE * cores, _MOST_PARTITIONS),
        int(given.get("spark.sql.shuffle.partitions", "0")),
    )
    properties = {
        "spark.sql.adaptive.coalescePartitions.initialPartitionNum": str(partitions),
        "spark.sql.adaptive.advisoryPartitionSizeInBytes": _PARTITION,
        "spark.sql.adaptive.maxShuffledHashJoinLocalMapThreshold": _PARTITION,
    }
    for key, value in properties.items():
        if key not in given:
            session.conf.set(key, value)
    return session
