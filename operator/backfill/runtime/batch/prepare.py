"""Prepares a query of the application to be run by spans."""

import logging
import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame, SparkSession

from backfill.api.output import Output
from backfill.outputs.staging import Batch, Staged
from backfill.planning.plan import PlanHeader, read_step_bounds
from backfill.runtime.batch.arrivals import Expected, Late, SpanArrivals, hidden_arrivals
from backfill.runtime.batch.leaves import Leaves
from backfill.runtime.batch.overlap import OverlapCheck, compared_columns
from backfill.runtime.batch.reach import Bounded
from backfill.runtime.batch.rebind import Above, rebind
from backfill.runtime.batch.runner import Computed, SpanRunner
from backfill.runtime.batch.sessions import SessionQuery, SessionWatch
from backfill.runtime.batch.spans import (
    Around,
    Span,
    closed_until_us,
    row_wise_spans,
    spans_of_time,
    with_strips,
)
from backfill.runtime.batch.straight_json import without_json
from backfill.runtime.batch.writing import batch_of, write
from backfill.runtime.catalyst import analyzed, copied, kind_of, nodes_of
from backfill.runtime.queries.logical_plan import columns_used_by
from backfill.runtime.queries.run import Run
from backfill.runtime.queries.tracker import OpenResults, Traits
from backfill.runtime.sink import SinkSettings, SinkWriter

_log = logging.getLogger(__name__)

_NEVER_US = 2**62
_AT_ONCE = {"Cross", "Inner", "LeftSemi"}
"""Joins whose results no further row can change."""


@dataclass(frozen=True, slots=True)
class SpanOutput:
    """Where the rows of a query go."""

    query: str
    """The query's name."""
    output: Output
    sink: SinkSettings
    writer: SinkWriter
    staged: Staged | None
    """What earlier attempts have staged; None if nothing."""

    @classmethod
    def of(cls, query: str, output: Output, sink: SinkSettings) -> "SpanOutput":
        """With what is staged now.

        Raises:
            BadInput: the branch holds something else.
        """
        writer = SinkWriter(sink)
        return cls(query, output, sink, writer, writer.staged())


def prepare_spans(
    run: Run,
    frame: DataFrame,
    target: SpanOutput,
    header: PlanHeader,
    found: Bounded,
    *,
    used: Mapping[str, set[str]],
) -> SpanRunner:
    """What runs the query of a streaming DataFrame, from where its branch ends; not begun.

    Args:
        run: what the driver shares.
        frame: what the query writes.
        target: where it writes.
        header: the plan's.
        found: what its results depend on.
        used: the columns that it uses of each source that it reads.
    """
    committed = 0 if target.staged is None else target.staged.batch_id + 1
    plan = analyzed(frame)
    spans, open_results, sessions = _spans(run, plan, target, header, found, committed=committed)
    expected = expected_arrivals(found, header)
    run.tracker.add(
        target.query,
        target.output.name,
        dict.fromkeys(sorted(used), committed),
        traits(found, header),
        count_rows=run.tracker.planned_rows,
    )
    if expected is not None:
        for sources, node in hidden_arrivals(plan).items():
            _log.warning(
                "whether rows of %s arrive when they should is not known: they pass %s before their"
                " watermark",
                sources,
                node,
            )
    work = _Work(
        run,
        frame,
        plan,
        target,
        spans=spans,
        open_results=open_results,
        expected=expected,
        sessions=sessions,
    )
    return SpanRunner(run, target.query, spans, work, planned_rows=run.tracker.planned_rows)


def traits(found: Bounded, header: PlanHeader) -> Traits:
    """What is known of a query that is run by spans."""
    return Traits(
        execution="Batch",
        look_back_seconds=_whole_seconds(each.back_us for each in found.sources.values()),
        look_ahead_seconds=_whole_seconds(
            each.after_us for each in _around(found, header).values()
        ),
    )


def _whole_seconds(lengths_us: Iterable[int]) -> int:
    """The longest one, rounded up: without its end it is a microsecond less."""
    return math.ceil(max(0, *lengths_us) / 1e6)


def _around(found: Bounded, header: PlanHeader) -> dict[str, Around]:
    """Which rows of each source results depend on, by arrival."""
    arrival = header.inputs.arrival_columns
    return {
        source: Around.of(reach, arrival[source], header.inputs.allowed_lateness_us)
        for source, reach in found.sources.items()
    }


def _spans(
    run: Run,
    plan: JavaObject,
    target: SpanOutput,
    header: PlanHeader,
    found: Bounded,
    *,
    committed: int,
) -> tuple[list[Span], OpenResults, SessionQuery | None]:
    """The spans from a step on, and what is known beforehand of what they leave open and of their
    session windows.
    """
    none = OpenResults(count=0, needed_drain_seconds=0.0)
    if found.stateless:
        return row_wise_spans(header, found.sources, committed), none, None
    workspace = run.settings.plan_workspace
    bounds = {source: read_step_bounds(workspace, source) for source in found.sources}
    if found.sessions:
        query = SessionQuery(target.query, header, found, header.inputs.arrival_columns, bounds)
        return query.spans(committed), _not_reported(query.around(query.first_us)), query
    around = _around(found, header)
    end_us = header.inputs.end_us
    closed_us = end_us if _gives_at_once(plan) else closed_until_us(header, around.values())
    spans = spans_of_time(header, around, bounds, committed, closed_us)
    spans = with_strips(spans, around, bounds)
    return spans, none if closed_us == end_us else _not_reported(around), None


def _not_reported(around: Mapping[str, Around]) -> OpenResults:
    """What is known of the results that are left open before the last span."""
    needed_us = max(each.after_us for each in around.values())
    return OpenResults(
        needed_drain_seconds=needed_us / 1e6, unknown="the driver ended before it reported them"
    )


def expected_arrivals(found: Bounded, header: PlanHeader) -> Expected | None:
    """When rows must arrive; None where they may arrive at any time, as each result depends on one
    row, or on rows by their arrival.
    """
    arrival, reaches = header.inputs.arrival_columns, found.sources
    if found.stateless or all(reaches[name].event_column == arrival[name] for name in reaches):
        return None
    inputs = header.inputs
    ahead_us = max(reach.ahead_us for reach in reaches.values())
    return Expected(
        inputs.allowed_lateness_us,
        delay_us=max(reach.delay_us for reach in reaches.values()),
        back_us=max(reach.back_us for reach in reaches.values()),
        ahead_us=ahead_us,
        # sessions may be of any length
        until_us=_NEVER_US if found.sessions else inputs.end_us + ahead_us,
    )


def _gives_at_once(plan: JavaObject) -> bool:
    """Whether no result can change by more rows, so that a stream gives it when its rows are there
    and nothing is ever open.
    """
    return not any(
        node.isStreaming()
        and (
            kind_of(node) in {"Aggregate", "Distinct"}
            or (kind_of(node) == "Join" and node.joinType().toString() not in _AT_ONCE)
        )
        for node in nodes_of(plan)
    )


class _Work:
    """The jobs of one query."""

    def __init__(
        self,
        run: Run,
        frame: DataFrame,
        plan: JavaObject,
        target: SpanOutput,
        *,
        spans: Sequence[Span],
        open_results: OpenResults,
        expected: Expected | None,
        sessions: SessionQuery | None,
    ):
        self._target = target
        self._sink = target.writer
        self._session = _session_of(frame)
        self._plan = without_json(plan, self._session)
        used = columns_used_by(self._plan, self._session)
        self._used = {source: frozenset(columns) for source, columns in used.items()}
        self._leaves = Leaves(self._session, run.settings)
        self._steps = run.tracker.steps
        self._open_results = open_results
        self._lock = threading.Lock()
        self._rows_open = 0
        self._watch = None if sessions is None else SessionWatch(sessions, self._session)
        self._expected = expected
        self._overlap = _overlap_check(self._session, self._plan, target, spans, self._rows)

    def reads(self, span: Span) -> Span:
        """The same span, with all that it should read by what is known of its sessions."""
        return span if self._watch is None else self._watch.reads(span)

    def write(self, span: Span) -> Computed | None:
        """Computes a span's results and writes them into files. None where a session is longer than
        was thought: nothing refers to the files.
        """
        self._session.sparkContext.setJobDescription(self._in_words(span))
        sink = SinkWriter(self._target.sink, span.stretch)
        strips = self._overlap.strips(span)
        arrivals = (
            None if self._expected is None else SpanArrivals(self._expected, self._session, strips)
        )
        rows = self._overlap.observe(span, self._rows(span, arrivals))
        written, seen = write(rows, sink)
        if self._watch is not None and not self._watch.enough(span, seen):
            return None
        late = arrivals.late(seen) if arrivals else Late(0, dict.fromkeys(strips, False))
        self._overlap.compare(span, seen, late.strips)
        self._count_open(span, sum(each.rows_open for each in written), seen)
        return Computed(batch_of(self._target.query, span, sink.spec_id, written), late.rows)

    def commit(self, batch: Batch) -> None:
        """Adds the files to the branch, unless they are there."""
        self._sink.stage(batch)

    @property
    def open_results(self) -> OpenResults:
        """What the last span left open."""
        return self._open_results

    def _count_open(self, span: Span, rows: int, seen: Mapping[str, Mapping[str, Any]]) -> None:
        """With the results that a span leaves open, all those that are there and were written."""
        stretch, watch = span.stretch, self._watch
        if stretch is None:
            return
        if watch is not None and span.steps.stop == self._steps:
            if (found := watch.open_results(seen)) is not None:
                self._open_results = found
                return
        elif stretch.end_us == stretch.open_us:
            return
        with self._lock:
            self._rows_open += rows
            self._open_results = OpenResults(
                count=self._rows_open,
                needed_drain_seconds=(
                    self._open_results.needed_drain_seconds if self._rows_open else 0.0
                ),
            )

    def _rows(self, span: Span, arrivals: SpanArrivals | None = None) -> DataFrame:
        def leaf(source: str, topic: str | None) -> DataFrame:
            steps, columns = span.reads[source], self._used[source]
            if arrivals is None:
                return self._leaves.frame(source, steps, topic, columns)
            return self._leaves.frame_with_arrivals(source, steps, topic, columns, span.steps)

        above: list[Above] = [] if arrivals is None else [arrivals.above]
        if self._watch is not None:
            above.append(self._watch.above(span))
        return rebind(
            self._plan,
            self._session,
            leaf,
            lambda node, bound: reduce(lambda plan, each: each(node, plan), above, bound),
            with_arrival=arrivals is not None,
        )

    def _in_words(self, span: Span) -> str:
        """For Spark's own screens."""
        query, steps = self._target.query, span.steps
        return f"{query}: steps {steps.start + 1} to {steps.stop} of {self._steps}"


def _overlap_check(
    session: SparkSession,
    plan: JavaObject,
    target: SpanOutput,
    spans: Sequence[Span],
    compute: Callable[[Span], DataFrame],
) -> OverlapCheck:
    column = target.output.timestamp_column
    meet = column is not None and any(span.strip_us for span in spans)
    compared = compared_columns(session, plan, column) if column and meet else []
    return OverlapCheck(target.query, spans, column or "", compared, compute)


def _session_of(frame: DataFrame) -> SparkSession:
    """A copy of the session in which the query was defined, as a streaming query takes one: what
    the program sets later does not change it.
    """
    return copied(frame.sparkSession)
