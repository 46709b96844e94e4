"""The state of a run that the application, the agent
and the launcher share: its queries, and how it ends.
"""

import hashlib
import threading
import time
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from typing import Literal, Protocol

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from backfill.api.conditions import Reason
from backfill.api.errors import (
    BadInput,
    BatchResultsDiffer,
    Problem,
    ResultLost,
    UnsupportedProgram,
)
from backfill.protocol.hand_off_messages import HandOffReport, HandOffSource
from backfill.protocol.split_assignment import OutputComparison
from backfill.runtime.queries.application_threads import application_works
from backfill.runtime.queries.tracker import OpenResults, Tracker
from backfill.runtime.settings import RuntimeSettings

_IDLE_GRACE_SECONDS = 15.0
"""Seconds for which nothing may start although all threads of the application wait, because one of
its listeners could start a query.
"""
_NEXT_QUERY_SECONDS = 600.0
"""Seconds that a working application may take to start its next query."""
_LOOK_SECONDS = 0.2
"""How often a wait for a release looks whether the run is to stop: a signal handler may not notify
it.
"""
_SILENT_SECONDS = 30.0
"""Seconds without a new query after which the driver reports what it waits for."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run has ended."""

    phase: Literal["Finished", "Stopped", "Failed"]
    exit_status: int
    reason: str = ""
    message: str = ""
    error: Exception | None = None
    """The error that the application gets when it waits for its queries."""


FINISHED = Outcome("Finished", 0)
STOPPED = Outcome("Stopped", 0)


def failed(message: str, error: Exception | None = None) -> Outcome:
    """The application or Spark failed; another attempt may succeed."""
    return Outcome("Failed", 1, "ApplicationFailed", message, error)


def failed_for_good(reason: Reason, message: str, error: Exception) -> Outcome:
    """The tables are not suitable; another attempt would end in the same way."""
    return Outcome("Failed", 2, reason, message, error)


def unsupported(error: BadInput) -> Outcome:
    """The program does something that a backfill cannot redirect; another attempt would end in the
    same way, unless only a catalog did not answer.
    """
    if error.may_pass:
        return failed(str(error), error)
    differs = isinstance(error, BatchResultsDiffer)
    reason = Reason.BATCH_RESULTS_DIFFER if differs else Reason.UNSUPPORTED_PROGRAM
    return Outcome("Failed", 2, reason, str(error), error)


def result_lost(error: ResultLost) -> Outcome:
    """Only another Backfill can produce the result."""
    return failed_for_good(Reason.RESULT_LOST, str(error), error)


class Handle(Protocol):
    """What runs a query: Spark's own streaming query, or spans of steps."""

    @property
    def isActive(self) -> bool:
        """Whether it is at work or waits for work."""

    def stop(self) -> None:
        """Ends it."""

    def exception(self) -> StreamingQueryException | Exception | None:
        """Why it ended by itself."""


class BatchHandle(Handle, Protocol):
    """What runs a query by spans of steps."""

    @property
    def at_rest(self) -> bool:
        """Whether it has begun nothing that it has not committed, and begins nothing more."""

    @property
    def reads_ahead(self) -> int:
        """How many steps after the last committed one it wants to read."""

    @property
    def open_results(self) -> OpenResults:
        """What it could not close."""


@dataclass(frozen=True, slots=True)
class StartedQuery:
    """A query of the application that was redirected and started."""

    name: str
    output: str | None
    """The output that it writes; None if a function of the application writes its batches
    (``foreachBatch``), to whichever outputs.
    """
    checkpoint: str
    """Location of its checkpoint, as Spark expects it; empty for a query that is run by spans."""
    handle: Handle
    frame: DataFrame
    """What it writes, as the application has defined it."""
    view: StreamingQuery
    """The query as the application sees it."""
    batch: BatchHandle | None = None
    """The handle, where the query is run by spans."""
    again: Callable[[], Handle | None] | None = None
    """Starts the query once more from its checkpoint, after an error that may pass. Returns the new
    handle, or None if the query would not be the same. The view follows it.
    """
    restarts: int = 0
    """How often it was started once more."""
    changes: bool = False
    """Whether it is a stream that changes rows it has written, or batch jobs that write the final
    rows of a query in such an output mode.
    """
    finish: Callable[[], None] | None = None
    """What is left to do once all queries have committed everything."""

    @property
    def identity(self) -> str:
        """What distinguishes it from other queries, in every attempt."""
        return identity(self.name, self.output)


@dataclass(frozen=True, slots=True)
class ContinuedQuery:
    """A query of the application, as the live application continues it."""

    identity: str
    """What distinguishes it from other queries; see :attr:`StartedQuery.identity`."""
    name: str
    location: str
    """Where the program looks for its checkpoint; empty if it does not say so."""
    sources: tuple[str, ...]
    """Names of the sources that it reads."""
    writes_files: bool
    """Whether the program has it write files by itself."""
    stateful: bool
    """Whether it may keep state."""
    undivided: bool = False
    """Whether it has state in one partition, however many there are."""
    ends: bool = False
    """Whether its trigger ends it when it has read what Kafka holds."""
    repeats: bool = False
    """Whether it is not known to drop records that history has read and that are read again."""


def identity(name: str, output: str | None) -> str:
    """What distinguishes a query from others, in every attempt: its output; for a query with a
    function its name, which may have any characters, as text that is longer than an output's name.
    """
    return output or f"foreachBatch-{hashlib.sha256(name.encode()).hexdigest()}"


class ProgramRun:
    """A run of the application's program, shared by all threads of a driver: what it waits for, and
    how it ends. It ends once: the first outcome counts.
    """

    def __init__(
        self,
        settings: RuntimeSettings,
        clock: Callable[[], float] = time.monotonic,
        application_works: Callable[[Set[int]], bool] = application_works,
        idle_grace_seconds: float = _IDLE_GRACE_SECONDS,
        next_query_seconds: float = _NEXT_QUERY_SECONDS,
    ):
        """``application_works`` returns whether a thread of the application, except the given ones,
        is working. ``idle_grace_seconds`` is how long nothing may start although all of them wait,
        ``next_query_seconds`` how long a working one may take to start its next query.
        """
        self.settings = settings
        self.over = threading.Event()
        self.stopping = threading.Event()
        """Set if the run must stop after the released steps: no more queries may start."""
        self._lock = threading.RLock()
        self._left_out: list[StreamingQuery] = []
        self._outcome: Outcome | None = None
        self._clock = clock
        self._application_works = application_works
        self._idle_grace_seconds = idle_grace_seconds
        self._next_query_seconds = next_query_seconds
        self._changed_at = clock()
        self._waiting: set[int] = set()
        """Threads of the application that start nothing more before the run ends."""

    @property
    def outcome(self) -> Outcome | None:
        """How the run has ended; None before."""
        with self._lock:
            return self._outcome

    @property
    def began(self) -> bool:
        """Whether the application has started a query."""
        return bool(self.queries_left_out)

    @property
    def views(self) -> tuple[StreamingQuery, ...]:
        """The queries that the application has started, as it sees them."""
        return self.queries_left_out

    def left_out(self, query: StreamingQuery) -> None:
        """Records a query that the application has started and that is not run."""
        with self._lock:
            self._left_out.append(query)
            self._changed_at = self._clock()

    @property
    def queries_left_out(self) -> tuple[StreamingQuery, ...]:
        """The queries that the application started and that are not run."""
        with self._lock:
            return tuple(self._left_out)

    def end(self, outcome: Outcome) -> None:
        """Ends the run. Only the first outcome counts."""
        with self._lock:
            if self._outcome is None:
                self._outcome = outcome
        self.over.set()

    def refuse(self, error: BadInput) -> BadInput:
        """Ends the run because of what the program does, even if the application catches the error.
        Returns the error, to be raised.
        """
        self.end(unsupported(error))
        return error

    def lose(self, error: ResultLost) -> ResultLost:
        """Ends the run because what was staged cannot become the result any more. Returns the
        error, to be raised.
        """
        self.end(result_lost(error))
        return error

    def application_waits(self) -> None:
        """Records that this thread of the application waits for the end of the run, or has ended:
        it starts nothing more.
        """
        with self._lock:
            self._waiting.add(threading.get_ident())

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for the end of the run, as the application does.

        Returns False if the time is up before.

        Raises:
            Exception: the error that made the run fail.
        """
        if timeout is None:
            self.application_waits()
        if not self.over.wait(timeout):
            return False
        outcome = self.outcome
        if outcome is not None and outcome.error is not None:
            raise outcome.error
        return True

    @property
    def has_started_all(self) -> bool:
        """Whether the application cannot be expected to start more queries: all its threads wait,
        or there has been no new query for a long time. Before the first query, an application may
        take any time.
        """
        with self._lock:
            quiet, waiting = self._clock() - self._changed_at, set(self._waiting)
        if self.began and quiet >= self._next_query_seconds:
            return True
        wait = bool(waiting) and quiet >= self._idle_grace_seconds
        return wait and not self._application_works(waiting)


class Run(ProgramRun):
    """A run whose queries read history."""

    def __init__(
        self,
        settings: RuntimeSettings,
        tracker: Tracker,
        clock: Callable[[], float] = time.monotonic,
        application_works: Callable[[Set[int]], bool] = application_works,
    ):
        """``application_works`` returns whether a thread of the application,
        except the given ones, is working.
        """
        super().__init__(settings, clock, application_works)
        self.tracker = tracker
        self.unreplaced: list[Problem] = []
        """Problems of streams that no source replaces.
        They are fine if only queries that are not run read them.
        """
        self.kafka_options: dict[str, Mapping[str, str]] = {}
        """By source, the options with which the program reads it from Kafka."""
        self.streamed_tables: set[str] = set()
        """Sources whose tables the program streams from by itself."""
        self._destinations: dict[str, ContinuedQuery] = {}
        self._hand_off: HandOffReport | None = None
        self._comparing = ""
        self._comparisons: tuple[OutputComparison, ...] = ()
        self._released = 0
        self._news = threading.Condition()
        self._queries: dict[str, StartedQuery] = {}
        self._written: dict[str, str] = {}

    @property
    def queries(self) -> tuple[StartedQuery, ...]:
        """The queries started so far."""
        with self._lock:
            return tuple(self._queries.values())

    @property
    def began(self) -> bool:
        """Whether the application has started a query that is run."""
        return bool(self.queries)

    @property
    def views(self) -> tuple[StreamingQuery, ...]:
        """The queries that the application has started, as it sees them."""
        return (*(query.view for query in self.queries), *self.queries_left_out)

    def started(self, query: StartedQuery) -> None:
        """Records a query that the application has started, or that was started again."""
        with self._lock:
            self._queries[query.identity] = query
            if query.output is not None:
                self._written[query.output] = query.name
            self._changed_at = self._clock()

    def writes(self, query: str, output: str) -> str:
        """Records that the function of a query writes an output, unless another query does. Returns
        the query that does.
        """
        with self._lock:
            return self._written.setdefault(output, query)

    @property
    def writers(self) -> dict[str, str]:
        """By output, the query that writes it, as far as it is known."""
        with self._lock:
            return dict(self._written)

    @property
    def comparing(self) -> str:
        """Output whose result is being compared; otherwise empty."""
        return self._comparing

    @property
    def comparisons(self) -> tuple[OutputComparison, ...]:
        """Results that were compared."""
        return self._comparisons

    def compares(self, output: str) -> None:
        """Records that the result of an output is being compared."""
        self._comparing = output

    def compared(self, comparison: OutputComparison) -> None:
        """Records how a result compares with production or a reference."""
        with self._lock:
            self._comparing = ""
            self._comparisons = (*self._comparisons, comparison)

    @property
    def destinations(self) -> tuple[ContinuedQuery, ...]:
        """The queries whose state is handed over."""
        with self._lock:
            return tuple(self._destinations.values())

    def destined(self, query: ContinuedQuery) -> None:
        """Records where the state of a query goes."""
        with self._lock:
            self._destinations[query.identity] = query
            if query.repeats and self._hand_off is not None:
                names = tuple(each.name for each in self._destinations.values() if each.repeats)
                self._hand_off = self._hand_off.model_copy(update={"repeated_in": names})

    @property
    def hand_off(self) -> HandOffReport | None:
        """Where sources continue, and what was handed over; None before anything is known."""
        return self._hand_off

    def goes_on(self, source: HandOffSource) -> None:
        """Records where a source continues, as Kafka is before history is read."""
        with self._lock:
            before = self._hand_off or HandOffReport()
            others = tuple(each for each in before.sources if each.source != source.source)
            self._hand_off = before.model_copy(update={"sources": (*others, source)})

    def handed_over(self, report: HandOffReport) -> None:
        """Records that the state of all queries was handed over."""
        self._hand_off = report

    def release(self, released: int) -> None:
        """Lets this many steps be read."""
        with self._news:
            self._released = max(released, self._released)
            self._news.notify_all()

    def wait_for_release(self, steps: int) -> bool:
        """Waits until this many steps may be read. False if the run stops or ends before."""
        with self._news:
            while not (self.stopping.is_set() or self.over.is_set()):
                if self._released >= steps:
                    return True
                self._news.wait(_LOOK_SECONDS)
        return False

    def missing(self) -> list[Problem]:
        """Outputs that no query writes, and sources that no query reads.

        Where the application has a query with a function and has started nothing for some time, no
        output is missing: the function may write any of them, at any time or never.
        """
        with self._lock:
            written = set(self._written)
            quiet = self._clock() - self._changed_at >= self._idle_grace_seconds
            if quiet and any(query.output is None for query in self._queries.values()):
                written = {output.name for output in self.settings.outputs}
        outputs = [
            Problem(
                "spec.outputs",
                f"no query of the application writes the output {output.name}",
                "set this queryName for a query",
            )
            for output in self.settings.outputs
            if output.name not in written
        ]
        sources = [
            Problem(
                "spec.sources",
                f"no query of the application reads the source {name}",
                "correct its topic or table, or remove the source",
            )
            for name in sorted(self.tracker.unread_sources)
        ]
        return outputs + sources

    def overdue(self) -> UnsupportedProgram | None:
        """The error for missing queries, once the application cannot be expected to start them."""
        if not self.has_started_all:
            return None
        problems = self.missing()  # in this order: what a function may write is missing until then
        return UnsupportedProgram(problems) if problems else None

    @property
    def may_write_more(self) -> bool:
        """Whether nothing has written some output yet and the application may still start a query
        for it. A function that has not written an output does not take it before.
        """
        with self._lock:
            written = set(self._written)
        unwritten = any(output.name not in written for output in self.settings.outputs)
        return unwritten and not self.has_started_all

    @property
    def waits_for(self) -> str:
        """What the application has yet to start, if it has
        started nothing for some time; otherwise empty.
        """
        with self._lock:
            quiet = self._clock() - self._changed_at
        return (
            "; ".join(problem.message for problem in self.missing())
            if quiet >= _SILENT_SECONDS
            else ""
        )
