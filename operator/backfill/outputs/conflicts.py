"""Changes of a table's main branch since a backfill began, and whether they affect the window."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from pyiceberg.expressions.visitors import expression_evaluator, inclusive_projection
from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntry, ManifestEntryStatus
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot, ancestors_of

from backfill.api.errors import PublishConflict
from backfill.api.quantities import format_time, from_us
from backfill.outputs.result_names import NAME, NAMESPACE
from backfill.outputs.window_comparison import NotComparable, WindowComparison
from backfill.outputs.window_rows import Share, WindowRows

_READERS = 8
_MOST_NAMED = 20


def snapshots_since(metadata: TableMetadata, base_snapshot_id: int) -> list[Snapshot] | None:
    """The snapshots of the main branch after a base, newest first.

    None if they are unknown: the base, or a snapshot since then, has expired or was rolled back. A
    snapshot without a parent proves nothing, since its parent may have expired.
    """
    since: list[Snapshot] = []
    for snapshot in ancestors_of(metadata.current_snapshot(), metadata):
        if snapshot.snapshot_id == base_snapshot_id:
            return since
        since.append(snapshot)
    return None


class ConflictCheck:
    """Checks that the window's rows are the same as before a backfill began.

    The check is repeated for every attempt at a commit, but reads each snapshot once.
    """

    def __init__(
        self,
        base_snapshot_id: int | None,
        rows: WindowRows,
        allowed: Callable[[Snapshot], bool] = lambda snapshot: False,
    ):
        """``base_snapshot_id`` is the table's snapshot from before the run; None if it had none.
        ``allowed``: whether a snapshot may have added rows.
        """
        self._base_snapshot_id = base_snapshot_id
        self._rows = rows
        self._allowed = allowed
        self._comparison = WindowComparison(rows)
        self._known: dict[int, bool] = {}
        """By snapshot, whether it may affect the window."""
        self._unchanged: set[int | None] = {base_snapshot_id}
        """Snapshots in which the window has the same rows as before."""

    def check(self, table: Table) -> None:
        """Checks the current snapshot of the table by its history, and by its rows if the history
        is inconclusive.

        Rewriting files (a compaction, or a deletion or Replace of other rows) may move rows of the
        window to other files. That is not a change. A snapshot that claims only to rewrite is
        trusted.

        Raises:
            PublishConflict: something else has changed the window's rows, or that is unknown.
        """
        current = table.metadata.current_snapshot_id
        if current in self._unchanged:
            return
        suspects = self._suspects(table)
        if suspects is None or suspects:
            self._compare(table, current, suspects)
        self._unchanged.add(current)

    def _suspects(self, table: Table) -> list[Snapshot] | None:
        """The snapshots since the base that may have changed the window; None if some snapshots
        since then are unknown.
        """
        base = self._base_snapshot_id
        if base is None:
            return None
        since = snapshots_since(table.metadata, base)
        if since is None:
            if table.metadata.snapshot_by_id(base) is None:
                raise PublishConflict(
                    f"snapshot {base}, which table {'.'.join(table.name())} had when the backfill"
                    " began, is no longer in its history, so changes since then cannot be"
                    " detected; compare the branch with the table and publish it by hand, or start"
                    " over with a new Backfill"
                )
            return None
        self._look_at(
            table, [snapshot for snapshot in since if snapshot.snapshot_id not in self._known]
        )
        return [
            snapshot
            for snapshot in since
            if self._known[snapshot.snapshot_id] and not self._allowed(snapshot)
        ]

    def _compare(self, table: Table, current: int | None, suspects: list[Snapshot] | None) -> None:
        name = ".".join(table.name())
        try:
            if self._comparison.same(table, self._base_snapshot_id, current):
                return
        except NotComparable as error:
            raise PublishConflict(
                f"table {name} may have been changed in the window since the backfill began:"
                f" {self._who(table, suspects)}; its earlier and current rows cannot be compared:"
                f" {error}; compare the branch with the table and publish it by hand, or start over"
                " with a new Backfill"
            ) from error
        raise PublishConflict(
            f"table {name} was changed in the window since the backfill began:"
            f" {self._who(table, suspects)}; check what wrote there; to publish over it, start over"
            " with a new Backfill"
        )

    def _who(self, table: Table, suspects: list[Snapshot] | None) -> str:
        """The snapshots that may have changed the window. If the history is incomplete, those that
        added its present files.
        """
        if suspects is not None:
            found = [describe(snapshot) for snapshot in suspects]
        else:
            before = (
                table.metadata.snapshot_by_id(self._base_snapshot_id)
                if self._base_snapshot_id is not None
                else None
            )
            known = {snapshot.snapshot_id for snapshot in ancestors_of(before, table.metadata)}
            added = {
                entry.snapshot_id
                for entry in _live_entries(table)
                if may_hold(table, entry.data_file, self._rows)
            }
            found = [
                _describe_id(table.metadata, snapshot_id)
                for snapshot_id in added - known
                if snapshot_id is not None
            ]
        more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
        return (
            ", ".join(found[:_MOST_NAMED]) + more
            if found
            else "a snapshot that is no longer in its history"
        )

    def _look_at(self, table: Table, snapshots: list[Snapshot]) -> None:
        # a table may have thousands of snapshots, each with a list to read
        with ThreadPoolExecutor(_READERS) as readers:
            touches = readers.map(
                lambda snapshot: _may_touch(table, snapshot, self._rows), snapshots
            )
            self._known.update(
                zip((snapshot.snapshot_id for snapshot in snapshots), touches, strict=True)
            )


def describe(snapshot: Snapshot) -> str:
    """A snapshot for people: what it did, when, and for which Backfill."""
    operation = snapshot.summary.operation.value if snapshot.summary else "unknown operation"
    summary = snapshot.summary.additional_properties if snapshot.summary else {}
    backfill = f", by Backfill {summary.get(NAMESPACE)}/{summary[NAME]}" if NAME in summary else ""
    return (
        f"snapshot {snapshot.snapshot_id} ({operation} at"
        f" {format_time(from_us(snapshot.timestamp_ms * 1000))}{backfill})"
    )


def _describe_id(metadata: TableMetadata, snapshot_id: int) -> str:
    snapshot = metadata.snapshot_by_id(snapshot_id)
    return describe(snapshot) if snapshot else f"snapshot {snapshot_id}, which has expired"


def _live_entries(table: Table) -> Iterator[ManifestEntry]:
    current = table.metadata.current_snapshot()
    for manifest in current.manifests(table.io) if current else ():
        yield from manifest.fetch_manifest_entry(table.io)


def _may_touch(table: Table, snapshot: Snapshot, rows: WindowRows) -> bool:
    """Whether a snapshot may affect the window, by partitions and statistics alone."""
    if snapshot.summary is not None and snapshot.summary.operation is Operation.REPLACE:
        return False
    return any(may_hold(table, file, rows) for file in changed_files(table, snapshot))


def changed_files(table: Table, snapshot: Snapshot) -> Iterator[DataFile]:
    """The files that a snapshot added or removed."""
    for manifest in snapshot.manifests(table.io):
        if manifest.added_snapshot_id != snapshot.snapshot_id:
            continue
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
            if (
                entry.status is not ManifestEntryStatus.EXISTING
                and entry.snapshot_id == snapshot.snapshot_id
            ):
                yield entry.data_file


def may_hold(table: Table, file: DataFile, rows: WindowRows) -> bool:
    """Whether a file may hold rows of the window, or delete some, by partition and statistics."""
    if not _partitionmay_hold(table, file, rows):
        return False
    # a plain number in format version 1
    return file.content != DataFileContent.DATA or rows.share(file) is not Share.NONE


def _partitionmay_hold(table: Table, file: DataFile, rows: WindowRows) -> bool:
    schema, spec = table.schema(), table.specs()[file.spec_id]
    partition = Schema(*spec.partition_type(schema).fields)
    projected = inclusive_projection(schema, spec)(rows.expression())
    return bool(expression_evaluator(partition, projected, case_sensitive=True)(file.partition))
