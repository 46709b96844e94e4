"""The streaming DataFrames of the sources, made once for each session."""

import threading
from collections.abc import Callable, Container

from pyspark.sql import DataFrame, SparkSession

from backfill.runtime.batch.spark_compatibility import try_early
from backfill.runtime.catalyst import quoted, selected
from backfill.runtime.settings import RuntimeSettings
from backfill.runtime.source.source_frame import source_frame
from backfill.runtime.source.warm_up import warm_up
from backfill.runtime.switching.kafka_rows import kafka_frame

_Make = Callable[[SparkSession, RuntimeSettings, str], DataFrame]


class SourceFrames:
    """Provides the frames of sources. An application may request one any number of times.

    All reads of a source in one shape share a frame, which counts its rows, but with new columns
    each time, as two loads in production have.
    """

    def __init__(self, settings: RuntimeSettings):
        self._settings = settings
        self._lock = threading.Lock()
        self._made: list[tuple[SparkSession, _Make, str, DataFrame]] = []

    def rows(self, spark: SparkSession, source: str) -> DataFrame:
        """The rows of a source, as in its table."""
        return self._fresh(spark, source_frame, source)

    def kafka(self, spark: SparkSession, source: str, *, headers: bool) -> DataFrame:
        """The rows of a source, as Spark reads them from Kafka: with headers if asked for."""
        return self._fresh(spark, kafka_frame, source, () if headers else ("headers",))

    def _fresh(
        self, spark: SparkSession, make: _Make, source: str, without: Container[str] = ()
    ) -> DataFrame:
        frame = self._shared(spark, make, source)
        names = [quoted(name) for name in frame.columns if name not in without]
        return selected(frame, [f"{name} AS {name}" for name in names])

    def _shared(self, spark: SparkSession, make: _Make, source: str) -> DataFrame:
        with self._lock:  # programs may read in several threads
            for session, maker, name, frame in self._made:
                if session is spark and maker is make and name == source:
                    return frame
            first, streams = not self._made, self._settings.execution == "Streaming"
            if first:
                warm_up(spark)
            frame = make(spark, self._settings, source)
            if first and not streams and self._settings.hand_off is None:
                try_early(spark)
            self._made.append((spark, make, source, frame))
            return frame
