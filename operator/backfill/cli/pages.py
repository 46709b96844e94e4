"""One Backfill in full, and many in a table: the same without a cluster and on one."""

from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from backfill.api.backfill import Backfill
from backfill.cli.ending import SUCCEEDED, exit_status
from backfill.cli.screen import in_words, render
from backfill.cli.text import moment, seconds
from backfill.cli.view import View, in_order


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
            outcome(view),
        )
    return table


def details(view: View) -> RenderableType:
    """Progress, attempts and outputs of one."""
    return Group(render(view), *_attempts(view), *_outputs(view), *_conditions(view))


def outcome(view: View) -> str:
    """Where it stands, in one word."""
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
