"""The application's view of its queries: they run until the backfill is over, and end together."""

import logging
import threading
from typing import Any
from uuid import uuid4

from py4j.java_gateway import JavaObject
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery, StreamingQueryManager

from backfill.runtime.queries.run import Run

_log = logging.getLogger(__name__)


class SwitchedQuery(StreamingQuery):
    """A streaming query as the application holds it. It is active until the run is over, not only
    until it is flushed: what it leaves open is still counted after that.
    """

    def __init__(self, jsq: JavaObject, run: Run):
        super().__init__(jsq)
        self._run = run

    @property
    def isActive(self) -> bool:
        """Whether the run goes on."""
        return not self._run.over.is_set()

    def awaitTermination(self, timeout: int | None = None) -> bool | None:
        """Waits until the run is over, or for ``timeout`` seconds; raises what made it fail."""
        over = self._run.wait(timeout)
        return None if timeout is None else over

    def processAllAvailable(self) -> None:
        """Waits until the run is over: all that is available is the whole plan."""
        self._run.wait()

    def stop(self) -> None:
        """Waits until the run is over: an application that stops a query after a while must not cut
        its history short.

        From another thread than the main one it does nothing, for that thread may be what the run
        waits for.
        """
        if threading.current_thread() is threading.main_thread():
            self._run.wait()
        else:
            _log.info("stop() of a query is put off until everything is read")


class LeftOutQuery(StreamingQuery):
    """A query that is not run. To the application it is one without data: it ends with the run, or
    when it is stopped.
    """

    def __init__(self, name: str | None, run: Run):
        self._name = name
        self._run = run
        self._id, self._run_id = str(uuid4()), str(uuid4())
        self._stopped = threading.Event()

    @property
    def id(self) -> str:
        """An id of its own."""
        return self._id

    @property
    def runId(self) -> str:
        """Another one."""
        return self._run_id

    @property
    def name(self) -> str | None:  # type: ignore[override]  # what PySpark really gives for a query without a name
        """The name that the application gave it."""
        return self._name

    @property
    def isActive(self) -> bool:
        """Whether the run goes on and nobody has stopped it."""
        return not self._stopped.is_set() and not self._run.over.is_set()

    @property
    def status(self) -> dict[str, Any]:
        """That it waits, as Spark says it."""
        return {
            "message": "Left out of the backfill",
            "isDataAvailable": False,
            "isTriggerActive": False,
        }

    @property
    def recentProgress(self) -> list[StreamingQueryProgress]:
        """None."""
        return []

    @property
    def lastProgress(self) -> StreamingQueryProgress | None:
        """None."""
        return None

    def awaitTermination(self, timeout: int | None = None) -> bool | None:
        """Waits until the run is over, or for ``timeout`` seconds; raises what made it fail."""
        over = self._stopped.is_set() or self._run.wait(timeout)
        return None if timeout is None else over

    def processAllAvailable(self) -> None:
        """Nothing is available."""

    def stop(self) -> None:
        """It is not active any more."""
        self._stopped.set()

    def explain(self, extended: bool = False) -> None:
        """It has no plan."""

    def exception(self) -> StreamingQueryException | None:
        """None."""
        return None


class SwitchedQueryManager(StreamingQueryManager):
    """``spark.streams`` with the application's view of its queries."""

    def __init__(self, jsqm: JavaObject, run: Run):
        super().__init__(jsqm)
        self._run = run

    @property
    def active(self) -> list[StreamingQuery]:
        """All queries until the run is over, then none."""
        if self._run.over.is_set():
            return []
        left_out = [query for query in self._run.queries_left_out if query.isActive]
        return [
            *(SwitchedQuery(query.handle._jsq, self._run) for query in self._run.queries),
            *left_out,
        ]

    def get(self, id: str) -> StreamingQuery | None:
        """The query of an id."""
        for query in self._run.queries_left_out:
            if query.id == id:
                return query
        found = super().get(id)
        return None if found is None else SwitchedQuery(found._jsq, self._run)

    def awaitAnyTermination(self, timeout: int | None = None) -> bool | None:
        """Waits until the run is over, for all its queries end together; raises what made it
        fail.
        """
        over = self._run.wait(timeout)
        return None if timeout is None else over
