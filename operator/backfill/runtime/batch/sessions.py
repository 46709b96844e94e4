"""Spans of queries with session windows. A session's length is unknown before it is read. So a span
assumes a length, reads as far as that, and observes how long the sessions are on which its
results depend. One that continues past what was read looks longer than was assumed, since its gap
is read as well; then the span is computed again, and reads further.

It holds for sessions of sessions, too: what is read is longer by the assumed length for each
level, so that the sessions of the level below are right wherever the next one needs them.

Where joins or windows follow, a result is closed if no session on which it depends may go on after
the last row that the plan reads. A span assumes that none that may is long, and observes that, too.
"""

import itertools
import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from py4j.java_gateway import JavaObject
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from backfill.api.quantities import format_time, from_us
from backfill.planning.plan import PlanHeader
from backfill.runtime.batch.arrival_lags import Arrives, StepBounds
from backfill.runtime.batch.rebind_plan import Above
from backfill.runtime.batch.spans import (
    LookAround,
    Span,
    closed_until_us,
    reads_of,
    spans_of_time,
    stretch_of,
    with_strips,
)
from backfill.runtime.batch.time_reach import Bounded, Reach, Sessions
from backfill.runtime.catalyst import (
    Catalyst,
    analyzed,
    column_of,
    elements,
    frame_of,
    observed,
    observing,
    type_of,
)
from backfill.runtime.queries.logical_plan import session_window
from backfill.runtime.queries.tracker import OpenResults
from backfill.runtime.source.timestamp_columns import microseconds

_FIRST_GAPS = 4
"""How many gaps long the first span assumes sessions to be, at most."""
_SPARE = 1.5
"""How much longer than in the span before sessions may be without computing a span twice."""
_LONGEST, _LONGEST_OPEN, _OPEN, _LAST_END = "longest", "longest_open", "open", "last_end"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SessionQuery:
    """What is known of a query with session windows before it is run."""

    name: str
    header: PlanHeader
    found: Bounded
    """What its results depend on."""
    arrives: Mapping[str, Arrives]
    """By source when its rows have arrived."""
    bounds: Mapping[str, StepBounds]
    """By source the arrival times of its steps."""

    @property
    def first_us(self) -> int:
        """The length of sessions that the first span assumes, in microseconds from start to end."""
        return _FIRST_GAPS * (self.found.session_gap_us or 0)

    def around(self, session_us: int) -> dict[str, LookAround]:
        """What results depend on if no session that matters is longer."""
        return {
            source: self._arrived(source, reach.with_sessions(session_us))
            for source, reach in self.found.sources.items()
        }

    def spans(self, committed: int) -> list[Span]:
        """The spans from a step on, as far as is known beforehand."""
        closed_us = self.closed_us(self.first_us)
        if self.sessions_closed_us is not None:
            closed_us = min(closed_us, self.sessions_closed_us)
        around = self.around(self.first_us)
        spans = spans_of_time(self.header, around, self.bounds, committed, closed_us)
        spans = with_strips(spans, around, self.bounds)
        return [self.widened(span, self.first_us) for span in spans]

    def closed_us(self, open_us: int) -> int:
        """The time from which results may still be open, assuming that no unfinished session that
        matters is longer than ``open_us``. It is the end of the window where the sessions
        themselves show which results are open.
        """
        if self.sessions_closed_us is not None:
            return self.header.inputs.end_us
        return closed_until_us(self.header, self.around(open_us).values())

    @property
    def sessions_closed_us(self) -> int | None:
        """The time by which a session must end to be closed. None where a result is made of several
        sessions, since then no single session shows whether the result is closed.
        """
        sessions = self.found.sessions[0]
        return self.ended_us(sessions) if sessions.alone else None

    def ended_us(self, sessions: Sessions) -> int | None:
        """The time by which sessions of an aggregation must end so that no later row can extend
        them. None where no such time is known.
        """
        closed_by = sessions.closed_by
        if closed_by is None or any(reach.sessions_ahead for reach in closed_by.values()):
            return None
        after = (self._arrived(source, reach).after_us for source, reach in closed_by.items())
        return self.header.inputs.read_end_us - max(after)

    def widened(self, span: Span, session_us: int, open_us: int | None = None) -> Span:
        """The same span, reading far enough for sessions of a given length.

        It gives the results that are closed if no unfinished session is longer than ``open_us``;
        by default, this is the length that the first span assumes. The last span also reads the
        ends of all sessions that are left open, wherever they began, because it counts them.
        """
        assert span.stretch is not None  # no query with state is row-wise
        start_us, end_us = span.stretch.start_us, span.stretch.open_us
        counts_open = self.sessions_closed_us is not None and span.steps.stop == self.header.steps
        read_us = self.header.inputs.read_end_us if counts_open else end_us
        return replace(
            span,
            reads=reads_of(
                start_us - span.before_us,
                max(read_us, end_us + span.after_us),
                self.around(session_us),
                self.bounds,
            ),
            stretch=stretch_of(
                start_us, end_us, self.closed_us(self.first_us if open_us is None else open_us)
            ),
            session_us=session_us,
        )

    def _arrived(self, source: str, reach: Reach) -> LookAround:
        return LookAround(reach.back_us, reach.ahead_us, self.arrives[source])


class SessionWatch:
    """How long the sessions of a query's spans are. Spans may be at work at the same time."""

    def __init__(self, query: SessionQuery, spark: SparkSession):
        self._query = query
        self._spark = spark
        self._lock = threading.Lock()
        self._next_us = query.first_us
        self._again: dict[int, tuple[int, int | None]] = {}
        """By first step the lengths of sessions, and of those that may go on, for spans that have
        to be computed again.
        """
        self._observing: dict[str, DataFrame] = {}
        """By the name of what is observed the sessions, for spans that are at work."""
        self._longest_open_us = query.first_us

    def reads(self, span: Span) -> Span:
        """A span with what it should read by what is known now."""
        with self._lock:
            lengths = self._again.get(span.steps.start, (self._next_us, None))
        return self._query.widened(span, *lengths)

    @property
    def around(self) -> dict[str, LookAround]:
        """What results depend on where sessions are as long as the longest one that may go on and
        because of which a span has left results open.
        """
        with self._lock:
            return self._query.around(self._longest_open_us)

    def above(self, span: Span) -> Above:
        """Observes the sessions of a span's plan, and leaves open ones out."""
        counter = itertools.count()

        def watch(node: JavaObject, bound: JavaObject) -> JavaObject:
            window = session_window(node)
            return bound if window is None else self._watched(bound, window, next(counter), span)

        return watch

    def enough(self, span: Span, seen: Mapping[str, Mapping[str, Any]]) -> bool:
        """Whether a span that was computed has read all that its results depend on, and gives none
        that may change.
        """
        metrics = [self._metrics_of(number, span, seen) for number in self._numbers]
        longest_us, open_us = (
            max((each[name] for each in metrics if each.get(name) is not None), default=0)
            for name in (_LONGEST, _LONGEST_OPEN)
        )
        wider_us = 2 * longest_us
        # where there is nothing more to read, the results are those of all rows
        read = (
            longest_us <= span.session_us or self._query.widened(span, wider_us).reads == span.reads
        )
        assert span.stretch is not None  # no query with state is row-wise
        closed_us = max(self._query.closed_us(open_us), span.stretch.start_us)
        span_us = span.stretch.open_us - span.stretch.start_us
        with self._lock:
            if read and span.stretch.end_us <= closed_us:
                next_us = min(int(_SPARE * longest_us), span_us)
                self._next_us = max(self._query.first_us, next_us)
                if span.stretch.end_us < span.stretch.open_us:
                    self._longest_open_us = max(self._longest_open_us, open_us)
                return True
            again = (max(longest_us, span.session_us), open_us) if read else (wider_us, None)
            self._again[span.steps.start] = again
        _log.info(
            "the query %s: steps %s to %s are computed again, because a session is longer"
            " than %s: %s",
            self._query.name,
            span.steps.start + 1,
            span.steps.stop,
            timedelta(microseconds=self._query.first_us if read else span.session_us),
            (
                f"results from {format_time(from_us(closed_us))} on are left open, because the"
                " session may continue"
            )
            if read
            else f"rows are read for sessions of up to {timedelta(microseconds=wider_us)}",
        )
        return False

    def _metrics_of(
        self, number: int, span: Span, seen: Mapping[str, Mapping[str, Any]]
    ) -> Mapping[str, Any]:
        """What was observed of an aggregation's sessions. Spark may find that their rows make no
        difference, as where they are joined with none, and then observes nothing: with more rows
        they could.
        """
        name = _name(number, span)
        with self._lock:
            sessions = self._observing.pop(name)
        if name not in seen:
            counted = sessions.groupBy().count()
            counted.collect()
            seen = observed(counted)
        return seen.get(name, {})

    def open_results(self, last: Span, seen: Mapping[str, Mapping[str, Any]]) -> OpenResults | None:
        """What the last span leaves open, by its sessions; None where they do not say."""
        closed_us = self._query.sessions_closed_us
        if closed_us is None:
            return None
        (number,) = self._numbers
        metrics = seen.get(_name(number, last), {})
        count, last_us = metrics.get(_OPEN) or 0, metrics.get(_LAST_END)
        if not count or last_us is None:
            return OpenResults(count=0, needed_drain_seconds=0.0)
        inputs = self._query.header.inputs
        drain_us = last_us - closed_us + inputs.read_end_us - inputs.end_us
        return OpenResults(count=count, needed_drain_seconds=max(drain_us, 0) / 1e6)

    @property
    def _numbers(self) -> range:
        return range(len(self._query.found.sessions))

    def _watched(
        self, bound: JavaObject, window: JavaObject, number: int, span: Span
    ) -> JavaObject:
        """A rebound aggregation that observes how long its sessions are."""
        spark, sessions = self._spark, self._query.found.sessions[number]
        given = [column_of(spark, each) for each in elements(bound.output())]
        plan = with_sessions(spark, bound, window)
        session = column_of(spark, elements(plan.output())[-1])
        name, metrics = _name(number, span), self._metrics(session, type_of(window), sessions, span)
        rows = frame_of(spark, observing(spark, plan, name, *metrics))
        with self._lock:
            self._observing[name] = rows
        if (closed_us := self._query.sessions_closed_us) is not None:
            rows = rows.where(session["end"] <= _moment(closed_us))
        return analyzed(rows.select(*given))

    def _metrics(
        self, session: Column, kind: DataType, sessions: Sessions, span: Span
    ) -> list[Column]:
        assert isinstance(kind, StructType)
        # timestamps would be subtracted by the clocks of the session's zone, which are set back
        start_us, end_us = (microseconds(session[each.name], each.dataType) for each in kind)
        length = end_us - start_us
        assert span.stretch is not None  # no query with state is row-wise
        if sessions.edge is None:
            return [F.max(length).alias(each) for each in (_LONGEST, _LONGEST_OPEN)]
        edge, inputs = session[sessions.edge], self._query.header.inputs

        def between(start_us: int, end_us: int) -> Column:
            """Whether results from one time to before the other may depend on it."""
            return (edge >= _moment(start_us - sessions.back_us)) & (
                edge < _moment(end_us + sessions.ahead_us)
            )

        matters = between(
            span.stretch.start_us - span.before_us, span.stretch.open_us + span.after_us
        )
        longest = F.max(F.when(matters, length)).alias(_LONGEST)
        ended_us = self._query.ended_us(sessions)
        goes_on = F.lit(True) if ended_us is None else session["end"] > _moment(ended_us)
        if not sessions.alone:
            return [longest, F.max(F.when(matters & goes_on, length)).alias(_LONGEST_OPEN)]
        left_open = between(inputs.start_us, inputs.end_us) & goes_on
        return [
            longest,
            F.count_if(left_open).alias(_OPEN),
            F.max(F.when(left_open, end_us)).alias(_LAST_END),
        ]


def with_sessions(spark: SparkSession, bound: JavaObject, window: JavaObject) -> JavaObject:
    """A rebound aggregation that also gives its session windows, as the last column."""
    # without the mark of a session window, which would make an aggregation above one, too
    unmarked = column_of(spark, window).alias("session", metadata={})
    named = analyzed(frame_of(spark, bound.child()).select(unmarked)).projectList()
    return analyzed(frame_of(spark, Catalyst(spark).aggregate_with(bound, elements(named))))


def _name(number: int, span: Span) -> str:
    """Another one for each span, of which two are computed by one job where they are compared."""
    return f"sessions {number} from step {span.steps.start}"


def _moment(time_us: int) -> Column:
    return F.timestamp_micros(F.lit(time_us))
