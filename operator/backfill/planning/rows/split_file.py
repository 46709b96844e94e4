"""The Parquet file of a split, and which of its rows the split reads."""

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
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.types import NestedField

from backfill.api.errors import InvalidPlanInput, Problem
from backfill.iceberg.file_columns import Columns, columns_of, names_of
from backfill.iceberg.missing_columns import initial_value, partition_values
from backfill.planning.parquet_footers import miscounted, open_parquet, unfit
from backfill.planning.plan import DeleteFile, Split
from backfill.planning.rows.equality_deletes import ComparedColumns, deleted_positions
from backfill.planning.rows.pinned_table import OpenTable
from backfill.planning.rows.row_selection import Positions, RowSelection

_BATCH_ROWS = 65_536
_BATCH_BYTES = 32 << 20
_DELETE_FILES_KEPT = 8


@dataclass(frozen=True)
class SplitFile:
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
        if self.selection.takes_all:
            yield from self._batches(self.row_groups, self._names_of(field_ids))
            return
        for batch, _ in self.selected_with_positions(field_ids):
            yield batch

    def selected_with_positions(
        self, field_ids: set[int]
    ) -> Iterator[tuple[pa.RecordBatch, Positions]]:
        """The same rows, with their positions in the file."""
        columns = self._names_of(field_ids)
        first_rows = np.cumsum([0, *self.group_rows])
        for group in self.row_groups:
            position = int(first_rows[group])
            for batch in self._batches((group,), columns):
                positions = np.arange(position, position + batch.num_rows)
                mask = self.selection.mask(batch, position)
                position += batch.num_rows
                if mask is None or mask.true_count == batch.num_rows:
                    yield batch, positions
                elif mask.true_count:
                    chosen = mask.fill_null(False).to_numpy(zero_copy_only=False)
                    yield batch.filter(mask), positions[chosen]

    def _names_of(self, field_ids: set[int]) -> list[str]:
        # a batch without columns would lose the number of its rows
        return names_of(self.columns, field_ids) or self.parquet.schema_arrow.names[:1]

    def _batches(self, row_groups: tuple[int, ...], columns: list[str]) -> Iterator[pa.RecordBatch]:
        rows = 0
        for batch in self.parquet.iter_batches(
            batch_size=self._batch_rows,
            row_groups=list(row_groups),
            columns=columns,
            use_threads=False,
        ):
            rows += batch.num_rows
            yield batch
        expected = sum(self.group_rows[group] for group in row_groups)
        if rows != expected:
            raise pa.ArrowInvalid(f"it has {rows:,} rows, but its footer says {expected:,}")

    @cached_property
    def _batch_rows(self) -> int:
        groups = [self.parquet.metadata.row_group(group) for group in self.row_groups]
        return batch_rows(
            sum(group.num_rows for group in groups), sum(group.total_byte_size for group in groups)
        )


def batch_rows(rows: int, size: int) -> int:
    """Number of rows for a batch, given the rows and bytes of a file."""
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES * rows // max(size, 1)))


@contextmanager
def open_split(
    table: OpenTable, split: Split, wanted: Iterable[NestedField]
) -> Iterator[SplitFile]:
    """Opens the file of a split, to read some fields of the table."""
    with table.io.new_input(split.path).open() as stream:
        parquet = open_parquet(stream, pre_buffer=True)
        columns = columns_of(parquet.schema_arrow, table.name_mapping)
        constants = _constants(table.schema, split)
        selection = RowSelection(table, split, columns, constants)
        equality = {column for each in split.deletes for column in each.equality}
        compared = (
            prune_columns(table.schema, equality, select_full_types=True).fields if equality else ()
        )
        needed = Schema(
            *{each.field_id: each for each in (*selection.fields, *compared, *wanted)}.values()
        )
        problem = unfit(split.path, parquet.schema_arrow, needed, table.name_mapping, constants)
        problem = problem or miscounted(
            split.path, parquet.metadata, split.file_row_groups, split.file_rows
        )
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
        file = SplitFile(parquet, columns, constants, selection, groups)
        selection.left_out = _left_out(table, split, file)
        yield file


def _constants(schema: Schema, split: Split) -> dict[int, Any]:
    """The values of columns that a file lacks, for those that are not null then."""
    defaults = {
        field_id: initial_value(field) for field_id, field in schema._lazy_id_to_field.items()
    }
    values = {**defaults, **partition_values(schema, split.partition)}
    return {field_id: value for field_id, value in values.items() if value is not None}


def _left_out(table: OpenTable, split: Split, file: SplitFile) -> Positions | None:
    """The sorted positions of rows that are deleted, or there twice."""
    equality = [each for each in split.deletes if each.equality]
    found = [_read_delete_file(table, each) for each in split.deletes if not each.equality]
    positions = [each[split.path].to_numpy() for each in found if split.path in each]
    if equality:
        data = ComparedColumns(table.schema, file.parquet, file.columns, file.constants)
        positions += deleted_positions(table, equality, data, file.row_groups)
    positions += [np.arange(each.start, each.end) for each in split.duplicates]
    return np.unique(np.concatenate(positions)).astype(np.int64) if positions else None


@lru_cache(maxsize=_DELETE_FILES_KEPT)
def _read_delete_file(table: OpenTable, delete: DeleteFile) -> dict[str, pa.ChunkedArray]:
    """Deleted positions by data file. A delete file often applies to many data files of a step."""
    described = DataFile.from_args(
        file_path=delete.path, file_format=FileFormat[delete.format.upper()]
    )
    return _read_deletes(table.io, described)
