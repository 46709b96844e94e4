"""Records that the application sends to Kafka, as rows of an Iceberg table.

The columns have the names that Spark's Kafka sink takes a record from: ``key``, ``value``,
``headers``, ``topic`` and ``partition``. What the sink ignores, a table may have, too: an output's
``timestampColumn`` is such a column, since a record that is sent has no time of its own.
"""

from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, NestedField
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from backfill.api.errors import Problem, UnsupportedProgram
from backfill.api.output import Output
from backfill.runtime.sink import LEFT_OUT

VALUE, TOPIC = "value", "topic"
_CONTENT = ("key", VALUE, "headers")
"""What a record consists of. None of it may be lost."""


def record_rows(
    frame: DataFrame,
    topic: str | None,
    output: Output,
    schema: Schema,
    query: str,
    *,
    whole: bool = False,
) -> DataFrame:
    """The rows of the output's table for the records that Spark would make of a DataFrame.

    Text is written as UTF-8 bytes where the table has bytes, as to Kafka. A column that is no part
    of a record is written if the table has it, and left out otherwise: by the plan, or with
    ``whole`` by the sink. What a plan leaves out, Spark does not keep in the query's state either,
    which then is not that of the program.

    Args:
        topic: option ``topic`` of the sink, which counts more than the column.
        schema: the table's.
        query: what writes, in words, with a comma if the sentence needs one.

    Raises:
        UnsupportedProgram: there is no ``value``, or the table has none.
    """
    there = {field.name.lower(): field for field in schema.fields}
    if VALUE not in frame.columns:
        fix = "name the column of the record's bytes or text value, as Spark's Kafka sink needs it"
        raise UnsupportedProgram(
            Problem("", f"{query} gives records for Kafka without a column value", fix)
        )
    if VALUE not in there:
        raise _no_table_of_records(output, query)
    kept = [name for name in frame.columns if name in _CONTENT or name.lower() in there]
    if topic is not None:
        kept = [name for name in kept if name != TOPIC]
    elif TOPIC in frame.columns and TOPIC not in kept:
        raise _no_column_topic(output, query)
    if whole:
        # by their places, since several of those that are left out may have the same name
        kept = [
            name if name in kept else f"{LEFT_OUT}{place}"
            for place, name in enumerate(frame.columns)
        ]
        frame = frame.toDF(*kept)
    rows = [_written(frame, name, there) for name in kept]
    if topic is not None and TOPIC in there:
        rows.append(F.lit(topic).alias(TOPIC))
    return frame.select(rows)


def _written(frame: DataFrame, name: str, there: dict[str, NestedField]) -> Column:
    column = F.col(f"`{name.replace('`', '``')}`")
    field = there.get(name.lower())
    text = isinstance(frame.schema[name].dataType, StringType)
    if text and field is not None and isinstance(field.field_type, BinaryType):
        return column.cast("binary").alias(name)
    return column


def _no_table_of_records(output: Output, query: str) -> UnsupportedProgram:
    return UnsupportedProgram(
        Problem(
            "spec.outputs",
            f"{query} gives records with key and value, and the table {output.table} of output"
            f" {output.name} has no column value",
            "name a table of records, with the columns key and value, as outputs[].table; or write"
            " the rows to the output by another query, before they become records; a query that"
            " this Backfill is not for can be named in spec.ignoredQueries",
        )
    )


def _no_column_topic(output: Output, query: str) -> UnsupportedProgram:
    return UnsupportedProgram(
        Problem(
            "spec.outputs",
            f"{query} gives records for the topics of its column topic, which the table"
            f" {output.table} of output {output.name} does not have",
            "add the column topic, a string, to the table, or set the sink's option topic",
        )
    )
