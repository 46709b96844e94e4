"""Tables whose rows of the window are compared: an output's own, and perhaps a reference."""

from dataclasses import dataclass

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import IntegerType, LongType

from backfill.api.errors import BadInput, Problem
from backfill.api.manifests.spec_rules import reference_is_output
from backfill.api.output import Output, Reference
from backfill.api.spec import Window
from backfill.iceberg.open_tables import Catalogs, is_same
from backfill.outputs.comparable_outputs import check_columns
from backfill.outputs.window_rows import WindowRows, cut_days, window_rows


@dataclass(frozen=True, slots=True)
class ComparedTable:
    """A table with the rows of the window."""

    table: Table
    output: Output
    """The output, with the table and its time column in place of its own if it is a reference."""
    rows: WindowRows


def own_table(table: Table, output: Output, window: Window, field: str) -> ComparedTable:
    """The output's own table.

    Raises:
        BadInput: its time column does not fit.
    """
    return ComparedTable(table, output, _rows(table.schema(), output, window, field))


def other_table(
    catalogs: Catalogs, table: Table, output: Output, window: Window, field: str
) -> ComparedTable:
    """What a result is compared with. It is only read.

    Args:
        table: the output's.
        field: path of the output in the spec.

    Raises:
        BadInput: the table cannot be opened or is the output's own, or its columns do not fit.
    """
    if output.reference is None:
        return own_table(table, output, window, field)
    where = f"{field}.validate.reference"
    theirs = catalogs.load_table(output.reference.table, f"{where}.table")
    if is_same(table, theirs):
        raise BadInput(reference_is_output(f"{where}.table", output.reference.table))
    problems: list[Problem] = list(check_columns(table.schema(), theirs.schema(), output, field))
    as_output = _in_place_of(output, output.reference, theirs.schema())
    try:
        rows = _rows(theirs.schema(), as_output, window, where)
        problems += cut_days(theirs.schema(), as_output, rows, window)
    except BadInput as error:
        problems += error.problems
    if problems:
        raise BadInput(problems)
    return ComparedTable(theirs, as_output, rows)


def _in_place_of(output: Output, reference: Reference, schema: Schema) -> Output:
    column, unit = reference.timestamp_column, reference.timestamp_unit
    if column is None:
        column = output.timestamp_column
        if unit is None and _is_number(schema, column or ""):
            unit = output.timestamp_unit
    fields = {"table": reference.table, "timestamp_column": column, "timestamp_unit": unit}
    return output.model_copy(update=fields)


def _is_number(schema: Schema, column: str) -> bool:
    found = column in schema.column_names and schema.find_type(column)
    return isinstance(found, LongType | IntegerType)


def _rows(schema: Schema, output: Output, window: Window, field: str) -> WindowRows:
    rows = window_rows(schema, output, window, field)
    if rows is None:
        raise AssertionError("validate needs timestampColumn")
    return rows
