"""Records that the application sends to Kafka, as rows of an Iceberg table.

The columns have the names that Spark's Kafka sink takes a record from: ``key``, ``value``,
``headers``, ``topic`` and ``partition``. What the sink ignores, a table may have, too: an output's
``timestampColumn`` is such a column, since a record that is sent has no time of its own.
"""

from collections.abc import Container, Sequence

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
_RECORD = (*_CONTENT, TOPIC, "partition")
"""What Spark's sink takes, by exactly these names."""


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
        UnsupportedProgram: there is no ``value``, the table has none, or it is unknown which column
            is the table's.
    """
    there = {field.name.lower(): field for field in schema.fields}
    if VALUE not in frame.columns:
        fix = (
            "give the column with the record's value (bytes or text) the name value, as Spark's"
            " Kafka sink requires"
        )
        raise UnsupportedProgram(
            Problem("", f"{query} produces records for Kafka without a column value", fix)
        )
    if VALUE not in there:
        raise _no_table_of_records(output, query)
    kept = _kept(frame.columns, there)
    if topic is not None:
        kept = {place: name for place, name in kept.items() if name != TOPIC}
    elif TOPIC in frame.columns and TOPIC not in kept.values():
        raise _no_column_topic(output, query)
    lower = [name.lower() for name in kept.values()]
    if (repeated := next((name for name in lower if lower.count(name) > 1), None)) is not None:
        raise _repeated(output, query, repeated)
    names = list(kept.values())
    if whole or len({name.lower() for name in frame.columns}) < len(frame.columns):
        # by their places, since several of those that are left out may have the same name
        every = [kept.get(place, f"{LEFT_OUT}{place}") for place in range(len(frame.columns))]
        frame, names = frame.toDF(*every), every if whole else names
    rows = [_written(frame, name, there) for name in names]
    if topic is not None and TOPIC in there:
        rows.append(F.lit(topic).alias(TOPIC))
    return frame.select(rows)


def _kept(names: Sequence[str], there: Container[str]) -> dict[int, str]:
    """By their places, the columns that are written. ``there`` has those of the table, in lower
    case.

    To Spark's sink, only columns with exactly these names are parts of a record, and of several
    with the same name the first one.
    """
    kept: dict[int, str] = {}
    for place, name in enumerate(names):
        if name in _RECORD:
            written = (name in _CONTENT or name in there) and name not in names[:place]
        else:
            written = name.lower() in there and name.lower() not in _RECORD
        if written:
            kept[place] = name
    return kept


def _written(frame: DataFrame, name: str, there: dict[str, NestedField]) -> Column:
    column = F.col(f"`{name.replace('`', '``')}`")
    field = there.get(name.lower())
    text = isinstance(frame.schema[name].dataType, StringType)
    if text and field is not None and isinstance(field.field_type, BinaryType):
        return column.cast("binary").alias(name)
    return column


def _repeated(output: Output, query: str, name: str) -> UnsupportedProgram:
    return UnsupportedProgram(
        Problem(
            "spec.outputs",
            f"{query} produces records with several columns {name}, but the table {output.table}"
            f" of output {output.name} has only one",
            "give them different names",
        )
    )


def _no_table_of_records(output: Output, query: str) -> UnsupportedProgram:
    return UnsupportedProgram(
        Problem(
            "spec.outputs",
            f"{query} produces records with key and value, but the table {output.table} of output"
            f" {output.name} has no column value",
            "set outputs[].table to a table of records, with the columns key and value; or write"
            " the rows to the output in another query, before they become records; list queries"
            " that do not belong to this Backfill in spec.ignoredQueries",
        )
    )


def _no_column_topic(output: Output, query: str) -> UnsupportedProgram:
    return UnsupportedProgram(
        Problem(
            "spec.outputs",
            f"{query} produces records for the topics in its column topic, which the table"
            f" {output.table} of output {output.name} does not have",
            "add the column topic, a string, to the table, or set the sink's option topic",
        )
    )
