"""Publications in a table's history that overlap the window: an Append would add rows a second
time, and Replace or Upsert may remove what another Backfill has published.

Staged results and their state are deleted together with the Backfill. Published rows stay, and so
do the snapshots that record them, until these expire. A snapshot that was rolled back is not in the
history, and its rows are not in the table.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot, ancestors_of

from backfill.api.errors import BadInput, Problem, PublishConflict
from backfill.api.output import Output, PublishMode
from backfill.api.quantities import format_time, from_us, parse_time
from backfill.api.spec import Window
from backfill.iceberg.open_tables import Catalogs
from backfill.outputs.result_names import NAME, NAMESPACE
from backfill.outputs.staging import ROWS, summary_of

PUBLISHED_FROM = "backfill.published-from"
"""Key in the summary of the snapshot that published a result,
for the snapshot of the branch with that result.
"""
UNDONE = "backfill.undoes"
"""Key in the summary of a snapshot that undid a publication, for the snapshot that published."""
WINDOW_START = "backfill.window-start"
WINDOW_END = "backfill.window-end"
MODE = "backfill.publish-mode"
TIMESTAMP_COLUMN = "backfill.timestamp-column"
_MOST_NAMED = 5

_Span = tuple[datetime, datetime]


def entries_of_publication(output: Output, window: Window) -> dict[str, str]:
    """What the summary of the snapshot that publishes a result says of its rows."""
    return {
        WINDOW_START: format_time(window.start),
        WINDOW_END: format_time(window.end),
        MODE: output.publish.mode.value,
        TIMESTAMP_COLUMN: output.timestamp_column or "",
    }


@dataclass(slots=True)
class Overlaps:
    """What earlier publications mean for the outputs of a Backfill."""

    refused: list[Problem] = field(default_factory=list)
    """Appends that may add rows a second time."""
    warnings: tuple[str, ...] = ()


def check_overlaps(
    outputs: Sequence[Output], window: Window, own: tuple[str, str] | None = None
) -> Overlaps:
    """Looks for publications that overlap the window. Tables that cannot be opened are left out,
    and so are publications of the Backfill with the namespace and name ``own``.
    """
    catalogs, found = Catalogs(), Overlaps()
    for index, output in enumerate(outputs):
        where, mode = f"spec.outputs[{index}].publish", output.publish.mode
        if mode is not PublishMode.APPEND and not mode.takes_rows_away:
            continue
        try:
            metadata = catalogs.load_table(output.table, "").metadata
        except BadInput:
            continue
        history = list(ancestors_of(metadata.current_snapshot(), metadata))
        earlier = [each for each in _overlapping(history, window) if _published_by(each) != own]
        refused = [each for each in earlier if not is_allowed(each, output)]
        if mode is PublishMode.APPEND and refused:
            found.refused.append(_problem(where, output, refused))
        elif earlier:
            found.warnings += (f"{where}: {_what_becomes_of(output, earlier)}",)
        elif mode is PublishMode.APPEND and history and not _reaches_back(history[-1], window):
            found.warnings += (
                f"{where}: the history of {output.table} begins at {_time_of(history[-1])}; it is"
                " unknown whether an earlier run, whose snapshot has expired, appended the same"
                " rows",
            )
    return found


def check_not_doubled(
    table: Table, output: Output, window: Window, base_snapshot_id: int | None
) -> None:
    """Checks that no rows of the window were published since a backfill began, except those that
    the output may add to.

    Raises:
        PublishConflict: some were.
    """
    since = _since(table.metadata, base_snapshot_id)
    earlier = [each for each in _overlapping(since, window) if not is_allowed(each, output)]
    if earlier:
        raise PublishConflict(
            f"rows of the same time were added to table {'.'.join(table.name())} after the backfill"
            f" began: {_described(earlier)}; if they are other rows, add {_names(earlier)} to"
            " publish.allowOverlap; if not, delete this Backfill"
        )


def is_allowed(snapshot: Snapshot, output: Output) -> bool:
    """Whether an Append may add to what a Backfill has published with a snapshot."""
    summary = summary_of(snapshot)
    return (
        output.publish.mode is PublishMode.APPEND
        and PUBLISHED_FROM in summary
        and summary.get(NAME) in output.publish.allow_overlap
    )


def _published_by(snapshot: Snapshot) -> tuple[str, str]:
    """Namespace and name of the Backfill that published with a snapshot."""
    summary = summary_of(snapshot)
    return summary.get(NAMESPACE, ""), summary.get(NAME, "")


def _since(metadata: TableMetadata, base_snapshot_id: int | None) -> Iterator[Snapshot]:
    for snapshot in ancestors_of(metadata.current_snapshot(), metadata):
        if snapshot.snapshot_id == base_snapshot_id:
            return
        yield snapshot


def _overlapping(history: Iterable[Snapshot], window: Window) -> Iterator[Snapshot]:
    """Snapshots that published rows of the window that were neither undone nor replaced later."""
    undone: set[str] = set()
    replaced: dict[str, list[_Span]] = {}
    for snapshot in history:  # the newest first
        summary = summary_of(snapshot)
        if UNDONE in summary:
            undone.add(summary[UNDONE])
        if (
            PUBLISHED_FROM not in summary
            or str(snapshot.snapshot_id) in undone
            or summary.get(ROWS) == "0"
        ):
            continue
        start, end = _span(summary, window)
        column = summary.get(TIMESTAMP_COLUMN, "")
        shared = max(start, window.start), min(end, window.end)
        if _is_left(shared, replaced.get(column, ())):
            yield snapshot
        if summary.get(MODE) == PublishMode.REPLACE:
            replaced.setdefault(column, []).append((start, end))


def _span(summary: Mapping[str, str], window: Window) -> _Span:
    """The window of a publication. One that does not name it may have been for any."""
    try:
        return parse_time(summary[WINDOW_START]), parse_time(summary[WINDOW_END])
    except (KeyError, ValueError):
        return window.start, window.end


def _is_left(span: _Span, replaced: Sequence[_Span]) -> bool:
    """Whether some of a stretch of time is in none of others."""
    start, end = span
    for first, last in sorted(replaced):
        if first <= start:
            start = max(start, last)
    return start < end


def _reaches_back(oldest: Snapshot, window: Window) -> bool:
    """Whether the history contains all publications of the window: it reaches back to the table's
    first snapshot, or to a time before there were rows of the window.
    """
    return oldest.sequence_number == 1 or from_us(oldest.timestamp_ms * 1000) <= window.start


def _problem(where: str, output: Output, earlier: Sequence[Snapshot]) -> Problem:
    message = (
        f"{output.table} already has rows of this window, from {_described(earlier)}; appending"
        " would duplicate those that the result has, too"
    )
    fix = (
        "choose another window, publish with Replace, or undo that Backfill or roll back its"
        f" snapshot; if the result has other rows, add {_names(earlier)} to publish.allowOverlap"
    )
    return Problem(where, message, fix)


def _what_becomes_of(output: Output, earlier: Sequence[Snapshot]) -> str:
    then = {
        PublishMode.APPEND: "as allowOverlap permits, the rows are added to these",
        PublishMode.REPLACE: "they are replaced",
        PublishMode.UPSERT: "those with the keys of the result are replaced",
    }
    return (
        f"{output.table} already has rows of this window, from {_described(earlier)};"
        f" {then[output.publish.mode]}"
    )


def _names(snapshots: Sequence[Snapshot]) -> str:
    names = dict.fromkeys(summary_of(each).get(NAME, "") for each in snapshots)
    return ", ".join(names)


def _described(snapshots: Sequence[Snapshot]) -> str:
    more = f" and {len(snapshots) - _MOST_NAMED} more" if len(snapshots) > _MOST_NAMED else ""
    return ", ".join(map(_describe, snapshots[:_MOST_NAMED])) + more


def _describe(snapshot: Snapshot) -> str:
    summary = summary_of(snapshot)
    span = f"[{summary.get(WINDOW_START, 'unknown')}, {summary.get(WINDOW_END, 'unknown')})"
    return (
        f"Backfill {summary.get(NAMESPACE)}/{summary.get(NAME)} (snapshot {snapshot.snapshot_id}:"
        f" {summary.get(ROWS, 'unknown')} rows of {span}, published at {_time_of(snapshot)})"
    )


def _time_of(snapshot: Snapshot) -> str:
    return format_time(from_us(snapshot.timestamp_ms * 1000))
