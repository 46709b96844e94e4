"""Starts the Python processes of tasks while the application still builds its queries. Each loads
Python and this package's libraries, which is most of the time of a first batch.
"""

import logging
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)


def warm_up(spark: SparkSession) -> None:
    """Starts warming up in a thread. Nothing waits for it or depends on it."""
    threading.Thread(
        target=_read_nothing, args=(spark,), name="backfill-warm-up", daemon=True
    ).start()


def _read_nothing(spark: SparkSession) -> None:
    tasks = spark.sparkContext.defaultParallelism
    try:
        numbers = spark.range(0, tasks, 1, tasks)
        numbers.mapInArrow(_load, numbers.schema).collect()
    except Exception as error:  # the application gets the same error where it can be reported
        _log.info("processes could not be started early: %s", error)


def _load(rows: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
    from backfill.runtime.source import split_reading

    _log.debug("%s is loaded", split_reading.__name__)
    # a process whose task leaves rows unread is ended, instead of given the next task
    yield from (batch.slice(0, 0) for batch in rows)
