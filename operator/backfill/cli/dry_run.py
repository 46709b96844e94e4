"""The plan of a file, made and shown without running anything."""

import tempfile
import time
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from backfill.api.backfill import Backfill
from backfill.api.errors import BackfillError
from backfill.cli.ending import SUCCEEDED
from backfill.cli.target import read_file
from backfill.cli.text import count, moment, seconds, size
from backfill.cli.view import planning_in_words
from backfill.controller.backends.local_conf import cores
from backfill.controller.jobs import JobState, PlanJob, PlanResult
from backfill.controller.worker import Worker
from backfill.planning.summary import PlanSummary, SourceSummary, summarize
from backfill.planning.workspace import Workspace

_POLL_SECONDS = 0.05


def show_plan(file: Path, namespace: str | None, *, as_json: bool) -> int:
    """Makes the plan in a temporary place and prints what it would read.

    Raises:
        BackfillError: with everything that is in the way.
    """
    backfill = read_file(file, namespace, require_application=False).backfill
    summary = _planned(backfill, Console(stderr=True))
    if as_json:
        print(summary.model_dump_json(by_alias=True))  # noqa: T201
    else:
        Console().print(render_plan(backfill.metadata.name, summary))
    return SUCCEEDED


def _planned(backfill: Backfill, err: Console) -> PlanSummary:
    with tempfile.TemporaryDirectory(prefix="backfill-plan-") as directory, err.status("plans") as spinner:
        worker = Worker(Path(directory) / "worker.log")
        metadata, spec = backfill.metadata, backfill.spec
        parallelism = cores(spec.overrides.spark_conf)
        place = Workspace(directory)
        worker.start(PlanJob(metadata.namespace, metadata.name, metadata.uid, spec, place, parallelism, dry_run=True))
        try:
            while (state := worker.state) is not None and state.phase == "Running":
                spinner.update(planning_in_words(state.progress))
                time.sleep(_POLL_SECONDS)
        finally:
            worker.close()
        return _summary(state)


def _summary(state: JobState | None) -> PlanSummary:
    if state is not None and isinstance(state.result, PlanResult):
        return summarize(state.result.header)
    raise state.error if state is not None and state.error is not None else BackfillError("planning gave no result")


def render_plan(name: str, summary: PlanSummary) -> RenderableType:
    """The plan as a table, with what was proved and what to know."""
    steps = summary.steps
    largest = f"{count(steps.most_rows, 'row')}, {size(steps.most_bytes)}"
    facts = [
        f"  reads {moment(summary.read_from)} to {moment(summary.read_to)}: {count(summary.rows, 'row')}, {size(summary.bytes)}",
        f"  {count(steps.count, 'step')} of up to {seconds(steps.longest_seconds)}; the largest has {largest}",
        f"  sources differ by a factor of {summary.rows_skew:,.1f} in rows and {summary.bytes_skew:,.1f} in bytes",
        f"  estimate on this machine: {seconds(summary.estimated_seconds)}, if reading is what takes longest",
        f"  proved: rows at most {seconds(summary.greatest_disorder_seconds)} out of order across steps, "
        f"at most {seconds(summary.greatest_misalignment_seconds)} ahead of the global watermark",
    ]
    return Group(
        Text.assemble((name, "bold"), (f"  plan {summary.plan_id}", "dim")),
        _sources(summary.sources),
        *(Text(fact) for fact in facts),
        *(Text(f"  warning: {warning}", style="yellow") for warning in summary.warnings),
    )


def _sources(sources: tuple[SourceSummary, ...]) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 1))
    table.add_column("source", overflow="fold")
    for column in ("files", "wide", "rows", "size"):
        table.add_column(column, justify="right", no_wrap=True)
    for column in ("first", "last"):
        table.add_column(column, no_wrap=True)
    for source in sources:
        table.add_row(
            source.name,
            f"{source.files:,}",
            f"{source.wide_files:,}",
            f"{source.rows:,}",
            size(source.bytes),
            moment(source.first) if source.first else "",
            moment(source.last) if source.last else "",
        )
    return table
