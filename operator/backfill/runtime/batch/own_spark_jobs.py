"""Spark jobs of the driver's own, after the queries have ended."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from backfill.runtime.queries.run_state import Run

_LOOK_SECONDS = 0.2
_CONF = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.enabled": "true",
    "spark.sql.ansi.enabled": "false",  # sums of digests are not numbers of anything
    "spark.sql.caseSensitive": "true",
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",  # differences are exact
    "spark.sql.session.timeZone": "UTC",
}
"""What the application has set does not change these jobs."""


def own_session(run: Run) -> SparkSession:
    """A session of its own in the application's Spark."""
    session = run.queries[0].frame.sparkSession.newSession()
    for name, value in _CONF.items():
        session.conf.set(name, value)
    return session


@contextmanager
def cancelled_by(stopping: threading.Event, spark: SparkSession, tag: str) -> Iterator[None]:
    """Cancels the jobs of this thread as soon as the run is asked to stop."""
    context, done = spark.sparkContext, threading.Event()

    def watch() -> None:
        while not done.wait(_LOOK_SECONDS):
            if stopping.is_set():
                context.cancelJobsWithTag(tag)

    watcher = threading.Thread(target=watch, name=f"{tag}-stop", daemon=True)
    context.addJobTag(tag)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
        context.removeJobTag(tag)
