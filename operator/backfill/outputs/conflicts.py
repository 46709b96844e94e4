"""What has happened to a table's main branch since a backfill began, and whether it touches the window."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from pyiceberg.expressions.visitors import expression_evaluator, inclusive_projection
from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntryStatus
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot, ancestors_of

from backfill.api.errors import PublishConflict
from backfill.api.quantities import format_time, from_us
from backfill.outputs.replaced import any_inside
from backfill.outputs.window import Share, WindowRows

_READERS = 8


def snapshots_since(metadata: TableMetadata, base_snapshot_id: int | None) -> list[Snapshot] | None:
    """The snapshots of the main branch after a base, newest first; after None, all of them.

    None when it can not be told: the base, or a snapshot between it and now, has expired or was rolled back.
    """
    since: list[Snapshot] = []
    for snapshot in ancestors_of(metadata.current_snapshot(), metadata):
        if snapshot.snapshot_id == base_snapshot_id:
            return since
        since.append(snapshot)
    reached_root = not since or since[-1].parent_snapshot_id is None
    return since if base_snapshot_id is None and reached_root else None


class ConflictCheck:
    """Checks that nothing but one backfill can have changed the window's rows since it began.

    It is repeated for every try to commit; a snapshot is looked at once.
    """

    def __init__(self, base_snapshot_id: int | None, rows: WindowRows):
        """``base_snapshot_id`` is the table's snapshot from before the run, None if it had none."""
        self._base_snapshot_id = base_snapshot_id
        self._rows = rows
        self._known: dict[int, bool] = {}
        """By snapshot, whether it touches the window."""

    def check(self, table: Table) -> None:
        """Checks the history of the main branch. Rewriting files without changing rows (compaction) is no change.

        Raises:
            PublishConflict: something else may have changed the window, or it can not be told any more.
        """
        name = ".".join(table.name())
        since = snapshots_since(table.metadata, self._base_snapshot_id)
        if since is None:
            raise PublishConflict(
                f"snapshot {self._base_snapshot_id}, which table {name} had when the backfill began, is not in its history any "
                "more, so that changes since then can not be seen; compare the branch with the table and publish it by hand, "
                "or start over with a new Backfill"
            )
        self._look_at(table, [snapshot for snapshot in since if snapshot.snapshot_id not in self._known])
        guilty = [snapshot for snapshot in since if self._known[snapshot.snapshot_id]]
        if guilty:
            what = ", ".join(_describe(snapshot) for snapshot in guilty)
            raise PublishConflict(
                f"table {name} was changed in the window since the backfill began: {what}; check what wrote there; "
                "to publish over it, start over with a new Backfill"
            )

    def _look_at(self, table: Table, snapshots: list[Snapshot]) -> None:
        with ThreadPoolExecutor(_READERS) as readers:  # a busy table has thousands of snapshots, each with a list to fetch
            touches = readers.map(lambda snapshot: _touches(table, snapshot, self._rows), snapshots)
            self._known.update(zip((snapshot.snapshot_id for snapshot in snapshots), touches, strict=True))


def _describe(snapshot: Snapshot) -> str:
    operation = snapshot.summary.operation.value if snapshot.summary else "unknown operation"
    return f"snapshot {snapshot.snapshot_id} ({operation} at {format_time(from_us(snapshot.timestamp_ms * 1000))})"


def _touches(table: Table, snapshot: Snapshot, rows: WindowRows) -> bool:
    if snapshot.summary is not None and snapshot.summary.operation is Operation.REPLACE:
        return False
    return any(_may_hold(table, file, status, rows) for file, status in _changed_files(table, snapshot))


def _changed_files(table: Table, snapshot: Snapshot) -> Iterator[tuple[DataFile, ManifestEntryStatus]]:
    for manifest in snapshot.manifests(table.io):
        if manifest.added_snapshot_id != snapshot.snapshot_id:
            continue
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
            if entry.status is not ManifestEntryStatus.EXISTING and entry.snapshot_id == snapshot.snapshot_id:
                yield entry.data_file, entry.status


def _may_hold(table: Table, file: DataFile, status: ManifestEntryStatus, rows: WindowRows) -> bool:
    """Whether a file can hold rows of the window, or delete some."""
    if not _partition_may_hold(table, file, rows):
        return False
    if file.content is not DataFileContent.DATA:
        return True
    share = rows.share(file)
    if share is Share.UNKNOWN and status is ManifestEntryStatus.ADDED:
        return any_inside(table, FileScanTask(file), rows)
    return share is not Share.NONE


def _partition_may_hold(table: Table, file: DataFile, rows: WindowRows) -> bool:
    schema, spec = table.schema(), table.specs()[file.spec_id]
    partition = Schema(*spec.partition_type(schema).fields)
    projected = inclusive_projection(schema, spec)(rows.expression())
    return bool(expression_evaluator(partition, projected, case_sensitive=True)(file.partition))
