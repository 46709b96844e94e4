"""What has been appended to a table since a snapshot that a plan reads."""

from collections.abc import Iterator
from itertools import pairwise

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent, ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot

from backfill.api.errors import NotExtended
from backfill.planning.metadata.manifests import manifests_of

_ADDED = "added-records"


def changes_since(table: Table, snapshot_id: int, newest: Snapshot) -> tuple[Snapshot, ...]:
    """The snapshots after one up to the newest, the oldest first. They have appended rows, or
    rewritten existing ones.

    Raises:
        NotExtended: one of them has changed or deleted rows, or it is unknown what came between.
    """
    name, found = ".".join(table.name()), list[Snapshot]()
    current: Snapshot | None = newest
    while current is not None and current.snapshot_id != snapshot_id:
        found.append(current)
        parent = current.parent_snapshot_id
        current = None if parent is None else table.snapshot_by_id(parent)
    if current is None:
        raise NotExtended(
            f"snapshots of {name} since {snapshot_id} have expired or were rolled back, so the rows"
            " appended since then are unknown"
        )
    for each in found:
        operation = each.summary.operation if each.summary is not None else None
        if operation not in (Operation.APPEND, Operation.REPLACE):
            did = (
                "an unknown operation" if operation is None else f"the operation {operation.value}"
            )
            raise NotExtended(
                f"snapshot {each.snapshot_id} of {name} was made by {did}, but history can only be"
                " extended with appended rows"
            )
    return tuple(reversed(found))


def appends(table: Table, changes: tuple[Snapshot, ...]) -> tuple[Snapshot, ...]:
    """The snapshots that have appended rows, after a check that their metadata lists all of these.

    Raises:
        NotExtended: it does not, or they delete rows, too.
    """
    found = []
    for each in changes:
        if each.summary is None or each.summary.operation is not Operation.APPEND:
            continue
        found.append(each)
        listed = sum(_added_rows(table, each))
        stated = each.summary.additional_properties.get(_ADDED, "0")
        if str(listed) != stated:
            raise NotExtended(
                f"snapshot {each.snapshot_id} of {'.'.join(table.name())} claims to have added"
                f" {stated} rows, but its metadata lists {listed}"
            )
    return tuple(found)


def with_all_appended(changes: tuple[Snapshot, ...]) -> Iterator[Snapshot]:
    """The fewest snapshots that together have every appended file: compaction removes files from
    those that follow it.
    """
    for each, following in pairwise((*changes, None)):
        if each is not None and (following is None or _replaces(following)) and not _replaces(each):
            yield each


def _replaces(snapshot: Snapshot) -> bool:
    return snapshot.summary is not None and snapshot.summary.operation is Operation.REPLACE


def _added_rows(table: Table, snapshot: Snapshot) -> Iterator[int]:
    io: FileIO = table.io
    for manifest in manifests_of(snapshot, io):
        if manifest.content is ManifestContent.DELETES:
            raise NotExtended(
                f"snapshot {snapshot.snapshot_id} of {'.'.join(table.name())} deletes rows, but"
                " history can only be extended with appended rows"
            )
        for entry in manifest.fetch_manifest_entry(io, discard_deleted=True):
            if entry.status is ManifestEntryStatus.ADDED:
                yield entry.data_file.record_count
