"""``spark.readStream`` and ``spark.read`` in a backfill. What the application reads from Kafka
comes from history.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import Any, NoReturn, Protocol

from pyspark.errors import ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.readwriter import DataFrameReader
from pyspark.sql.streaming.readwriter import DataStreamReader
from pyspark.sql.types import DataType

from backfill.api.errors import BadInput, Problem, UnsupportedProgram
from backfill.api.source import Source
from backfill.runtime import named_sources
from backfill.runtime.catalyst import full_name, is_temporary_view, matches, name_parts
from backfill.runtime.queries.run_state import ProgramRun, Run
from backfill.runtime.session_conf import in_session
from backfill.runtime.source.record_columns import HEADERS_TYPE
from backfill.runtime.switching.batch_function import delivering
from backfill.runtime.switching.source_frames import SourceFrames
from backfill.runtime.switching.stream_matching import (
    assigned_partitions,
    check_same_cluster,
    check_same_topic,
    includes_headers,
    kafka_sources,
    named_source,
    table_source,
)

RECORD_KINDS: dict[str, str | DataType] = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
}
"""The columns of Spark's Kafka source, with their types."""

_HOW = frozenset(
    {"batch-size", "file-open-cost", "lookback", "path", "split-size", "vectorization-enabled"}
)
"""Options of a read that do not determine its rows."""


def record_kinds(options: Mapping[str, str]) -> dict[str, str | DataType]:
    """The same for a reader with these options, whose names are in lower case."""
    return RECORD_KINDS | ({"headers": HEADERS_TYPE} if includes_headers(options) else {})


class ReplacedReader(DataStreamReader):
    """A stream reader that keeps what it is called with, and gives something else. It does not pass
    options on, since they may contain credentials.
    """

    def __init__(self, spark: SparkSession, run: ProgramRun):
        super().__init__(spark)
        self._run = run
        self._source_format: str | None = None
        self._source_options: dict[str, str] = {}

    def format(self, source: str) -> DataStreamReader:
        """Keeps the format."""
        self._source_format = source.lower()
        return self

    def schema(self, schema: Any) -> DataStreamReader:
        """Ignored: sources have their own schema."""
        return self

    def name(self, source_name: str) -> DataStreamReader:
        """Ignored: sources have the names of the resource."""
        return self

    def option(self, key: str, value: Any) -> DataStreamReader:
        """Keeps an option."""
        return self.options(**{key: value})

    def options(self, **options: Any) -> DataStreamReader:
        """Keeps options. As in Spark, their names are not case-sensitive."""
        self._source_options |= {
            key.lower(): str(value) for key, value in options.items() if value is not None
        }
        return self

    def load(
        self, path: str | None = None, format: str | None = None, schema: Any = None, **options: Any
    ) -> DataFrame:
        """The frame that replaces what is read."""
        if format is not None and self.format(format) is not self:
            return DataStreamReader(self._spark).load(path, format, schema, **options)
        self.options(**options)
        if path is not None:
            self.option("path", path)
        try:
            with in_session(self._spark, self._run.settings):
                return self._replacement()
        except BadInput as error:
            raise self._run.refuse(error) from None

    def table(self, tableName: str) -> DataFrame:
        """The frame of the source for the table, or that of a temporary view."""
        if is_temporary_view(self._spark, tableName):
            return super().table(tableName)
        return self.format("iceberg").load(tableName)

    def json(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused: files are not replaced."""
        self._refuse_format("json")

    def orc(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused: files are not replaced."""
        self._refuse_format("orc")

    def parquet(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused: files are not replaced."""
        self._refuse_format("parquet")

    def text(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused: files are not replaced."""
        self._refuse_format("text")

    def csv(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused: files are not replaced."""
        self._refuse_format("csv")

    def xml(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused: files are not replaced."""
        self._refuse_format("xml")

    def changes(self, tableName: str) -> NoReturn:
        """Refused: change feeds are not replaced."""
        self._refuse_format(f"changes of {tableName}")

    def _replacement(self) -> DataFrame:
        raise NotImplementedError

    def _refuse_format(self, what: str) -> NoReturn:
        raise self._run.refuse(not_switched(what))


class SwitchedReader(ReplacedReader):
    """A stream reader that returns the sources of the resource."""

    _run: Run

    def __init__(self, spark: SparkSession, run: Run, frames: SourceFrames):
        super().__init__(spark, run)
        self._frames = frames

    def _replacement(self) -> DataFrame:
        sources, options = self._run.settings.sources, self._source_options
        match self._source_format:
            case "kafka":
                return self._topics()
            case "iceberg":
                table = table_source(options.get("path", ""), sources)
                self._run.streamed_tables.add(table.name)
                return self._rows(table.name)
            case named_sources.NAMED_FORMAT:
                source = named_source(options["source"], sources)
                if self._run.settings.hand_off is not None:
                    check_same_topic(options, source)
                self._go_on_with([source])
                return (
                    self._kafka([source])
                    if options.get("shape") == "kafka"
                    else self._rows(source.name)
                )
        raise not_switched(self._source_format)

    def _topics(self) -> DataFrame:
        """The sources of the topics. If there are queries that are not run, a topic without a
        source may belong to them; any other query that uses it is then refused.
        """
        settings = self._run.settings
        try:
            sources = kafka_sources(
                self._source_options, settings.sources, partial(matches, self._spark)
            )
            self._go_on_with(sources)
            return self._kafka(sources)
        except UnsupportedProgram as error:
            if not settings.ignored_queries:
                raise
            self._run.unreplaced.extend(error.problems)
            return unread_topic(self._spark, record_kinds(self._source_options))

    def _go_on_with(self, sources: Sequence[Source]) -> None:
        """Keeps how the program reads Kafka, where its queries continue with live traffic."""
        if self._run.settings.hand_off is None or not self._reads_kafka:
            return
        if len(sources) > 1:
            topics = ", ".join(each.topic for each in sources)
            raise UnsupportedProgram(
                Problem(
                    "spec.handOff",
                    f"one readStream subscribes to several topics ({topics}), so the state of its"
                    " query cannot be handed over: each topic is a source of history",
                    "read each topic with a readStream of its own, and union them",
                )
            )
        by_name = "subscribe" in self._source_options
        if not by_name and self._source_format == "kafka":
            raise UnsupportedProgram(
                Problem(
                    "spec.handOff",
                    "a readStream of format kafka sets subscribePattern or assign, so the topic and"
                    " partitions with which its query continues may be others than history has",
                    "subscribe to the topic by name",
                )
            )
        known = self._run.kafka_options.setdefault(sources[0].name, dict(self._source_options))
        check_same_cluster(known, self._source_options, sources[0])

    @property
    def _reads_kafka(self) -> bool:
        return "kafka.bootstrap.servers" in self._source_options

    def _rows(self, source: str) -> DataFrame:
        return self._frames.rows(self._spark, source)

    def _kafka(self, sources: Sequence[Source]) -> DataFrame:
        headers = includes_headers(self._source_options)
        assigned = assigned_partitions(self._source_options)
        frames = []
        for source in sources:
            frame = self._frames.kafka(self._spark, source.name, headers=headers)
            partitions = assigned.get(source.topic)
            if partitions is not None:
                frame = frame.where(F.col("partition").isin(partitions))
            frames.append(frame)
        return reduce(DataFrame.union, frames)


class Tables(Protocol):
    """What tables are read from that the application reads once."""

    def name_of(self, written: str) -> str | None:
        """The full name of a table by the application's name for it; None if Spark reads it."""

    def frame(self, spark: SparkSession, written: str) -> DataFrame | None:
        """The rows of such a table; None if Spark reads it."""

    def by_spark(self, written: str, read: Callable[[], DataFrame]) -> DataFrame:
        """What Spark reads by itself."""

    def may_be_in(self, text: str, values: Any) -> bool:
        """Whether an SQL text may have the name of one, or a value of its parameters."""


class SwitchedBatchReader(DataFrameReader):
    """A batch reader that does not read production's Kafka, and reads static tables as planned."""

    def __init__(self, spark: SparkSession, run: ProgramRun, static: Tables):
        super().__init__(spark)
        self._run = run
        self._static = static
        self._iceberg = False
        self._given: dict[str, Any] = {}

    def format(self, source: str) -> DataFrameReader:
        """Refuses Kafka, and passes everything else on."""
        self._iceberg = source.lower() == "iceberg"
        if source.lower() == "kafka" and not delivering():
            problem = Problem(
                "",
                "spark.read of format kafka reads the records that Kafka has now",
                "use readStream, or read a table",
            )
            raise self._run.refuse(UnsupportedProgram(problem))
        return super().format(source)

    def option(self, key: str, value: Any) -> DataFrameReader:
        """Keeps an option, which Spark is given, too."""
        self._given[key.lower()] = value
        return super().option(key, value)

    def options(self, **options: Any) -> DataFrameReader:
        """Keeps options, which Spark is given, too."""
        self._given |= {key.lower(): value for key, value in options.items()}
        return super().options(**options)

    def table(self, tableName: str) -> DataFrame:
        """A static table as planned, or what Spark reads."""
        return self._read(tableName, lambda: super(SwitchedBatchReader, self).table(tableName))

    def load(
        self, path: Any = None, format: str | None = None, schema: Any = None, **options: Any
    ) -> DataFrame:
        """A static table as planned, or what Spark reads."""
        if format is not None:
            self.format(format)
        self.options(**options)

        def by_spark() -> DataFrame:
            return super(SwitchedBatchReader, self).load(path, schema=schema)

        written = self._given.get("path") if path is None else path
        if not self._iceberg or not isinstance(written, str):
            return by_spark()
        return self._read(written, by_spark)

    def _read(self, written: str, by_spark: Callable[[], DataFrame]) -> DataFrame:
        # a program that chooses a snapshot is not given another one
        found = None if self._given.keys() - _HOW else self._frame(written)
        return self._static.by_spark(written, by_spark) if found is None else found

    def _frame(self, written: str) -> DataFrame | None:
        try:
            if is_temporary_view(self._spark, written):
                return None
            parts = full_name(self._spark, name_parts(self._spark, written))
        except ParseException:  # a path
            return None
        return self._static.frame(self._spark, ".".join(parts))


def unread_topic(spark: SparkSession, kinds: Mapping[str, str | DataType]) -> DataFrame:
    """A stream with the columns of Spark's Kafka source that is never read, so that queries that
    are not run can be defined on it.
    """
    records = DataStreamReader(spark).format("rate").load()
    return records.select([F.lit(None).cast(kind).alias(name) for name, kind in kinds.items()])


def not_switched(format: str | None) -> UnsupportedProgram:
    """The error for a format that history does not replace."""
    what = f"readStream of format {format}" if format else "readStream without a format"
    fix = (
        "read Kafka topics, tables that are sources, or sources by name with"
        " backfill.runtime.read_source"
    )
    return UnsupportedProgram(Problem("", f"{what} cannot be replaced with history", fix))
