"""Undoes a publication: one commit removes the files that it added, and restores those that it
removed.

Snapshots that others have committed since then stay. So it is done only if nothing that they did
depends on what is undone; otherwise the error names the snapshot in the way.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import (
    Operation,
    Snapshot,
    SnapshotSummaryCollector,
    Summary,
    ancestors_of,
    update_snapshot_summaries,
)

from backfill.api.errors import CanNotUndo
from backfill.api.output import Output, PublishMode
from backfill.api.quantities import count
from backfill.api.spec import Window
from backfill.iceberg.format_v3 import NumberedFile, manifests_with_numbers
from backfill.iceberg.open_tables import Catalogs
from backfill.outputs.conflicts import changed_files, describe, may_hold, snapshots_since
from backfill.outputs.earlier_publications import UNDONE
from backfill.outputs.publication import publishes
from backfill.outputs.replaced_files import any_inside, irremovable
from backfill.outputs.result_names import Result
from backfill.outputs.staging import summary_of
from backfill.outputs.table_commits import Overwrite, as_writer, commit_once, commit_produced
from backfill.outputs.window_comparison import LASTING
from backfill.outputs.window_rows import Share, WindowRows, window_rows

_CHANGES_OF = "source-snapshot-id"
"""Key of Iceberg in the summary of a snapshot, for the one whose changes it holds. When that one
expires, Iceberg's Java library does not delete the files that it removed from storage.
"""
_READERS = 16
_MOST_NAMED = 20
_LISTED_PARTITIONS = 100

_Deletes = tuple[str, str | None]
"""A delete file, and the only data file that it applies to, if that is known. A file of deletion
vectors is listed once for each data file.
"""


class Undo:
    """Undoes the publication of one result."""

    def __init__(self, output: Output, result: Result, window: Window, snapshot_id: int):
        """``snapshot_id`` is the snapshot that published the result.

        Raises:
            BadInput: the table cannot be opened.
        """
        self._table = Catalogs().load_table(output.table, "spec.outputs")
        self._output = output
        self._result = result
        self._window = window
        self._snapshot_id = snapshot_id
        self._harmless: set[int] = set()
        """Later snapshots that were looked at, and are not in the way."""
        self._silent: set[int] = set()
        """Later snapshots that were looked at, and do not list what the publication removed."""

    def check(self) -> None:
        """Checks whether the publication can be undone, in the table as it is now.

        Raises:
            CanNotUndo: something is in the way; the message says what.
        """
        if self._undone(self._table.metadata) is None:
            self._check(self._table)

    def run(self) -> int:
        """Undoes it, unless that was done already. Returns the snapshot that did.

        Raises:
            CanNotUndo: something is in the way; the message says what.
        """
        commit_once(self._table, self._try, lambda metadata: self._undone(metadata) is not None)
        found = self._undone(self._table.metadata)
        if found is None:
            raise CanNotUndo(
                f"{self._name} was rolled back to before the snapshot that undid the publication"
            )
        return found.snapshot_id

    @property
    def rows_gained(self) -> int | None:
        """How many rows more the table has once it is undone. None if it is unknown, because
        deletes applied to the files that were removed, or the snapshot before has expired.
        """
        added, removed = self._changes
        before = self._before(self._table)
        if removed and (before is None or next(_deletes(self._table, before), None) is not None):
            return None
        there, gone = (sum(each.data_file.record_count for each in of) for of in (removed, added))
        return there - gone

    @property
    def _name(self) -> str:
        return self._output.table

    def _undone(self, metadata: TableMetadata) -> Snapshot | None:
        history = ancestors_of(metadata.current_snapshot(), metadata)
        return next(
            (each for each in history if summary_of(each).get(UNDONE) == str(self._snapshot_id)),
            None,
        )

    @cached_property
    def _changes(self) -> tuple[list[ManifestEntry], list[ManifestEntry]]:
        """What the publication added and removed. Snapshots do not change."""
        published = self._table.metadata.snapshot_by_id(self._snapshot_id)
        if published is None:
            raise CanNotUndo(
                f"snapshot {self._snapshot_id} of {self._name}, which published the result, has"
                " expired, so what it replaced is unknown"
            )
        if not publishes(published, self._result):  # a job's report may name any
            raise CanNotUndo(
                f"snapshot {self._snapshot_id} of {self._name} did not publish the result of this"
                " Backfill"
            )
        added, removed = [], []
        for manifest in manifests_with_numbers(self._table, published):
            if manifest.added_snapshot_id != self._snapshot_id:
                continue
            for entry in manifest.fetch_manifest_entry(self._table.io, discard_deleted=False):
                if entry.snapshot_id != self._snapshot_id:
                    continue
                if entry.status is ManifestEntryStatus.ADDED:
                    added.append(entry)
                elif entry.status is ManifestEntryStatus.DELETED:
                    removed.append(entry)
        return added, removed

    def _before(self, table: Table) -> Snapshot | None:
        """The snapshot that the publication followed; None if there is none, or it has expired."""
        published = table.metadata.snapshot_by_id(self._snapshot_id)
        parent = published.parent_snapshot_id if published else None
        return table.metadata.snapshot_by_id(parent) if parent is not None else None

    def _check(self, table: Table) -> list[Snapshot]:
        added, removed = self._changes
        later = snapshots_since(table.metadata, self._snapshot_id)
        if later is None:
            raise CanNotUndo(
                f"snapshot {self._snapshot_id}, which published the result, is no longer in the"
                f" history of {self._name}: the table was rolled back, or snapshots since then have"
                " expired"
            )
        rows = window_rows(table.schema(), self._output, self._window)
        suspects = list(_effective(later))
        # a table may have thousands of snapshots, each with a list to read
        with ThreadPoolExecutor(_READERS) as readers:
            found = readers.map(lambda each: self._is_in_the_way(table, each, rows), suspects)
            in_the_way = [each for each, is_so in zip(suspects, found, strict=True) if is_so]
        if in_the_way:
            raise CanNotUndo(
                f"{self._name} was changed in the window since the result was published:"
                f" {_named(in_the_way)}; undo that first, or correct the window with another"
                " Backfill"
            )
        if why := irremovable(table, (entry.data_file for entry in (*added, *removed))):
            raise CanNotUndo(f"{self._name}: {why}")
        self._check_live(table, later)
        if removed:
            self._check_not_listed(table, later)
            self._check_restorable(table)
        return later

    def _is_in_the_way(self, table: Table, snapshot: Snapshot, rows: WindowRows | None) -> bool:
        """Whether a later snapshot has changed rows that were published, or that would be restored.

        Rewriting files is no change of rows; whether they are still there is checked separately.
        """
        if snapshot.snapshot_id in self._harmless or (
            snapshot.summary is not None and snapshot.summary.operation is Operation.REPLACE
        ):
            return False
        appends = self._output.publish.mode is PublishMode.APPEND
        for file in changed_files(table, snapshot):
            if file.content == DataFileContent.DATA and (appends or rows is None):
                continue  # others' rows stay, and those of the result are looked for
            if file.content != DataFileContent.DATA and self._may_apply(file.spec_id, file):
                return True
            if rows is not None and may_hold(table, file, rows) and _holds(table, file, rows):
                return True
        self._harmless.add(snapshot.snapshot_id)
        return False

    def _may_apply(self, spec_id: int, deletes: Any) -> bool:
        """Whether deletes may apply to a file that the publication added, by its partition."""
        if deletes.content == DataFileContent.EQUALITY_DELETES and not list(deletes.partition):
            return True
        added, _ = self._changes
        return any(
            entry.data_file.spec_id == spec_id and entry.data_file.partition == deletes.partition
            for entry in added
        )

    def _check_live(self, table: Table, later: list[Snapshot]) -> None:
        """Checks that all files that were added are still there, and those removed are not."""
        added, removed = self._changes
        gone = {entry.data_file.file_path for entry in added}
        back = {entry.data_file.file_path for entry in removed}
        current = table.metadata.current_snapshot()
        for manifest in current.manifests(table.io) if current else ():
            if manifest.content == ManifestContent.DATA:  # a plain number in format v1
                for entry in manifest.fetch_manifest_entry(table.io):
                    gone.discard(entry.data_file.file_path)
                    if entry.data_file.file_path in back:
                        raise CanNotUndo(
                            f"{self._name} contains {entry.data_file.file_path} again, which the"
                            " publication removed: somebody has restored it"
                        )
        if gone:
            rewrote = [
                snapshot
                for snapshot in later
                if gone & {file.file_path for file in changed_files(table, snapshot)}
            ]
            raise CanNotUndo(
                f"{len(gone):,} of the {count(len(added), 'file')} published to {self._name}"
                f" {'was' if len(gone) == 1 else 'were'} rewritten or removed since then:"
                f" {_named(rewrote)}; correct the window with another Backfill"
            )

    def _check_not_listed(self, table: Table, later: list[Snapshot]) -> None:
        """Checks that only the publication lists the files that it removed as removed. Expiring
        another snapshot that does so would delete them from storage.
        """
        unknown = [each for each in later if each.snapshot_id not in self._silent]
        with ThreadPoolExecutor(_READERS) as readers:
            found = list(readers.map(lambda each: self._lists_removed(table, each), unknown))
        listing = [each for each, lists in zip(unknown, found, strict=True) if lists]
        if listing:
            raise CanNotUndo(
                f"the files that would be restored to {self._name} are listed as removed by"
                f" {_named(listing)}, so they would be deleted from storage when that expires;"
                " correct the window with another Backfill"
            )
        self._silent.update(each.snapshot_id for each in unknown)

    def _lists_removed(self, table: Table, snapshot: Snapshot) -> bool:
        return any(
            manifest.added_snapshot_id == self._snapshot_id and manifest.deleted_files_count != 0
            for manifest in snapshot.manifests(table.io)
        )

    def _check_restorable(self, table: Table) -> None:
        """Checks that files to restore exist, and that the same deletes apply to them as then."""
        before = self._before(table)
        if before is None:
            raise CanNotUndo(
                f"the snapshot of {self._name} from before the publication has expired, and with it"
                " the files that would be restored"
            )
        _, removed = self._changes
        partitions = {(entry.data_file.spec_id, entry.data_file.partition) for entry in removed}
        paths = {entry.data_file.file_path for entry in removed}
        then = {
            deletes
            for deletes, spec_id, partition in _deletes(table, before)
            if deletes[1] in paths
            or (deletes[1] is None and ((spec_id, partition) in partitions or not list(partition)))
        }
        current = table.metadata.current_snapshot()
        now = {deletes for deletes, _, _ in _deletes(table, current)} if current else set()
        if then - now:
            raise CanNotUndo(
                f"delete files of {self._name} that apply to what would be restored were removed"
                f" since the publication: {_files_of(then - now)}"
            )
        with ThreadPoolExecutor(_READERS) as readers:
            exist = readers.map(lambda path: table.io.new_input(path).exists(), paths)
            lost = [path for path, found in zip(paths, exist, strict=True) if not found]
        if lost:
            raise CanNotUndo(
                f"{count(len(lost), 'file')} that would be restored to {self._name} no longer"
                f" {'exists' if len(lost) == 1 else 'exist'}: {', '.join(lost[:_MOST_NAMED])}"
            )

    def _try(self) -> None:
        self._check(self._table)
        added, removed = self._changes
        summary = {
            **self._result.summary,
            UNDONE: str(self._snapshot_id),
            _CHANGES_OF: str(self._snapshot_id),
        }
        producer = _Inverse(self._table, removed, summary)
        for entry in added:
            producer.delete_data_file(entry.data_file)
        commit_produced(self._table, producer, MAIN_BRANCH)


class _Inverse(Overwrite):
    """Restores files with the sequence numbers that they had, so that what deletes their rows
    applies to them as before.
    """

    def __init__(self, table: Table, restored: list[ManifestEntry], summary: dict[str, str]):
        operation = Operation.OVERWRITE if restored else Operation.DELETE
        writer = as_writer(table, table.spec().spec_id)
        super().__init__(operation, writer.transaction(), table.io, snapshot_properties=summary)
        self._restored = restored

    def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        by_spec: dict[int, list[ManifestEntry]] = defaultdict(list)
        for entry in self._restored:
            by_spec[entry.data_file.spec_id].append(entry)
        written = []
        for spec_id, entries in by_spec.items():
            with self.new_manifest_writer(self.spec(spec_id)) as writer:
                for entry in entries:
                    writer.add(entry)  # as an added file of an earlier sequence number
            written.append(writer.to_manifest_file())
        return [*written, *manifests]

    def _summary(self, snapshot_properties: dict[str, str] = {}) -> Summary:  # noqa: B006
        metadata = self._transaction.table_metadata
        schema, specs = metadata.schema(), metadata.specs()
        collector = SnapshotSummaryCollector(_LISTED_PARTITIONS)
        for entry in self._restored:
            collector.add_file(entry.data_file, schema, specs[entry.data_file.spec_id])
        for file in self._deleted_data_files:
            collector.remove_file(file, schema, specs[file.spec_id])
        before = metadata.current_snapshot()
        return update_snapshot_summaries(
            Summary(operation=self._operation, **collector.build(), **snapshot_properties),
            before.summary if before else None,
        )


def _holds(table: Table, file: DataFile, rows: WindowRows) -> bool:
    """Whether a file that may, by its statistics, has rows of the window, or deletes some. Where a
    stream writes late rows beside current ones, files span long times. One that is gone may have
    some.
    """
    if file.content != DataFileContent.DATA or rows.share(file) is Share.ALL:
        return True
    try:
        return any_inside(table, FileScanTask(file), rows)
    except LASTING:
        return True


def _effective(later: list[Snapshot]) -> Iterator[Snapshot]:
    """Without publications that were undone, and what undid them: together they change nothing."""
    undone = {summary_of(each).get(UNDONE) for each in later}
    there = {str(each.snapshot_id) for each in later}
    for each in later:
        if str(each.snapshot_id) not in undone and summary_of(each).get(UNDONE) not in there:
            yield each


def _deletes(table: Table, snapshot: Snapshot) -> Iterator[tuple[_Deletes, int, Any]]:
    """The deletes of a snapshot, partition spec and partition."""
    for manifest in manifests_with_numbers(table, snapshot):
        if manifest.content == ManifestContent.DELETES:
            for entry in manifest.fetch_manifest_entry(table.io):
                file = entry.data_file
                only_of = file.deletes_of if isinstance(file, NumberedFile) else None
                yield (file.file_path, only_of), file.spec_id, file.partition


def _files_of(deletes: Iterable[_Deletes]) -> str:
    return ", ".join(sorted({path for path, _ in deletes})[:_MOST_NAMED])


def _named(snapshots: list[Snapshot]) -> str:
    more = f" and {len(snapshots) - _MOST_NAMED} more" if len(snapshots) > _MOST_NAMED else ""
    told = ", ".join(describe(snapshot) for snapshot in snapshots[:_MOST_NAMED])
    return f"{told}{more}" if snapshots else "a snapshot that is no longer in the history"
