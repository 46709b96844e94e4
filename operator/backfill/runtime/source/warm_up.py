"""Starts the Python processes of the sources while the application still builds its queries.

Spark starts them one after the other when the first batch needs them: to create a source, to plan
its reading, to read. Each loads Python and this package's libraries, which is most of the time of a
first batch.
"""

import logging
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.readwriter import DataFrameReader

if TYPE_CHECKING:
    import pyarrow as pa

_FORMAT = "backfill_warm_up"

_log = logging.getLogger(__name__)


class WarmUpSource(DataSource):
    """A source without rows. Option ``tasks``: the number of tasks that read it."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return _FORMAT

    def schema(self) -> str:
        """One column, since there must be one."""
        return "nothing int"

    def reader(self, schema: object) -> "WarmUpReader":
        """Reads no rows."""
        return WarmUpReader(int(self.options["tasks"]))


class WarmUpReader(DataSourceReader):
    """Reads no rows."""

    def __init__(self, tasks: int):
        self._tasks = tasks

    def partitions(self) -> Sequence[InputPartition]:
        """One partition for each task that will read."""
        return [InputPartition(task) for task in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        """No rows."""
        return iter(())


def warm_up(spark: SparkSession, *, streams: bool) -> None:
    """Starts warming up in a thread. Nothing waits for it or depends on it.

    Args:
        streams: whether sources are sure to be read by streams, for which Spark starts more
            processes than for batch jobs.
    """
    threading.Thread(
        target=_read_nothing, args=(spark, streams), name="backfill-warm-up", daemon=True
    ).start()


def _read_nothing(spark: SparkSession, streams: bool) -> None:
    tasks = spark.sparkContext.defaultParallelism
    try:
        # processes of tasks are the same for both, and all that a batch job needs
        numbers = spark.range(0, tasks, 1, tasks)
        numbers.mapInArrow(_load, numbers.schema).collect()
        if streams:
            spark.dataSource.register(WarmUpSource)
            DataFrameReader(spark).format(_FORMAT).option("tasks", tasks).load().collect()
    except Exception as error:  # the application gets the same error where it can be reported
        _log.info("processes could not be started early: %s", error)


def _load(rows: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
    from backfill.runtime.source import split_reading

    _log.debug("%s is loaded", split_reading.__name__)
    # a process whose task leaves rows unread is ended, instead of given the next task
    yield from (batch.slice(0, 0) for batch in rows)
