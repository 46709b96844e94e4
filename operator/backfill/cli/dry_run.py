"""Makes and shows the plan of a file without running anything."""

import tempfile
import time
from pathlib import Path

from rich.console import Console

from backfill.api.backfill import Backfill
from backfill.api.errors import BackfillError, BadInput
from backfill.cli.exit_status import SUCCEEDED
from backfill.cli.installed import TABLES, require
from backfill.cli.plan_page import render_plan
from backfill.cli.target import read_file
from backfill.cli.view import planning_in_words
from backfill.controller.jobs.job import JobState
from backfill.controller.jobs.kinds.plan import PlanJob, PlanResult
from backfill.controller.local.jobs import Worker
from backfill.controller.local.spark_conf import cores
from backfill.planning.summary import PlanSummary, summarize
from backfill.planning.workspace import Workspace

_POLL_SECONDS = 0.05


def show_plan(file: Path, namespace: str | None, *, as_json: bool) -> int:
    """Makes the plan in a temporary workspace and prints what it would read.

    Raises:
        BackfillError: with every problem found.
    """
    require(*TABLES)
    backfill = read_file(file, namespace, require_application=False).backfill
    summary = _planned(backfill, Console(stderr=True))
    if as_json:
        print(summary.model_dump_json(by_alias=True))  # noqa: T201
    else:
        Console().print(
            render_plan(backfill.metadata.name, summary, estimated_for="on this machine")
        )
    return SUCCEEDED


def _planned(backfill: Backfill, err: Console) -> PlanSummary:
    with (
        tempfile.TemporaryDirectory(prefix="backfill-plan-") as directory,
        err.status("plans") as spinner,
    ):
        worker = Worker(Path(directory) / "worker.log")
        parallelism = cores(backfill.spec.overrides.spark_conf)
        worker.start(PlanJob.of(backfill, Workspace(directory), parallelism, dry_run=True))
        try:
            while (state := worker.state) is not None and state.phase == "Running":
                spinner.update(planning_in_words(state.progress))
                time.sleep(_POLL_SECONDS)
        finally:
            worker.close()
        return _summary(state, backfill)


def _summary(state: JobState | None, backfill: Backfill) -> PlanSummary:
    if state is not None and isinstance(state.result, PlanResult):
        if refused := state.result.refused(backfill.spec):
            raise BadInput(refused)
        return summarize(state.result.header)
    raise (
        state.error
        if state is not None and state.error is not None
        else BackfillError("planning gave no result")
    )
