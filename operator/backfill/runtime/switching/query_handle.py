"""Queries as the application sees them: they are active until the run has ended, and end together;
but those whose trigger ends them, or that the application stops, once they have read everything.
"""

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import uuid4

from py4j.java_gateway import JavaObject
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery, StreamingQueryManager
from pyspark.sql.streaming.readwriter import DataStreamWriter

from backfill.runtime.queries.run_state import ProgramRun

_log = logging.getLogger(__name__)


class _UntilTheEnd(StreamingQuery):
    """A query as the application sees it. It is active until the run has ended, also after its
    flush, because its open results are still counted. One that ends by itself is active until it
    has committed everything, so that the application goes on as in production.
    """

    _run: ProgramRun
    _done: Callable[[], bool]
    """Whether it has committed everything."""
    ends: bool
    """Whether it ends by itself: its trigger says so (``availableNow``, ``once``), or it was
    stopped.
    """

    @property
    def isActive(self) -> bool:
        """Whether the run is in progress and the query has not ended by itself."""
        return not self._run.over.is_set() and not (self.ends and self._done())

    def awaitTermination(self, timeout: int | None = None) -> bool | None:
        """Waits until the query has ended by itself, for the end of the run, or for ``timeout``
        seconds.

        Raises the error that made it fail.
        """
        run = self._run
        over = run.wait_for(self._done, timeout) if self.ends else run.wait(timeout)
        return None if timeout is None else over

    def processAllAvailable(self) -> None:
        """Waits until the query has committed the whole plan, which is the available data."""
        self._run.wait_for(self._done)

    def stop(self) -> None:
        """Waits until the query has committed the whole plan, so that an application that stops it
        after some time does not cut its history short.

        In another thread than the main one it does nothing, because the run may wait for that
        thread.
        """
        if threading.current_thread() is threading.main_thread():
            self.ends = True
            self._run.wait_for(self._done)
        else:
            _log.info("stop() of a query is deferred until all input is read")


class SwitchedQuery(_UntilTheEnd):
    """A streaming query as the application sees it."""

    def __init__(self, jsq: JavaObject, run: ProgramRun, done: Callable[[], bool], *, ends: bool):
        super().__init__(jsq)
        self._run, self._done, self.ends = run, done, ends

    def start_again(self, writer: DataStreamWriter) -> StreamingQuery:
        """Starts a query that has failed once more, from its checkpoint, and shows that one from
        then on. Returns Spark's own query.
        """
        with suppress(StreamingQueryException):  # why it failed
            StreamingQuery.awaitTermination(self)  # only then is its name free
        handle = writer.start()
        self._jsq = handle._jsq
        return handle


class _WithoutStream(StreamingQuery):
    """A query that Spark's streaming engine does not know."""

    _message: str

    def __init__(self, name: str | None, run: ProgramRun):
        self._name = name
        self._run = run
        self._id, self._run_id = str(uuid4()), str(uuid4())

    @property
    def id(self) -> str:
        """A new id."""
        return self._id

    @property
    def runId(self) -> str:
        """A new id."""
        return self._run_id

    @property
    def name(self) -> str | None:  # type: ignore[override]  # what PySpark really gives for a query without a name
        """The name that the application has set."""
        return self._name

    @property
    def status(self) -> dict[str, Any]:
        """The status of a query that waits, in Spark's words."""
        return {"message": self._message, "isDataAvailable": False, "isTriggerActive": False}

    @property
    def recentProgress(self) -> list[StreamingQueryProgress]:
        """No progress."""
        return []

    @property
    def lastProgress(self) -> StreamingQueryProgress | None:
        """No progress."""
        return None

    def explain(self, extended: bool = False) -> None:
        """Prints nothing: the query has no plan."""

    def exception(self) -> StreamingQueryException | None:
        """No error."""
        return None


class LeftOutQuery(_WithoutStream):
    """A query that is not run. For the application it is a query without data, which ends by its
    trigger, with the run, or when it is stopped.
    """

    _message = "Left out of the backfill"

    def __init__(self, name: str | None, run: ProgramRun, *, ends: bool):
        super().__init__(name, run)
        self._stopped = threading.Event()
        if ends:
            self._stopped.set()

    @property
    def isActive(self) -> bool:
        """Whether the run is in progress and the query was not stopped."""
        return not self._stopped.is_set() and not self._run.over.is_set()

    def awaitTermination(self, timeout: int | None = None) -> bool | None:
        """Waits for the end of the run, or for ``timeout`` seconds.

        Raises the error that made it fail.
        """
        over = self._stopped.is_set() or self._run.wait(timeout)
        return None if timeout is None else over

    def processAllAvailable(self) -> None:
        """Returns at once: no data is available."""

    def stop(self) -> None:
        """Makes the query inactive."""
        self._stopped.set()


class BatchQuery(_UntilTheEnd, _WithoutStream):
    """A query that is run by spans of steps, as the application sees it."""

    _message = "Run as batch jobs"

    def __init__(self, name: str | None, run: ProgramRun, done: Callable[[], bool], *, ends: bool):
        super().__init__(name, run)
        self._done, self.ends = done, ends


class SwitchedQueryManager(StreamingQueryManager):
    """``spark.streams``, with the queries as the application sees them."""

    def __init__(self, jsqm: JavaObject, run: ProgramRun):
        super().__init__(jsqm)
        self._run = run

    @property
    def active(self) -> list[StreamingQuery]:
        """All queries until the run has ended, then none."""
        if self._run.over.is_set():
            return []
        return [query for query in self._run.views if query.isActive]

    def get(self, id: str) -> StreamingQuery | None:
        """The query with this id."""
        return next((query for query in self._run.views if query.id == id), None)

    def awaitAnyTermination(self, timeout: int | None = None) -> bool | None:
        """Waits for the end of the run, since its queries end together, or until one has ended by
        itself. Returns at once where all have.

        Raises the error that made it fail.
        """
        run, active = self._run, self.active
        ending = [query for query in active if getattr(query, "ends", False)]
        all_ended = bool(run.views) and not active
        if not run.over.is_set() and (ending or all_ended):
            over = run.wait_for(
                lambda: all_ended or not all(query.isActive for query in ending), timeout
            )
        else:
            over = run.wait(timeout)
        return None if timeout is None else over
