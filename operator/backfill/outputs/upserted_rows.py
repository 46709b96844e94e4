"""What Upsert removes: the rows of a table that have the same key as a staged row."""

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import DoubleType, FloatType, IcebergType, PrimitiveType, StructType

from backfill.api.errors import BadInput, CanNotPublish, Problem
from backfill.api.output import Output
from backfill.api.quantities import count
from backfill.iceberg.open_tables import near
from backfill.iceberg.table_scan import scan_files
from backfill.outputs.replaced_files import read_rows
from backfill.outputs.result_names import Result
from backfill.outputs.row_digests import Hashes, row_hashes
from backfill.outputs.staging import branch_head, lost
from backfill.outputs.window_rows import Share, WindowRows


def check_keys(schema: Schema, output: Output, field: str) -> Iterator[Problem]:
    """The problems of ``keys`` that the table shows."""
    kinds = {each.name: each.field_type for each in schema.fields}
    for column in output.keys:
        if column not in kinds:
            message = f"table {output.table} has no top-level column {column}"
            yield Problem(f"{field}.keys", message, near(column, list(kinds)))
            continue
        if not _identifies(kinds[column]):
            yield Problem(
                f"{field}.keys",
                f"column {column} of {output.table} is a {kinds[column]}, which cannot identify"
                " rows",
                "use columns of integers, decimals, text, bytes, dates or times",
            )


def _identifies(kind: IcebergType) -> bool:
    if isinstance(kind, StructType):
        return all(_identifies(each.field_type) for each in kind.fields)
    return isinstance(kind, PrimitiveType) and not isinstance(kind, FloatType | DoubleType)


def replaced_rows(table: Table, output: Output, result: Result, window: WindowRows) -> "KeyedRows":
    """The rows of a table that the staged rows of a result replace.

    Raises:
        BadInput: the table no longer has a column of the keys.
        ResultLost: the result no longer exists.
        CanNotPublish: several staged rows have the same key.
    """
    if problems := list(check_keys(table.schema(), output, "spec.outputs")):
        raise BadInput(problems)
    head = branch_head(table.metadata, result)
    if head is None:
        raise lost(output.table, result)
    tasks = scan_files(table, head.snapshot_id)
    keys = _KeySet(
        row_hashes(rows.select(output.keys))
        for task in tasks
        if result.data_directory_of(task.file.file_path) is not None
        for rows in read_rows(table, task, *output.keys)
    )
    if keys.repeated:
        raise CanNotPublish(
            f"{count(keys.repeated, 'row')} of the result for {output.table}"
            f" {'has' if keys.repeated == 1 else 'have'} the same {', '.join(output.keys)} as"
            " another row, so it is unknown which of them replaces the row of the table; start"
            " over with a new Backfill whose outputs[].keys identify the program's rows"
        )
    return KeyedRows(output, window, keys)


class KeyedRows:
    """The rows of a table with the keys of a result.

    If the keys decide a row's time, they are rows of the window. Else those from before it are
    replaced as well, and one from after it is newer than the result's.
    """

    def __init__(self, output: Output, window: WindowRows, keys: "_KeySet"):
        self._output = output
        self._window = window
        self._keys = keys
        self._in_window = window.fixed_by(output.keys)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that :meth:`mask` looks at, in expressions."""
        return tuple(dict.fromkeys((*self._output.keys, *self._window.columns)))

    def mask(self, rows: pa.RecordBatch) -> pa.BooleanArray:
        """For each row, whether it is replaced.

        Raises:
            CanNotPublish: a row with the key of a result is from after the window.
        """
        same = pa.array(self._keys.holds(row_hashes(rows.select(self._output.keys))))
        newer = rows.filter(pc.and_(same, self._window.later(rows)))
        if newer.num_rows:
            key = newer.select(self._output.keys).slice(0, 1).to_pylist()[0]
            raise CanNotPublish(
                f"{self._output.table} has a newer row than the result for"
                f" {', '.join(f'{name} {value}' for name, value in key.items())}: its"
                f" {self._window.column} is after the window; extend the window to now, or add"
                f" {self._window.column} to outputs[].keys, in a new Backfill"
            )
        return same

    def expression(self) -> BooleanExpression:
        """A condition that all of them meet, for PyIceberg's scans."""
        return self._window.expression() if self._in_window else AlwaysTrue()

    def share(self, file: DataFile) -> Share:
        """How many rows of a data file are among them, by the statistics in its manifest."""
        none = self._in_window and self._window.share(file) is Share.NONE
        return Share.NONE if none else Share.UNKNOWN


class _KeySet:
    """Hashes of 128 bits of the keys of rows: 16 bytes for each row, 40 while they are sorted."""

    def __init__(self, parts: Iterable[Hashes]):
        hashes = np.concatenate([np.zeros((2, 0), np.uint64), *parts], axis=1)
        hashes = hashes[:, np.argsort(hashes[0])]
        if (np.diff(hashes[0]) == 0).any():  # keys that occur twice, or that collide
            hashes = hashes[:, np.lexsort((hashes[1], hashes[0]))]
        self._first, self._second = hashes
        self.repeated = int(((np.diff(self._first) == 0) & (np.diff(self._second) == 0)).sum())
        """Number of rows with the same key as another one, less one for each key."""
        begins = np.flatnonzero(np.diff(self._first, prepend=self._first[:1] + 1))
        self._longest = int(np.diff(begins, append=len(self._first)).max(initial=0))

    def holds(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """For each hash, whether it is one of them."""
        found, places = np.zeros(hashes.shape[1], np.bool_), np.searchsorted(self._first, hashes[0])
        for further in range(self._longest):  # one, unless halves of hashes are the same
            at = np.minimum(places + further, len(self._first) - 1)
            found |= (self._first[at] == hashes[0]) & (self._second[at] == hashes[1])
        return found
