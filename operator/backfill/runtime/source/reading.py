"""Reads splits, the rows of a source in a step, from the Parquet files of an Iceberg table."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import _read_deletes
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from backfill.api.errors import BackfillError, InvalidPlanInput, Problem, first_line
from backfill.iceberg.values import initial_value, partition_values
from backfill.iceberg.written import Columns, columns_of, names_of
from backfill.planning.footers import miscounted, open_parquet, unfit
from backfill.planning.plan import DeleteFile, Split, read_header, read_splits
from backfill.planning.workspace import Workspace
from backfill.runtime.source.projection import Projection
from backfill.runtime.source.row_selection import Positions, RowSelection, kafka_field_ids, path_of
from backfill.runtime.source.sorting import in_order
from backfill.runtime.source.table import OpenTable, SourceTable, load_source_table

_BATCH_ROWS = 65_536
_BATCH_BYTES = 32 << 20
_DELETE_FILES_KEPT = 8


def read_split(
    table: SourceTable, split: Split, target: pa.Schema, columns: frozenset[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a split in the order of the file, in batches with the Arrow types of ``target``.

    Top-level columns that are not in ``columns`` are null; with None, all are read.

    Raises:
        InvalidPlanInput: the file no longer exists, is damaged, or does not fit the plan or the
            table.
        BackfillError: the file cannot be accessed.
    """
    try:
        yield from _read(table, split, target, columns)
    except (FileNotFoundError, pa.ArrowInvalid) as error:
        message = f"{split.path} of {table.source.table} cannot be read: {first_line(error)}"
        raise InvalidPlanInput(
            Problem("spec.sources", message, "restore the file, then try again")
        ) from error
    except (OSError, pa.ArrowException) as error:
        raise BackfillError(
            f"{split.path} of {table.source.table} cannot be read: {error}"
        ) from error


def _read(
    table: SourceTable, split: Split, target: pa.Schema, columns: frozenset[str] | None
) -> Iterator[pa.RecordBatch]:
    opened = table.open()
    wanted = [field for field in opened.schema.fields if columns is None or field.name in columns]
    with _open_file(opened, split, wanted) as file:
        project = Projection(wanted, target, file.columns, file.constants)
        needed = {field.field_id for field in wanted} | file.selection.field_ids
        for batch in file.selected_batches(needed):
            yield project(batch)


def read_in_offset_order(
    table: SourceTable,
    splits: Iterable[Split],
    target: pa.Schema,
    columns: frozenset[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of several splits as :func:`read_split` returns them, sorted by Kafka partition and
    offset. All are in memory at once.
    """
    opened = table.open()
    struct = opened.schema.as_struct()
    paths = [path_of(struct, field_id) for field_id in kafka_field_ids(opened)]
    if columns is not None:
        columns |= {path[0] for path in paths if path}
    rows = pa.Table.from_batches(
        (batch for split in splits for batch in read_split(table, split, target, columns)), target
    )
    whole = rows.combine_chunks().to_batches()
    if whole:
        yield from in_order(
            whole, [path for path in paths if path], _batch_rows(rows.num_rows, rows.nbytes)
        )


def count_rows(plan: Workspace, source: str, step: int) -> int:
    """Number of rows of a source in a step, counted in the files;
    in their footers if no row is left out.
    """
    described = next(each for each in read_header(plan).inputs.sources if each.name == source)
    table = load_source_table(described).open()
    return sum(_count_split(table, split) for split in read_splits(plan, step, source))


def _count_split(table: OpenTable, split: Split) -> int:
    with _open_file(table, split, ()) as file:
        if file.selection.takes_all:
            return sum(int(file.group_rows[group]) for group in file.row_groups)
        return sum(int(batch.num_rows) for batch in file.selected_batches(file.selection.field_ids))


@dataclass(frozen=True)
class _SplitFile:
    """An open file of which a split reads some or all rows."""

    parquet: pq.ParquetFile
    columns: Columns
    constants: Mapping[int, Any]
    selection: RowSelection
    row_groups: tuple[int, ...]

    @cached_property
    def group_rows(self) -> list[int]:
        """The number of rows in each row group of the file."""
        metadata = self.parquet.metadata
        return [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]

    def selected_batches(self, field_ids: set[int]) -> Iterator[pa.RecordBatch]:
        """The rows that the split reads, unconverted,
        with the columns of these fields; no batch is empty.
        """
        # a batch without columns would lose the number of its rows
        columns = names_of(self.columns, field_ids) or self.parquet.schema_arrow.names[:1]
        if self.selection.takes_all:
            yield from self._batches(self.row_groups, columns)
            return
        first_rows = np.cumsum([0, *self.group_rows])
        for group in self.row_groups:
            position = int(first_rows[group])
            for batch in self._batches((group,), columns):
                selected = self.selection(batch, position)
                position += batch.num_rows
                if selected.num_rows:
                    yield selected

    def _batches(self, row_groups: tuple[int, ...], columns: list[str]) -> Iterator[pa.RecordBatch]:
        batches: Iterator[pa.RecordBatch] = self.parquet.iter_batches(
            batch_size=self._batch_rows,
            row_groups=list(row_groups),
            columns=columns,
            use_threads=False,
        )
        return batches

    @cached_property
    def _batch_rows(self) -> int:
        groups = [self.parquet.metadata.row_group(group) for group in self.row_groups]
        return _batch_rows(
            sum(group.num_rows for group in groups), sum(group.total_byte_size for group in groups)
        )


def _batch_rows(rows: int, size: int) -> int:
    """Number of rows for a batch, given the rows and bytes of a file."""
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES * rows // max(size, 1)))


@contextmanager
def _open_file(
    table: OpenTable, split: Split, wanted: Iterable[NestedField]
) -> Iterator[_SplitFile]:
    """Opens the file of a split, to read some fields of the table."""
    with table.io.new_input(split.path).open() as stream:
        parquet = open_parquet(stream, pre_buffer=True)
        columns = columns_of(parquet.schema_arrow, table.name_mapping)
        constants = _constants(table.schema, split)
        selection = RowSelection(table, split, columns, constants, _deleted_positions(table, split))
        needed = Schema(*{field.field_id: field for field in (*selection.fields, *wanted)}.values())
        problem = unfit(split.path, parquet.schema_arrow, needed, table.name_mapping, constants)
        problem = problem or miscounted(split.path, parquet.num_row_groups, split.file_row_groups)
        if problem:
            raise InvalidPlanInput(
                Problem(
                    "spec.sources",
                    f"a data file of {table.source.table}, {problem.reason}",
                    problem.fix,
                )
            )
        groups = (
            split.row_groups
            if split.row_groups is not None
            else tuple(range(parquet.num_row_groups))
        )
        yield _SplitFile(parquet, columns, constants, selection, groups)


def _constants(schema: Schema, split: Split) -> dict[int, Any]:
    """The values of columns that a file lacks, for those that are not null then."""
    defaults = {
        field_id: initial_value(field) for field_id, field in schema._lazy_id_to_field.items()
    }
    values = {**defaults, **partition_values(schema, split.partition)}
    return {field_id: value for field_id, value in values.items() if value is not None}


def _deleted_positions(table: OpenTable, split: Split) -> Positions | None:
    found = [_read_delete_file(table, delete).get(split.path) for delete in split.deletes]
    positions = [each.to_numpy() for each in found if each is not None]
    return np.unique(np.concatenate(positions)).astype(np.int64) if positions else None


@lru_cache(maxsize=_DELETE_FILES_KEPT)
def _read_delete_file(table: OpenTable, delete: DeleteFile) -> dict[str, pa.ChunkedArray]:
    """Deleted positions by data file. A delete file often applies to many data files of a step."""
    described = DataFile.from_args(
        file_path=delete.path, file_format=FileFormat[delete.format.upper()]
    )
    return _read_deletes(table.io, described)
