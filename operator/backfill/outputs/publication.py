"""Publishes a result from its branch into the table, in one commit that is checked against all
changes since the backfill began.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Snapshot, ancestors_of

from backfill.api.errors import BackfillError, CanNotPublish
from backfill.api.output import Output, PublishMode
from backfill.api.quantities import count
from backfill.api.spec import Window
from backfill.iceberg.open_tables import Catalogs
from backfill.outputs.conflicts import ConflictCheck
from backfill.outputs.earlier_publications import (
    PUBLISHED_FROM,
    check_not_doubled,
    entries_of_publication,
    is_allowed,
)
from backfill.outputs.referenced_files import Unreferenced, least_sequence_number
from backfill.outputs.replaced_files import Removal, ReplacedRows, Replacement, irremovable
from backfill.outputs.result_names import Result
from backfill.outputs.staging import ROWS, branch_head, lost, read_staged, staged_files
from backfill.outputs.table_commits import (
    Append,
    Overwrite,
    as_writer,
    commit_once,
    commit_produced,
)
from backfill.outputs.upserted_rows import replaced_rows
from backfill.outputs.window_rows import WindowRows, window_rows


@dataclass(frozen=True, slots=True)
class Published:
    """A result in the table."""

    snapshot_id: int
    """ID of the snapshot that published it."""
    rows: int
    """Number of rows that it added."""
    already: bool
    """Whether it was published before this call."""


@dataclass(frozen=True, slots=True)
class OutputState:
    """State of a result, as recorded in its table."""

    snapshot_id: int | None
    """ID of the table's current snapshot; None if it has none."""
    branch: str | None
    """The branch with the result; None if there is none."""
    rows: int
    """Number of staged rows of the window."""
    rows_outside_window: int
    """Number of rows that were left out."""
    staged: bool
    """Whether anything was staged, be it a batch without rows."""
    staged_snapshot_id: int | None
    """ID of the branch's snapshot; None if there is no branch."""
    published_snapshot_id: int | None
    """ID of the snapshot in the table's history that published the result; None if there is none.
    """


def output_state(output: Output, result: Result) -> OutputState:
    """The state of a result, as recorded in its table.

    The controller records its ``snapshot_id`` before a run.

    Raises:
        BadInput: the table cannot be opened, or the branch holds something else.
    """
    metadata = _open(output).metadata
    staged, published = read_staged(metadata, result), find_published(metadata, result)
    return OutputState(
        snapshot_id=metadata.current_snapshot_id,
        branch=result.branch if result.branch in metadata.refs else None,
        rows=staged.rows if staged else 0,
        rows_outside_window=staged.rows_outside_window if staged else 0,
        staged=staged is not None,
        staged_snapshot_id=(
            metadata.refs[result.branch].snapshot_id if result.branch in metadata.refs else None
        ),
        published_snapshot_id=published.snapshot_id if published else None,
    )


def publish(
    output: Output,
    result: Result,
    window: Window,
    base_snapshot_id: int | None,
    staged_snapshot_id: int | None = None,
) -> Published:
    """Adds a result to its table, or replaces the window's rows or those of its keys with it,
    according to the output. It does so in one commit, and only once.

    ``base_snapshot_id`` is the table's snapshot from before the run; None if it had none.
    ``staged_snapshot_id`` is the snapshot of the branch that was looked at; None: whatever it is.

    Raises:
        PublishConflict: something else has changed the window since then.
        ResultLost: the result no longer exists.
        CanNotPublish: the result no longer fits the table, or it would only delete rows.
        BackfillError: the branch was changed in the meantime.
        BadInput: the table cannot be opened, or the branch holds something else.
    """
    table = _open(output)
    before = find_published(table.metadata, result)
    if before is not None:
        return Published(before.snapshot_id, _rows(before), already=True)
    rows = window_rows(table.schema(), output, window)
    publication = _publication(
        table, output, result, window, rows, base_snapshot_id, staged_snapshot_id
    )
    if output.publish.mode is PublishMode.REPLACE:
        did = publication.replace(rows)
    elif output.publish.mode is PublishMode.UPSERT:
        did = publication.replace(rows and replaced_rows(table, output, result, rows))
    else:
        did = publication.append()
    published = find_published(table.metadata, result)
    if published is None:
        raise CanNotPublish(
            f"{output.table} was rolled back to before the snapshot that published {output.name}"
        )
    return Published(published.snapshot_id, _rows(published), already=not did)


def check_publishable(
    output: Output,
    result: Result,
    window: Window,
    base_snapshot_id: int | None,
    staged_snapshot_id: int | None,
) -> None:
    """Checks whether a result could be published now. The parameters and errors are those of
    :func:`publish`; nothing is written.
    """
    table = _open(output)
    if find_published(table.metadata, result) is None:
        rows = window_rows(table.schema(), output, window)
        _publication(
            table, output, result, window, rows, base_snapshot_id, staged_snapshot_id
        ).check()
        if output.publish.mode is PublishMode.UPSERT and rows is not None:
            replaced_rows(table, output, result, rows)  # no key may be there twice


def _publication(  # noqa: PLR0917 - as publish, after the table was opened
    table: Table,
    output: Output,
    result: Result,
    window: Window,
    rows: WindowRows | None,
    base_snapshot_id: int | None,
    staged_snapshot_id: int | None,
) -> "_Publication":
    files = _checked_files(table, output, result, base_snapshot_id, staged_snapshot_id)
    spec_id = files[0].spec_id if files else table.spec().spec_id
    conflicts = (
        ConflictCheck(base_snapshot_id, rows, lambda each: is_allowed(each, output))
        if rows
        else None
    )

    def checked(current: Table) -> None:
        if output.publish.mode is PublishMode.APPEND:
            check_not_doubled(current, output, window, base_snapshot_id)
        if conflicts is not None:
            conflicts.check(current)

    entries = {**result.summary, **entries_of_publication(output, window)}
    return _Publication(table, result, files, spec_id, entries, checked)


def find_published(metadata: TableMetadata, result: Result) -> Snapshot | None:
    """The snapshot in the history of the main branch that published a result."""
    history = ancestors_of(metadata.current_snapshot(), metadata)
    return next((snapshot for snapshot in history if publishes(snapshot, result)), None)


def publishes(snapshot: Snapshot, result: Result) -> bool:
    """Whether a snapshot of the main branch published a result."""
    summary = snapshot.summary.additional_properties if snapshot.summary else {}
    return PUBLISHED_FROM in summary and result.is_named_by(summary)


class _Publication:
    """The publication of one result."""

    def __init__(  # noqa: PLR0917 - one caller
        self,
        table: Table,
        result: Result,
        files: list[DataFile],
        spec_id: int,
        entries: dict[str, str],
        check: Callable[[Table], None],
    ):
        """``entries`` are for the summary of the snapshot. ``check`` raises PublishConflict if
        there was a conflicting change.
        """
        self._table = table
        self._result = result
        self._files = files
        self._spec_id = spec_id
        self._entries = entries
        self._check = check
        self._source = table.metadata.refs[result.branch].snapshot_id

    def check(self) -> None:
        """Checks the branch, and for conflicts, in the table as it is now."""
        self._check_branch()
        self._check(self._table)

    def append(self) -> bool:
        """Adds the files."""
        return commit_once(self._table, lambda: self._try(Removal((), ())), self._done)

    def replace(self, rows: ReplacedRows | None) -> bool:
        """Replaces rows by the files."""
        if rows is None:
            raise CanNotPublish(
                f"output {self._result.output} has no timestampColumn, so it is unknown which rows"
                " to replace"
            )
        replacement = Replacement(
            self._result,
            rows,
            self._spec_id,
            max(self._table.metadata.next_sequence_number() - 1, 0),
        )
        self._check(self._table)
        # the slow part, before the short one from a check of the table to the commit
        replacement.plan(self._table)
        self._table.refresh()
        did = commit_once(self._table, lambda: self._try(replacement.plan(self._table)), self._done)
        # nothing is removed after an error: a commit whose answer was lost may still be made
        if self._done(self._table.metadata):
            replacement.remove_unused(self._table)
        return did

    def _done(self, metadata: TableMetadata) -> bool:
        return find_published(metadata, self._result) is not None

    def _try(self, removal: Removal) -> None:
        self.check()
        if removal.removed and not self._files:
            raise CanNotPublish(
                f"the result for {'.'.join(self._table.name())} has no rows in the window, so"
                " replacing would only delete rows; if that is what you want, delete the window's"
                " rows by hand"
            )
        if why := irremovable(self._table, removal.removed):
            table = ".".join(self._table.name())
            raise CanNotPublish(
                f"{table}: {why}; rewrite them with the table's current partitioning and publish"
                " again"
            )
        writer = as_writer(self._table, self._spec_id)
        rows = sum(file.record_count for file in self._files)
        summary = {
            **self._entries,
            PUBLISHED_FROM: str(self._source),
            ROWS: str(rows),
        }
        kind, operation = (
            (Overwrite, Operation.OVERWRITE) if removal.removed else (Append, Operation.APPEND)
        )
        producer = kind(operation, writer.transaction(), writer.io, snapshot_properties=summary)
        for file in (*self._files, *removal.kept):
            producer.append_data_file(file)
        for file in removal.removed:
            producer.delete_data_file(file)
        commit_produced(self._table, producer, MAIN_BRANCH)

    def _check_branch(self) -> None:
        """Checks that the branch holds the files. If it was dropped in the meantime, they are being
        removed, or are removed already.
        """
        table = ".".join(self._table.name())
        head = branch_head(self._table.metadata, self._result)
        if head is None:
            raise lost(table, self._result)
        if head.snapshot_id != self._source:
            raise BackfillError(
                f"branch {self._result.branch} of {table} was changed while"
                " it was published; publish again"
            )


def _checked_files(
    table: Table,
    output: Output,
    result: Result,
    base_snapshot_id: int | None,
    staged_snapshot_id: int | None,
) -> list[DataFile]:
    files = final_files(table, output, result, staged_snapshot_id)
    _check_not_in_use(table, output, files, base_snapshot_id)
    if len({file.spec_id for file in files}) > 1:
        raise CanNotPublish(
            f"the partitioning of {output.table} was changed between two attempts, and files of"
            " both kinds cannot be published in one commit; start over with a new Backfill"
        )
    return files


def final_files(
    table: Table, output: Output, result: Result, staged_snapshot_id: int | None
) -> list[DataFile]:
    """The files of a result that is complete: all of its rows, and nothing else.

    ``staged_snapshot_id`` is the snapshot of the branch that was looked at; None: whatever it is.

    Raises:
        ResultLost: the result no longer exists.
        CanNotPublish: the branch holds something else than was staged.
        BadInput: the branch is that of another Backfill.
    """
    staged, head = read_staged(table.metadata, result), branch_head(table.metadata, result)
    if staged is None or head is None:
        raise lost(output.table, result)
    if staged_snapshot_id not in (None, head.snapshot_id):
        raise CanNotPublish(
            f"branch {result.branch} of {output.table} was at snapshot {staged_snapshot_id}"
            f" when its rows were counted, and is at {head.snapshot_id} now; start over with a new"
            " Backfill"
        )
    files = staged_files(table, result)
    rows = sum(file.record_count for file in files)
    if rows != staged.rows or staged.files != len(files):
        raise CanNotPublish(
            f"branch {result.branch} of {output.table} contains {count(rows, 'row')} of output"
            f" {output.name} (files: {len(files):,}), but {count(staged.rows, 'row')} (files:"
            f" {staged.files:,}) had been staged; start over with a new Backfill"
        )
    if staged.changes:
        raise CanNotPublish(
            f"branch {result.branch} of {output.table} still contains older rows with keys of"
            f" output {output.name}; start over with a new Backfill"
        )
    return files


def _check_not_in_use(
    table: Table, output: Output, files: list[DataFile], base_snapshot_id: int | None
) -> None:
    """Checks that the table does not use the files: somebody may have published them by hand, or
    the snapshot that published them may have expired.
    """
    unused = Unreferenced(
        (file.file_path for file in files),
        least_sequence_number(table.metadata, [base_snapshot_id]),
    )
    current = table.metadata.current_snapshot()
    if current is not None:
        unused.read_snapshot(table, current)
    used = len(files) - len(unused.locations)
    if used:
        raise CanNotPublish(
            f"{output.table} already contains {used:,} of the {count(len(files), 'file')} staged"
            f" for output {output.name}: the result was published by hand, or the snapshot that"
            " published it has expired; publishing it again would duplicate its rows"
        )


def _rows(snapshot: Snapshot) -> int:
    return int(snapshot.summary.additional_properties.get(ROWS, "0")) if snapshot.summary else 0


def _open(output: Output) -> Table:
    return Catalogs().load_table(output.table, "spec.outputs")
