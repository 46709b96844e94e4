"""Writes snapshots of tables of format version 3, which PyIceberg 0.12 only reads.

Such tables number their rows. A snapshot takes the next free numbers for its new rows, each data
file begins with one, and a file that is listed anew keeps its number: see the specification, "Row
Lineage". A file that has none inherits it from its manifest, and a manifest from its snapshot.
"""

from functools import cache
from typing import Any, Self

from pyiceberg.avro.codecs import AvroCompressionCodec
from pyiceberg.avro.file import AvroFile, AvroOutputFile
from pyiceberg.io import FileIO, OutputFile
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestListWriterV2,
    ManifestWriter,
    ManifestWriterV2,
    PartitionFieldSummary,
    _inherit_from_manifest,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataV3
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    SetSnapshotRefUpdate,
    UpdatesAndRequirements,
)
from pyiceberg.table.update.snapshot import _SnapshotProducer
from pyiceberg.typedef import IcebergBaseModel, TableVersion

from backfill.api.errors import BackfillError

V3: TableVersion = 3
_FILE_NAMES = [field.name for field in DATA_FILE_TYPE[V3].fields]
_FIRST_ROW_ID = _FILE_NAMES.index("first_row_id")
_DELETES_OF = _FILE_NAMES.index("referenced_data_file")
_LIST_NAMES = [field.name for field in MANIFEST_LIST_FILE_SCHEMAS[V3].fields]
_FIRST_ROW_ID_OF_MANIFEST = _LIST_NAMES.index("first_row_id")


class NumberedFile(DataFile):
    """A data file with the first number of its rows."""

    changed_with: int | None = None
    """The sequence number of its rows' last change. A file that was restored, or compacted, keeps
    it, but not the one of the snapshot that added the file.
    """

    @property
    def first_row_id(self) -> int | None:
        """The number of its first row; None if it was not numbered yet, as in a table that was
        upgraded.
        """
        number: int | None = self._data[_FIRST_ROW_ID]
        return number

    @first_row_id.setter
    def first_row_id(self, number: int | None) -> None:
        self._data[_FIRST_ROW_ID] = number

    @property
    def deletes_of(self) -> str | None:
        """The only data file that a delete file applies to; None if that is unknown."""
        path: str | None = self._data[_DELETES_OF]
        return path


class NumberedManifest(ManifestFile):
    """A manifest from a list, with the first number for its files that have none."""

    @property
    def first_row_id(self) -> int | None:
        """The first number for its files that have none; None in a table that was upgraded."""
        number: int | None = self._data[_FIRST_ROW_ID_OF_MANIFEST]
        return number

    @first_row_id.setter
    def first_row_id(self, number: int | None) -> None:
        self._data[_FIRST_ROW_ID_OF_MANIFEST] = number

    def fetch_manifest_entry(self, io: FileIO, discard_deleted: bool = True) -> list[ManifestEntry]:
        """As PyIceberg's. The files are :class:`NumberedFile` and have their numbers."""
        entries = _entries(self, io)
        following = self.first_row_id
        for entry in entries:
            file = entry.data_file
            if (
                following is not None
                and isinstance(file, NumberedFile)
                and file.content == DataFileContent.DATA
                and entry.status != ManifestEntryStatus.DELETED
                and file.first_row_id is None
            ):
                file.first_row_id = following
                following += file.record_count
        return [
            entry
            for entry in entries
            if not discard_deleted or entry.status != ManifestEntryStatus.DELETED
        ]


class _NumberedSnapshot(Snapshot):
    def manifests(self, io: FileIO) -> list[ManifestFile]:
        with AvroFile[ManifestFile](
            io.new_input(self.manifest_list),
            MANIFEST_LIST_FILE_SCHEMAS[V3],
            read_types={-1: NumberedManifest, 508: PartitionFieldSummary},
            read_enums={517: ManifestContent},
        ) as manifests:
            return list(manifests)


def numbered(snapshot: Snapshot) -> Snapshot:
    """The snapshot, so that its files are :class:`NumberedFile`."""
    return _NumberedSnapshot.model_construct(**dict(snapshot))


def with_numbered_files(table: Table) -> Table:
    """The table, so that the files of its branches are :class:`NumberedFile`, if it is of format
    version 3.
    """
    if table.format_version < V3:
        return table
    heads = {ref.snapshot_id for ref in table.metadata.refs.values()}
    snapshots = [
        numbered(each) if each.snapshot_id in heads else each for each in table.metadata.snapshots
    ]
    return with_metadata(table, snapshots=snapshots)


def with_metadata(table: Table, **changed: object) -> Table:
    """The table with other metadata, which is not committed."""
    metadata = table.metadata.model_copy(update=changed)
    return Table(
        table.name(), metadata, table.metadata_location, table.io, table.catalog, table.config
    )


def manifests_with_numbers(table: Table, snapshot: Snapshot) -> list[ManifestFile]:
    """The manifests of a snapshot. Their files are :class:`NumberedFile` if the table is of format
    version 3.
    """
    known = snapshot if table.format_version < V3 else numbered(snapshot)
    return known.manifests(table.io)


class NumberingProducer(_SnapshotProducer[Any]):
    """Puts a snapshot together as PyIceberg does, also in format version 3.

    The table that it is made of has passed :func:`with_numbered_files`.
    """

    def new_manifest_writer(self, spec: PartitionSpec) -> ManifestWriter:
        """A writer of the table's format."""
        if self._transaction.table_metadata.format_version < V3:
            return super().new_manifest_writer(spec)
        output = self.new_manifest_output()
        return _ManifestWriter(spec, self.schema(), output, self._snapshot_id, self._compression)

    def fetch_manifest_entry(
        self, manifest: ManifestFile, discard_deleted: bool = True
    ) -> list[ManifestEntry]:
        """Reads a manifest that is to be merged with others."""
        if self._transaction.table_metadata.format_version < V3 or isinstance(
            manifest, NumberedManifest
        ):
            return super().fetch_manifest_entry(manifest, discard_deleted)
        # was written for this snapshot: its new files get numbers with the list of manifests
        return _entries(manifest, self._io)

    def _commit(self) -> UpdatesAndRequirements:
        metadata = self._transaction.table_metadata
        if not isinstance(metadata, TableMetadataV3):
            return super()._commit()
        sequence_number, first_row_id = metadata.next_sequence_number(), metadata.next_row_id
        if first_row_id is None or first_row_id < 0:
            raise BackfillError(
                f"the metadata of table {'.'.join(self._transaction._table.name())} does not say"
                f" which numbers of rows are free: next-row-id is {first_row_id}"
            )
        manifests, summary = self._manifests(), self._summary(self.snapshot_properties)
        location = self._transaction._table.location_provider().new_metadata_location(
            f"snap-{self._snapshot_id}-0-{self.commit_uuid}.avro"
        )
        self._written_manifest_lists.append(location)
        with _ManifestListWriter(
            self._io.new_output(location),
            self._snapshot_id,
            self._parent_snapshot_id,
            sequence_number,
            self._compression,
            first_row_id,
        ) as writer:
            writer.add_manifests(manifests)
        snapshot = Snapshot(
            snapshot_id=self._snapshot_id,
            parent_snapshot_id=self._parent_snapshot_id,
            manifest_list=location,
            sequence_number=sequence_number,
            summary=summary,
            schema_id=metadata.current_schema_id,
            first_row_id=first_row_id,
            added_rows=writer.next_row_id - first_row_id,
        )
        head = SetSnapshotRefUpdate(
            ref_name=self._target_branch or MAIN_BRANCH,
            type=SnapshotRefType.BRANCH,
            snapshot_id=self._snapshot_id,
            max_ref_age_ms=None,
            max_snapshot_age_ms=None,
            min_snapshots_to_keep=None,
        )
        # what must still be true is said with the commit of the table
        return (AddSnapshotUpdate(snapshot=snapshot), head), ()


class _ManifestWriter(ManifestWriterV2):
    @property
    def version(self) -> TableVersion:
        return V3

    def new_writer(self) -> AvroOutputFile[ManifestEntry]:
        schema = self._with_partition(V3)
        return AvroOutputFile[ManifestEntry](
            self._output_file, schema, "manifest_entry", metadata=self._meta
        )

    def prepare_entry(self, entry: ManifestEntry) -> ManifestEntry:
        fields = entry.data_file._data
        # a file that was written or read as in earlier versions has no number yet
        missing = [None] * (len(_FILE_NAMES) - len(fields))
        if missing:
            fields.extend(missing)
        return super().prepare_entry(entry)


class _ManifestListWriter(ManifestListWriterV2):
    def __init__(  # noqa: PLR0917 - as PyIceberg's, and one more
        self,
        output_file: OutputFile,
        snapshot_id: int,
        parent_snapshot_id: int | None,
        sequence_number: int,
        compression: AvroCompressionCodec,
        next_row_id: int,
    ):
        super().__init__(output_file, snapshot_id, parent_snapshot_id, sequence_number, compression)
        self._format_version = V3
        self._meta |= {"format-version": str(V3), "first-row-id": str(next_row_id)}
        self.next_row_id = next_row_id
        """The first number that the manifests have left."""

    def __enter__(self) -> Self:
        schema = MANIFEST_LIST_FILE_SCHEMAS[V3]
        self._writer = AvroOutputFile[ManifestFile](
            self._output_file, schema, "manifest_file", metadata=self._meta
        )
        self._writer.__enter__()
        return self

    def prepare_manifest(self, manifest_file: ManifestFile) -> ManifestFile:
        prepared = super().prepare_manifest(manifest_file)
        known = manifest_file.first_row_id if isinstance(manifest_file, NumberedManifest) else None
        listed = NumberedManifest(*prepared._data[:_FIRST_ROW_ID_OF_MANIFEST], known)
        if known is None and listed.content == ManifestContent.DATA:
            listed.first_row_id = self.next_row_id
            # numbers are left for all its files, as some may have none from before an upgrade
            self.next_row_id += (listed.added_rows_count or 0) + (listed.existing_rows_count or 0)
        return listed


@cache
def write_v3_metadata() -> None:
    """Lets PyIceberg, in this process, write the metadata of such tables, which catalogs without a
    server need. Of encrypted tables it does not know all: those are refused before.
    """
    TableMetadataV3.model_dump_json = IcebergBaseModel.model_dump_json  # type: ignore[method-assign]


def _entries(manifest: ManifestFile, io: FileIO) -> list[ManifestEntry]:
    """The entries as they stand there, with what all versions inherit."""
    with AvroFile[ManifestEntry](
        io.new_input(manifest.manifest_path),
        MANIFEST_ENTRY_SCHEMAS[V3],
        read_types={-1: ManifestEntry, 2: NumberedFile},
        read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
    ) as reader:
        entries = [_inherit_from_manifest(entry, manifest) for entry in reader]
    for entry in entries:
        assert isinstance(entry.data_file, NumberedFile)
        entry.data_file.changed_with = entry.sequence_number
    return entries
