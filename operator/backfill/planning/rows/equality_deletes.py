"""Rows that equality deletes delete: those whose values, in some columns, are those of a row in a
delete file. Null is equal to null.

Values of a column are compared as their places among the distinct ones that are deleted, and those
of several columns as the places of their combinations: in memory, it is a few numbers for each
deleted row.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from threading import RLock
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.schema import Schema, prune_columns

from backfill.api.errors import BackfillError, InvalidPlanInput, Problem, first_line
from backfill.iceberg.file_columns import Columns, columns_of, names_of, path_to
from backfill.planning.parquet_footers import open_parquet, unfit
from backfill.planning.plan import DeleteFile
from backfill.planning.rows.pinned_table import OpenTable
from backfill.planning.rows.row_selection import FieldValues, Positions, comparable

_Made = TypeVar("_Made")
_Keys = list[pa.ChunkedArray]
"""Rows by the columns that are compared."""
_KEPT_BYTES = 256 << 20
"""Most bytes that a process keeps of delete files, apart from what it is using."""
_NAN = float("nan")


class _Kept:
    """What was read of delete files, as much as fits: one often applies to many files of data.
    Threads that want the same read it once.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[object, tuple[Any, int]] = OrderedDict()
        self._bytes = 0
        self._lock = RLock()

    def get(self, which: object, make: Callable[[], _Made], size: Callable[[_Made], int]) -> _Made:
        with self._lock:
            if which in self._kept:
                self._kept.move_to_end(which)
                return cast(_Made, self._kept[which][0])
            made = make()
            self._kept[which] = made, size(made)
            self._bytes += size(made)
            while self._bytes > _KEPT_BYTES:
                self._bytes -= self._kept.popitem(last=False)[1][1]
            return made


_kept = _Kept()


@dataclass(frozen=True)
class ComparedColumns:
    """Reads the columns of a file by whose values rows are deleted."""

    schema: Schema
    """Of the table."""
    file: pq.ParquetFile
    columns: Columns
    """Those of the file."""
    constants: Mapping[int, Any]
    """By field id, the values of columns that the file lacks."""

    def read(self, field_ids: Sequence[int], row_groups: Sequence[int]) -> _Keys:
        """Some columns of row groups, as the table has them."""
        values = FieldValues(self.schema, field_ids, self.columns, self.constants)
        # a table without columns would lose the number of its rows
        names = names_of(self.columns, {each.field_id for each in values.fields})
        names = names or self.file.schema_arrow.names[:1]
        rows = self.file.read_row_groups(list(row_groups), names, use_threads=False)
        batches = rows.to_batches() or [_no_rows(rows.schema)]
        found = list(map(values.of, batches))
        return [pa.chunked_array([_compared_as(each[of]) for each in found]) for of in field_ids]


def deleted_positions(
    table: OpenTable,
    deletes: Iterable[DeleteFile],
    data: ComparedColumns,
    row_groups: Sequence[int],
) -> Iterator[Positions]:
    """The positions of deleted rows in some row groups of a file of data.

    Raises:
        InvalidPlanInput: a delete file does not fit the table.
    """
    metadata = data.file.metadata
    rows = [metadata.row_group(each).num_rows for each in range(metadata.num_row_groups)]
    first = np.cumsum([0, *rows])
    positions = np.concatenate([np.arange(first[each], first[each + 1]) for each in row_groups])
    for field_ids, some in groupby(sorted(deletes, key=_columns_of), key=_columns_of):
        files = tuple(some)
        deleted = _kept.get((table, files), partial(_deleted, table, files), Deleted.nbytes)
        yield positions[deleted.among(data.read(field_ids, row_groups))]


def _deleted(table: OpenTable, files: Sequence[DeleteFile]) -> "Deleted":
    parts = [_kept.get((table, each), partial(_read, table, each), _bytes) for each in files]
    return Deleted([_joined(column) for column in zip(*parts, strict=True)])


class Deleted:
    """Tells which rows have the values of deleted ones."""

    def __init__(self, keys: _Keys):
        first, *others = keys
        self._first = first.unique()
        self._others: list[tuple[pa.Array, Positions]] = []
        """Of each column after the first: its distinct values, and the numbers of what occurs
        together with the columns before it, sorted.
        """
        numbers = _places(first, self._first)
        for column in others:
            distinct = column.unique()
            pairs, numbers = np.unique(
                numbers * len(distinct) + _places(column, distinct), return_inverse=True
            )
            self._others.append((distinct, pairs))

    def nbytes(self) -> int:
        """Bytes in memory."""
        return int(self._first.nbytes) + sum(
            int(distinct.nbytes) + pairs.nbytes for distinct, pairs in self._others
        )

    def among(self, rows: _Keys) -> npt.NDArray[np.bool_]:
        """For each row, whether it is deleted."""
        first, *others = rows
        numbers = _places(first, self._first)
        found = numbers >= 0
        for column, (distinct, pairs) in zip(others, self._others, strict=True):
            if not len(pairs):
                break
            places = _places(column, distinct)
            wanted = numbers * len(distinct) + places
            numbers = np.searchsorted(pairs, wanted).clip(max=len(pairs) - 1)
            found &= (places >= 0) & (pairs[numbers] == wanted)
        return found


def _places(values: pa.ChunkedArray, distinct: pa.Array) -> Positions:
    """The place of each value among distinct ones; -1 if it is not there."""
    found = pc.index_in(values, value_set=distinct).fill_null(-1)
    return np.asarray(found.cast(pa.int64()).to_numpy())


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0, each.type) for each in schema], schema=schema)


def _columns_of(deletes: DeleteFile) -> tuple[int, ...]:
    return deletes.equality


def _compared_as(values: pa.Array) -> pa.Array:
    """Values as Iceberg compares them: NaN is equal to NaN, whatever its bits."""
    if pa.types.is_floating(values.type):
        return pc.if_else(pc.is_nan(values), pa.scalar(_NAN, values.type), values)
    return comparable(values)


def _read(table: OpenTable, deletes: DeleteFile) -> _Keys:
    """The rows of a delete file.

    Raises:
        InvalidPlanInput: it is gone, damaged, or does not fit the table.
        BackfillError: it cannot be accessed.
    """
    try:
        with table.io.new_input(deletes.path).open() as stream:
            return _read_open(table, deletes, open_parquet(stream, pre_buffer=True))
    except (FileNotFoundError, pa.ArrowInvalid) as error:
        raise _unusable(
            table, deletes, first_line(error), "restore the file, then retry"
        ) from error
    except (OSError, pa.ArrowException) as error:
        raise BackfillError(
            f"delete file {deletes.path} of {table.source.table} cannot be read: {error}"
        ) from error


def _read_open(table: OpenTable, deletes: DeleteFile, file: pq.ParquetFile) -> _Keys:
    written = columns_of(file.schema_arrow, table.name_mapping)
    missing = [each for each in deletes.equality if path_to(written, each) is None]
    if missing:
        name = table.schema.find_column_name(missing[0])
        raise _unusable(table, deletes, f"it lacks column {name}", "compact the table")
    wanted = prune_columns(table.schema, set(deletes.equality), select_full_types=True)
    problem = unfit(deletes.path, file.schema_arrow, wanted, table.name_mapping, ())
    if problem:
        raise _unusable(table, deletes, problem.reason, problem.fix)
    columns = ComparedColumns(table.schema, file, written, {})
    return columns.read(deletes.equality, range(file.num_row_groups))


def _unusable(table: OpenTable, deletes: DeleteFile, why: str, fix: str) -> InvalidPlanInput:
    message = f"delete file {deletes.path} of {table.source.table} cannot be read: {why}"
    return InvalidPlanInput(Problem("spec.sources", message, fix))


def _joined(parts: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
    return pa.chunked_array([chunk for part in parts for chunk in part.chunks])


def _bytes(keys: _Keys) -> int:
    return sum(column.nbytes for column in keys)
