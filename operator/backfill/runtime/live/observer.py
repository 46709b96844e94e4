"""Observes the queries of a program by Spark's listener. What fails here is logged, and never
reaches the program.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from pyspark.sql import DataFrame
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from pyspark.sql.streaming.readwriter import DataStreamWriter

from backfill.api.quantities import from_us, to_us
from backfill.protocol.hand_off_messages import MOST_QUERIES, LiveQuery, LiveReport
from backfill.runtime.live.kafka_lag import KafkaPartition, Lag, offsets_of
from backfill.runtime.queries.progress_listener import ListenedSessions
from backfill.runtime.spark_versions import ClassicDataFrame

T = TypeVar("T")

_log = logging.getLogger(__name__)


def now_us() -> int:
    """The time."""
    return time.time_ns() // 1_000


@dataclass
class _Query:
    name: str
    batch: int = -1
    lag: Lag = field(default_factory=Lag)
    ended: bool = False


class Observer:
    """What the queries of a program have done, as a report. Used by several threads."""

    def __init__(self, clock: Callable[[], int] = now_us):
        """``clock`` returns the time in microseconds."""
        self._clock = clock
        self._lock = threading.Lock()
        self._queries: dict[str, _Query] = {}
        self._message = ""

    def report(self) -> LiveReport:
        """The report as of now."""
        now = self._clock()
        with self._lock:
            queries = list(self._queries.items())[-MOST_QUERIES:]
            return LiveReport(
                queries=tuple(
                    LiveQuery(
                        query=query.name[:255],
                        query_id=key,
                        batch=query.batch,
                        records_behind=query.lag.behind,
                        lag_seconds=query.lag.seconds(now),
                        at=from_us(now),
                        ended=query.ended,
                    )
                    for key, query in queries
                ),
                heartbeat=from_us(now),
                message=self._message,
            )

    def started(self, event: QueryStartedEvent) -> None:
        """A query has started, perhaps in the place of one that has ended."""
        with self._lock:
            self._queries[str(event.id)] = _Query(event.name or str(event.id))

    def progressed(self, event: QueryProgressEvent) -> None:
        """A micro-batch was committed, or there was none for some time."""
        progress = event.progress
        ends: dict[KafkaPartition, int] = {}
        latest: dict[KafkaPartition, int] = {}
        for source in progress.sources:
            for place, offset in offsets_of(source.endOffset).items():
                # several sources may read a topic, each as fast as it can
                ends[place] = min(offset, ends.get(place, offset))
            latest |= offsets_of(source.latestOffset)
        with self._lock:
            query = self._queries.setdefault(
                str(progress.id), _Query(progress.name or str(progress.id))
            )
            query.batch = progress.batchId
            began_us = to_us(datetime.fromisoformat(progress.timestamp))
            query.lag.committed(began_us, progress.numInputRows, ends, latest)

    def idle(self, event: QueryIdleEvent) -> None:
        """There was nothing to read."""
        with self._lock:
            query = self._queries.get(str(event.id))
            if query is not None:
                query.lag.idle(to_us(datetime.fromisoformat(event.timestamp)))

    def terminated(self, event: QueryTerminatedEvent) -> None:
        """A query has ended."""
        with self._lock:
            query = self._queries.get(str(event.id))
            if query is not None:
                query.ended = True
                if event.exception:
                    self._message = f"the query {query.name} has ended: {event.exception}"


class _Listener(StreamingQueryListener):
    """Passes events on. A failure is logged."""

    def __init__(self, observer: Observer):
        self._observer = observer

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Passes it on."""
        _quietly(self._observer.started, event)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Passes it on."""
        _quietly(self._observer.progressed, event)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Passes it on."""
        _quietly(self._observer.idle, event)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Passes it on."""
        _quietly(self._observer.terminated, event)


def observe(observer: Observer) -> None:
    """Observes all queries that this process starts from now on."""
    sessions = ListenedSessions(lambda: _Listener(observer))

    def write_stream(frame: DataFrame) -> DataStreamWriter:
        _quietly(sessions.listen, frame)
        return DataStreamWriter(frame)

    setattr(ClassicDataFrame, "writeStream", property(write_stream))  # noqa: B010 - it is a property


def _quietly(act: Callable[[T], None], what: T) -> None:
    try:
        act(what)
    except Exception:
        _log.exception("the live application cannot be observed completely")
