"""What the operator has planned for a Backfill."""

import json

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from backfill.api.backfill import Backfill
from backfill.api.conditions import ConditionType, find_condition
from backfill.api.errors import BadInput, Problem
from backfill.cli.cluster.place import Place
from backfill.cli.ending import SUCCEEDED, WAITS
from backfill.cli.screen import in_words
from backfill.cli.text import count, size
from backfill.cli.view import has_failed


def show_plan(place: Place, name: str, *, as_json: bool) -> int:
    """The plan, if there is one yet.

    Raises:
        BackfillError: planning has failed.
    """
    backfill = place.find(name)
    if backfill.status.plan_id is None:
        return _tell_why_not(backfill)
    if as_json:
        print(json.dumps(_document(backfill)))  # noqa: T201
    else:
        Console().print(_page(backfill))
    return SUCCEEDED


def _tell_why_not(backfill: Backfill) -> int:
    name, planned = backfill.metadata.name, find_condition(backfill.status.conditions, ConditionType.PLANNED)
    if planned is not None and has_failed(backfill):
        raise BadInput([Problem("", line) for line in planned.message.splitlines()] or Problem("", str(planned.reason)))
    why = in_words(planned) if planned else "the operator has not begun"
    Console(stderr=True).print(f"{name} is not planned yet: {why}", highlight=False, markup=False, soft_wrap=True)
    return WAITS


def _page(backfill: Backfill) -> RenderableType:
    """What the status keeps of the plan."""
    status = backfill.status
    table = Table("source", box=None, header_style="dim", padding=(0, 1))
    for column in ("files", "rows", "size"):
        table.add_column(column, justify="right", no_wrap=True)
    for source in status.sources:
        table.add_row(source.name, f"{source.files:,}", f"{source.rows:,}", size(source.bytes))
    return Group(
        Text.assemble((backfill.metadata.name, "bold"), (f"  plan {status.plan_id}", "dim")),
        table,
        Text(f"  {count(status.progress.steps, 'step')}"),
    )


def _document(backfill: Backfill) -> dict[str, object]:
    return {"planId": backfill.status.plan_id, "steps": {"count": backfill.status.progress.steps}}
