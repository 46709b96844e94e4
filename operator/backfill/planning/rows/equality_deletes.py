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
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema, prune_columns

from backfill.api.errors import InvalidPlanInput, Problem
from backfill.iceberg.file_columns import Columns, columns_of, names_of
from backfill.planning.parquet_footers import open_parquet, unfit
from backfill.planning.plan import DeleteFile
from backfill.planning.rows.pinned_table import OpenTable
from backfill.planning.rows.projection import Projection
from backfill.planning.rows.row_selection import column_at, comparable, path_of

Int64s = npt.NDArray[np.int64]
_Keys = list[pa.ChunkedArray]
"""Rows by the columns that are compared."""
_KEPT_BYTES = 256 << 20
"""Most bytes of keys that a process keeps, apart from those that it is using."""


class _KeptKeys:
    """Keys of delete files, as many as fit: a file often applies to many files of data."""

    def __init__(self) -> None:
        self._kept: OrderedDict[object, _Keys] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def get(self, which: object, read: Callable[[], _Keys]) -> _Keys:
        with self._lock:
            if which in self._kept:
                self._kept.move_to_end(which)
                return self._kept[which]
        found = read()
        with self._lock:
            if which not in self._kept:
                self._kept[which] = found
                self._bytes += _bytes(found)
            while self._bytes > _KEPT_BYTES:
                self._bytes -= _bytes(self._kept.popitem(last=False)[1])
        return found


_kept = _KeptKeys()


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
        wanted = prune_columns(self.schema, set(field_ids), select_full_types=True)
        target = schema_to_pyarrow(wanted, include_field_ids=False)
        project = Projection(wanted.fields, target, self.columns, self.constants)
        # a table without columns would lose the number of its rows
        names = names_of(self.columns, {each.field_id for each in wanted.fields})
        names = names or self.file.schema_arrow.names[:1]
        rows = self.file.read_row_groups(list(row_groups), names, use_threads=False)
        batches = list(map(project, rows.to_batches()))
        batches = batches or [pa.RecordBatch.from_pylist([], target)]
        paths = [path_of(wanted.as_struct(), each) or [] for each in field_ids]
        return [
            pa.chunked_array([comparable(column_at(batch, path)) for batch in batches])
            for path in paths
        ]


def deleted_positions(
    table: OpenTable,
    deletes: Iterable[DeleteFile],
    data: ComparedColumns,
    row_groups: Sequence[int],
) -> Iterator[Int64s]:
    """The positions of deleted rows in some row groups of a file of data.

    Raises:
        InvalidPlanInput: a delete file does not fit the table.
    """
    metadata = data.file.metadata
    rows = [metadata.row_group(each).num_rows for each in range(metadata.num_row_groups)]
    first = np.cumsum([0, *rows])
    for field_ids, some in groupby(sorted(deletes, key=_compared), key=_compared):
        parts = [_kept.get((table, each), partial(_read, table, each)) for each in some]
        deleted = Deleted([_joined(column) for column in zip(*parts, strict=True)])
        for group in row_groups:
            yield np.flatnonzero(deleted.among(data.read(field_ids, [group]))) + first[group]


class Deleted:
    """Tells which rows have the values of deleted ones."""

    def __init__(self, keys: _Keys):
        first, *others = keys
        self._first = first.unique()
        self._others: list[tuple[pa.Array, Int64s]] = []
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


def _places(values: pa.ChunkedArray, distinct: pa.Array) -> Int64s:
    """The place of each value among distinct ones; -1 if it is not there."""
    found = pc.index_in(values, value_set=distinct).fill_null(-1).cast(pa.int64())
    places: Int64s = found.to_numpy()
    return places


def _compared(deletes: DeleteFile) -> tuple[int, ...]:
    return deletes.equality


def _read(table: OpenTable, deletes: DeleteFile) -> _Keys:
    """The rows of a delete file."""
    with table.io.new_input(deletes.path).open() as stream:
        file = open_parquet(stream, pre_buffer=True)
        schema, groups = file.schema_arrow, range(file.num_row_groups)
        wanted = prune_columns(table.schema, set(deletes.equality), select_full_types=True)
        problem = unfit(deletes.path, schema, wanted, table.name_mapping, ())
        if problem:
            raise InvalidPlanInput(
                Problem(
                    "spec.sources",
                    f"a delete file of {table.source.table}, {problem.reason}",
                    problem.fix,
                )
            )
        written = columns_of(schema, table.name_mapping)
        return ComparedColumns(table.schema, file, written, {}).read(deletes.equality, groups)


def _joined(parts: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
    return pa.chunked_array([chunk for part in parts for chunk in part.chunks])


def _bytes(keys: _Keys) -> int:
    return sum(column.nbytes for column in keys)
