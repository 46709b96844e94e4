"""The files of an output's table as splits, for batch DataFrames."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyiceberg.exceptions import ResolveError
from pyiceberg.manifest import DataFile, FileFormat, ManifestContent
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.transforms import IdentityTransform

from backfill.api.errors import InvalidPlanInput, Problem, first_line
from backfill.api.output import Output
from backfill.iceberg.missing_columns import partition_text
from backfill.iceberg.open_tables import Catalogs
from backfill.outputs.window_rows import WindowRows
from backfill.planning.metadata.delete_files import DeleteIndex, DeletesError, unpartitioned
from backfill.planning.metadata.manifests import live_entries
from backfill.planning.metadata.pinning import check_pinned
from backfill.planning.plan import DeleteFile, SourceInput, Split, StaticInput
from backfill.planning.rows.pinned_table import SourceTable, load_source_table


def source_table(
    table: Table, output: Output, rows: WindowRows | None, snapshot_id: int | None
) -> SourceTable:
    """The table as tasks need it, with the present schema, as publishing would show its rows: those
    that lack a column have its default, or null. ``rows`` are None where no column is a time.
    """
    schema = table.schema()
    source = SourceInput(
        name=output.name,
        table=output.table,
        table_uuid=str(table.metadata.table_uuid),
        snapshot_id=snapshot_id or 0,
        schema_id=schema.schema_id,
        timestamp_column=rows.column if rows else "",
        timestamp_field_id=rows.field_id if rows else 0,
        timestamp_type=str(schema.find_type(rows.field_id)) if rows else "",
        timestamp_unit=output.timestamp_unit,
    )
    return SourceTable.of(table, source)


def whole_table(static: StaticInput) -> tuple[SourceTable, list[Split]]:
    """A static table of a plan, and its files.

    Raises:
        InvalidPlanInput: it cannot be read.
        BackfillError: the catalog does not answer.
    """
    catalogs = Catalogs()
    check_pinned(catalogs, static, "spec.staticTables")
    found = load_source_table(
        SourceInput(
            name=static.table,
            table=static.table,
            table_uuid=static.table_uuid,
            snapshot_id=static.snapshot_id,
            schema_id=static.schema_id,
            timestamp_column="",
            timestamp_field_id=0,
            timestamp_type="",
        )
    )
    table = catalogs.load_source(static.table, "spec.staticTables")
    try:
        files = _files_of(table, static.snapshot_id, found.open().schema)
        splits = [split for each in files for split in _row_groups(table, static.table, *each)]
    except (ValueError, TypeError, ResolveError) as error:
        what = "equality deletes" if isinstance(error, DeletesError) else "the files"
        message = f"{what} of {static.table} cannot be read: {first_line(error)}"
        fix = "compact the table, or read another one"
        raise InvalidPlanInput(Problem("spec.staticTables", message, fix)) from error
    others = sorted({split.format for split in splits} - {"parquet"})
    if others:
        message = f"{static.table} has files that are not Parquet, but {', '.join(others)}"
        raise InvalidPlanInput(
            Problem("spec.staticTables", message, "rewrite them as Parquet, or read another table")
        )
    return found, splits


def _files_of(
    table: Table, snapshot_id: int, schema: Schema
) -> Iterator[tuple[DataFile, tuple[DeleteFile, ...]]]:
    """All files of a snapshot, with what deletes their rows."""
    index, everywhere = DeleteIndex(), unpartitioned(table)
    data: list[tuple[DataFile, int, int]] = []
    places: dict[object, int] = {}
    snapshot = table.snapshot_by_id(snapshot_id)
    for manifest in snapshot.manifests(table.io) if snapshot else ():
        spec_id = manifest.partition_spec_id
        for _, file, sequence in live_entries(manifest, table.io):
            place = places.setdefault((spec_id, file.partition), len(places))
            if manifest.content == ManifestContent.DATA:
                file.spec_id = spec_id
                data.append((file, sequence, place))
            else:
                index.add(file, sequence, place, partitioned=spec_id not in everywhere)
    chosen, sets = index.assign(
        pa.array([file.file_path for file, *_ in data], pa.string()),
        np.array([sequence for _, sequence, _ in data], np.int64),
        np.array([place for *_, place in data], np.int32),
        schema,
    )
    return zip((file for file, *_ in data), (sets[each] for each in chosen), strict=True)


def splits_of(table: Table, name: str, task: FileScanTask, step: int = 0) -> Iterator[Split]:
    """The splits of a file of a scan."""
    deletes = (
        DeleteFile(delete.file_path, delete.file_format.name.lower())
        for delete in task.delete_files
    )
    by_path = tuple(sorted(deletes, key=lambda delete: delete.path))
    return _row_groups(table, name, task.file, by_path, step)


def _row_groups(
    table: Table, name: str, file: DataFile, deletes: tuple[DeleteFile, ...], step: int = 0
) -> Iterator[Split]:
    """The row groups of a file, by its manifest; the whole file where that does not have them."""
    groups = len(file.split_offsets or ()) or 1
    for group in range(groups):
        yield Split(
            step=step,
            source=name,
            path=file.file_path,
            format=FileFormat(file.file_format).name.lower(),
            file_bytes=file.file_size_in_bytes,
            row_groups=(group,) if groups > 1 else None,
            slice_start_us=None,
            slice_end_us=None,
            lower_us=0,
            upper_us=0,
            rows=-(-file.record_count // groups),
            bytes=-(-file.file_size_in_bytes // groups),
            spec_id=file.spec_id,
            partition=_partition(table, table.schema(), file),
            deletes=deletes,
            file_row_groups=groups if groups > 1 else None,
        )


def _partition(table: Table, schema: Schema, file: DataFile) -> str:
    spec = table.specs()[file.spec_id]
    values = {
        field.source_id: file.partition[position]
        for position, field in enumerate(spec.fields)
        if isinstance(field.transform, IdentityTransform)
    }
    return partition_text(schema, values)
