"""Counts what the queries of a driver have committed, and how far ahead of the global watermark
they have read. Does not use Spark.
"""

import logging
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from backfill.api.base import printable
from backfill.api.quantities import from_us, to_us
from backfill.api.status import (
    MOST_REASON_CHARACTERS,
    MOST_WARNING_CHARACTERS,
    ChangingMode,
    HowRun,
)
from backfill.planning.plan import PlanHeader
from backfill.protocol.split_assignment import QueryProgress, SourceProgress, SplitAssignmentStatus

_log = logging.getLogger(__name__)

RowCounter = Callable[[str, int], int]
"""Counts the rows of one step of a source by reading them."""


@dataclass(frozen=True, slots=True)
class ReportedBatch:
    """A committed micro-batch, as its query has reported it, or a span of steps."""

    query: str
    read_from_us: int
    """When it began: it has read nothing before."""
    ended_us: int
    end: int
    """The step up to which it has read all sources."""
    rows: Mapping[str, int]
    """For each source, the number of rows that were read."""
    newest_us: int | None = None
    """The greatest timestamp that was read."""
    late_rows: int = 0
    arrived_late: int = 0
    """For a span, those rows of its steps that a stream would certainly have dropped."""
    first: int | None = None
    """The first step of a span; None for a micro-batch, which is one step."""


@dataclass(frozen=True, slots=True)
class OpenResults:
    """Results of the window that a query's state holds after its flush."""

    count: int | None = None
    """Number of results; None if it is unknown."""
    first_us: int | None = None
    """Time of the earliest result."""
    needed_drain_seconds: float | None = None
    """A drain that is longer than this would have closed them; None if it is unknown."""
    unknown: str = ""
    """Why the number is unknown."""


@dataclass(frozen=True, slots=True)
class Traits:
    """What is known of a query by its logical plan when it starts."""

    by_clock: str = ""
    """Where it compares with the current time; empty if nowhere."""
    execution: HowRun | None = None
    """How it is run."""
    reason: str = ""
    """Why it is run as a stream although it need not be."""
    output_mode: ChangingMode | None = None
    """Its output mode, if it is a stream that changes rows it has written."""
    look_back_seconds: float | None = None
    """How far before its time a result depends on rows; None if that is unknown."""
    look_ahead_seconds: float | None = None
    """How long after its time rows may arrive that a result depends on or, in a stream, that close
    it; None if that is unknown.
    """
    counted_by_spark: bool = True
    """Whether the rows that Spark observes are those of each step, once."""


@dataclass(slots=True)
class _Query:
    name: str
    sources: dict[str, SourceProgress]
    late_rows: int
    arrived_late: int
    traits: Traits
    warnings: dict[str, None] = field(default_factory=dict)
    """What may be wrong in its result, each once."""
    outputs: tuple[str, ...] = ()
    open_results: OpenResults = OpenResults()

    def progress(self) -> tuple[QueryProgress, ...]:
        """One for each output that it writes; rows that were late count once."""
        first = self._progress(self.outputs[0] if self.outputs else None)
        others = (
            self._progress(output).model_copy(update={"late_rows": 0, "arrived_late": 0})
            for output in self.outputs[1:]
        )
        return (first, *others)

    def _progress(self, output: str | None) -> QueryProgress:
        found = self.open_results
        return QueryProgress(
            name=self.name,
            output=output,
            sources=tuple(self.sources.values()),
            late_rows=self.late_rows,
            arrived_late=self.arrived_late,
            open_at_end=found.count,
            open_from=None if found.first_us is None else from_us(found.first_us),
            needed_drain_seconds=found.needed_drain_seconds,
            open_unknown=found.unknown,
            by_clock=self.traits.by_clock,
            warnings=printable("; ".join(self.warnings))[:MOST_WARNING_CHARACTERS],
            execution=self.traits.execution,
            execution_reason=printable(self.traits.reason)[:MOST_REASON_CHARACTERS],
            output_mode=self.traits.output_mode,
            look_back_seconds=self.traits.look_back_seconds,
            look_ahead_seconds=self.traits.look_ahead_seconds,
        )


@dataclass(slots=True)
class _Watermarks:
    """The global watermark over time, as far as this driver knows it."""

    times_us: list[int] = field(default_factory=list)
    values_us: list[int] = field(default_factory=list)

    def set(self, at_us: int, value_us: int) -> None:
        if not self.values_us or value_us != self.values_us[-1]:
            self.times_us.append(at_us)
            self.values_us.append(value_us)

    def at(self, time_us: int) -> int:
        return self.values_us[max(bisect_right(self.times_us, time_us) - 1, 0)]


class Tracker:
    """Counts committed batches. A batch that is reported twice counts once. Steps whose report was
    lost are counted by reading them.
    """

    def __init__(
        self,
        header: PlanHeader,
        sources: Iterable[str],
        count_rows: RowCounter,
        clock_us: Callable[[], int],
        before: SplitAssignmentStatus | None = None,
    ):
        """``before`` is the last report of an earlier attempt on the same checkpoints."""
        self._header = header
        self._unread = set(sources)
        self.in_turn = False
        """Whether sources that no query reads yet wait for queries that end, and hold nothing."""
        self._count_rows = count_rows
        self._clock_us = clock_us
        self.before = before.queries if before else ()
        self._before = list(self.before)
        self._queries: dict[str, _Query] = {}
        self._watermarks = _Watermarks()
        self._note_watermark()
        self._began: dict[tuple[str, int], int] = {}
        """By query and step, when it began to read it."""
        self._busy_until_us = 0
        self._busy_us = 0
        self._misalignment_seconds = before.max_observed_misalignment_seconds if before else None
        self._lock = threading.Lock()

    def add(
        self,
        name: str,
        output: str,
        committed: Mapping[str, int],
        traits: Traits | None = None,
    ) -> None:
        """Adds a query that has committed ``committed`` steps of its sources by its checkpoint or
        its branch. ``traits`` are what its logical plan says.

        Rows that no earlier attempt has reported are counted by reading them; late rows cannot be
        counted.
        """
        before = self._leave(name)
        self._add(self._recounted(name, before, committed, traits), (output,))

    def add_function(
        self, name: str, committed: Mapping[str, int], traits: Traits, outputs: Iterable[str]
    ) -> None:
        """Adds a query with a function, which has written some outputs in earlier attempts.

        Spark counts rows as often as the function reads them, so those of all its steps are counted
        in their files.
        """
        before = self._leave(name)
        traits = replace(traits, counted_by_spark=False)
        self._add(self._recounted(name, before, committed, traits), outputs)

    def _leave(self, name: str) -> QueryProgress | None:
        """Leaves out reports of an earlier attempt on a query that has started again. Returns one
        of them.
        """
        found = next((each for each in self._before if each.name == name), None)
        self._before = [each for each in self._before if each.name != name]
        return found

    def wrote(self, query: str, output: str) -> None:
        """Records that the function of a query has staged rows of an output, or none of a batch."""
        with self._lock:
            found = self._queries[query]
            if output not in found.outputs:
                found.outputs = (*found.outputs, output)

    def _recounted(
        self,
        name: str,
        before: QueryProgress | None,
        committed: Mapping[str, int],
        traits: Traits | None,
    ) -> _Query:
        """A query that continues after what an earlier attempt has reported."""
        known = {source.name: source for source in before.sources} if before else {}
        query = _Query(
            name,
            {
                source: self._recount(known.get(source), source, steps)
                for source, steps in committed.items()
            },
            before.late_rows if before else 0,
            before.arrived_late if before else 0,
            traits or Traits(),
        )
        done = min(committed.values(), default=0) >= self._header.steps
        if done and before is not None and before.open_at_end is not None:
            query.open_results = OpenResults(
                before.open_at_end,
                None if before.open_from is None else to_us(before.open_from),
                before.needed_drain_seconds,
            )
        return query

    def _add(self, query: _Query, outputs: Iterable[str]) -> None:
        query.outputs = tuple(outputs)
        with self._lock:
            self._queries[query.name] = query
            self._unread -= set(query.sources)
            self._note_watermark()

    def begin(self, query: str, step: int) -> None:
        """Records that a stream begins to read a step now: its batch may have waited for it."""
        with self._lock:
            self._began[query, step] = self._clock_us()

    def commit(self, batch: ReportedBatch) -> None:
        """Records a micro-batch that a query has committed."""
        with self._lock:
            query = self._queries.get(batch.query)
            if query is None or all(
                batch.end <= source.committed for source in query.sources.values()
            ):
                return
            began_us = self._began.pop((batch.query, batch.end - 1), None)
            if began_us is not None:
                batch = replace(batch, read_from_us=began_us)
            if batch.newest_us is not None:
                ahead_us = batch.newest_us - self._watermarks.at(batch.read_from_us)
                self._misalignment_seconds = max(self._misalignment_seconds or 0.0, ahead_us / 1e6)
            for name, source in query.sources.items():
                query.sources[name] = self._advance(query, source, batch)
            query.late_rows += batch.late_rows
            query.arrived_late += batch.arrived_late
            self._busy_us += max(batch.ended_us - max(batch.read_from_us, self._busy_until_us), 0)
            self._busy_until_us = max(self._busy_until_us, batch.ended_us)
            self._note_watermark()

    def catch_up(self, name: str, committed: int) -> None:
        """Records the number of steps that a query has committed by its checkpoint,
        whatever it has reported.

        The rows of the other steps are counted by reading them; late rows cannot be counted.
        """
        with self._lock:
            query = self._queries[name]
            known = {
                source: progress
                for source, progress in query.sources.items()
                if progress.committed < committed
            }
        found = {
            source: self._recount(progress, source, committed) for source, progress in known.items()
        }
        with self._lock:
            for source, progress in found.items():
                # otherwise it was reported in the meantime
                if query.sources[source] == known[source]:
                    _log.warning(
                        "the query %s has committed %s steps of %s without a report",
                        name,
                        committed,
                        source,
                    )
                    query.sources[source] = progress
            self._note_watermark()

    def record_open_results(self, query: str, found: OpenResults) -> None:
        """Records the open results of a query after its flush. What an earlier attempt has found
        stays if this one knows less: nothing was read in between.
        """
        with self._lock:
            known = self._queries[query].open_results
            same = found.count == known.count and found.needed_drain_seconds is None
            if known.count is None or not (found.count is None or same):
                self._queries[query].open_results = found

    def record_look_ahead(self, query: str, seconds: float) -> None:
        """Records how long after a result's time the rows that it depends on may arrive, once that
        is known.
        """
        with self._lock:
            found = self._queries[query]
            found.traits = replace(found.traits, look_ahead_seconds=seconds)

    def warn(self, query: str, warnings: Iterable[str]) -> None:
        """Reports what may be wrong in the query's result without being noticed."""
        with self._lock:
            known = self._queries[query].warnings
            new = [each for each in warnings if each not in known]
            known.update(dict.fromkeys(new))
        for each in new:
            _log.warning("the query %s: %s", query, each)

    def all_reached(self, step: int) -> bool:
        """Whether every query has committed all its sources up to this offset."""
        return all(self.reached(name, step) for name in tuple(self._queries))

    def reached(self, query: str, step: int) -> bool:
        """Whether a query has committed all its sources up to this offset."""
        with self._lock:
            sources = self._queries[query].sources.values()
            return all(source.committed >= step for source in sources)

    @property
    def slowest(self) -> int:
        """Number of steps that every stream has committed of all its sources; zero before the first
        one.
        """
        with self._lock:
            committed = (
                source.committed
                for query in self._queries.values()
                if query.traits.execution != "Batch"
                for source in query.sources.values()
            )
            return min(committed, default=0)

    @property
    def steps(self) -> int:
        """Number of steps of the plan."""
        return self._header.steps

    @property
    def flushed(self) -> int:
        """The offset after the flush, with which a query has committed everything."""
        return self.steps + 1

    @property
    def not_started_again(self) -> tuple[QueryProgress, ...]:
        """What an earlier attempt has reported of queries that have not started in this one."""
        with self._lock:
            return tuple(self._before)

    @property
    def unread_sources(self) -> set[str]:
        """Sources that no query reads so far."""
        with self._lock:
            return set(self._unread)

    @property
    def header(self) -> PlanHeader:
        """The header of the plan."""
        return self._header

    @property
    def queries(self) -> tuple[QueryProgress, ...]:
        """The progress of all queries, in the order in which they were added."""
        with self._lock:
            return tuple(
                progress for query in self._queries.values() for progress in query.progress()
            )

    @property
    def busy_seconds(self) -> float:
        """Seconds in which at least one query was processing a batch.

        Waiting for a release does not count.
        """
        with self._lock:
            return self._busy_us / 1e6

    @property
    def misalignment_seconds(self) -> float | None:
        """How far a row was ahead of the global watermark at most when its batch began, in this
        attempt and earlier ones; None before the first row.
        """
        with self._lock:
            return self._misalignment_seconds

    def _recount(self, known: SourceProgress | None, source: str, committed: int) -> SourceProgress:
        """Progress of a source. The checkpoint is authoritative for steps; the report is for rows,
        unless it is ahead of the checkpoint.
        """
        start = known if known and known.committed <= committed else SourceProgress(name=source)
        missing = range(start.committed, min(committed, self._header.steps))
        rows = start.rows + sum(self._count_rows(source, step) for step in missing)
        return SourceProgress(name=source, committed=committed, rows=rows)

    def _advance(
        self, query: _Query, source: SourceProgress, batch: ReportedBatch
    ) -> SourceProgress:
        end = batch.end
        first = end - 1 if batch.first is None else batch.first
        if not query.traits.counted_by_spark:
            first = end
        unreported = range(source.committed, min(first, self._header.steps))
        lost = sum(self._count_rows(source.name, step) for step in unreported)
        seen = batch.rows.get(source.name, 0) if query.traits.counted_by_spark else 0
        rows = source.rows + lost + seen
        return SourceProgress(name=source.name, committed=end, rows=rows)

    def _note_watermark(self) -> None:
        """Records the global watermark; the lock must be held. A source that no query reads yet
        holds it back; a finished one does not.
        """
        starts = self._header.step_starts_us
        running = (source for query in self._queries.values() for source in query.sources.values())
        expected = [source for query in self._before for source in query.sources]
        committed = [source.committed for source in (*running, *expected)]
        if not self.in_turn and self._unread - {source.name for source in expected}:
            committed.append(0)
        unfinished = [starts[step] for step in committed if step < len(starts)]
        if unfinished:
            self._watermarks.set(self._clock_us(), min(unfinished))
