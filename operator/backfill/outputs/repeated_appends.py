"""Detects Appends that would add rows a second time, by earlier publications of the same rows in
the table's history.

Staged results and their state are deleted together with the Backfill. Published rows stay, and so
do the snapshots that record them, until these expire. A snapshot that was rolled back is not in the
history, and its rows are not in the table.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot, ancestors_of

from backfill.api.errors import Problem, PublishConflict
from backfill.api.output import Output, PublishMode
from backfill.api.quantities import format_time, from_us, parse_time
from backfill.api.spec import Window
from backfill.iceberg.open_tables import Catalogs
from backfill.outputs.result_names import NAME, NAMESPACE, OUTPUT, PLAN_ID, Result
from backfill.outputs.staging import ROWS, summary_of

PUBLISHED_FROM = "backfill.published-from"
"""Key in the summary of the snapshot that published a result,
for the snapshot of the branch with that result.
"""
UNDONE = "backfill.undoes"
"""Key in the summary of a snapshot that undid a publication, for the snapshot that published."""
WINDOW_START = "backfill.window-start"
WINDOW_END = "backfill.window-end"


def window_in_summary(window: Window) -> dict[str, str]:
    """The window, for the summary of the snapshot that publishes a result."""
    return {WINDOW_START: format_time(window.start), WINDOW_END: format_time(window.end)}


def doubled_appends(
    outputs: Sequence[Output], results: Sequence[Result], window: Window
) -> tuple[dict[str, Problem], tuple[str, ...]]:
    """By output, the problem if the table has a publication of the same rows; and warnings where
    its history is too short to decide.

    ``results`` have the ID of the plan.

    Raises:
        BadInput: a table cannot be opened.
    """
    catalogs, doubled, warnings = Catalogs(), {}, []
    for index, (output, result) in enumerate(zip(outputs, results, strict=True)):
        if output.publish.mode is not PublishMode.APPEND:
            continue
        metadata = catalogs.load_table(output.table, f"spec.outputs[{index}].table").metadata
        history = list(ancestors_of(metadata.current_snapshot(), metadata))
        earlier = next(_publications(history, result, window), None)
        if earlier is not None:
            doubled[output.name] = _problem(index, output, earlier)
        elif history and not _reaches_back(history[-1], window):
            warnings.append(
                f"spec.outputs[{index}].publish: the history of {output.table} begins at"
                f" {_time_of(history[-1])}; it is unknown whether an earlier run, whose snapshot"
                " has expired, appended the same rows"
            )
    return doubled, tuple(warnings)


def check_not_doubled(
    table: Table, result: Result, window: Window, base_snapshot_id: int | None
) -> None:
    """Checks that the same rows were not published since a backfill began.

    Raises:
        PublishConflict: they were.
    """
    earlier = next(_publications(_since(table.metadata, base_snapshot_id), result, window), None)
    if earlier is not None:
        raise PublishConflict(
            f"the same rows were added to table {'.'.join(table.name())} after the backfill began:"
            f" {_describe(earlier)}; to append them once more, start over with a new Backfill"
        )


def _since(metadata: TableMetadata, base_snapshot_id: int | None) -> Iterator[Snapshot]:
    for snapshot in ancestors_of(metadata.current_snapshot(), metadata):
        if snapshot.snapshot_id == base_snapshot_id:
            return
        yield snapshot


def _publications(
    history: Iterable[Snapshot], result: Result, window: Window
) -> Iterator[Snapshot]:
    """Snapshots that published the rows of a result: for the same plan, or for a Backfill of its
    name and the same window.
    """
    undone: set[str] = set()
    for snapshot in history:  # the newest first
        summary = summary_of(snapshot)
        if UNDONE in summary:
            undone.add(summary[UNDONE])
        if (
            PUBLISHED_FROM not in summary
            or str(snapshot.snapshot_id) in undone
            or summary.get(OUTPUT) != result.output
            or summary.get(ROWS) == "0"
        ):
            continue
        same_name = (summary.get(NAMESPACE), summary.get(NAME)) == (
            result.namespace,
            result.backfill,
        )
        if summary.get(PLAN_ID) == result.plan_id or (same_name and _overlaps(summary, window)):
            yield snapshot


def _overlaps(summary: Mapping[str, str], window: Window) -> bool:
    """Whether a publication may overlap the window.

    One that does not name its window may have been for any.
    """
    try:
        start, end = parse_time(summary[WINDOW_START]), parse_time(summary[WINDOW_END])
    except (KeyError, ValueError):
        return True
    return start < window.end and window.start < end


def _reaches_back(oldest: Snapshot, window: Window) -> bool:
    """Whether the history contains all publications of the window: it reaches back to the table's
    first snapshot, or to a time before there were rows of the window.
    """
    return oldest.sequence_number == 1 or from_us(oldest.timestamp_ms * 1000) <= window.start


def _problem(index: int, output: Output, earlier: Snapshot) -> Problem:
    message = (
        f"{output.table} already has these rows, from {_describe(earlier)}; appending would"
        " duplicate them"
    )
    fix = (
        "publish with Replace, undo that Backfill or roll back its snapshot; or, to append the"
        " rows again deliberately, set approval: Manual and approve"
    )
    return Problem(f"spec.outputs[{index}].publish", message, fix)


def _describe(snapshot: Snapshot) -> str:
    summary = summary_of(snapshot)
    whose = f"Backfill {summary.get(NAMESPACE)}/{summary.get(NAME)}, plan {summary.get(PLAN_ID)}"
    return (
        f"snapshot {snapshot.snapshot_id} ({summary.get(ROWS, 'unknown')} rows at"
        f" {_time_of(snapshot)}, {whose})"
    )


def _time_of(snapshot: Snapshot) -> str:
    return format_time(from_us(snapshot.timestamp_ms * 1000))
