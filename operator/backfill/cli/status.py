"""Where backfills stand."""

from datetime import UTC, datetime

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from backfill.api.backfill import Backfill
from backfill.api.errors import BackfillError
from backfill.api.liveness import controller_alive
from backfill.cli.commands import Context
from backfill.cli.ending import SUCCEEDED, WAITS, exit_status, waiting_for
from backfill.cli.result import result_line
from backfill.cli.screen import in_words, render
from backfill.cli.target import find
from backfill.cli.text import moment, seconds
from backfill.cli.view import View, in_order
from backfill.controller.store import stored
from backfill.planning.plan import PlanHeader, plan_directory, read_header
from backfill.planning.workspace import Workspace


def show_one(context: Context, target: str) -> int:
    """One Backfill in full."""
    store, backfill = find(target, context.namespace, context.state)
    if context.as_json:
        print(result_line(backfill))  # noqa: T201
        return SUCCEEDED
    console = Console()
    console.print(details(View(backfill, datetime.now(UTC), _header(backfill))))
    if exit_status(backfill) == WAITS and not controller_alive(store.channel):
        console.print(f"  {waiting_for(backfill, context.options)}", highlight=False, soft_wrap=True)
    return SUCCEEDED


def show_all(context: Context) -> int:
    """A line for each Backfill."""
    backfills = [found for store in stored(context.state) if (found := store.load()) is not None]
    if context.as_json:
        for backfill in backfills:
            print(result_line(backfill))  # noqa: T201
        return SUCCEEDED
    Console().print(listing(backfills) if backfills else f"no backfills in {context.state}")
    return SUCCEEDED


def listing(backfills: list[Backfill]) -> RenderableType:
    """All of them as a table."""
    table = Table("namespace", "name", "steps", "watermark", "stage", box=None, header_style="dim")
    for backfill in backfills:
        view = View(backfill, datetime.now(UTC))
        progress, watermark = backfill.status.progress, backfill.status.watermark
        table.add_row(
            backfill.metadata.namespace,
            view.name,
            f"{progress.committed:,}/{progress.steps:,}" if progress.steps else "",
            moment(watermark) if watermark else "",
            _outcome(view),
        )
    return table


def details(view: View) -> RenderableType:
    """Progress, attempts and outputs of one."""
    return Group(render(view), *_attempts(view), *_outputs(view), *_conditions(view))


def _outcome(view: View) -> str:
    if exit_status(view.backfill) == SUCCEEDED:
        return "Succeeded"
    return str(view.stage.reason) if view.stage else "New"


def _attempts(view: View) -> list[RenderableType]:
    return [
        Text(
            f"  attempt {attempt.number}: {attempt.outcome}, began {moment(attempt.started_at)}"
            + (f", {seconds((attempt.finished_at - attempt.started_at).total_seconds())}" if attempt.finished_at else "")
            + (f": {attempt.message.splitlines()[0]}" if attempt.message else "")
        )
        for attempt in view.status.attempts
    ]


def _outputs(view: View) -> list[RenderableType]:
    return [
        Text(
            f"  output {output.name}: {output.table}"
            + (f", {output.rows:,} rows in branch {output.branch}" if output.branch else "")
            + (f", published as snapshot {output.snapshot_id}" if output.snapshot_id else "")
        )
        for output in view.status.outputs
    ]


def _conditions(view: View) -> list[RenderableType]:
    return [
        Text(f"  {condition.type}={condition.status}  {in_words(condition)}") for condition in in_order(view.status.conditions)
    ]


def _header(backfill: Backfill) -> PlanHeader | None:
    status = backfill.status
    if status.plan_id is None or status.workspace is None:
        return None
    try:
        return read_header(plan_directory(Workspace(status.workspace), status.plan_id))
    except (OSError, BackfillError):
        return None
