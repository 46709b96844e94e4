"""One Backfill in full, and many in a table: the same without a cluster and on one."""

from collections.abc import Iterable
from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from backfill.api.backfill import Attempt, Backfill, OutputStatus
from backfill.api.conditions import SUMMARIES, Condition, ConditionType
from backfill.cli.ending import SUCCEEDED, exit_status
from backfill.cli.screen import in_words, overview
from backfill.cli.text import count, moment, seconds
from backfill.cli.view import View, in_order

_ATTEMPTS_SHOWN = 3


def listing(backfills: list[Backfill], *, namespaces: bool = True) -> RenderableType:
    """All of them as a table. Names are never cut: they are what the next command needs."""
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
    if namespaces:
        _add_column(table, "namespace", [backfill.metadata.namespace for backfill in backfills])
    _add_column(table, "name", [backfill.metadata.name for backfill in backfills])
    for column in ("steps", "watermark", "stage"):
        table.add_column(column, no_wrap=True)
    for backfill in backfills:
        view = View(backfill, datetime.now(UTC))
        progress, watermark = backfill.status.progress, backfill.status.watermark
        table.add_row(
            *([backfill.metadata.namespace] if namespaces else []),
            view.name,
            f"{progress.committed:,}/{progress.steps:,}" if progress.steps else "",
            moment(watermark) if watermark else "",
            outcome(view),
        )
    return table


def details(view: View) -> RenderableType:
    """Progress, attempts, outputs and conditions of one."""
    return Group(
        overview(view, scale=True),
        *_executors(view),
        *_attempts(view.status.attempts),
        *_outputs(view.status.outputs),
        _conditions(view),
    )


def outcome(view: View) -> str:
    """Where it stands, in one word."""
    if exit_status(view.backfill) == SUCCEEDED:
        return "Succeeded"
    return str(view.stage.reason) if view.stage else "New"


def _add_column(table: Table, name: str, values: list[str]) -> None:
    table.add_column(name, no_wrap=True, min_width=max(map(len, values), default=0))


def _executors(view: View) -> list[RenderableType]:
    progress = view.status.progress
    if not progress.executor_reason or progress.committed >= progress.steps:
        return []
    return [
        _rows([("executors", f"{progress.executors:,} of {progress.executor_target or 0:,} wanted: {progress.executor_reason}")])
    ]


def _attempts(attempts: tuple[Attempt, ...]) -> list[RenderableType]:
    if not attempts:
        return []
    earlier = len(attempts) - _ATTEMPTS_SHOWN
    rows = [(f"attempt {attempt.number}", _of_attempt(attempt)) for attempt in attempts[-_ATTEMPTS_SHOWN:]]
    return [_rows([*([("", f"{count(earlier, 'earlier attempt')}")] if earlier > 0 else []), *rows])]


def _of_attempt(attempt: Attempt) -> str:
    lasted = f", {seconds((attempt.finished_at - attempt.started_at).total_seconds())}" if attempt.finished_at else ""
    why = f": {attempt.message.splitlines()[0]}" if attempt.message else ""
    return f"{attempt.outcome}, began {moment(attempt.started_at)}{lasted}{why}"


def _outputs(outputs: tuple[OutputStatus, ...]) -> list[RenderableType]:
    return [_rows((f"output {output.name}", _of_output(output)) for output in outputs)] if outputs else []


def _of_output(output: OutputStatus) -> str:
    staged = f", {count(output.rows, 'row')} in branch {output.branch}" if output.branch else ""
    return output.table + staged + (f", published as snapshot {output.snapshot_id}" if output.snapshot_id else "")


def _conditions(view: View) -> RenderableType:
    """Why a Backfill has failed is told once and in full: that may be a list of mistakes, or the end of a log."""
    told = [condition for condition in in_order(view.status.conditions) if condition.type not in SUMMARIES]
    failure = next((each.message for each in told if each.type == ConditionType.SUCCEEDED and each.status == "False"), "")
    return _rows((f"{condition.type}={condition.status}", _of_condition(condition, failure)) for condition in told)


def _of_condition(condition: Condition, failure: str) -> str:
    if not failure or condition.message != failure:
        return in_words(condition)
    return f"{condition.reason}: {failure}" if condition.type == ConditionType.SUCCEEDED else str(condition.reason)


def _rows(rows: Iterable[tuple[str, str]]) -> RenderableType:
    """Facts with what they are about before them; a long one goes on below itself."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    for about, fact in rows:
        grid.add_row(about, Text(fact))
    return Padding(grid, (0, 0, 0, 2))
