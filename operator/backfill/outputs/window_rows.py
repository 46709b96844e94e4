"""Decides which rows of an output belong to the window, by its timestampColumn: row by row, or by a
file's statistics.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import And, BooleanExpression, GreaterThanOrEqual, LessThan
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    IntegerType,
    LongType,
    NestedField,
    StructType,
    TimestampType,
    TimestamptzType,
)

from backfill.api.errors import BadInput, Problem
from backfill.api.field_types import map_and_key
from backfill.api.output import Output
from backfill.api.quantities import format_time, from_us, to_us
from backfill.api.spec import Window
from backfill.iceberg.open_tables import near
from backfill.iceberg.timestamp_units import Ticks, ticks_of

DAY_US = 86_400_000_000
_GREATEST = 2**63 - 1
_MOMENTS = (TimestampType, TimestamptzType, DateType)


class Share(Enum):
    """How many of a file's rows belong to the window."""

    NONE = "none"
    SOME = "some"
    ALL = "all"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Stretch:
    """Which results of a window are written, by their time in microseconds."""

    start_us: int
    """Those from this time on."""
    end_us: int
    """And before this time."""
    open_us: int
    """Those from ``end_us`` to before this time belong to the window, and could still change: the
    rows that would close them are not read.
    """

    @property
    def given(self) -> Window:
        """The part of the window that is written. It may be empty."""
        return Window.model_construct(start=from_us(self.start_us), end=from_us(self.end_us))

    @property
    def left_open(self) -> Window:
        """The part that is left open. It may be empty."""
        return Window.model_construct(start=from_us(self.end_us), end=from_us(self.open_us))


@dataclass(frozen=True, slots=True)
class WindowRows:
    """The rows of the window: those with a value of the column in [first, end). A row without a
    value does not belong to it.
    """

    column: str
    """Name of the column in expressions, with dots."""
    path: tuple[str, ...]
    """Names that lead to the column, from the outermost in."""
    field_id: int
    first: int
    """Least value in the window, in the column's own unit."""
    end: int
    """Least value after the window."""
    ticks: Ticks | None
    """Unit of the column; None for dates."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that :meth:`mask` looks at, in expressions."""
        return (self.column,)

    def fixed_by(self, keys: Collection[str]) -> bool:
        """Whether all rows with the same values of ``keys`` have the same time."""
        return self.path[0] in keys

    def mask(self, rows: pa.RecordBatch) -> pa.BooleanArray:
        """For each row, whether it belongs to the window."""
        numbers = self.times(rows)
        inside = pc.and_(pc.greater_equal(numbers, self.first), pc.less(numbers, self.end))
        return pc.fill_null(inside, False)

    def later(self, rows: pa.RecordBatch) -> pa.BooleanArray:
        """For each row, whether it is from after the window."""
        return pc.fill_null(pc.greater_equal(self.times(rows), self.end), False)

    def times(self, rows: pa.RecordBatch) -> pa.Array:
        """The column's values, in its own unit."""
        values = rows.column(self.path[0])
        for name in self.path[1:]:
            values = pc.struct_field(values, name)
        if pa.types.is_date32(values.type):
            values = values.cast(pa.int32())
        return values.cast(pa.int64())

    def expression(self) -> BooleanExpression:
        """The same condition for PyIceberg's scans."""
        return And(
            GreaterThanOrEqual(term=self.column, value=self.first),
            LessThan(term=self.column, value=self.end),
        )

    def share(self, file: DataFile) -> Share:
        """How many rows of a data file belong to the window, by the statistics in its manifest."""
        nulls = (file.null_value_counts or {}).get(self.field_id)
        if file.record_count <= 0:  # whoever did not count the rows has not counted nulls either
            return Share.UNKNOWN
        if nulls is not None and nulls == file.record_count:
            return Share.NONE
        bounds = self.bounds(file)
        if bounds is None:
            return Share.UNKNOWN
        least, greatest = bounds
        if greatest < self.first or least >= self.end:
            return Share.NONE
        return (
            Share.ALL if self.first <= least and greatest < self.end and nulls == 0 else Share.SOME
        )

    def bounds(self, file: DataFile) -> tuple[int, int] | None:
        """The least and the greatest value in a data file, by its manifest; None if unknown."""
        lower, upper = (
            (file.lower_bounds or {}).get(self.field_id),
            (file.upper_bounds or {}).get(self.field_id),
        )
        return None if lower is None or upper is None else (_number(lower), _number(upper))

    def first_at(self, moment_us: int) -> int:
        """The least value of the column that is not before a moment."""
        return _first_at(self.ticks, moment_us)


def window_rows(
    schema: Schema, output: Output, window: Window, field: str = "spec.outputs"
) -> WindowRows | None:
    """The window's rows of an output; None if it names no column,
    so that every row belongs to the window.

    Raises:
        BadInput: the column does not exist, is not a timestamp or date, or lacks a unit.
    """
    if output.timestamp_column is None:
        return None
    found = _find(schema, output, field)
    ticks: Ticks | None = None
    if not isinstance(found.field_type, DateType):
        kind = (
            "long"
            if isinstance(found.field_type, LongType | IntegerType)
            else str(found.field_type)
        )
        ticks = ticks_of(kind, output.timestamp_unit)
    return WindowRows(
        output.timestamp_column,
        _path(schema.as_struct(), found.field_id),
        found.field_id,
        _first_at(ticks, to_us(window.start)),
        _first_at(ticks, to_us(window.end)),
        ticks,
    )


def _first_at(ticks: Ticks | None, moment_us: int) -> int:
    if ticks is None:
        return -(-moment_us // DAY_US)
    return min(ticks.first_at(moment_us), _GREATEST)  # for nanoseconds, the year 2262


def cut_days(
    schema: Schema, output: Output, rows: WindowRows | None, window: Window
) -> Iterator[Problem]:
    """Windows that cut through days. A date is in the window if its midnight in UTC is. Rows of the
    first day before the window's start would be left out, and rows of the last day after its end
    would be deleted and not replaced.
    """
    if rows is None or not isinstance(schema.find_type(rows.field_id), DateType):
        return
    for name, moment in (("start", window.start), ("end", window.end)):
        if to_us(moment) % DAY_US:
            message = (
                f"{format_time(moment)} is not midnight in UTC, but column"
                f" {output.timestamp_column} of {output.table}, which decides what is in the"
                " window, is a date"
            )
            fix = (
                "start and end the window at 00:00:00Z, and cover days of another zone with"
                " warmUp and drain; or use a timestamp column"
            )
            yield Problem(f"spec.window.{name}", message, fix)


def _find(schema: Schema, output: Output, field: str) -> NestedField:
    column, where = output.timestamp_column or "", f"{field}.timestampColumn"
    try:
        found = schema.find_field(column)
    except ValueError:
        in_map = map_and_key(column)
        if in_map is not None and in_map[0] in schema._name_to_id:
            message = f"{column} of {output.table} is a value of a map, which only sources can use"
            fix = "use a column of the row itself"
            raise BadInput(Problem(where, message, fix)) from None
        message = f"table {output.table} has no column {column}"
        raise BadInput(Problem(where, message, near(column, schema.column_names))) from None
    problem = _unfit(found, schema, output, field)
    if problem is not None:
        raise BadInput(problem)
    return found


def _unfit(found: NestedField, schema: Schema, output: Output, field: str) -> Problem | None:
    column, unit = f"{field}.timestampColumn", f"{field}.timestampUnit"
    what = f"column {output.timestamp_column} of {output.table} is a {found.field_type}"
    if not _path(schema.as_struct(), found.field_id):
        return Problem(column, f"{what} in a list or map", "use a column of the row itself")
    if isinstance(found.field_type, LongType | IntegerType):
        fix = "set timestampUnit to s, ms, us or ns"
        return (
            Problem(unit, f"{what}; its unit is missing", fix)
            if output.timestamp_unit is None
            else None
        )
    if not isinstance(found.field_type, _MOMENTS):
        return Problem(column, what, "use a timestamp or date column, or a long with timestampUnit")
    if output.timestamp_unit is not None:
        return Problem(unit, f"{what}, which has its own unit", "omit timestampUnit")
    return None


def _path(struct: StructType, field_id: int) -> tuple[str, ...]:
    """The names that lead to a field, from the outermost in; empty for a field in a list or map."""
    for field in struct.fields:
        if field.field_id == field_id:
            return (field.name,)
        if isinstance(field.field_type, StructType) and (
            below := _path(field.field_type, field_id)
        ):
            return (field.name, *below)
    return ()


def _number(bound: bytes) -> int:
    """A bound of an integer, timestamp or date column. In older files it may have fewer bytes."""
    return int.from_bytes(bound, "little", signed=True)
