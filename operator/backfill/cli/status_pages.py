"""One Backfill in full, and several in a table, on a cluster or on this machine."""

from collections.abc import Iterable
from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from backfill.api.backfill import Backfill
from backfill.api.conditions import SUMMARIES, Condition, ConditionType, Reason, find_condition
from backfill.api.hand_off import HandedOverQuery, HandedOverSource, HandOffStatus
from backfill.api.quantities import count
from backfill.api.status import (
    Attempt,
    BackfillStatus,
    DecisionStatus,
    ExportStatus,
    OutputStatus,
    Verdict,
    execution_in_words,
)
from backfill.cli.backfill_view import View, in_order
from backfill.cli.run_end import compared
from backfill.cli.screen import in_words, overview
from backfill.cli.text import lasted, moment, seconds

_ATTEMPTS_SHOWN = 3
_PARTITIONS_SHOWN = 6
_IN_FULL = (Reason.INVALID_INPUT, Reason.TRYING_AGAIN)
"""Reasons whose messages are shown in full, since every line names something to fix; so are the
rows that a False ``InputComplete`` names.
"""
_WORDS = {Verdict.APPROVE: "approved", Verdict.REJECT: "rejected", Verdict.UNDO: "undo requested"}
_COLUMNS = ("namespace", "name", "steps", "watermark (UTC)", "stage")
_ALIGNED = (str.ljust, str.ljust, str.rjust, str.ljust, str.ljust)


def listing(backfills: list[Backfill], *, namespaces: bool = True) -> Text:
    """A line for each Backfill. Names are never shortened, since a next command needs them.

    Lines are built here because rich measures each cell of a table, which dominates the time for a
    thousand rows.
    """
    now, first = datetime.now(UTC), 0 if namespaces else 1
    rows = [_COLUMNS, *(_row(View(backfill, now)) for backfill in backfills)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][first:]
    lines = [
        "  ".join(
            align(cell, width)
            for align, cell, width in zip(_ALIGNED[first:], row[first:], widths, strict=True)
        ).rstrip()
        for row in rows
    ]
    text = Text("\n".join(lines), no_wrap=True, overflow="ignore")
    text.stylize("dim", 0, len(lines[0]))
    return text


def _row(view: View) -> tuple[str, ...]:
    progress, watermark = view.status.progress, view.status.watermark
    return (
        view.backfill.metadata.namespace,
        view.name,
        f"{progress.committed:,}/{progress.steps:,}" if progress.steps else "",
        moment(watermark) if watermark else "",
        outcome(view),
    )


def details(view: View) -> RenderableType:
    """Progress, attempts, outputs and conditions of one Backfill."""
    return Group(
        overview(view, scale=True),
        *([_rows([("plan", view.status.plan_id)])] if view.status.plan_id else []),
        *_executors(view),
        *_attempts(view.status.attempts),
        *_outputs(view.status.outputs),
        *_hand_off(view.status.hand_off),
        *_decisions(view.status),
        _conditions(view),
    )


def outcome(view: View) -> str:
    """The current stage, in the word that ``kubectl get`` has for it."""
    ready = find_condition(view.status.conditions, ConditionType.READY)
    said = ready or view.stage
    return str(said.reason) if said else "New"


def _decisions(status: BackfillStatus) -> list[RenderableType]:
    found = [each for each in (status.decision, status.undo) if each is not None]
    rows = [(_WORDS[each.decision], _in_full(each)) for each in found]
    return [_rows(rows)] if rows else []


def _in_full(decision: DecisionStatus) -> str:
    refused = f"; refused: {decision.refused}" if decision.refused else ""
    return f"at {moment(decision.at)} UTC by {decision}{refused}"


def _executors(view: View) -> list[RenderableType]:
    progress = view.status.progress
    running = view.attempt is not None and view.attempt.outcome == "Running"
    if not progress.executor_reason or progress.committed >= progress.steps or not running:
        return []
    granted = f"{progress.executors:,} of {progress.executor_target or 0:,} requested"
    return [_rows([("executors", f"{granted}: {progress.executor_reason}")])]


def _attempts(attempts: tuple[Attempt, ...]) -> list[RenderableType]:
    if not attempts:
        return []
    earlier = len(attempts) - _ATTEMPTS_SHOWN
    rows = [("", count(earlier, "earlier attempt"))] if earlier > 0 else []
    shown = attempts[-_ATTEMPTS_SHOWN:]
    return [_rows([*rows, *((f"attempt {each.number}", _of_attempt(each)) for each in shown)])]


def _of_attempt(attempt: Attempt) -> str:
    took, ended = "", attempt.finished_at
    if ended is not None:
        took = f", {seconds(lasted(attempt.started_at, ended))}"
    why = f": {attempt.message.splitlines()[0]}" if attempt.message else ""
    return f"{attempt.outcome}, started {moment(attempt.started_at)} UTC{took}{why}"


def _outputs(outputs: tuple[OutputStatus, ...]) -> list[RenderableType]:
    rows = [(f"output {output.name}", _of_output(output)) for output in outputs]
    return [_rows(rows)] if rows else []


def _of_output(output: OutputStatus) -> str:
    staged = f", {count(output.rows, 'row')} in branch {output.branch}" if output.branch else ""
    return (
        output.table
        + staged
        + (f", published as snapshot {output.snapshot_id}" if output.snapshot_id else "")
        + (f", undone as snapshot {output.undo_snapshot_id}" if output.undo_snapshot_id else "")
        + (_of_export(output.exported) if output.exported else "")
        + (f", {output.delivery.in_words} delivered" if output.delivery else "")
        + compared(output)
        + _how_run(output)
    )


def _of_export(exported: ExportStatus) -> str:
    where = f", published as {count(exported.files, 'file')} in {exported.location}"
    return f"{where}, undone" if exported.undone else where


def _hand_off(handed: HandOffStatus | None) -> list[RenderableType]:
    """Where history ends, where live traffic continues, and how far behind that is."""
    if handed is None:
        return []
    rows = []
    if handed.history_end is not None:
        rows.append(("history ends", f"{moment(handed.history_end)} UTC"))
    if handed.kept_until is not None:
        rows.append(
            ("Kafka keeps newer records", f"at least until {moment(handed.kept_until)} UTC")
        )
    if handed.starting_timestamp is not None:
        begins = f"with records from {moment(handed.starting_timestamp)} UTC, some read twice"
        rows.append(("live traffic begins", begins))
    rows += [(f"state of {query.name}", _of_state(query)) for query in handed.queries]
    rows += [
        (f"{source.name} continues in", f"topic {source.topic}, {_offsets(source)}")
        for source in handed.sources
    ]
    if handed.application is not None:
        lag = handed.lag_seconds
        behind = "lag unknown" if lag is None else f"{seconds(lag)} behind"
        rows.append(("live", f"SparkApplication {handed.application}, {behind}"))
    return [_rows(rows)] if rows else []


def _of_state(query: HandedOverQuery) -> str:
    parts = [f"{query.checkpoint_location}, after batch {query.batch:,}"]
    if query.state_partitions:
        parts.append(count(query.state_partitions, "partition"))
    if query.live_batch is not None and query.live_batch >= 0:
        parts.append(f"live at batch {query.live_batch:,}")
    if query.records_behind is not None:
        parts.append(f"{count(query.records_behind, 'record')} behind")
    return ", ".join(parts)


def _offsets(source: HandedOverSource) -> str:
    """The offsets of the first partitions."""
    shown = [f"{number} at {offset:,}" for number, offset in source.offsets.items()]
    some, more = shown[:_PARTITIONS_SHOWN], source.partitions - _PARTITIONS_SHOWN
    rest = f" and {more:,} more" if more > 0 else ""
    return f"partitions {', '.join(some)}{rest}"


def _how_run(output: OutputStatus) -> str:
    if output.execution is None:
        return ""
    return f"; {execution_in_words(output.execution, output.execution_reason)}"


def _conditions(view: View) -> RenderableType:
    """The conditions, one line each.

    The reason for a failure is shown once and in full: it may be a list of problems, or the end of
    a log.
    """
    entries = [each for each in in_order(view.status.conditions) if each.type not in SUMMARIES]
    ended = find_condition(view.status.conditions, ConditionType.SUCCEEDED)
    failure = ended.message if ended is not None and ended.status == "False" else ""
    return _rows(
        (f"{condition.type}={condition.status}", _of_condition(condition, failure))
        for condition in entries
    )


def _of_condition(condition: Condition, failure: str) -> str:
    fails = condition.type == ConditionType.SUCCEEDED
    if failure and condition.message == failure and not fails:
        return str(condition.reason)
    lacks = condition.type == ConditionType.INPUT_COMPLETE and condition.status == "False"
    if lacks or (fails and failure) or condition.reason in _IN_FULL:
        return f"{condition.reason}: {condition.message}"
    return in_words(condition)


def _rows(rows: Iterable[tuple[str, str]]) -> RenderableType:
    """Facts with their labels; long ones are wrapped and indented."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    for about, fact in rows:
        grid.add_row(about, Text(fact))
    return Padding(grid, (0, 0, 0, 2))
