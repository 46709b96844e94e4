"""Starts the Python processes of the sources while the application still builds its queries.

Spark starts them one after the other when the first batch needs them: to create a source, to plan
its reading, to read. Each loads Python and this package's libraries, which is most of the time of a
first batch.
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
    """A source without rows. Option ``tasks``: the number of tasks that read it."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return _FORMAT

    def schema(self) -> str:
        """One column, since there must be one."""
        return "nothing int"

    def reader(self, schema: object) -> "WarmUpReader":
        """Reads no rows, and loads everything that reading needs."""
        return WarmUpReader(int(self.options["tasks"]))


class WarmUpReader(DataSourceReader):
    """Loads in the process of each task what sources read with."""

    def __init__(self, tasks: int):
        self._tasks = tasks

    def partitions(self) -> Sequence[InputPartition]:
        """One partition for each task that will read."""
        return [InputPartition(task) for task in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        """No rows."""
        from backfill.runtime.source import reading

        _log.debug("%s is loaded", reading.__name__)
        return iter(())


def warm_up(spark: SparkSession) -> None:
    """Starts warming up in a thread. Nothing waits for it or depends on it."""
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
    except Exception as error:  # the application gets the same error where it can be reported
        _log.info("processes could not be started early: %s", error)
