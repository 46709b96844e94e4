"""Iceberg tables with metadata that PyIceberg's own writer cannot make: files that do not exist,
deletes, format v3.

Everything is written through PyIceberg's manifest writers and committed through the catalog, so
readers see a real table.
"""

import json
import struct
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.io import OutputFile
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    MANIFEST_ENTRY_SCHEMAS_STRUCT,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate
from pyiceberg.typedef import Record
from pyiceberg.utils.config import Config
from pyroaring import BitMap

from backfill.planning.plan import DeleteFile

ENTRIES_PER_BLOCK = 100
"""As in the 16 kB Avro blocks that Iceberg's Java library writes."""


def sqlite_catalog(directory: Path, name: str = "lake") -> Catalog:
    """A catalog of its own in a directory."""
    return load_catalog(name, **catalog_properties(directory))


def catalog_properties(directory: Path) -> dict[str, str]:
    """The properties of :func:`sqlite_catalog`, for PyIceberg's configuration."""
    return {
        "type": "sql",
        "uri": f"sqlite:///{directory}/catalog.db",
        "warehouse": f"{directory}/warehouse",
    }


def configured_lake(directory: Path, patch: pytest.MonkeyPatch) -> Catalog:
    """The catalog ``lake`` of a directory, empty but for a namespace ``raw``, and configured where
    PyIceberg looks, here and in child processes.
    """
    for key, value in catalog_properties(directory).items():
        patch.setenv(f"PYICEBERG_CATALOG__LAKE__{key.upper()}", value)
    # read once, when PyIceberg was imported
    patch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    (directory / "warehouse").mkdir(exist_ok=True)
    catalog = sqlite_catalog(directory)
    for (namespace,) in catalog.list_namespaces():
        for table in catalog.list_tables(namespace):
            catalog.drop_table(table)
    catalog.create_namespace_if_not_exists("raw")
    return catalog


def upgraded(catalog: Catalog, table: Table) -> Table:
    """The table in format version 3, as other libraries upgrade it: PyIceberg does not."""
    path = Path(table.metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(metadata | {"format-version": 3, "next-row-id": 0}), "utf-8")
    return catalog.load_table(table.name())


def data_file(version: int, **values: object) -> DataFile:
    """A data or delete file entry; what is not given is empty."""
    defaults: dict[str, object] = {
        "content": DataFileContent.DATA,
        "file_format": FileFormat.PARQUET,
        "partition": Record(),
        "column_sizes": None,
        "value_counts": None,
        "null_value_counts": None,
        "nan_value_counts": None,
        "lower_bounds": None,
        "upper_bounds": None,
        "key_metadata": None,
        "split_offsets": None,
        "equality_ids": None,
        "sort_order_id": None,
    }
    return DataFile._bind(DATA_FILE_TYPE[version], **{**defaults, **values})


class _Writer(ManifestWriterV2):
    """PyIceberg's writer, for format v2 and v3, data and deletes, and with more than one entry in
    an Avro block.
    """

    def __init__(
        self,
        spec: PartitionSpec,
        schema: Schema,
        file: OutputFile,
        snapshot: int,
        *,
        version: int,
        deletes: bool,
    ):
        super().__init__(spec, schema, file, snapshot, "deflate")
        self._format = version
        self._deletes = deletes

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES if self._deletes else ManifestContent.DATA

    @property
    def version(self) -> int:
        return self._format

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes" if self._deletes else "data"}

    def new_writer(self) -> AvroOutputFile[ManifestEntry]:
        partition = self._spec.partition_type(self._schema)
        schema = manifest_entry_schema_with_data_file(
            self._format, data_file_with_partition(partition, self._format)
        )
        return AvroOutputFile(self._output_file, schema, "manifest_entry", schema, self._meta)

    def add_all(self, files: Sequence[DataFile], sequence: int | None) -> None:
        entry = MANIFEST_ENTRY_SCHEMAS_STRUCT[self._format]
        status = ManifestEntryStatus.ADDED
        for start in range(0, len(files), ENTRIES_PER_BLOCK):
            block = [
                ManifestEntry._bind(
                    entry,
                    status=status,
                    snapshot_id=self._snapshot_id,
                    sequence_number=sequence,
                    data_file=file,
                )
                for file in files[start : start + ENTRIES_PER_BLOCK]
            ]
            self._writer.write_block(block)
        self._added_files += len(files)
        self._added_rows += sum(file.record_count for file in files)
        self._partitions.extend(file.partition for file in files)
        if sequence is not None:
            self._min_sequence_number = sequence


def write_manifest(
    table: Table,
    path: str,
    files: Sequence[DataFile],
    snapshot: int,
    *,
    deletes: bool = False,
    sequence: int | None = None,
    spec_id: int | None = None,
) -> ManifestFile:
    """One manifest of added files, in the table's format and current partition spec, or another one
    of its specs.
    """
    spec = table.spec() if spec_id is None else table.specs()[spec_id]
    output = table.io.new_output(path)
    writer = _Writer(
        spec, table.schema(), output, snapshot, version=table.format_version, deletes=deletes
    )
    with writer:
        writer.add_all(files, sequence)
    return writer.to_manifest_file()


def commit_manifests(
    catalog: Catalog,
    table: Table,
    manifests: Iterable[ManifestFile],
    snapshot: int,
    timestamp_ms: int | None = None,
    operation: Operation = Operation.APPEND,
) -> Table:
    """Commits a snapshot of exactly these manifests and returns the table with it. Its rows have no
    numbers.
    """
    version, sequence = table.format_version, table.last_sequence_number + 1
    path = f"{table.location()}/metadata/snap-{snapshot}.avro"
    with _manifest_list(table, path, snapshot, sequence) as block:
        for manifest in manifests:
            if manifest.sequence_number < 0:
                manifest.sequence_number = sequence
            if manifest.min_sequence_number < 0:
                manifest.min_sequence_number = sequence
            block.append(manifest)
    made = Snapshot(
        snapshot_id=snapshot,
        parent_snapshot_id=table.metadata.current_snapshot_id,
        sequence_number=sequence,
        timestamp_ms=timestamp_ms
        or max(int(time.time() * 1000), table.metadata.last_updated_ms + 1),
        manifest_list=path,
        summary=Summary(operation=operation),
        schema_id=table.schema().schema_id,
        **(
            {"first_row_id": table.metadata.next_row_id or 0, "added_rows": 0}
            if version == 3
            else {}
        ),
    )
    head = SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=snapshot)
    catalog.commit_table(table, (), (AddSnapshotUpdate(snapshot=made), head))
    return catalog.load_table(table.name())


@contextmanager
def _manifest_list(
    table: Table, path: str, snapshot: int, sequence: int
) -> Iterator[list[ManifestFile]]:
    block: list[ManifestFile] = []
    yield block
    meta = {
        "snapshot-id": str(snapshot),
        "sequence-number": str(sequence),
        "format-version": str(table.format_version),
    }
    schema = MANIFEST_LIST_FILE_SCHEMAS[table.format_version]
    output = AvroOutputFile(
        table.io.new_output(path), schema, "manifest_file", MANIFEST_LIST_FILE_SCHEMAS[2], meta
    )
    with output as writer:
        writer.write_block(block)


def long_bytes(value: int) -> bytes:
    """A long or timestamp as Iceberg keeps it in bounds."""
    return struct.pack("<q", value)


def partition_of(*values: object) -> Record:
    """A partition tuple."""
    return Record(*values)


def parquet_file(
    table: Table, path: str, rows: pa.Table, row_group_size: int | None = None, **entry: object
) -> DataFile:
    """Writes rows as a data file of a table, with field ids as its schema has them, and returns its
    entry without metrics.
    """
    location = f"{table.location()}/data/{path}"
    schema = schema_to_pyarrow(table.schema())
    Path(location).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows.cast(schema), location, row_group_size=row_group_size)
    size = Path(location).stat().st_size
    known = {"file_path": location, "record_count": rows.num_rows, "file_size_in_bytes": size}
    return data_file(table.format_version, **(known | entry))


def equality_file(
    table: Table,
    path: str,
    rows: Sequence[Mapping[str, object]],
    field_ids: Sequence[int],
    **entry: object,
) -> DataFile:
    """Writes a file that deletes what has the values of these rows in some columns, and returns its
    entry.
    """
    location = f"{table.location()}/data/{path}"
    schema = schema_to_pyarrow(prune_columns(table.schema(), {*field_ids}))
    Path(location).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(rows), schema), location)
    known = {"content": DataFileContent.EQUALITY_DELETES, "equality_ids": list(field_ids)}
    known |= {"file_path": location, "record_count": len(rows)}
    size = Path(location).stat().st_size
    return data_file(table.format_version, file_size_in_bytes=size, **(known | entry))


def metrics(column: int, lower: int, upper: int, nulls: int = 0) -> dict[str, object]:
    """The metrics of a long or timestamp column, for an entry."""
    return {
        "lower_bounds": {column: long_bytes(lower)},
        "upper_bounds": {column: long_bytes(upper)},
        "null_value_counts": {column: nulls},
    }


def commit_files(
    catalog: Catalog,
    table: Table,
    snapshot: int,
    files: Sequence[DataFile],
    deletes: Sequence[DataFile] = (),
) -> Table:
    """Commits a snapshot of what the current one holds and these files."""
    current = table.current_snapshot()
    manifests = current.manifests(table.io) if current else []
    made = [(files, False), (deletes, True)]
    fresh = [
        write_manifest(
            table,
            f"{table.location()}/metadata/{snapshot}-{kind}.avro",
            some,
            snapshot,
            deletes=kind,
        )
        for some, kind in made
        if some
    ]
    return commit_manifests(catalog, table, [*manifests, *fresh], snapshot)


def position_deletes(path: Path, deleted: Sequence[tuple[str, int]]) -> DeleteFile:
    """A file of positional deletes: data file and position."""
    rows = sorted(deleted)
    columns = {"file_path": [file for file, _ in rows], "pos": [position for _, position in rows]}
    pq.write_table(
        pa.table(columns, pa.schema([("file_path", pa.string()), ("pos", pa.int64())])), path
    )
    return DeleteFile(str(path), "parquet")


def deletion_vectors(path: Path, deleted: dict[str, list[int]]) -> DeleteFile:
    """A Puffin file with one deletion vector for each data file, as the specification lays it
    out.
    """
    content, blobs = b"PFA1", []
    for file, positions in deleted.items():
        vector = (
            b"\xd1\xd3\x39\x64"
            + (1).to_bytes(8, "little")
            + (0).to_bytes(4, "little")
            + BitMap(positions).serialize()
        )
        blob = len(vector).to_bytes(4, "big") + vector + crc32(vector).to_bytes(4, "big")
        properties = {"referenced-data-file": file, "cardinality": str(len(positions))}
        described = {
            "type": "deletion-vector-v1",
            "fields": [],
            "snapshot-id": -1,
            "sequence-number": -1,
        }
        blobs.append(
            {**described, "offset": len(content), "length": len(blob), "properties": properties}
        )
        content += blob
    footer = json.dumps({"blobs": blobs}).encode()
    path.write_bytes(
        content + b"PFA1" + footer + len(footer).to_bytes(4, "little") + bytes(4) + b"PFA1"
    )
    return DeleteFile(str(path), "puffin")
