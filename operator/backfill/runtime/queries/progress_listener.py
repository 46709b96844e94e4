"""Turns Spark's progress events into committed batches. Spark reports a batch after its commit is
in the checkpoint.
"""

import json
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.listener import (
    JStreamingQueryListener,
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)
from pyspark.sql.streaming.query import StreamingQueryManager

from backfill.api.quantities import to_us
from backfill.runtime.java_classes import find_once_in_pyspark, query_listener
from backfill.runtime.queries.tracker import ReportedBatch
from backfill.runtime.source.source_frame import source_observed

_log = logging.getLogger(__name__)


class ListenedSessions:
    """A listener for each session that starts a query."""

    def __init__(self, make_listener: Callable[[], StreamingQueryListener]):
        self._make_listener = make_listener
        self._sessions: list[Any] = []

    def listen(self, frame: DataFrame) -> None:
        """Listens to the queries of a frame's session."""
        session = frame.sparkSession._jsparkSession
        if not any(session.equals(known) for known in self._sessions):
            find_once_in_pyspark(frame.sparkSession)
            listener = self._make_listener()
            # PySpark makes its own unless there is one
            listener._jlistenerobj = query_listener(frame.sparkSession, _Events(listener))
            StreamingQueryManager(session.streams()).addListener(listener)
            self._sessions.append(session)


class _Events(JStreamingQueryListener):
    """Passes events on as PySpark does, but reads the progress of a batch by one call of the JVM.
    PySpark makes more than a hundred, which take longer than many a batch.
    """

    def onQueryProgress(self, jevent: JavaObject) -> None:
        self.pylistener.onQueryProgress(QueryProgressEvent(_read(jevent.progress())))


def _read(progress: JavaObject) -> StreamingQueryProgress:
    """What the application observes may be nothing that Spark writes as JSON, such as an interval:
    then there is no JSON, or none of anything that was observed.
    """
    try:
        said = json.loads(progress.json())
    except Exception:  # PySpark has its own for some of Java's
        said = {}
    if "observedMetrics" in said:
        return StreamingQueryProgress.fromJson(said)
    return StreamingQueryProgress.fromJObject(progress)


class ProgressListener(StreamingQueryListener):
    """Calls ``commit`` for every committed batch."""

    def __init__(self, commit: Callable[[ReportedBatch], None]):
        self._commit = commit

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Does nothing: queries are recorded where they are started."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """A batch was committed, or there was none."""
        try:
            batch = committed_batch(event.progress)
            if batch is not None:
                self._commit(batch)
        # Spark ignores errors of a listener. The steps are counted by reading with the next batch.
        except Exception:
            _log.exception("a progress event could not be read")

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Does nothing: no batch was committed."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Does nothing: the end is read from the query itself."""


def committed_batch(progress: StreamingQueryProgress) -> ReportedBatch | None:
    """The batch that a progress event reports, which is a step; None if the query has no name."""
    if progress.name is None:
        return None
    started_us = to_us(datetime.fromisoformat(progress.timestamp))
    durations = progress.durationMs
    observed = _by_source(progress.observedMetrics)
    newest = [
        int(row["max_us"])
        for rows in observed.values()
        for row in rows
        if row["max_us"] is not None
    ]
    return ReportedBatch(
        query=progress.name,
        read_from_us=started_us,
        ended_us=started_us + 1_000 * durations.get("triggerExecution", 0),
        end=progress.batchId + 1,
        # several frames of a source have read the same step, and each all of it
        rows={source: max(int(row["rows"]) for row in rows) for source, rows in observed.items()},
        newest_us=max(newest, default=None),
        late_rows=sum(operator.numRowsDroppedByWatermark for operator in progress.stateOperators),
    )


def _by_source(observed: Mapping[str, Row]) -> dict[str, list[Row]]:
    """The metrics of each source's frames."""
    found: dict[str, list[Row]] = defaultdict(list)
    for name, row in observed.items():
        source = source_observed(name)
        if source is not None:
            found[source].append(row)
    return found
