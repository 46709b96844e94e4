"""Removes what results leave behind, and nothing that anybody may still read."""

from collections.abc import Iterable

from pyiceberg.table import Table
from pyiceberg.table.update import RemoveSnapshotRefUpdate

from backfill.api.backfill import Output
from backfill.outputs.commits import commit, commit_once
from backfill.outputs.conflicts import snapshots_since
from backfill.outputs.files import list_files, remove_file
from backfill.outputs.publish import publishes
from backfill.outputs.result import Result
from backfill.outputs.staging import drop_snapshot, files_added, own_head, remove_unused_metadata, staged_files, summary_of
from backfill.planning.iceberg.tables import Catalogs


def remove_orphans(output: Output, result: Result) -> int:
    """Removes files of failed tasks and aborted batches, once no driver of the backfill runs any more; says how many.

    Raises:
        BadInput: the table can not be opened, or the branch holds something else.
    """
    table = Catalogs().load_table(output.table, "spec.outputs")
    used = {file.file_path for file in staged_files(table, result)}
    return _remove(table, result.staging_directory(table.metadata), used) if used else 0


def discard(output: Output, result: Result, base_snapshot_id: int | None) -> None:
    """Drops a result's branch, and removes its files as far as they are not part of the table.

    ``base_snapshot_id`` is the table's snapshot from before the run. A result that was published belongs to the table, and
    so does one of which that can not be told any more because the table's history since then has expired. Safe to repeat,
    and while somebody publishes the result: without its branch nobody can any more, so what is part of the table is only
    then looked at.

    Raises:
        BadInput: the table can not be opened, or the branch holds something else.
    """
    table = Catalogs().load_table(output.table, "spec.outputs")
    _drop_branch(table, result)
    used = _files_of_table(table.refresh(), result, base_snapshot_id)
    if used is not None:
        for directory in (result.staging_directory(table.metadata), result.kept_directory(table.metadata)):
            _remove(table, directory, used)


def discard_earlier(output: Output, result: Result) -> None:
    """Drops what an earlier Backfill of the same name left in the branch that this one needs.

    Raises:
        BadInput: the table can not be opened.
    """
    table = Catalogs().load_table(output.table, "spec.outputs")
    head = table.metadata.snapshot_by_name(result.branch) if result.branch in table.metadata.refs else None
    earlier = result.earlier(summary_of(head)) if head is not None else None
    if earlier is not None:
        discard(output, earlier, None)


def _files_of_table(table: Table, result: Result, base_snapshot_id: int | None) -> set[str] | None:
    """Files of the result that publishing made part of the table; None when it can not be told."""
    published = [snapshot for snapshot in table.metadata.snapshots if publishes(snapshot, result)]
    if not published:
        return set() if snapshots_since(table.metadata, base_snapshot_id) is not None else None
    return {path for snapshot in published for path in files_added(table, snapshot)}


def _drop_branch(table: Table, result: Result) -> None:
    head = own_head(table.metadata, result)

    def drop() -> None:
        updates = drop_snapshot(table.metadata, own_head(table.metadata, result), result)
        commit(table, (RemoveSnapshotRefUpdate(ref_name=result.branch), *updates))

    if commit_once(table, drop, lambda metadata: own_head(metadata, result) is None) and head is not None:
        remove_unused_metadata(table, head)


def _remove(table: Table, directory: str, used: Iterable[str]) -> int:
    unused = set(list_files(table.io, directory)).difference(used)
    return sum(remove_file(table.io, path) for path in unused)
