"""The application's view of its queries: they run until the backfill is over, and end together."""

import logging
import threading

from py4j.java_gateway import JavaObject
from pyspark.sql.streaming.query import StreamingQuery, StreamingQueryManager

from backfill.runtime.run import Run

_log = logging.getLogger(__name__)


class SwitchedQuery(StreamingQuery):
    """A streaming query as the application holds it. It is active until the run is over, not only until it is flushed:
    what it leaves open is still counted after that."""

    def __init__(self, jsq: JavaObject, run: Run):
        super().__init__(jsq)
        self._run = run

    @property
    def isActive(self) -> bool:
        """Whether the run goes on. An application that asks for long is taken to have started all its queries."""
        self._run.application_asks()
        return not self._run.over.is_set()

    def awaitTermination(self, timeout: int | None = None) -> bool | None:
        """Waits until the run is over, or for ``timeout`` seconds; raises what made it fail."""
        over = self._run.wait(timeout)
        return None if timeout is None else over

    def processAllAvailable(self) -> None:
        """Waits until the run is over: all that is available is the whole plan."""
        self._run.wait()

    def stop(self) -> None:
        """Waits until the run is over: an application that stops a query after a while must not cut its history short.

        From another thread than the main one it does nothing, for that thread may be what the run waits for.
        """
        if threading.current_thread() is threading.main_thread():
            self._run.wait()
        else:
            _log.info("stop() of a query is put off until everything is read")


class SwitchedQueryManager(StreamingQueryManager):
    """``spark.streams`` with the application's view of its queries."""

    def __init__(self, jsqm: JavaObject, run: Run):
        super().__init__(jsqm)
        self._run = run

    @property
    def active(self) -> list[StreamingQuery]:
        """All queries until the run is over, then none."""
        self._run.application_asks()
        return [] if self._run.over.is_set() else [SwitchedQuery(query.handle._jsq, self._run) for query in self._run.queries]

    def get(self, id: str) -> StreamingQuery | None:
        """The query of an id."""
        found = super().get(id)
        return None if found is None else SwitchedQuery(found._jsq, self._run)

    def awaitAnyTermination(self, timeout: int | None = None) -> bool | None:
        """Waits until the run is over, for all its queries end together; raises what made it fail."""
        over = self._run.wait(timeout)
        return None if timeout is None else over
