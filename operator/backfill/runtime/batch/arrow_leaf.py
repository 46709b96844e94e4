"""Splits as a batch DataFrame, read as streaming reads them:
by this package's reader, in Python tasks.
"""

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType

from backfill.planning.plan import Split
from backfill.planning.rows.table import SourceTable
from backfill.runtime.catalyst import sized
from backfill.runtime.source.long_lived import exempt_from_collection
from backfill.runtime.source.record_columns import RECORD_COLUMNS, RecordColumns

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
    reader = _reader(table, tasks, given, frozenset(read), record=record, with_step=bool(step))
    if step is not None:
        given = StructType([*given, StructField(step, LongType(), nullable=False)])
    size = sum(split.bytes for splits in tasks for split in splits)
    rows = sized(_numbers(spark, tasks), size).mapInArrow(reader, given)
    added = [] if step is None else [F.col(f"`{step}`")]
    return rows.select(*(_column(rows, name, schema) for name in schema.names), *added)


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
    read = _reader(table, tasks, given, wanted, record=None)
    names = list(columns)

    def results(numbers: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        return function(batch.select(names) for batch in read(numbers))

    return _numbers(spark, tasks).mapInArrow(results, result)


def _numbers(spark: SparkSession, tasks: Sequence[object]) -> DataFrame:
    """A number for each task, in a partition of its own."""
    return spark.range(0, len(tasks), 1, max(len(tasks), 1))


def _given(schema: StructType, read: Sequence[str]) -> StructType:
    """What a task gives: rows are counted by a column of the table, if only by one of nulls."""
    counted = [] if any(name not in RECORD_COLUMNS for name in read) else schema.names[:1]
    return StructType([schema[name] for name in (*counted, *read)])


def _column(rows: DataFrame, name: str, schema: StructType) -> Column:
    if name in rows.columns:
        return F.col(f"`{name.replace('`', '``')}`")
    return F.lit(None).cast(schema[name].dataType).alias(name)


def _reader(
    table: SourceTable,
    tasks: Sequence[tuple[Split, ...]],
    given: StructType,
    columns: frozenset[str],
    *,
    record: Sequence[RecordColumns] | None,
    with_step: bool = False,
) -> ArrowFunction:
    """What a task does, given its number.

    How to open a table's files may hold credentials. What a function closes over is sent to Python
    workers only; anything else of a query is printed in its plan and in Spark's event log.
    """
    target = to_arrow_schema(
        StructType(
            [field for field in given if record is None or field.name not in RECORD_COLUMNS]
        ),
        timezone="UTC",
    )
    names = given.names
    # each task takes only its own splits apart
    packed = [pickle.dumps(splits) for splits in tasks]

    def read_task(task: int) -> Iterator["pa.RecordBatch"]:
        from backfill.runtime.source.reading import read_split

        exempt_from_collection("batch")
        rows = (
            _with_step(batch, split.step) if with_step else batch
            for split in pickle.loads(packed[task])
            for batch in read_split(table, split, target, columns)
        )
        if record is None:
            return rows
        return (batch.select(names) for batch in record[task].added_to(rows))

    def read(numbers: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        for batch in numbers:
            for task in batch.column(0).to_pylist():
                yield from read_task(task)

    read.__name__ = PLANNED_ROWS
    return read


def _with_step(rows: "pa.RecordBatch", step: int) -> "pa.RecordBatch":
    import pyarrow as pa

    return rows.append_column("step", pa.repeat(pa.scalar(step, pa.int64()), rows.num_rows))
