"""Determines which files a table refers to,
by reading the lists of all snapshots in its metadata.
"""

import posixpath
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from pyiceberg.avro.file import AvroFile
from pyiceberg.io import FileIO
from pyiceberg.manifest import MANIFEST_ENTRY_SCHEMAS, DataFile, ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import Record

from backfill.api.errors import UnknownReferences, first_line

_READERS = 8


class Unreferenced:
    """Files that no snapshot refers to, as far as the table was read.

    Files are compared by name, which contains a UUID, since a location can be written in several
    ways (``s3a`` for ``s3``, a doubled slash). Only the names in question are kept in memory, and
    each manifest is read once.
    """

    def __init__(self, locations: Iterable[str], since: int):
        """``since`` is the table's last sequence number from before any of the files was written, 0
        if unknown. Earlier commits are not read.
        """
        self._since = since
        self._files: dict[str, list[str]] = {}
        for location in locations:
            self._files.setdefault(posixpath.basename(location), []).append(location)
        self._read: set[str] = set()
        """Manifests and manifest lists that were read."""

    @property
    def locations(self) -> list[str]:
        """The files that no reference was found to."""
        return [location for locations in self._files.values() for location in locations]

    def read(self, table: Table, without: Snapshot | None = None) -> bool:
        """Reads the snapshots that were not read yet, except one that is about to be dropped.
        Returns False if there are none.

        Raises:
            UnknownReferences: a metadata file cannot be read.
        """
        dropped = without.snapshot_id if without else None
        snapshots = [
            snapshot
            for snapshot in reversed(table.metadata.snapshots)
            if snapshot.snapshot_id != dropped
            and self._is_new(snapshot.manifest_list, snapshot.sequence_number)
        ]
        # the newest one usually refers to everything that is in use
        self._read_all(table, snapshots[:1])
        self._read_all(table, snapshots[1:])
        return bool(snapshots)

    def read_snapshot(self, table: Table, snapshot: Snapshot) -> None:
        """Reads a single snapshot in the same way."""
        self._read_all(table, [snapshot])

    def read_until_unchanged(self, table: Table) -> None:
        """Reads the table as it is now, and again until nothing was committed in the meantime.

        Raises:
            UnknownReferences: a metadata file cannot be read.
        """
        while self._files and self.read(table.refresh()):
            pass

    def _read_all(self, table: Table, snapshots: Sequence[Snapshot]) -> None:
        if not self._files:
            return
        manifests: dict[str, ManifestFile] = {}
        with ThreadPoolExecutor(_READERS) as readers:
            for listed in readers.map(lambda snapshot: self._listed(table, snapshot), snapshots):
                manifests.update(listed)
            for _ in readers.map(
                lambda manifest: self._strike_out(table, manifest), manifests.values()
            ):
                pass
        self._read.update(manifests, (snapshot.manifest_list for snapshot in snapshots))

    def _is_new(self, metadata_file: str, sequence_number: int | None) -> bool:
        return metadata_file not in self._read and (
            self._since == 0 or (sequence_number or 0) > self._since
        )

    def _listed(self, table: Table, snapshot: Snapshot) -> dict[str, ManifestFile]:
        return {
            manifest.manifest_path: manifest
            for manifest in manifests_of(table, snapshot)
            if self._is_new(manifest.manifest_path, manifest.sequence_number)
        }

    def _strike_out(self, table: Table, manifest: ManifestFile) -> None:
        if not self._files:
            return
        for location in live_files(table, manifest):
            self._files.pop(posixpath.basename(location), None)


def manifests_of(table: Table, snapshot: Snapshot) -> list[ManifestFile]:
    """The manifests of a snapshot.

    Raises:
        UnknownReferences: they cannot be read.
    """
    try:
        if not snapshot.manifest_list:
            raise ValueError("it has no manifest list")
        return snapshot.manifests(table.io)
    except Exception as error:  # a FileIO raises whatever its client library raises
        raise _unknown(
            table, f"{snapshot.manifest_list} of snapshot {snapshot.snapshot_id}", error
        ) from error


def live_files(table: Table, manifest: ManifestFile) -> Iterator[str]:
    """Locations of the data and delete files that a manifest refers to.

    Raises:
        UnknownReferences: it cannot be read.
    """
    try:
        yield from _live_files(table.io, manifest.manifest_path)
    except Exception as error:
        raise _unknown(table, manifest.manifest_path, error) from error


def least_sequence_number(metadata: TableMetadata, snapshot_ids: Iterable[int | None]) -> int:
    """The lowest sequence number of some snapshots; 0 if one of them has expired or has none, as in
    tables of format version 1.
    """
    known = (
        metadata.snapshot_by_id(snapshot_id) if snapshot_id is not None else None
        for snapshot_id in snapshot_ids
    )
    return min((snapshot.sequence_number or 0 if snapshot else 0 for snapshot in known), default=0)


def _live_files(io: FileIO, path: str) -> Iterator[str]:
    with AvroFile[Record](io.new_input(path), MANIFEST_ENTRY_SCHEMAS[3], {2: DataFile}) as entries:
        for entry in entries:
            status, *_, file = entry._data
            if status != ManifestEntryStatus.DELETED:
                yield file.file_path


def _unknown(table: Table, what: str, error: Exception) -> UnknownReferences:
    return UnknownReferences(
        f"the files that table {'.'.join(table.name())} uses are unknown, since {what} cannot be"
        f" read: {first_line(error)}"
    )
