"""Stages the result of a backfill: one branch of the output table,
with one commit for each micro-batch.

The branch does not start from the table's rows: its first snapshot has no parent. Only its newest
snapshot is kept. It refers to all staged files, and its summary records the progress of each
output. So nothing depends on snapshots that an expiration may have removed, and the table's
metadata does not grow with the number of batches.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Literal

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update import RemoveSnapshotsUpdate, TableUpdate

from backfill.api.errors import (
    BadInput,
    Problem,
    ResultLost,
    RunFailed,
    UnknownReferences,
)
from backfill.api.json_text import read_json_text
from backfill.iceberg.table_locations import is_unambiguous
from backfill.outputs.referenced_files import manifests_of
from backfill.outputs.result_names import KEPT_IN, NAME, NAMESPACE, PLAN_ID, Result
from backfill.outputs.stored_files import remove_file
from backfill.outputs.table_commits import (
    MergingAppend,
    Overwrite,
    as_writer,
    clean_refused,
    commit,
    commit_once,
)

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
"""With a manifest for each batch, all of which each commit lists, commits would become slower and
slower; with a large target size, every hundredth one would rewrite everything.
"""


@dataclass(frozen=True, slots=True)
class Part:
    """Progress of one query that writes a result."""

    batch_id: int
    """ID of its last batch."""
    execution: str = "Streaming"
    """How it was run: as a stream, or as batch jobs (``Batch``)."""
    overlap: Mapping[str, int] | None = None
    """What the last span has found of results that the next one computes, too, for the driver that
    compares them."""
    rows_open: int = 0
    """Number of rows of the window that spans have left out because they may still change."""


@dataclass(frozen=True, slots=True)
class Staged:
    """Progress of a result."""

    rows: int
    """Number of rows of the window in the branch."""
    rows_outside_window: int
    """Number of rows that were left out because they are outside the window."""
    files: int
    """Number of files in the branch."""
    changes: bool = False
    """Whether the branch holds changed rows, of which only the newest of each key count."""
    parts: Mapping[str, Part] = field(default_factory=dict)
    """By the name of each query that writes the result, how far it has come."""


Holds = Literal["Rows", "Changes", "Result", "Batches"]
"""What the rows of a micro-batch are. ``Rows``: further rows of the result. ``Changes``: rows that
replace those of earlier batches with the same keys. ``Result``: all rows of the result so far,
which replace those of earlier batches. ``Batches``: what the application's own sink gets, apart
from the rows of other batches.
"""
OF_BATCHES = ("Changes", "Batches")
"""Those whose files are in the directory of their batch."""


@dataclass(frozen=True, slots=True)
class StagedBatch:
    """What one micro-batch adds, or one span of steps."""

    query: str
    """Name of the query, which is the same in every attempt. Each query that writes a result has
    batches of its own.
    """
    batch_id: int
    """Number of the query's batch, from zero; of a span, the number of its last step. Every batch
    is staged, with or without rows.
    """
    files: Sequence[DataFile]
    spec_id: int
    """ID of the partition spec of the files. Their descriptions lose it on their way from a task.
    """
    rows_outside_window: int
    first: int | None = None
    """The first step of a span; None for a micro-batch, which is one step."""
    holds: Holds = "Rows"
    """What its rows are."""
    overlap: Mapping[str, int] | None = None
    """What a span has found of results that the next one computes, too."""
    rows_open: int = 0
    """Number of rows of the window that a span has left out because they may still change."""
    rows_without_time: int = 0
    """Number of its rows, if none of them has a time, so that none is in the window; otherwise 0.
    """

    @property
    def begins_at(self) -> int:
        """The first of the batches that are staged together."""
        return self.batch_id if self.first is None else self.first

    @property
    def execution(self) -> str:
        """How the query was run."""
        return "Streaming" if self.first is None else "Batch"


def stage_batch(table: Table, result: Result, batch: StagedBatch) -> bool:
    """Adds a batch to the branch.

    Returns True if this call added it, False if it was there already.

    Raises:
        BadInput: the branch holds something else.
        ResultLost: the branch, or a part of it, no longer exists.
        RunFailed: another driver has staged a part of the span meanwhile.
    """

    def there(metadata: TableMetadata) -> bool:
        part = part_of(read_staged(metadata, result), batch.query)
        done = -1 if part is None else part.batch_id
        if done < batch.begins_at - 1:
            raise lost(".".join(table.name()), result)
        if batch.begins_at <= done < batch.batch_id:
            raise RunFailed(
                f"another driver has already staged steps of output {result.output} up to {done};"
                f" this one would add {batch.begins_at} to {batch.batch_id} again"
            )
        return done >= batch.batch_id

    return commit_once(table, lambda: _append(table, result, batch), there)


def lost(table: str, result: Result) -> ResultLost:
    """The error if a result is missing although batches of it were staged.

    Every batch is, also one without rows.
    """
    where = f"branch {result.branch} of {table}"
    return ResultLost(
        f"the staged result of output {result.output} is no longer in {where}: it was dropped, or"
        " it has expired"
    )


def read_staged(metadata: TableMetadata, result: Result) -> Staged | None:
    """The progress of a result; None if nothing was staged, not even a batch without rows.

    Raises:
        BadInput: the branch holds something else.
    """
    head = branch_head(metadata, result)
    return staged_in(head).get(result.output) if head else None


def part_of(staged: Staged | None, query: str) -> Part | None:
    """What a query has staged of a result; None if nothing."""
    return None if staged is None else staged.parts.get(query)


def staged_in(head: Snapshot) -> dict[str, Staged]:
    """The progress of each output of a branch, by the branch's newest snapshot."""
    return {
        output: Staged(
            **{**found, "parts": {query: Part(**part) for query, part in found["parts"].items()}}
        )
        for output, found in read_json_text(summary_of(head).get(STAGED, "{}")).items()
    }


def branch_head(metadata: TableMetadata, result: Result) -> Snapshot | None:
    """The newest snapshot of the result's branch; None if there is no branch.

    Raises:
        BadInput: the branch holds something else.
    """
    head = metadata.snapshot_by_name(result.branch) if result.branch in metadata.refs else None
    if head is not None and not result.owns(summary_of(head)):
        raise BadInput(taken(result, head))
    return head


def own_head(metadata: TableMetadata, result: Result) -> Snapshot | None:
    """The newest snapshot of the result's branch;
    None if there is no branch, or if it holds something else.
    """
    try:
        return branch_head(metadata, result)
    except BadInput:
        return None


def taken(result: Result, head: Snapshot) -> Problem:
    """The problem of a branch that has a result's name and holds something else."""
    summary = summary_of(head)
    owner = "something that no Backfill created"
    if NAME in summary:
        where = f" in {summary[KEPT_IN]}" if KEPT_IN in summary else ""
        backfill = f"{summary.get(NAMESPACE)}/{summary.get(NAME)}"
        owner = f"plan {summary.get(PLAN_ID)} of Backfill {backfill}{where}"
    fix = (
        "delete that Backfill, or drop the branch if that Backfill no longer exists, or give this"
        f" one a name other than {result.backfill}"
    )
    return Problem(
        "metadata.name",
        f"branch {result.branch} of the output's table already contains {owner}",
        fix,
    )


def staged_files(table: Table, result: Result) -> list[DataFile]:
    """All files of a result in its branch, wherever the
    table's data directory was when they were written.

    Raises:
        BadInput: the branch holds something else.
    """
    head = branch_head(table.metadata, result)
    manifests = head.manifests(table.io) if head else []
    entries = (entry for manifest in manifests for entry in manifest.fetch_manifest_entry(table.io))
    return [
        entry.data_file
        for entry in entries
        if result.data_directory_of(entry.data_file.file_path) is not None
    ]


def _append(table: Table, result: Result, batch: StagedBatch) -> None:
    before = branch_head(table.metadata, result)
    replaced = staged_files(table, result) if batch.holds == "Result" else []
    summary = _new_summary(before, result, batch)
    _commit(table, result, summary, batch.files, replaced=replaced, spec_id=batch.spec_id)


def keep_newest(
    table: Table,
    result: Result,
    *,
    seen: int,
    files: Sequence[DataFile],
    spec_id: int,
    outside: int,
) -> bool:
    """Replaces all changes of a result by files with the newest row of each key, once.

    Args:
        seen: ID of the branch's snapshot that the files were made from.
        files: the new files, in the directory of no batch.
        spec_id: ID of their partition spec.
        outside: number of the newest rows that were left out because they are outside the window.

    Returns True if this call did it, False if the branch holds no changes any more.

    Raises:
        BadInput: the branch holds something else.
        ResultLost: the branch no longer exists.
        RunFailed: another driver has added to the branch.
    """

    def there(metadata: TableMetadata) -> bool:
        staged = read_staged(metadata, result)
        if staged is None:
            raise lost(".".join(table.name()), result)
        return not staged.changes

    def replace_changes() -> None:
        head = branch_head(table.metadata, result)
        if head is None or head.snapshot_id != seen:
            raise RunFailed(
                f"another driver staged rows of output {result.output} while this one collected the"
                " newest row of each key"
            )
        staged = staged_in(head)
        old = staged[result.output]
        staged[result.output] = replace(
            old,
            rows=sum(file.record_count for file in files),
            rows_outside_window=old.rows_outside_window + outside,
            files=len(files),
            changes=False,
        )
        _commit(
            table,
            result,
            {**result.staged_summary, STAGED: _staged_json(staged)},
            files,
            replaced=staged_files(table, result),
            spec_id=spec_id,
        )

    return commit_once(table, replace_changes, there)


def _commit(
    table: Table,
    result: Result,
    summary: dict[str, str],
    files: Sequence[DataFile],
    *,
    replaced: Sequence[DataFile],
    spec_id: int,
) -> None:
    """Gives the branch a new head, with more files and without those that they replace."""
    before = branch_head(table.metadata, result)
    writer = as_writer(table, spec_id, _MANY_SMALL_COMMITS)
    kind, operation = (
        (Overwrite, Operation.OVERWRITE) if replaced else (MergingAppend, Operation.APPEND)
    )
    updates = kind(
        operation,
        writer.transaction(),
        writer.io,
        snapshot_properties=summary,
        branch=result.branch,
    )
    for file in files:
        updates.append_data_file(file)
    for file in replaced:
        updates.delete_data_file(file)
    made, _ = updates._commit()
    try:
        commit(table, (*made, *drop_snapshot(table.metadata, before, result)), result.branch)
    except CommitFailedException:
        clean_refused(table, updates)
        raise
    if before is not None:
        remove_unused_metadata(table, before, updates._written_manifests)


def _new_summary(before: Snapshot | None, result: Result, batch: StagedBatch) -> dict[str, str]:
    rows, outside = sum(file.record_count for file in batch.files), batch.rows_outside_window
    staged, nothing = staged_in(before) if before else {}, Staged(0, 0, 0)
    known = staged.get(result.output, nothing)
    old, before_it = (nothing if batch.holds == "Result" else known), known.parts.get(batch.query)
    part = Part(
        batch.batch_id,
        batch.execution,
        overlap=batch.overlap,
        rows_open=batch.rows_open + (before_it.rows_open if before_it else 0),
    )
    staged[result.output] = Staged(
        old.rows + rows,
        old.rows_outside_window + outside,
        old.files + len(batch.files),
        changes=old.changes or (batch.holds == "Changes" and rows > 0),
        parts={**known.parts, batch.query: part},
    )
    return {
        **result.staged_summary,
        QUERY: batch.query,
        BATCH_ID: str(batch.batch_id),
        ROWS: str(rows),
        ROWS_OUTSIDE_WINDOW: str(outside),
        STAGED: _staged_json(staged),
    }


def _staged_json(staged: Mapping[str, Staged]) -> str:
    return json.dumps({output: asdict(state) for output, state in staged.items()}, sort_keys=True)


def drop_snapshot(
    metadata: TableMetadata, snapshot: Snapshot | None, result: Result
) -> tuple[TableUpdate, ...]:
    """Removes a snapshot, together with the change of the branch away from it, unless another
    reference or snapshot needs it.
    """
    held = {ref.snapshot_id for name, ref in metadata.refs.items() if name != result.branch}
    held |= {
        other.parent_snapshot_id
        for other in metadata.snapshots
        if other.parent_snapshot_id is not None
    }
    return (
        (RemoveSnapshotsUpdate(snapshot_ids=[snapshot.snapshot_id]),)
        if snapshot and snapshot.snapshot_id not in held
        else ()
    )


def remove_unused_metadata(table: Table, dropped: Snapshot, written: Iterable[str] = ()) -> None:
    """Removes metadata files that only a dropped snapshot needed, and those ``written`` for the
    branch's new head that it does not list. In doubt a file stays, which costs a few kilobytes.
    """
    try:
        unused = _unused_metadata(table, dropped, written)
    except UnknownReferences:
        return
    for path in unused:
        if _is_metadata(table, path):
            remove_file(table.io, path)


def _is_metadata(table: Table, path: str) -> bool:
    """Whether a file is in the table's metadata directory.

    A forged manifest could name any file.
    """
    properties, location = table.metadata.properties, table.metadata.location.rstrip("/")
    directory = properties.get(TableProperties.WRITE_METADATA_PATH, f"{location}/metadata").rstrip(
        "/"
    )
    return path.startswith(f"{directory}/") and is_unambiguous(path)


def _unused_metadata(table: Table, dropped: Snapshot, written: Iterable[str]) -> set[str]:
    manifests = dict.fromkeys(written, dropped.sequence_number or 0)
    if any(
        snapshot.manifest_list == dropped.manifest_list for snapshot in table.metadata.snapshots
    ):
        return _unlisted(table, manifests)
    manifests |= {
        manifest.manifest_path: manifest.sequence_number or 0
        for manifest in manifests_of(table, dropped)
    }
    return {*_unlisted(table, manifests), dropped.manifest_list}


def _unlisted(table: Table, manifests: Mapping[str, int]) -> set[str]:
    """The manifests that no snapshot lists, of some manifests that are
    given with lower bounds of their sequence numbers: a snapshot
    that was committed before a manifest was written cannot list it.
    """
    unlisted = dict(manifests)
    for snapshot in sorted(
        table.metadata.snapshots, key=lambda snapshot: snapshot.sequence_number or 0, reverse=True
    ):
        if not unlisted or (snapshot.sequence_number or 0) < min(unlisted.values()):
            break
        for manifest in manifests_of(table, snapshot):
            unlisted.pop(manifest.manifest_path, None)
    return set(unlisted)


def summary_of(snapshot: Snapshot) -> dict[str, str]:
    """The entries of a snapshot's summary that Iceberg does not define."""
    return snapshot.summary.additional_properties if snapshot.summary else {}
