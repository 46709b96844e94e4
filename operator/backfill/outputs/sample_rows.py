"""Some rows of a staged result, each beside what production has in its place."""

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa
from pyiceberg.exceptions import ResolveError
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, In
from pyiceberg.table import Table
from pyiceberg.types import IntegerType, LongType, StringType

from backfill.api.errors import BackfillError, BadInput, Problem, first_line
from backfill.api.output import Output
from backfill.api.spec import Window
from backfill.iceberg.open_tables import Catalogs, near
from backfill.iceberg.table_scan import scan_files
from backfill.outputs.replaced_files import read_rows
from backfill.outputs.result_names import Result
from backfill.outputs.staging import branch_head
from backfill.outputs.window_rows import window_rows

Row = dict[str, Any]

_PRUNING = (IntegerType, LongType, StringType)
"""Types of keys by which PyIceberg leaves out files and rows; others are compared here."""
_MOST_ALIKE = 100
"""Rows of production that are kept for one of the result."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A row of the result."""

    result: Row
    production: tuple[Row, ...]
    """The rows with the same keys; several where keys do not identify a row, but not more than 100.
    """

    @property
    def differs(self) -> tuple[str, ...]:
        """The columns in which the only such row differs."""
        if len(self.production) != 1:
            return ()
        (other,) = self.production
        return tuple(
            name
            for name, value in self.result.items()
            if _comparable(other.get(name)) != _comparable(value)
        )


def sample(
    output: Output,
    result: Result,
    window: Window,
    *,
    rows: int,
    published: int | None,
    base: int | None = None,
) -> list[Pair]:
    """Some rows of a result; production's are found where the output has keys. Both are read with
    the table's present columns.

    Args:
        rows: how many at most.
        published: the snapshot that published the result. Production is as it was before it.
        base: production's snapshot from before the run; None if it had none.

    Raises:
        BackfillError: nothing is staged, or no longer; or the snapshot has expired that production
            had before the result was published.
        BadInput: the table cannot be read, or has no such keys.
    """
    table = Catalogs().load_table(output.table, "spec.outputs")
    head = branch_head(table.metadata, result)
    if head is None:
        raise BackfillError(f"{output.table} has no staged rows of {result.backfill}")
    inside = window_rows(table.schema(), output, window)
    of_window = AlwaysTrue() if inside is None else inside.expression()
    staged = list(islice(_rows(table, of_window, head.snapshot_id), rows))
    keys = output.compared_keys
    _check_keys(table, output)
    found: dict[tuple[Hashable, ...], list[Row]] = {_key(row, keys): [] for row in staged}
    before = _production(table, output, published, base) if keys and staged else None
    if before is not None:
        wanted = And(of_window, _with_keys(table, keys, staged))
        for row in _rows(table, wanted, before):
            alike = found.get(_key(row, keys))
            if alike is not None and len(alike) < _MOST_ALIKE:
                alike.append(row)
    return [Pair(row, tuple(found[_key(row, keys)])) for row in staged]


def _check_keys(table: Table, output: Output) -> None:
    """They are checked when the Backfill is planned, but the table may have changed since."""
    names = [each.name for each in table.schema().fields]
    for key in output.compared_keys:
        if key not in names:
            message = f"table {output.table} has no column {key}, which is a key of {output.name}"
            raise BadInput(Problem("spec.outputs", message, near(key, names)))


def _production(
    table: Table, output: Output, published: int | None, base: int | None
) -> int | None:
    """The snapshot of production to compare with; None if it had none."""
    if published is None:
        return table.metadata.current_snapshot_id
    snapshot = table.snapshot_by_id(published)
    before = snapshot.parent_snapshot_id if snapshot is not None else None
    # some libraries leave a snapshot without a parent when its parent expires
    had = before if before is not None else base
    if snapshot is None or (had is not None and table.snapshot_by_id(had) is None):
        raise BackfillError(
            f"the content of {output.table} before snapshot {published}, which published the"
            " result, is unknown: snapshots have expired"
        )
    return before


def _with_keys(table: Table, keys: Sequence[str], rows: Sequence[Row]) -> BooleanExpression:
    """What is true of all rows with these keys, and of few others."""
    wanted: BooleanExpression = AlwaysTrue()
    for key in keys:
        values = {row[key] for row in rows}
        if isinstance(table.schema().find_type(key), _PRUNING) and None not in values:
            wanted = And(wanted, In(term=key, literals=values))
    return wanted


def _rows(table: Table, wanted: BooleanExpression, snapshot_id: int) -> Iterator[Row]:
    """Rows of a snapshot, one file after the other: PyIceberg alone would begin with all files."""
    try:
        tasks = list(scan_files(table, snapshot_id, wanted))
    except (ValueError, TypeError, ResolveError) as error:
        message = f"the files of {'.'.join(table.name())} cannot be read: {first_line(error)}"
        fix = "compact the table if it has equality deletes"
        raise BadInput(Problem("spec.outputs", message, fix)) from error
    for task in tasks:
        for batch in read_rows(table, task, wanted=wanted):
            for number in range(batch.num_rows):
                yield {name: _value(batch.column(name)[number]) for name in batch.schema.names}


def _value(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except (OverflowError, ValueError):  # Python's dates end with the year 9999
        return value.cast(pa.string()).as_py()


def _key(row: Row, keys: Sequence[str]) -> tuple[Hashable, ...]:
    return tuple(_comparable(row[key]) for key in keys)


def _comparable(value: Any) -> Hashable:
    """A form that is equal for values that a comparison with production takes for equal: NaN, and
    maps with the same entries in any order.
    """
    match value:
        case float() if math.isnan(value):
            return ("NaN",)
        case dict():
            return tuple((name, _comparable(each)) for name, each in value.items())
        case [tuple(), *_]:  # as PyArrow gives maps
            entries = ((_comparable(key), _comparable(each)) for key, each in value)
            return tuple(sorted(entries, key=repr))
        case list():
            return tuple(_comparable(each) for each in value)
        case _:
            return value  # type: ignore[no-any-return]
