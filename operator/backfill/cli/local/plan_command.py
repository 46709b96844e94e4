"""Makes and shows the plan of a file without running a query."""

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from backfill.api.backfill import Backfill
from backfill.api.errors import BackfillError, BadInput
from backfill.api.resolved import Resolved, resolved_spec
from backfill.api.spark_application import Application
from backfill.api.status import BackfillStatus
from backfill.cli.backfill_view import planning_in_words
from backfill.cli.exit_status import SUCCEEDED
from backfill.cli.explain_queries import render_queries, warnings
from backfill.cli.found_page import found_figures, say_found
from backfill.cli.local.target import read_file
from backfill.cli.optional_dependencies import SPARK, TABLES, require
from backfill.cli.plan_page import render_plan
from backfill.controller.decisions.plan.complete_input import incomplete_input, input_checks
from backfill.controller.decisions.plan.plan_warnings import remarks
from backfill.controller.decisions.run.run_estimate import by_earlier_runs
from backfill.controller.jobs.any_job import Job, JobState
from backfill.controller.jobs.kinds.make_plan import PlanJob, PlanResult
from backfill.controller.jobs.kinds.resolve import ResolveJob
from backfill.controller.local.jobs import Worker
from backfill.controller.local.store import stored
from backfill.controller.local_driver.local_spark_conf import cores
from backfill.controller.proposing.explain_program import explain
from backfill.iceberg.spark_catalogs import open_catalogs_of
from backfill.planning.plan import PlanHeader
from backfill.planning.plan_summary import PlanSummary, summarize
from backfill.planning.workspace import Workspace
from backfill.protocol.explanation import ExplainedQuery

_POLL_SECONDS = 0.05


def show_plan(
    file: Path, namespace: str | None, state: Path, *, as_json: bool, explained: bool = False
) -> int:
    """Makes the plan in a temporary workspace, and prints what it would read. The Backfills of a
    state directory say what earlier runs have taken.

    With ``explained``, also prints how each query of the application would run.

    Raises:
        BackfillError: with every problem found.
    """
    require(*TABLES, *((SPARK,) if explained else ()))
    manifests = read_file(file, namespace, require_application=explained)
    backfill, application, err = manifests.backfill, manifests.application, Console(stderr=True)
    queries = None
    if application is not None:
        open_catalogs_of(application.spark_conf | backfill.spec.overrides.spark_conf)
    if backfill.spec.is_short:
        application = read_file(file, namespace, require_application=True).application
        assert application is not None  # it was required
        found = _searched(backfill, application, err)
        complete = resolved_spec(backfill.spec, found)
        backfill = backfill.model_copy(
            update={"spec": complete, "status": BackfillStatus(resolved=found)}
        )
    with tempfile.TemporaryDirectory(prefix="backfill-plan-") as directory:
        workspace = Workspace(directory)
        header = dry_run(backfill, workspace, err)
        now = datetime.now(UTC)
        measured = by_earlier_runs(backfill, header.bytes, _earlier(state))
        limit = backfill.spec.max_rows_per_second
        summary = summarize(header, now, rows_per_second=limit, measured=measured)
        said = (*summary.warnings, *remarks(backfill.spec, header, one_process=True))
        summary = summary.model_copy(update={"warnings": said})
        if explained:
            assert application is not None  # it was required
            with err.status("running the program until its queries start"):
                queries = explain(backfill, application, summary.plan_id, workspace)
    if as_json:
        print(_document(backfill, summary, queries))  # noqa: T201
    else:
        console = Console()
        say_found(backfill, console)
        console.print(render_plan(backfill.metadata.name, summary, estimated_for="on this machine"))
        if queries is not None:
            render_queries(backfill, queries, console)
    if incomplete := incomplete_input(backfill.spec, header, input_checks(header, now)):
        raise BadInput(incomplete)
    return SUCCEEDED


def _earlier(state: Path) -> Iterator[Backfill]:
    """The Backfills of a state directory that this version can read."""
    for store in stored(state):
        with suppress(BackfillError, OSError):
            if (found := store.load()) is not None:
                yield found


def _document(
    backfill: Backfill, summary: PlanSummary, queries: tuple[ExplainedQuery, ...] | None
) -> str:
    """The figures of the plan, what was found of the program, and the queries if they were
    explained.
    """
    figures = summary.model_dump(mode="json", by_alias=True) | found_figures(backfill)
    if queries is None:
        return json.dumps(figures)
    listed = [
        query.model_dump(mode="json", by_alias=True, exclude={"warnings"})
        | {"warnings": warnings(backfill, query)}
        for query in queries
    ]
    return json.dumps(figures | {"queries": listed})


def dry_run(backfill: Backfill, workspace: Workspace, err: Console) -> PlanHeader:
    """Makes the plan in a workspace on this machine.

    Raises:
        BackfillError: with every problem found.
    """
    parallelism = cores(backfill.spec.overrides.spark_conf)
    job = PlanJob.of(backfill, workspace, parallelism, dry_run=True)
    with err.status("planning") as spinner:
        made = _done(job, Path(workspace.uri), lambda state: spinner.update(_in_words(state)))
    assert isinstance(made, PlanResult)
    return made.header


def _in_words(state: JobState) -> str:
    return planning_in_words(state.progress)


def _searched(backfill: Backfill, application: Application, err: Console) -> Resolved:
    """What was found of an application whose Backfill does not say it.

    Raises:
        BackfillError: with every problem found.
    """
    job = ResolveJob.of(backfill, application)
    with (
        tempfile.TemporaryDirectory(prefix="backfill-found-") as directory,
        err.status("finding out what the application reads and writes"),
    ):
        found = _done(job, Path(directory), lambda _state: None)
    assert isinstance(found, Resolved)
    return found


def _done(job: Job, directory: Path, watch: Callable[[JobState], None]) -> object:
    """The result of a job, whose process logs into a directory.

    Raises:
        BackfillError: it failed.
    """
    worker = Worker(directory / "worker.log", kept=False)
    worker.start(job)
    try:
        while (state := worker.state) is not None and state.phase == "Running":
            watch(state)
            time.sleep(_POLL_SECONDS)
    finally:
        worker.close()
    if state is None or state.phase != "Done":
        raise (state and state.error) or BackfillError("the job returned no result")
    return state.result
