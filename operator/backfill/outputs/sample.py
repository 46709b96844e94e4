"""Some rows of a staged result, each beside what production has in its place."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, In
from pyiceberg.table import Table
from pyiceberg.types import IntegerType, LongType, StringType

from backfill.api.errors import BackfillError
from backfill.api.output import Output
from backfill.api.spec import Window
from backfill.iceberg.tables import Catalogs
from backfill.outputs.result import Result
from backfill.outputs.staging import branch_head
from backfill.outputs.window import window_rows

Row = dict[str, Any]

_PRUNING = (IntegerType, LongType, StringType)
"""Types of keys by which PyIceberg leaves out files and rows; others are compared here."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A row of the result."""

    result: Row
    production: tuple[Row, ...]
    """The rows with the same keys; several where keys do not identify a row."""

    @property
    def differs(self) -> tuple[str, ...]:
        """The columns in which the only such row differs."""
        if len(self.production) != 1:
            return ()
        (other,) = self.production
        return tuple(name for name, value in self.result.items() if other.get(name) != value)


def sample(
    output: Output, result: Result, window: Window, *, rows: int, published: int | None
) -> list[Pair]:
    """Some rows of a result; production's are found where the output has keys.

    Args:
        rows: how many at most.
        published: the snapshot that published the result. Production is as it was before it.

    Raises:
        BackfillError: nothing is staged, or no longer.
        BadInput: the table cannot be read.
    """
    table = Catalogs().load_table(output.table, "spec.outputs")
    head = branch_head(table.metadata, result)
    if head is None:
        raise BackfillError(f"{output.table} has no staged rows of {result.backfill}")
    inside = window_rows(table.schema(), output, window)
    of_window = AlwaysTrue() if inside is None else inside.expression()
    staged = table.scan(of_window, snapshot_id=head.snapshot_id, limit=rows).to_arrow().to_pylist()
    before = table.metadata.current_snapshot_id
    if published is not None:
        snapshot = table.snapshot_by_id(published)
        before = snapshot.parent_snapshot_id if snapshot else None
    keys = output.compared_keys
    found: dict[tuple[object, ...], list[Row]] = {_key(row, keys): [] for row in staged}
    if keys and staged and before is not None:
        wanted = And(of_window, _with_keys(table, keys, staged))
        for row in _rows(table, wanted, before):
            if (key := _key(row, keys)) in found:
                found[key].append(row)
    return [Pair(row, tuple(found[_key(row, keys)])) for row in staged]


def _with_keys(table: Table, keys: Sequence[str], rows: Sequence[Row]) -> BooleanExpression:
    """What is true of all rows with these keys, and of few others."""
    wanted: BooleanExpression = AlwaysTrue()
    for key in keys:
        values = {row[key] for row in rows}
        if isinstance(table.schema().find_type(key), _PRUNING) and None not in values:
            wanted = And(wanted, In(term=key, literals=values))
    return wanted


def _rows(table: Table, wanted: BooleanExpression, snapshot_id: int) -> Iterator[Row]:
    batches: pa.RecordBatchReader = table.scan(
        wanted, snapshot_id=snapshot_id
    ).to_arrow_batch_reader()
    for batch in batches:
        yield from batch.to_pylist()


def _key(row: Row, keys: Sequence[str]) -> tuple[object, ...]:
    return tuple(repr(row.get(key)) for key in keys)
