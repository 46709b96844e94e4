"""The run as the application, the agent and the launcher share it: which queries there are, and how it ended."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from backfill.api.conditions import Reason
from backfill.api.errors import BadInput, Problem, UnsupportedProgram
from backfill.runtime.settings import RuntimeSettings
from backfill.runtime.tracking import Tracker

_MISSING_GRACE_SECONDS = 5.0
"""How long an application that waits for its queries may take to start the rest of them from other threads."""
_ASKING_GRACE_SECONDS = 60.0
"""How long an application may ask about its queries before it starts the rest of them: one that asks once may only log it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended."""

    phase: Literal["Finished", "Stopped", "Failed"]
    exit_status: int
    reason: str = ""
    message: str = ""
    error: Exception | None = None
    """What the application sees where it waits for its queries."""


FINISHED = Outcome("Finished", 0)
STOPPED = Outcome("Stopped", 0)


def failed(message: str, error: Exception | None = None) -> Outcome:
    """The application or Spark failed; another attempt may succeed."""
    return Outcome("Failed", 1, "ApplicationFailed", message, error)


def failed_for_good(reason: Reason, message: str, error: Exception) -> Outcome:
    """The tables are not as they have to be; another attempt would end the same way."""
    return Outcome("Failed", 2, reason, message, error)


def unsupported(error: BadInput) -> Outcome:
    """The program does what a backfill can not redirect; another attempt would end the same way. Not so where only a catalog
    did not answer."""
    if error.may_pass:
        return failed(str(error), error)
    return Outcome("Failed", 2, "UnsupportedProgram", str(error), error)


@dataclass(frozen=True, slots=True)
class StartedQuery:
    """A query of the application that was redirected and started."""

    name: str
    output: str
    checkpoint: str
    """Where its checkpoint is, as Spark takes it."""
    handle: StreamingQuery
    frame: DataFrame
    """What it writes, as the application defined it."""


class Run:
    """Shared by all threads of one driver. It ends once; the first outcome counts."""

    def __init__(self, settings: RuntimeSettings, tracker: Tracker, clock: Callable[[], float] = time.monotonic):
        self.settings = settings
        self.tracker = tracker
        self.over = threading.Event()
        self.stopping = threading.Event()
        """Set when the run is to stop after what is released: no query may start any more."""
        self._lock = threading.RLock()
        self._queries: dict[str, StartedQuery] = {}
        self._outcome: Outcome | None = None
        self._clock = clock
        self._waiting = False
        self._changed_at = clock()
        self._asked_first: float | None = None
        """When the application asked about its queries for the first time since it started the last one."""
        self._asked_last = 0.0

    @property
    def queries(self) -> tuple[StartedQuery, ...]:
        """The queries started so far."""
        with self._lock:
            return tuple(self._queries.values())

    @property
    def outcome(self) -> Outcome | None:
        """How it ended; None before."""
        with self._lock:
            return self._outcome

    def started(self, query: StartedQuery) -> None:
        """The application started a query."""
        with self._lock:
            self._queries[query.output] = query
            self._changed_at = self._clock()
            self._asked_first = None

    def end(self, outcome: Outcome) -> None:
        """The run is over. Only the first outcome counts."""
        with self._lock:
            if self._outcome is None:
                self._outcome = outcome
        self.over.set()

    def refuse(self, error: BadInput) -> BadInput:
        """Ends the run because of what the program does, even where the application catches the error; gives it back to raise."""
        self.end(unsupported(error))
        return error

    def application_waits(self) -> None:
        """The application waits for its queries, or its main program has returned: it is not expected to start more."""
        with self._lock:
            self._waiting = True

    def application_asks(self) -> None:
        """The application asks about its queries. Once it has done so for a minute it is taken to wait for them."""
        with self._lock:
            self._asked_last = self._clock()
            if self._asked_first is None:
                self._asked_first = self._asked_last

    def wait(self, timeout: float | None = None) -> bool:
        """Waits, as the application does, until the run is over. False when the time was up before.

        Raises:
            Exception: what made the run fail.
        """
        self.application_waits()
        if not self.over.wait(timeout):
            return False
        outcome = self.outcome
        if outcome is not None and outcome.error is not None:
            raise outcome.error
        return True

    def missing(self) -> list[Problem]:
        """Outputs that no query writes and sources that no query reads, so far."""
        with self._lock:
            written = set(self._queries)
        outputs = [
            Problem("spec.outputs", f"no query of the application writes the output {output.name}", "name a query so")
            for output in self.settings.outputs
            if output.name not in written
        ]
        sources = [
            Problem("spec.sources", f"no query of the application reads the source {name}", "correct its topic or table")
            for name in sorted(self.tracker.unread_sources)
        ]
        return outputs + sources

    def overdue(self) -> UnsupportedProgram | None:
        """The error for what is missing, once the application can not be expected to start it any more."""
        with self._lock:
            waits = self._waiting and self._clock() - self._changed_at >= _MISSING_GRACE_SECONDS
            asks = self._asked_first is not None and self._asked_last - self._asked_first >= _ASKING_GRACE_SECONDS
        if not (waits or asks):
            return None
        problems = self.missing()
        return UnsupportedProgram(problems) if problems else None
