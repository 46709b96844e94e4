"""Shows the plan that the operator has made for a Backfill."""

import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from backfill.api.backfill import Backfill
from backfill.api.conditions import ConditionType, find_condition
from backfill.api.errors import BackfillError, BadInput, Problem
from backfill.api.quantities import count
from backfill.cli.cluster.connection import Place, read
from backfill.cli.exit_status import SUCCEEDED, WAITS
from backfill.cli.found_page import found_figures, say_found
from backfill.cli.plan_page import render_plan
from backfill.cli.screen import in_words
from backfill.cli.text import size, warn
from backfill.controller.cluster.plan_config_map import KubernetesPlans
from backfill.controller.decisions.run.run_estimate import by_earlier_runs
from backfill.kube.request_errors import Forbidden
from backfill.planning.plan_summary import PlanSummary, summarize


def show_plan(place: Place, name: str, *, as_json: bool) -> int:
    """Shows the plan, if it is made.

    Without permission to read ConfigMaps, shows what the status has of it.

    Raises:
        BadInput: planning found problems of the input.
        BackfillError: the plan cannot be read.
    """
    backfill = place.find(name)
    if backfill.status.plan_id is None:
        return _tell_why_not(backfill)
    summary = _summary(place, backfill)
    console = Console()
    if as_json:
        kept = summary.model_dump(mode="json", by_alias=True) if summary else None
        figures = kept or _kept_in_status(backfill)
        print(json.dumps(figures | found_figures(backfill)))  # noqa: T201
        return SUCCEEDED
    say_found(backfill, console)
    if summary:
        console.print(
            render_plan(name, summary, estimated_for="with the maximum number of executors")
        )
    else:
        console.print(_short_page(backfill))
    return SUCCEEDED


def _summary(place: Place, backfill: Backfill) -> PlanSummary | None:
    try:
        header = KubernetesPlans(place.cluster).header(backfill)
    except Forbidden as error:
        warn(f"only the status can be shown: {error}")
        return None
    if header is None:
        return None
    measured = by_earlier_runs(backfill, header.bytes, _earlier(place))
    limit = backfill.spec.max_rows_per_second
    return summarize(header, datetime.now(UTC), rows_per_second=limit, measured=measured)


def _earlier(place: Place) -> Iterator[Backfill]:
    """The Backfills of the namespace, as far as they may be listed and this version can read them:
    only an estimate is lost.
    """
    with suppress(Forbidden):
        for found in place.backfills():
            with suppress(BackfillError):
                yield read(found)


def _tell_why_not(backfill: Backfill) -> int:
    name = backfill.metadata.name
    planned = find_condition(backfill.status.conditions, ConditionType.PLANNED)
    if planned is not None and planned.status == "False":
        raise BadInput(
            Problem("", "\n  ".join((f"{name} cannot be planned:", *planned.message.splitlines())))
        )
    waits = "suspended" if backfill.spec.suspend else "no operator has started to plan it"
    why = in_words(planned) if planned else waits
    warn(f"{name} is not planned yet: {why}")
    return WAITS


def _short_page(backfill: Backfill) -> RenderableType:
    status = backfill.status
    table = Table("source", box=None, header_style="dim", padding=(0, 1))
    for column in ("files", "size"):
        table.add_column(column, justify="right", no_wrap=True)
    for source in status.sources:
        table.add_row(source.name, f"{source.files:,}", size(source.bytes))
    return Group(
        Text.assemble((backfill.metadata.name, "bold"), (f"  plan {status.plan_id}", "dim")),
        table,
        Text(f"  {count(status.progress.steps, 'step')}"),
    )


def _kept_in_status(backfill: Backfill) -> dict[str, object]:
    status = backfill.status
    sources = [
        {"name": source.name, "files": source.files, "bytes": source.bytes}
        for source in status.sources
    ]
    return {"planId": status.plan_id, "steps": {"count": status.progress.steps}, "sources": sources}
