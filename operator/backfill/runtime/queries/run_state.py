"""The state of a run that the application, the agent
and the launcher share: its queries, and how it ends.
"""

import hashlib
import itertools
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
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
from backfill.api.output import PublishMode
from backfill.outputs.staging import Holds
from backfill.protocol.hand_off_messages import HandOffReport, HandOffSource
from backfill.protocol.split_assignment import FAILED_ON_ROWS, OutputComparison, OutputDelivery
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
it. As often, a wait for a query that ends looks whether it has.
"""
_TURN_SECONDS = 60.0
"""Seconds for which nothing may start while the application waits for a query that ends, before
the query is taken for one of several that run one after the other; or while it works, before it is
taken to have started all queries of the outputs that it writes. Threads of a pool may look as if
they were at work.
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


def failed_on_rows(message: str, error: Exception | None = None) -> Outcome:
    """The application cannot compute the rows it has read, and would fail again on the same ones.
    Which rows are read first may differ between attempts.
    """
    return Outcome("Failed", 1, FAILED_ON_ROWS, message, error)


def failed_for_good(reason: Reason, message: str, error: Exception | None = None) -> Outcome:
    """The tables or the program are not suitable; another attempt would end in the same way."""
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
class ProductionSink:
    """What the application does with the batches of a query whose rows are delivered."""

    called: str
    """The function or format, for messages."""
    call: Callable[[DataFrame, int], None]
    """Gives it the rows of a batch, with the number of the batch."""
    frame: DataFrame
    """What the query writes, as the application has defined it."""
    output_mode: str = "append"
    """Its output mode, in lower case."""


@dataclass(slots=True)
class OutputWrites:
    """How queries write an output, which all of them do in the same way."""

    place: str | None = None
    """The table, topic or path; None before they have written it."""
    records: bool | None = None
    """Whether rows become records of Kafka; None before."""
    holds: Holds | None = None
    """What the rows are; None before."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while a query checks and changes it."""


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


def not_started_again(query: str, output: str | None) -> Problem:
    """The problem of a query of an earlier attempt, whose rows would stay in the result."""
    where = f" for the output {output}" if output is not None else ""
    return Problem(
        "spec.outputs",
        f"an earlier attempt has run the query {query}{where}, but the program has not started a"
        " query of that name since",
        "give the program's queries names that are the same in every attempt (queryName), then"
        " delete the Backfill and create it again",
    )


def identity(name: str, output: str | None) -> str:
    """What distinguishes a query from others, in every attempt: its name, which may have any
    characters, as text that is longer than an output's name.
    """
    if name == output:
        return name
    return f"{output or 'foreachBatch'}-{hashlib.sha256(name.encode()).hexdigest()}"


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
        self._names: set[str] = set()
        """Of queries that are run or surveyed."""
        self._outcome: Outcome | None = None
        self._clock = clock
        self._application_works = application_works
        self._idle_grace_seconds = idle_grace_seconds
        self._next_query_seconds = next_query_seconds
        self._changed_at = clock()
        self._waiting: set[int] = set()
        """Threads of the application that start nothing more before the run ends."""
        self._awaiting: set[int] = set()
        """Threads of the application that wait for a query that ends, and may then start others."""
        self._starts_in_progress = 0
        self._awaited_at: float | None = None
        """When the last of these waits was over."""

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

    def unused_name(self, wanted: str) -> str:
        """A name that no other query has: the wanted one, or with a number. It is taken by that."""
        with self._lock:
            numbered = (f"{wanted}-{number}" for number in itertools.count(2))
            every = itertools.chain((wanted,), numbered)
            name = next(each for each in every if each not in self._names)
            self._names.add(name)
            return name

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

    def wait_for(self, ended: Callable[[], bool], timeout: float | None = None) -> bool:
        """Waits until a query has ended by itself, as the application does, which may then start
        the next one; or for the end of the run. Only that counts where queries go on with live
        traffic, so that none ends before.

        Returns False if the time is up before.

        Raises:
            Exception: the error that made the run fail.
        """
        if self.settings.hand_off is not None:
            return self.wait(timeout)
        thread, until = threading.get_ident(), None
        if timeout is not None:
            until = time.monotonic() + timeout
        with self._lock:
            self._awaiting.add(thread)
        try:
            while not ended():
                left = _LOOK_SECONDS if until is None else until - time.monotonic()
                if left <= 0:
                    return False
                if self.wait(min(left, _LOOK_SECONDS)):
                    break
            return True
        finally:
            with self._lock:
                self._awaiting.discard(thread)
                self._awaited_at = self._clock()

    @property
    def may_go_on(self) -> bool:
        """Whether the application has waited for a query that has ended, and may now start the next
        one.
        """
        with self._lock:
            awaited_at, waiting = self._awaited_at, set(self._waiting)
        if awaited_at is None or self._clock() - awaited_at >= self._next_query_seconds:
            return False
        return self._application_works(waiting)

    @contextmanager
    def starting(self) -> Iterator[None]:
        """While the application starts a query."""
        with self._lock:
            self._starts_in_progress += 1
        try:
            yield
        finally:
            with self._lock:
                self._starts_in_progress -= 1

    @property
    def may_start_more(self) -> bool:
        """Whether the application starts a query now, or has just started one and still works: the
        next one may write the same output.
        """
        with self._lock:
            quiet, waiting = self._clock() - self._changed_at, self._waiting | self._awaiting
            if self._starts_in_progress:
                return True
        return quiet < _TURN_SECONDS and self._application_works(waiting)

    @property
    def has_started_all(self) -> bool:
        """Whether the application cannot be expected to start more queries: all its threads wait,
        or there has been no new query for a long time. Before the first query, and while it waits
        for one that ends, an application may take any time.
        """
        with self._lock:
            since = max(self._changed_at, self._awaited_at or self._changed_at)
            quiet, waiting, awaiting = self._clock() - since, set(self._waiting), self._awaiting
            if awaiting:
                return False
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
        self._in_turn = False
        self._destinations: dict[str, ContinuedQuery] = {}
        self._hand_off: HandOffReport | None = None
        self._comparing = ""
        self._comparisons: tuple[OutputComparison, ...] = ()
        self._deliveries: dict[str, OutputDelivery] = {}
        self.sinks: dict[str, ProductionSink] = {}
        """By output whose rows are delivered, where they go."""
        self._released = 0
        self._released_to_streams = 0
        self._news = threading.Condition()
        self._queries: dict[str, StartedQuery] = {}
        self._written: dict[str, tuple[str, ...]] = {}
        self.output_writes: defaultdict[str, OutputWrites] = defaultdict(OutputWrites)
        """By output, how queries write it."""

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
            self._names.add(query.name)
            self._changed_at = self._clock()
        if query.output is not None:
            self.writes(query.name, query.output)

    def writes(self, query: str, output: str) -> tuple[str, ...]:
        """Records that a query writes an output. Returns the others that do."""
        with self._lock:
            known = self._written.get(output, ())
            self._written[output] = tuple(dict.fromkeys((*known, query)))
        return tuple(each for each in known if each != query)

    @property
    def writers(self) -> dict[str, tuple[str, ...]]:
        """By output, the queries that write it, as far as they are known."""
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
    def deliveries(self) -> tuple[OutputDelivery, ...]:
        """How far rows are delivered."""
        with self._lock:
            return tuple(self._deliveries.values())

    def delivered(self, delivery: OutputDelivery) -> None:
        """Records how far the rows of an output are delivered."""
        with self._lock:
            self._deliveries[delivery.output] = delivery

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
        """Lets this many steps be read by spans."""
        with self._news:
            self._released = max(released, self._released)
            self._news.notify_all()

    def release_to_streams(self, released: int) -> None:
        """Lets this many steps be read by streams. It is fewer than before if the next stream
        begins after others have ended.
        """
        with self._news:
            self._released_to_streams = released
            self._news.notify_all()

    def wait_for_step(self, step: int, timeout: float) -> bool:
        """Waits until a stream may read a step; the flush, if all steps may be read. False if the
        time is up before.
        """
        steps = self.tracker.steps
        with self._news:
            return self._news.wait_for(
                lambda: step <= steps and self._released_to_streams >= min(step + 1, steps), timeout
            )

    def wait_for_release(self, steps: int) -> bool:
        """Waits until this many steps may be read. False if the run stops or ends before."""
        with self._news:
            while not (self.stopping.is_set() or self.over.is_set()):
                if self._released >= steps:
                    return True
                self._news.wait(_LOOK_SECONDS)
        return False

    def missing(self) -> list[Problem]:
        """Outputs that no query writes, queries of an earlier attempt that have not started again,
        and sources that no query reads.

        Where the application has a query with a function and has started nothing for some time, no
        output is missing but those whose rows are delivered: the function may write any of them, at
        any time or never.
        """
        with self._lock:
            started = {query.name for query in self._queries.values()}
            written = {name for name, queries in self._written.items() if started & {*queries}}
            quiet = self._clock() - self._changed_at >= self._idle_grace_seconds
            if quiet and any(query.output is None for query in self._queries.values()):
                written |= {
                    output.name
                    for output in self.settings.outputs
                    if output.publish.mode is not PublishMode.DELIVER
                }
        if not started:
            return [
                Problem(
                    "",
                    "the program has started no streaming query that a backfill runs",
                    "check that its main file starts one (writeStream, then toTable or start), and"
                    " that spec.ignoredQueries does not name it",
                )
            ]
        outputs = [
            Problem(
                "spec.outputs",
                f"no query of the application writes the output {output.name}",
                "set this queryName for a query",
            )
            for output in self.settings.outputs
            if output.name not in written
        ]
        again = [
            not_started_again(each.name, each.output)
            for each in self.tracker.not_started_again
            if each.output is None or each.output in written
        ]
        sources = [
            Problem(
                "spec.sources",
                f"no query of the application reads the source {name}",
                "correct its topic or table, or remove the source",
            )
            for name in sorted(self.tracker.unread_sources)
        ]
        return outputs + again + sources

    @property
    def in_turn(self) -> bool:
        """Whether the application runs queries one after the other: it waits for one that ends
        before it has started the others. If so, it stays so, and sources that only the others read
        do not hold the watermark.
        """
        if not self._in_turn and self.missing():
            with self._lock:
                quiet = self._clock() - self._changed_at
                awaiting, waiting = set(self._awaiting), self._awaiting | self._waiting
            if awaiting and quiet >= self._idle_grace_seconds:
                waits = quiet >= _TURN_SECONDS or not self._application_works(waiting)
                self._in_turn = self.tracker.in_turn = waits
        return self._in_turn

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
        """How much the application has started; after some time without news, what is missing."""
        missing = self.missing()
        with self._lock:
            quiet, started = self._clock() - self._changed_at, len(self._queries)
        if missing and (quiet < _SILENT_SECONDS or not started):
            queries = "1 query" if started == 1 else f"{started or 'no'} queries"
            return f"the program is running, and has started {queries} so far"
        return "; ".join(problem.message for problem in missing)
