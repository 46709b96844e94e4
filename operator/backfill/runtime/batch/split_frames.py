"""Splits as a batch DataFrame, read as streaming reads them:
by this package's reader, in Python tasks.
"""

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    DataType,
    LongType,
    MapType,
    StructField,
    StructType,
    TimestampType,
)

from backfill.planning.plan import Split
from backfill.planning.rows.pinned_table import SourceTable
from backfill.runtime.catalyst import pickled, quoted, selected, sized
from backfill.runtime.source.garbage_collection import exempt_from_collection
from backfill.runtime.source.record_columns import RECORD_COLUMNS, RecordColumns
from backfill.runtime.spark_versions import to_arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

PLANNED_ROWS = "backfill_planned_rows"
"""The name of the function that reads splits, by which plans show it."""

ArrowFunction = Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]
"""Gives rows for rows, as ``mapInArrow`` takes it."""


def arrow_frame(
    spark: SparkSession,
    table: SourceTable,
    tasks: Sequence[tuple[Split, ...]],
    schema: StructType,
    *,
    columns: frozenset[str] | None = None,
    record: Sequence[RecordColumns] | None = None,
    step: str | None = None,
) -> DataFrame:
    """The rows of all tasks' splits.

    Args:
        schema: the table's columns, as :func:`source_schema` gives them.
        columns: the columns that matter, None for all; the others are null.
        record: for each task what Kafka would have added, where ``schema`` has its columns.
        step: a column for the step of each row's split, which is added to the others.
    """
    read = [name for name in schema.names if columns is None or name in columns]
    given = _given(schema, read)
    reader = _reader(
        table, given, frozenset(read), with_record=record is not None, with_step=step is not None
    )
    if step is not None:
        given = StructType([*given, StructField(step, LongType(), nullable=False)])
    size = sum(split.bytes for splits in tasks for split in splits)
    rows = sized(_sent(spark, tasks, record), size).mapInArrow(reader, given)
    there = set(given.names)
    columns_in_sql = [
        quoted(field.name)
        if field.name in there
        else f"CAST(NULL AS {_in_sql(field.dataType)}) AS {quoted(field.name)}"
        for field in schema
    ]
    return selected(rows, [*columns_in_sql, *([] if step is None else [quoted(step)])])


def arrow_frame_of_results(
    spark: SparkSession,
    table: SourceTable,
    tasks: Sequence[tuple[Split, ...]],
    schema: StructType,
    *,
    columns: Sequence[str],
    function: ArrowFunction,
    result: str,
) -> DataFrame:
    """What a function returns for the rows of each task. It is called where they are read, so they
    do not pass through the JVM.

    Args:
        columns: of ``schema``, in the order in which the function is given them.
        result: the columns that the function gives, as a DDL string.
    """
    wanted = frozenset(columns)
    given = _given(schema, [name for name in schema.names if name in wanted])
    read = _reader(table, given, wanted)
    names = list(columns)

    def results(sent: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        return function(batch.select(names) for batch in read(sent))

    return _sent(spark, tasks).mapInArrow(results, result)


def _sent(
    spark: SparkSession,
    tasks: Sequence[tuple[Split, ...]],
    record: Sequence[RecordColumns] | None = None,
) -> DataFrame:
    """What each task is sent to read: its splits, and what Kafka would have added."""
    records = [None] * len(tasks) if record is None else record
    return pickled(spark, list(zip(tasks, records, strict=True)))


def _given(schema: StructType, read: Sequence[str]) -> StructType:
    """What a task gives: rows are counted by a column of the table, if only by one of nulls."""
    counted = [] if any(name not in RECORD_COLUMNS for name in read) else schema.names[:1]
    return StructType([schema[name] for name in (*counted, *read)])


def _in_sql(kind: DataType) -> str:
    """A type in SQL, whatever the names of its fields."""
    match kind:
        case StructType():
            fields = (f"{quoted(each.name)}: {_in_sql(each.dataType)}" for each in kind)
            return f"STRUCT<{', '.join(fields)}>"
        case ArrayType():
            return f"ARRAY<{_in_sql(kind.elementType)}>"
        case MapType():
            return f"MAP<{_in_sql(kind.keyType)}, {_in_sql(kind.valueType)}>"
        case TimestampType():
            return "TIMESTAMP_LTZ"  # what TIMESTAMP is, a property of the session says
    return kind.simpleString()


def _reader(
    table: SourceTable,
    given: StructType,
    columns: frozenset[str],
    *,
    with_record: bool = False,
    with_step: bool = False,
) -> ArrowFunction:
    """What a task does with what it is sent.

    How to open a table's files may hold credentials. What a function closes over is sent to Python
    workers only; anything else of a query is printed in its plan and in Spark's event log. It is
    sent to all of them, though, so that it has nothing of single files.
    """
    target = to_arrow_schema(
        StructType(
            [field for field in given if not with_record or field.name not in RECORD_COLUMNS]
        )
    )
    names = given.names

    def read_task(
        splits: tuple[Split, ...], record: RecordColumns | None
    ) -> Iterator["pa.RecordBatch"]:
        from backfill.runtime.source.split_reading import read_split

        exempt_from_collection("batch")
        rows = (
            _with_step(batch, split.step) if with_step else batch
            for split in splits
            for batch in read_split(table, split, target, columns)
        )
        if record is None:
            return rows
        return (batch.select(names) for batch in record.added_to(rows))

    def read(sent: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        for batch in sent:
            for row in batch.column(0).to_pylist():
                for task in pickle.loads(row):
                    yield from read_task(*task)

    read.__name__ = PLANNED_ROWS
    return read


def _with_step(rows: "pa.RecordBatch", step: int) -> "pa.RecordBatch":
    import pyarrow as pa

    return rows.append_column("step", pa.repeat(pa.scalar(step, pa.int64()), rows.num_rows))
