"""Starts the Python processes that sources need while the application still builds its queries.

Spark starts one kind after the other when a first batch comes to need it: to make a source, to plan
its reading, to read. Each has Python and this package's libraries to load, which together is most
of the time of a first batch.
"""

import logging
import threading
from collections.abc import Iterator, Sequence

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.readwriter import DataFrameReader

_FORMAT = "backfill_warm_up"

_log = logging.getLogger(__name__)


class WarmUpSource(DataSource):
    """A table without rows. Option ``tasks``: in how many tasks it is read."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return _FORMAT

    def schema(self) -> str:
        """One column, for there must be one."""
        return "nothing int"

    def reader(self, schema: object) -> "WarmUpReader":
        """Reads nothing, with everything in memory that reading takes."""
        return WarmUpReader(int(self.options["tasks"]))


class WarmUpReader(DataSourceReader):
    """Loads in each task's process what sources read with."""

    def __init__(self, tasks: int):
        self._tasks = tasks

    def partitions(self) -> Sequence[InputPartition]:
        """One for each task that is going to read."""
        return [InputPartition(task) for task in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        """No rows."""
        from backfill.runtime.source import reading

        _log.debug("%s is loaded", reading.__name__)
        return iter(())


def warm_up(spark: SparkSession) -> None:
    """Begins in a thread; nothing waits for it, and nothing depends on it."""
    threading.Thread(
        target=_read_nothing, args=(spark,), name="backfill-warm-up", daemon=True
    ).start()


def _read_nothing(spark: SparkSession) -> None:
    try:
        spark.dataSource.register(WarmUpSource)
        tasks = spark.sparkContext.defaultParallelism
        DataFrameReader(spark).format(_FORMAT).option("tasks", tasks).load().write.format(
            "noop"
        ).mode("overwrite").save()
    except Exception as error:  # whatever it is, the application meets it where it can be told
        _log.info("processes could not be started early: %s", error)
