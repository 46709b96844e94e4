"""Removes files of results that their table does not refer to.

Before a file is removed, every snapshot in the table's metadata was read, and none refers to it: no
branch, no tag, and nothing in the history, however it came there. If they cannot be read, nothing
is removed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import RemoveSnapshotRefUpdate

from backfill.api.errors import BackfillError, UnknownReferences
from backfill.api.output import Output
from backfill.iceberg.open_tables import Catalogs
from backfill.outputs.referenced_files import (
    Unreferenced,
    least_sequence_number,
    live_files,
    manifests_of,
)
from backfill.outputs.result_names import Result, data_directory
from backfill.outputs.staging import (
    branch_head,
    drop_snapshot,
    own_head,
    remove_unused_metadata,
    staged_in,
    summary_of,
)
from backfill.outputs.stored_files import OwnDirectory
from backfill.outputs.table_commits import commit, commit_once


def remove_orphans(output: Output, result: Result, base_snapshot_id: int | None) -> int:
    """Removes files of failed tasks and aborted batches, after the last driver of the backfill has
    ended. Returns how many.

    Raises:
        BadInput: the table cannot be opened, or the branch holds something else.
        BackfillError: it is unknown which files the table uses; none was removed.
    """
    table = Catalogs().load_table(output.table, "spec.outputs")
    head = branch_head(table.metadata, result)
    if head is None:
        return 0
    places = [
        OwnDirectory(table.io, data, result.staging_path)
        for data in _data_directories(table, [result], head)
    ]
    files = {location: place for place in places for location in place.files()}
    unused = Unreferenced(files, least_sequence_number(table.metadata, [base_snapshot_id]))
    try:
        unused.read_until_unchanged(table)
    except UnknownReferences as error:
        raise BackfillError(
            f"{error}. No files were removed below {', '.join(map(str, places))}"
        ) from error
    return sum(files[location].remove(location) for location in unused.locations)


def discard(
    table_name: str, results: Sequence[Result], base_snapshot_ids: Iterable[int | None]
) -> None:
    """Drops the branch that the results of a Backfill for one table share, and removes their files
    unless the table refers to them.

    ``base_snapshot_ids`` are the table's snapshots from before the run. May be repeated, also while
    a result is being published: nobody can publish it without its branch, and references are read
    after that is dropped. They are also read before: if that fails, the branch stays, too.

    Raises:
        BadInput: the table cannot be opened.
        BackfillError: it is unknown which files the table uses; none was removed.
    """
    table = Catalogs().load_table(table_name, "spec.outputs")
    head = own_head(table.metadata, results[0])
    try:
        own = [path for result in results for path in (result.staging_path, result.kept_path)]
        places = [
            OwnDirectory(table.io, data, path)
            for data in _data_directories(table, results, head)
            for path in own
        ]
        files = {location: place for place in places for location in place.files()}
        unused = Unreferenced(files, least_sequence_number(table.metadata, base_snapshot_ids))
        unused.read(
            table, without=head if drop_snapshot(table.metadata, head, results[0]) else None
        )
        _drop_branch(table, results[0])
        unused.read_until_unchanged(table)
    except UnknownReferences as error:
        where = f"{data_directory(table.metadata)}/{results[0].own_path}"
        raise BackfillError(
            f"{error}. No files were removed below {where}; repair the table, or remove"
            " unreferenced files by hand"
        ) from error
    for location in unused.locations:
        files[location].remove(location)


def discard_earlier(output: Output, result: Result) -> None:
    """Drops the branch if an earlier Backfill of the same name has left it, which was stored in the
    same place: it no longer exists there.

    Raises:
        BadInput: the table cannot be opened.
        BackfillError: it is unknown which files the table uses; none was removed.
    """
    metadata = Catalogs().load_table(output.table, "spec.outputs").metadata
    head = metadata.snapshot_by_name(result.branch) if result.branch in metadata.refs else None
    earlier = result.earlier(summary_of(head)) if head is not None else None
    if head is not None and earlier is not None:
        discard(output.table, [replace(earlier, output=name) for name in staged_in(head)], [None])


def _data_directories(table: Table, results: Sequence[Result], head: Snapshot | None) -> list[str]:
    """The data directory of the table, now and when files in the branch were written."""
    staged = (
        (
            location
            for manifest in manifests_of(table, head)
            for location in live_files(table, manifest)
        )
        if head
        else ()
    )
    then = {result.data_directory_of(location) for location in staged for result in results}
    return sorted(
        {
            data_directory(table.metadata),
            *(directory for directory in then if directory is not None),
        }
    )


def _drop_branch(table: Table, result: Result) -> None:
    head = own_head(table.metadata, result)

    def drop() -> None:
        updates = drop_snapshot(table.metadata, own_head(table.metadata, result), result)
        commit(table, (RemoveSnapshotRefUpdate(ref_name=result.branch), *updates))

    if (
        commit_once(table, drop, lambda metadata: own_head(metadata, result) is None)
        and head is not None
    ):
        remove_unused_metadata(table, head)
