"""Reads splits: the rows that one step reads of one source, from Parquet files of an Iceberg table."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.conversions import from_json
from pyiceberg.expressions.literals import literal
from pyiceberg.io.pyarrow import _read_deletes, pyarrow_to_schema
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, PrimitiveType

from backfill.api.errors import BackfillError, InvalidPlanInput, Problem, first_line
from backfill.planning.footers import miscounted, unidentified
from backfill.planning.plan import DeleteFile, Split, read_header, read_splits
from backfill.planning.workspace import Workspace
from backfill.runtime.arrow_rows import Projection
from backfill.runtime.row_selection import Positions, RowSelection, kafka_field_ids, path_of, top_level_names
from backfill.runtime.sorting import in_order
from backfill.runtime.source_table import OpenTable, SourceTable, load_source_table

_BATCH_ROWS = 65_536
_BATCH_BYTES = 32 << 20
_DELETE_FILES_KEPT = 8
_FIELD_ID = b"PARQUET:field_id"


def read_split(
    table: SourceTable, split: Split, target: pa.Schema, columns: frozenset[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a split in the order of the file, in batches of the Arrow types in ``target``.

    Top-level columns that are not in ``columns`` are null; None reads them all.

    Raises:
        InvalidPlanInput: the file is gone or damaged, or not what the plan or the table needs.
        BackfillError: it can not be reached.
    """
    try:
        yield from _read(table, split, target, columns)
    except (FileNotFoundError, pa.ArrowInvalid) as error:
        message = f"{split.path} of {table.source.table} can not be read: {first_line(error)}"
        raise InvalidPlanInput(Problem("spec.sources", message, "restore the file, then try again")) from error
    except (OSError, pa.ArrowException) as error:
        raise BackfillError(f"{split.path} of {table.source.table} can not be read: {error}") from error


def _read(table: SourceTable, split: Split, target: pa.Schema, columns: frozenset[str] | None) -> Iterator[pa.RecordBatch]:
    opened = table.open()
    wanted = {field.field_id for field in opened.schema.fields if columns is None or field.name in columns}
    with _open_file(opened, split) as file:
        project = Projection(opened.schema, file.written, target, file.constants, columns)
        needed = top_level_names(file.written.as_struct(), wanted | file.selection.field_ids)
        for batch in file.selected_batches(needed):
            yield project(batch)


def read_in_offset_order(
    table: SourceTable, splits: Iterable[Split], target: pa.Schema, columns: frozenset[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of several splits as of :func:`read_split`, sorted by Kafka partition and offset. All are in memory at once."""
    opened = table.open()
    struct = opened.schema.as_struct()
    paths = [path_of(struct, field_id) for field_id in kafka_field_ids(opened)]
    if columns is not None:
        columns |= {path[0] for path in paths if path}
    rows = pa.Table.from_batches((batch for split in splits for batch in read_split(table, split, target, columns)), target)
    whole = rows.combine_chunks().to_batches()
    if whole:
        yield from in_order(whole, [path for path in paths if path], _batch_rows(rows.num_rows, rows.nbytes))


def count_rows(plan: Workspace, source: str, step: int) -> int:
    """How many rows one step reads of one source, counted in the files (in their footers where no row is left out)."""
    described = next(each for each in read_header(plan).inputs.sources if each.name == source)
    table = load_source_table(described).open()
    return sum(_count_split(table, split) for split in read_splits(plan, step, source))


def _count_split(table: OpenTable, split: Split) -> int:
    with _open_file(table, split) as file:
        if file.selection.takes_all:
            return sum(int(file.group_rows[group]) for group in file.row_groups)
        columns = top_level_names(file.written.as_struct(), file.selection.field_ids)
        return sum(int(batch.num_rows) for batch in file.selected_batches(columns))


@dataclass(frozen=True)
class _SplitFile:
    """An open file of which a split reads some rows."""

    parquet: pq.ParquetFile
    written: Schema
    constants: Mapping[int, Any]
    selection: RowSelection
    row_groups: tuple[int, ...]

    @cached_property
    def group_rows(self) -> list[int]:
        """The number of rows in each row group of the file."""
        metadata = self.parquet.metadata
        return [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]

    def selected_batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """The rows that the split reads, as the file has them; no batch is empty."""
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
            batch_size=self._batch_rows, row_groups=list(row_groups), columns=columns, use_threads=False
        )
        return batches

    @cached_property
    def _batch_rows(self) -> int:
        groups = [self.parquet.metadata.row_group(group) for group in self.row_groups]
        return _batch_rows(sum(group.num_rows for group in groups), sum(group.total_byte_size for group in groups))


def _batch_rows(rows: int, size: int) -> int:
    """How many rows a batch should have, where so many rows have so many bytes."""
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES * rows // max(size, 1)))


@contextmanager
def _open_file(table: OpenTable, split: Split) -> Iterator[_SplitFile]:
    with table.io.new_input(split.path).open() as stream:
        parquet = pq.ParquetFile(stream, pre_buffer=True, coerce_int96_timestamp_unit="us")
        schema = parquet.schema_arrow
        _check_file(table, split, schema, parquet.num_row_groups)
        written = _written_schema(table, schema)
        constants = _constants(table.schema, written, split)
        deleted = _deleted_positions(table, split)
        groups = split.row_groups if split.row_groups is not None else tuple(range(parquet.num_row_groups))
        selection = RowSelection(table, split, written, constants, deleted)
        yield _SplitFile(parquet, written, constants, selection, groups)


def _check_file(table: OpenTable, split: Split, schema: pa.Schema, row_groups: int) -> None:
    problem = unidentified(split.path, schema, mapped=table.name_mapping is not None)
    problem = problem or miscounted(split.path, row_groups, split.file_row_groups)
    if problem:
        raise InvalidPlanInput(Problem("spec.sources", f"a data file of {table.source.table}, {problem.reason}", problem.fix))


def _written_schema(table: OpenTable, file: pa.Schema) -> Schema:
    """A file's schema by field id. Columns that have no id, by themselves or by the name mapping, are not the table's."""
    mapped = {name for field in table.name_mapping or () for name in field.names}
    identified = [field for field in file if field.name in mapped or _FIELD_ID in (field.metadata or {})]
    return pyarrow_to_schema(
        pa.schema(identified),
        table.name_mapping,
        downcast_ns_timestamp_to_us=table.format_version <= 2,
        format_version=table.format_version,
    )


def _constants(wanted: Schema, written: Schema, split: Split) -> dict[int, Any]:
    """Values of fields that a file does not have, as Iceberg keeps them: of its partition, else the field's first default."""
    partition = json.loads(split.partition)
    absent = [wanted.find_field(field_id) for field_id in sorted(wanted.field_ids - written.field_ids)]
    values = {field.field_id: _constant(field, partition) for field in absent}
    return {field_id: value for field_id, value in values.items() if value is not None}


def _constant(field: NestedField, partition: Mapping[str, Any]) -> Any:
    stored = partition.get(str(field.field_id))
    kind = field.field_type
    if stored is not None and isinstance(kind, PrimitiveType):
        return literal(from_json(kind, stored)).to(kind).value
    return None if field.initial_default is None else literal(field.initial_default).to(kind).value


def _deleted_positions(table: OpenTable, split: Split) -> Positions | None:
    found = [_read_delete_file(table, delete).get(split.path) for delete in split.deletes]
    positions = [each.to_numpy() for each in found if each is not None]
    return np.unique(np.concatenate(positions)).astype(np.int64) if positions else None


@lru_cache(maxsize=_DELETE_FILES_KEPT)
def _read_delete_file(table: OpenTable, delete: DeleteFile) -> dict[str, pa.ChunkedArray]:
    """Deleted positions by data file. One delete file often serves many data files of a step."""
    described = DataFile.from_args(file_path=delete.path, file_format=FileFormat[delete.format.upper()])
    return _read_deletes(table.io, described)
