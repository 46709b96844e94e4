"""Commits to a table that others also commit to, and never does the same twice.

A PyIceberg transaction repeats a rejected commit without checking whether somebody else has made it
in the meantime. Therefore commits are made here at a lower level, and every attempt checks first.
"""

import random
import time
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import Field
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    SetSnapshotRefUpdate,
    TableUpdate,
)
from pyiceberg.table.update.snapshot import (
    _FastAppendFiles,
    _MergeAppendFiles,
    _OverwriteFiles,
    _SnapshotProducer,
)

from backfill.api.errors import BackfillError, first_line
from backfill.iceberg.format_v3 import (
    NumberingProducer,
    with_metadata,
    with_numbered_files,
    write_v3_metadata,
)
from backfill.iceberg.library_errors import is_unavailable
from backfill.iceberg.unavailable_catalogs import Patience, answered

_GIVE_UP_AFTER_SECONDS = 300.0
_AWAY_SECONDS = 120.0
"""How long a catalog may be unavailable before that is an error."""
_FIRST_WAIT_SECONDS = 0.05
_LONGEST_WAIT_SECONDS = 2.0


def commit_once(
    table: Table, try_commit: Callable[[], None], done: Callable[[TableMetadata], bool]
) -> bool:
    """Brings a table into a state, while others commit to it. Returns True if this call did it,
    False if it was done already.

    ``try_commit`` commits to the table as it is now. It is called again on the refreshed table if
    another commit came first, or the catalog did not answer. ``done`` returns by the table's
    metadata whether the state is reached. It is called before every attempt, and after every failed
    one, since a commit whose answer was lost may have been made.

    Raises:
        BackfillError: others commit so often that every attempt was rejected.
        Exception: what ``try_commit`` raises for another reason than a changed table, or for two
            minutes because the catalog does not answer.
    """
    give_up_at, wait = time.monotonic() + _GIVE_UP_AFTER_SECONDS, _FIRST_WAIT_SECONDS
    patience = Patience(_AWAY_SECONDS, is_unavailable)
    while not done(table.metadata):
        seen = table.metadata_location
        try:
            try_commit()
            return True
        except Exception as error:
            answered(table.refresh, _AWAY_SECONDS)
            changed = isinstance(error, CommitFailedException) or table.metadata_location != seen
            if not changed and not done(table.metadata) and not patience.bears(error):
                raise
            if time.monotonic() > give_up_at and not done(table.metadata):
                raise BackfillError(
                    f"every attempt to commit to table {'.'.join(table.name())} conflicted with"
                    f" another change: {first_line(error)}"
                ) from error
        time.sleep(wait * random.uniform(0.5, 1.0))
        wait = min(wait * 2, _LONGEST_WAIT_SECONDS)
    return False


def commit(table: Table, updates: tuple[TableUpdate, ...], *new_branches: str) -> None:
    """Commits, provided that every branch and tag is as in ``table``,
    and that ``new_branches`` do not exist.

    This includes branches that are not changed. Sequence numbers are assigned by the committer, and
    without it two snapshots could get the same one. Of branches that others created meanwhile, a
    server knows; for catalogs without one, the last sequence number must be the same.

    Raises:
        CommitFailedException: the condition is not met, or the table was changed during the commit.
    """
    seen = {name: ref.snapshot_id for name, ref in table.metadata.refs.items()}
    expected = {MAIN_BRANCH: None, **dict.fromkeys(new_branches), **seen}
    conditions = (
        _AssertRef(ref=name, snapshot_id=snapshot_id) for name, snapshot_id in expected.items()
    )
    write_v3_metadata()
    kept = tuple(_with_retention(table, update) for update in updates)
    same = _AssertTable(uuid=table.metadata.table_uuid, next=table.metadata.next_sequence_number())
    table._do_commit(kept, (same, *conditions))


def _with_retention(table: Table, update: TableUpdate) -> TableUpdate:
    """Keeps how long a branch keeps snapshots, which PyIceberg's producers reset."""
    ref = (
        table.metadata.refs.get(update.ref_name)
        if isinstance(update, SetSnapshotRefUpdate)
        else None
    )
    if ref is None:
        return update
    return update.model_copy(
        update={
            "min_snapshots_to_keep": ref.min_snapshots_to_keep,
            "max_snapshot_age_ms": ref.max_snapshot_age_ms,
            "max_ref_age_ms": ref.max_ref_age_ms,
        }
    )


def clean_refused(table: Table, producer: _SnapshotProducer[Any]) -> None:
    """Removes the metadata files of a snapshot whose commit was refused. Checks first that it was:
    a request that a proxy repeats is refused because its first copy was accepted.
    """
    if table.refresh().metadata.snapshot_by_id(producer.snapshot_id) is None:
        producer._clean_all_uncommitted()


def commit_produced(table: Table, producer: _SnapshotProducer[Any], branch: str) -> None:
    """Commits a snapshot that was put together, and removes its metadata files if it is refused.

    Raises:
        CommitFailedException: the table was changed meanwhile.
    """
    updates, _ = producer._commit()
    try:
        commit(table, updates, branch)
    except CommitFailedException:
        clean_refused(table, producer)
        raise


def as_writer(table: Table, spec_id: int, properties: Mapping[str, str] | None = None) -> Table:
    """The table as the writer of a snapshot needs it: with the partition spec of the added files,
    and with properties for this snapshot only. None of this is committed.
    """
    return with_metadata(
        with_numbered_files(table),
        default_spec_id=spec_id,
        properties={**table.metadata.properties, **(properties or {})},
    )


class Append(NumberingProducer, _FastAppendFiles):
    """Adds files, in a manifest of their own."""


class MergingAppend(NumberingProducer, _MergeAppendFiles):
    """Adds files, and merges small manifests."""


class Overwrite(NumberingProducer, _OverwriteFiles):
    """Replaces files, and lists no manifest in which nothing is left but files that earlier
    snapshots removed.

    PyIceberg's own lists those forever. When the snapshot that removed a file expires, Iceberg's
    Java library deletes it from storage by such a manifest, also if it was restored meanwhile.
    """

    def _existing_manifests(self) -> list[ManifestFile]:
        return [
            manifest
            for manifest in super()._existing_manifests()
            if manifest.has_added_files() or manifest.has_existing_files()
        ]


class _AssertTable(AssertTableUUID):
    """Also refuses sequence numbers that others have assigned, which PyIceberg does not for a new
    branch, and not in format version 3. A table whose last one goes back cannot be read any more.
    """

    next: int = Field(exclude=True)

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]
        super().validate(base_metadata)
        if base_metadata is not None and base_metadata.next_sequence_number() != self.next:
            raise CommitFailedException("snapshots were added to the table meanwhile")


class _AssertRef(AssertRefSnapshotId):
    """Also allows the first snapshot of a table on a branch, as the specification does."""

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]
        if (
            base_metadata is not None
            and self.snapshot_id is None
            and self.ref not in base_metadata.refs
        ):
            return
        super().validate(base_metadata)
