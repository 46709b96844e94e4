"""The two sides of a comparison: the rows of the window in a snapshot of the output's table, and in
another one of it or of the reference, as batch DataFrames in the tables' present columns.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

from pyiceberg.exceptions import ResolveError
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DateType

from backfill.api.errors import BadInput, Problem, first_line
from backfill.api.output import Output
from backfill.iceberg.table_scan import scan_files
from backfill.outputs.window_rows import DAY_US, WindowRows
from backfill.planning.plan import Split
from backfill.planning.rows.pinned_table import SourceTable
from backfill.runtime.batch.table_files import source_table, splits_of
from backfill.runtime.comparison.numbered_rows import NumberedRows
from backfill.runtime.source.task_packing import pack_by_bytes
from backfill.runtime.source.timestamp_columns import column_of, microseconds

_TASK_BYTES = 32 * 2**20


@dataclass(frozen=True, slots=True)
class ComparedSide:
    """The files of one side."""

    table: SourceTable
    splits: tuple[Split, ...]

    @property
    def rows(self) -> int:
        """The most rows that it has, by metadata."""
        return sum(split.rows for split in self.splits)


def side_of(
    table: Table,
    output: Output,
    rows: WindowRows,
    snapshot_id: int | None,
    columns: Collection[str],
) -> ComparedSide:
    """The files of a snapshot that may hold rows of the window; none without a snapshot.

    Args:
        columns: the top-level columns to read, including the one with the time.

    Raises:
        BadInput: they cannot be read.
    """
    read = (each for each in table.schema().fields if each.name in {*columns, rows.path[0]})
    found = replace(
        source_table(table, output, rows, snapshot_id), schema_json=Schema(*read).model_dump_json()
    )
    if snapshot_id is None:
        return ComparedSide(found, ())
    try:
        tasks = scan_files(table, snapshot_id, rows.expression())
        splits = tuple(split for task in tasks for split in splits_of(table, output.name, task))
    except (ValueError, TypeError, ResolveError) as error:
        raise BadInput(
            Problem(
                "spec.outputs",
                f"the files of {output.table} in the window cannot be read: {first_line(error)}",
                "compact the table if it has equality deletes",
            )
        ) from error
    others = sorted({split.format for split in splits} - {"parquet"})
    if others:
        raise BadInput(
            Problem(
                "spec.outputs",
                f"{output.table} has files in the window that are not Parquet, but"
                f" {', '.join(others)}, which cannot be compared",
                "rewrite them as Parquet",
            )
        )
    return ComparedSide(found, splits)


def rows_of(spark: SparkSession, side: ComparedSide, tasks: int) -> NumberedRows:
    """The rows of the files of one side."""
    size = sum(split.bytes for split in side.splits)
    packed = pack_by_bytes(side.splits, max(tasks, size // _TASK_BYTES))
    return NumberedRows(spark, side.table, packed)


def in_window(frame: DataFrame, side: ComparedSide, rows: WindowRows) -> DataFrame:
    """The rows of the window among those of the files of one side."""
    value, kind = column_of(frame, rows.column)
    number = (
        F.unix_date(value)
        if isinstance(kind, DateType)
        else value.cast("bigint")
        if side.table.source.timestamp_unit is not None
        else microseconds(value, kind)
    )
    return frame.where((number >= rows.first) & (number < rows.end))


def time_of(frame: DataFrame, output: Output) -> Column:
    """The time of a row in microseconds, by the output's timestamp column."""
    value, kind = column_of(frame, output.timestamp_column or "")
    if isinstance(kind, DateType):
        return F.unix_date(value).cast("bigint") * DAY_US
    return microseconds(value, kind, output.timestamp_unit)
