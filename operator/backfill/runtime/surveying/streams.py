"""The readers of a survey: every stream is one with the right columns that is never read."""

from collections.abc import Callable, Mapping
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamReader
from pyspark.sql.types import DataType, StructType

from backfill.api.errors import BackfillError, Problem, UnsupportedProgram
from backfill.iceberg.table_listing import KnownTables
from backfill.protocol.survey_result import SurveyedInput
from backfill.runtime.named_sources import NAMED_FORMAT, configured
from backfill.runtime.queries.run_state import ProgramRun, failed
from backfill.runtime.source.schemas import spark_schema, with_moments
from backfill.runtime.surveying.plans import INPUT
from backfill.runtime.switching.stream_matching import PATTERN, subscribed_topics
from backfill.runtime.switching.stream_reader import ReplacedReader, not_switched, record_kinds


class FoundInputs:
    """What the program has read so far."""

    def __init__(self, tables: KnownTables):
        self._tables = tables
        self.inputs: dict[str, SurveyedInput] = {}
        """Its streams by name, without how it decodes them."""
        self.static_tables: dict[str, None] = {}

    def name_of(self, written: str) -> str | None:
        """The full name of a table, which is not opened; None if no catalog has it."""
        return self._tables.find(written)

    def schema(self, written: str) -> tuple[str, StructType] | None:
        """The full name of a table and its columns in Spark; None if no catalog has it."""
        name = self.name_of(written)
        if name is None:
            return None
        return name, with_moments(spark_schema(self._tables.load(name).schema(), name))


class SurveyingReader(ReplacedReader):
    """A stream reader that notes what is read."""

    def __init__(self, spark: SparkSession, run: ProgramRun, found: FoundInputs):
        super().__init__(spark, run)
        self._found = found

    def _replacement(self) -> DataFrame:
        options = self._source_options
        match self._source_format:
            case "kafka":
                if (pattern := options.get(PATTERN)) is not None:
                    self._found.inputs[pattern] = SurveyedInput(kind="Pattern", name=pattern)
                    return self._records(pattern)
                topics = subscribed_topics(options)
                for topic in topics:
                    self._found.inputs[topic] = SurveyedInput(kind="Topic", name=topic)
                return reduce(DataFrame.union, map(self._records, topics))
            case "iceberg":
                return self._table(options.get("path", ""))
            case format if format == NAMED_FORMAT:
                return self._named(options["source"], kafka=options.get("shape") == "kafka")
        raise not_switched(self._source_format)

    def _table(self, written: str) -> DataFrame:
        found = self._found.schema(written)
        if found is None:
            raise self._not_found(written)
        name, schema = found
        self._found.inputs[name] = SurveyedInput(kind="Table", name=name)
        return unread_stream(self._spark, name, _kinds(schema))

    def _named(self, name: str, *, kafka: bool) -> DataFrame:
        written, topic = configured(self._spark, name)
        found = None if written is None else self._found.schema(written)
        table = None if found is None else found[0]
        self._found.inputs[name] = SurveyedInput(kind="Named", name=name, table=table, topic=topic)
        if kafka:
            return self._records(name)
        if found is None:
            raise _no_history(name) if written is None else self._not_found(written)
        return unread_stream(self._spark, name, _kinds(found[1]))

    def _records(self, topics: str) -> DataFrame:
        return unread_stream(self._spark, topics, record_kinds(self._source_options))

    def _not_found(self, table: str) -> BackfillError:
        """The error that ends the survey: without its columns, the program cannot go on."""
        error = BackfillError(
            f"the application streams from the table {table}, which is in no catalog of PyIceberg's"
            " configuration, or in several: add its catalog to .pyiceberg.yaml; if several catalogs"
            " contain it, qualify the table's name with its catalog"
        )
        self._run.end(failed(str(error), error))
        return error


class SurveyedTables:
    """Tables that the program reads once. Those in the catalogs are empty."""

    def __init__(self, found: FoundInputs):
        self._found = found

    def name_of(self, written: str) -> str | None:
        """The full name of a table in a catalog; None if there is none."""
        return self._found.name_of(written)

    def frame(self, spark: SparkSession, written: str) -> DataFrame | None:
        """An empty table with the columns of the one in a catalog; None if there is none."""
        found = self._found.schema(written)
        if found is None:
            return None
        name, schema = found
        self._found.static_tables[name] = None
        return spark.createDataFrame([], schema)

    def may_be_in(self, text: str, values: object) -> bool:
        """Any text may have the name of a table in a catalog."""
        return True

    def by_spark(self, written: str, read: Callable[[], DataFrame]) -> DataFrame:
        """What Spark reads by itself."""
        return read()


def unread_stream(
    spark: SparkSession, name: str, columns: Mapping[str, str | DataType]
) -> DataFrame:
    """A stream with these columns that is never read. Its plan has the name of the input."""
    nothing = DataStreamReader(spark).format("rate").option(INPUT, name).load()
    return nothing.select([F.lit(None).cast(kind).alias(each) for each, kind in columns.items()])


def _kinds(schema: StructType) -> dict[str, DataType]:
    """Not in words, in which Spark does not read every name of a field."""
    return {each.name: each.dataType for each in schema}


def _no_history(source: str) -> UnsupportedProgram:
    return UnsupportedProgram(
        Problem(
            "",
            f"the application reads the source {source} by name, but its configuration has no"
            " candidate with a table",
            "add a candidate of type iceberg with its table",
        )
    )
