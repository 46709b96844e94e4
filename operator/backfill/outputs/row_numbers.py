"""Keeps the numbers of rows that are written into other files, in tables of format version 3.

Such a file has two further columns, as the specification says under "Row Lineage": a row's number,
and the sequence number of its last change. Where they are null, they follow from the file's entry.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, _combine_positional_deletes, _read_all_delete_files
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import LongType, NestedField

from backfill.iceberg.format_v3 import NumberedFile
from backfill.outputs.null_lists import keep_null_lists

_ROW_ID = NestedField(2147483540, "_row_id", LongType(), required=False)
_CHANGED = NestedField(2147483539, "_last_updated_sequence_number", LongType(), required=False)

NUMBERS = (_ROW_ID.name, _CHANGED.name)
"""The names of these columns, which no other column of such a table can have."""


def with_row_numbers(schema: Schema) -> Schema:
    """The schema with the columns of the numbers."""
    return Schema(*schema.fields, _ROW_ID, _CHANGED, schema_id=schema.schema_id)


def written_with_row_numbers(layout: TableMetadata) -> TableMetadata:
    """What a writer needs to know of a table to write the numbers, too."""
    return layout.model_copy(update={"schemas": [with_row_numbers(layout.schema())]})


def read_numbered_rows(
    table: Table, task: FileScanTask, file: NumberedFile
) -> Iterator[pa.RecordBatch]:
    """The live rows of a file in batches, with the columns of the table and the numbers. Rows that
    were not numbered yet, as in a table that was upgraded, have none.
    """
    keep_null_lists()
    deletes = _read_all_delete_files(table.io, [task]).get(file.file_path, [])
    scan = ArrowScan(table.metadata, table.io, with_row_numbers(table.schema()), AlwaysTrue())
    start = 0
    for batch in scan._record_batches_from_scan_tasks_and_deletes([task], {}):
        end = start + batch.num_rows
        known = batch
        if file.first_row_id is not None:
            numbers = pa.array(np.arange(start, end) + file.first_row_id)
            known = _filled(known, _ROW_ID.name, numbers)
            known = _filled(known, _CHANGED.name, pa.scalar(file.changed_with, pa.int64()))
        live = _combine_positional_deletes(deletes, start, end) if deletes else None
        yield known if live is None else known.take(live)
        start = end


def _filled(batch: pa.RecordBatch, name: str, value: pa.Array | pa.Scalar) -> pa.RecordBatch:
    place = batch.schema.get_field_index(name)
    filled = pc.coalesce(batch.column(place), value)
    return batch.set_column(place, batch.schema.field(place), filled)
