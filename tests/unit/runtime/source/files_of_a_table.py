"""Data and delete files written by hand, and splits of them, read through the table they belong
to.
"""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from backfill.planning.plan import SourceInput, Split
from backfill.planning.rows.pinned_table import SourceTable, load_source_table
from backfill.runtime.source.schemas import spark_schema
from backfill.runtime.source.split_reading import read_split
from backfill.runtime.spark_versions import to_arrow_schema


def source_table(
    table: Table, timestamp_column: str = "at", timestamp_unit: str | None = None, **more: object
) -> SourceTable:
    """A table of a catalog as a plan would pin it now. Files that are read need not be in the
    snapshot.
    """
    snapshot = table.current_snapshot()
    assert snapshot is not None
    names = {
        "table": ".".join(("lake", *table.name())),
        "table_uuid": str(table.metadata.table_uuid),
    }
    return load_source_table(
        _source_input(
            table.schema(),
            timestamp_column,
            timestamp_unit,
            snapshot_id=snapshot.snapshot_id,
            **names,
            **more,
        )
    )


def v3_table(
    schema: Schema,
    timestamp_column: str = "at",
    timestamp_unit: str | None = None,
    row_filter: str | None = None,
) -> SourceTable:
    """A table of format version 3, which PyIceberg can read but not create."""
    names = {"table": "lake.raw.events", "table_uuid": "", "snapshot_id": 1}
    source = _source_input(schema, timestamp_column, timestamp_unit, row_filter=row_filter, **names)
    return SourceTable(source, schema.model_dump_json(), None, location="/", io_properties=())


def _source_input(
    schema: Schema, timestamp_column: str, timestamp_unit: str | None, **more: object
) -> SourceInput:
    column = schema.find_field(timestamp_column)
    return SourceInput(
        name="events",
        schema_id=schema.schema_id,
        timestamp_column=timestamp_column,
        timestamp_field_id=column.field_id,
        timestamp_type=str(column.field_type),
        timestamp_unit=timestamp_unit,
        **more,
    )


def write_file(path: Path, schema: Schema, rows: pa.Table, row_group_rows: int = 1_000) -> Split:
    """A data file in a schema of the table, and the split that reads all of it."""
    return write_plain_file(path, rows.cast(schema_to_pyarrow(schema)), row_group_rows)


def write_plain_file(path: Path, rows: pa.Table, row_group_rows: int = 1_000) -> Split:
    """A file exactly as the Arrow schema says, and the split that reads all of it."""
    pq.write_table(rows, path, row_group_size=row_group_rows)
    size = path.stat().st_size
    return Split(
        step=0,
        source="events",
        path=str(path),
        format="parquet",
        file_bytes=size,
        row_groups=None,
        slice_start_us=None,
        slice_end_us=None,
        lower_us=0,
        upper_us=0,
        rows=rows.num_rows,
        bytes=size,
    )


def sliced(split: Split, start_us: int, end_us: int) -> Split:
    """Only the rows of a split with a timestamp in [start, end)."""
    return replace(split, slice_start_us=start_us, slice_end_us=end_us)


def read(table: SourceTable, *splits: Split) -> pa.Table:
    """What tasks give Spark."""
    target = to_arrow_schema(spark_schema(table.open().schema, table.source.table))
    return pa.Table.from_batches(
        (batch for split in splits for batch in read_split(table, split, target)), target
    )
