"""The result of a backfill before it is published: one branch of the output table, one commit for each micro-batch.

The branch does not start from the table's rows: its first snapshot has no parent. Only its newest snapshot is kept. It
refers to all staged files, and its summary says how far each output has come, so that nothing depends on snapshots that
an expiration may have removed, and the table's metadata does not grow with the number of batches.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile, ManifestEntryStatus
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import RemoveSnapshotsUpdate, TableUpdate

from backfill.api.errors import BadInput, Problem, ResultLost
from backfill.outputs.commits import as_writer, commit, commit_once
from backfill.outputs.files import remove_file
from backfill.outputs.result import NAME, NAMESPACE, PLAN_ID, Result

QUERY = "backfill.query"
BATCH_ID = "backfill.batch-id"
ROWS = "backfill.rows"
ROWS_OUTSIDE_WINDOW = "backfill.rows-outside-window"
STAGED = "backfill.staged"

_MANY_SMALL_COMMITS = {
    TableProperties.MANIFEST_MERGE_ENABLED: "true",
    TableProperties.MANIFEST_MIN_MERGE_COUNT: "100",
    TableProperties.MANIFEST_TARGET_SIZE_BYTES: str(512 * 1024),
}
"""A manifest for each batch, all of them listed by each commit, would make commits slower and slower; a large target would
make every hundredth one rewrite everything."""


@dataclass(frozen=True, slots=True)
class Staged:
    """How far a result has come."""

    query: str
    """The query that writes it."""
    batch_id: int
    """The last batch."""
    rows: int
    """Rows of the window in the branch."""
    rows_outside_window: int
    """Rows left out because they do not belong to the window."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What one micro-batch adds."""

    query: str
    batch_id: int
    """Counts the query's batches from zero; every one of them is staged, whether it has rows or not."""
    files: Sequence[DataFile]
    spec_id: int
    """The partition spec the files were written with; descriptions of files lose it on their way from a task."""
    rows_outside_window: int


def stage_batch(table: Table, result: Result, batch: Batch) -> bool:
    """Adds a batch to the branch. True if this call added it, False if it was there already.

    Raises:
        BadInput: the branch holds something else.
        ResultLost: the branch or a part of it is gone.
    """

    def there(metadata: TableMetadata) -> bool:
        staged = read_staged(metadata, result)
        if staged is None and batch.batch_id > 0:
            raise lost(".".join(table.name()), result)
        return staged is not None and staged.batch_id >= batch.batch_id

    return commit_once(table, lambda: _append(table, result, batch), there)


def lost(table: str, result: Result) -> ResultLost:
    """What is wrong when nothing of a result is where batches of it were staged: every batch is, also one without rows."""
    where = f"branch {result.branch} of {table}"
    return ResultLost(f"there is nothing of output {result.output} in {where} any more: it was dropped, or it has expired")


def read_staged(metadata: TableMetadata, result: Result) -> Staged | None:
    """How far a result has come; None when nothing of it was staged, not even a batch without rows.

    Raises:
        BadInput: the branch holds something else.
    """
    head = branch_head(metadata, result)
    found = json.loads(summary_of(head).get(STAGED, "{}")).get(result.output) if head else None
    return Staged(**found) if found else None


def branch_head(metadata: TableMetadata, result: Result) -> Snapshot | None:
    """The newest snapshot of the result's branch; None when there is no branch.

    Raises:
        BadInput: the branch holds something else.
    """
    head = metadata.snapshot_by_name(result.branch) if result.branch in metadata.refs else None
    if head is not None and not result.owns(summary_of(head)):
        raise BadInput(taken(result, head))
    return head


def own_head(metadata: TableMetadata, result: Result) -> Snapshot | None:
    """The newest snapshot of the result's branch; None when there is no branch or it holds something else."""
    try:
        return branch_head(metadata, result)
    except BadInput:
        return None


def taken(result: Result, head: Snapshot) -> Problem:
    """What is wrong when a result's branch exists and is not the result's."""
    summary = summary_of(head)
    owner = (
        f"plan {summary.get(PLAN_ID)} of Backfill {summary.get(NAMESPACE)}/{summary.get(NAME)}"
        if NAME in summary
        else "something that no backfill has made"
    )
    fix = f"remove that Backfill or drop the branch, or give the Backfill another name than {result.backfill}"
    return Problem("metadata.name", f"branch {result.branch} of the output's table already holds {owner}", fix)


def staged_files(table: Table, result: Result) -> list[DataFile]:
    """Every file of a result in its branch.

    Raises:
        BadInput: the branch holds something else.
    """
    head = branch_head(table.metadata, result)
    directory = result.staging_directory(table.metadata) + "/"
    manifests = head.manifests(table.io) if head else []
    entries = (entry for manifest in manifests for entry in manifest.fetch_manifest_entry(table.io))
    return [entry.data_file for entry in entries if entry.data_file.file_path.startswith(directory)]


def files_added(table: Table, snapshot: Snapshot) -> set[str]:
    """Where the files are that a snapshot has added."""
    return {
        entry.data_file.file_path
        for manifest in snapshot.manifests(table.io)
        if manifest.added_snapshot_id == snapshot.snapshot_id
        for entry in manifest.fetch_manifest_entry(table.io)
        if entry.status is ManifestEntryStatus.ADDED
    }


def _append(table: Table, result: Result, batch: Batch) -> None:
    before = branch_head(table.metadata, result)
    writer = as_writer(table, batch.spec_id, _MANY_SMALL_COMMITS)
    updates = writer.transaction().update_snapshot(_new_summary(before, result, batch), result.branch).merge_append()
    for file in batch.files:
        updates.append_data_file(file)
    made, _ = updates._commit()
    try:
        commit(table, (*made, *drop_snapshot(table.metadata, before, result)), result.branch)
    except CommitFailedException:
        updates._clean_all_uncommitted()
        raise
    if before is not None:
        remove_unused_metadata(table, before, updates._written_manifests, branch_head(table.metadata, result))


def _new_summary(before: Snapshot | None, result: Result, batch: Batch) -> dict[str, str]:
    rows = sum(file.record_count for file in batch.files)
    staged = json.loads(summary_of(before).get(STAGED, "{}")) if before else {}
    old = staged.get(result.output, {"rows": 0, "rows_outside_window": 0})
    outside = batch.rows_outside_window
    staged[result.output] = asdict(Staged(batch.query, batch.batch_id, old["rows"] + rows, old["rows_outside_window"] + outside))
    return {
        **result.summary,
        QUERY: batch.query,
        BATCH_ID: str(batch.batch_id),
        ROWS: str(rows),
        ROWS_OUTSIDE_WINDOW: str(outside),
        STAGED: json.dumps(staged, sort_keys=True),
    }


def drop_snapshot(metadata: TableMetadata, snapshot: Snapshot | None, result: Result) -> tuple[TableUpdate, ...]:
    """Removes a snapshot together with the branch's move away from it, unless somebody else holds it by a name."""
    held = {ref.snapshot_id for name, ref in metadata.refs.items() if name != result.branch}
    return (RemoveSnapshotsUpdate(snapshot_ids=[snapshot.snapshot_id]),) if snapshot and snapshot.snapshot_id not in held else ()


def remove_unused_metadata(table: Table, dropped: Snapshot, written: Iterable[str] = (), head: Snapshot | None = None) -> None:
    """Removes metadata files that only a dropped snapshot needed, and those ``written`` for the branch's head that it does
    not list after all. One that stays costs a few kilobytes, not a result."""
    used = {manifest.manifest_path for manifest in head.manifests(table.io)} if head else set()
    unused = set(written) - used
    if table.metadata.snapshot_by_id(dropped.snapshot_id) is None:
        unused |= {manifest.manifest_path for manifest in dropped.manifests(table.io)} - used
        unused.add(dropped.manifest_list)
    for path in unused:
        remove_file(table.io, path)


def summary_of(snapshot: Snapshot) -> dict[str, str]:
    """What a snapshot says of itself beyond what Iceberg knows; empty where it says nothing."""
    return snapshot.summary.additional_properties if snapshot.summary else {}
