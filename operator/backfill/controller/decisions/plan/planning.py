"""From a new resource to a recorded plan."""

from datetime import timedelta

from backfill.api.conditions import ConditionType, Reason
from backfill.api.errors import BadInput, InputAwaited, Problem
from backfill.api.hand_off import HandOffStatus
from backfill.api.manifests.spec_rules import check_spec
from backfill.api.quantities import count, from_us
from backfill.api.resolved import Resolved, resolved_spec, search_digest
from backfill.api.spec import MOST_SOURCES, BackfillSpec
from backfill.api.status import OutputStatus, Progress, SourceStatus
from backfill.controller.decisions.actions import CancelJob, Next
from backfill.controller.decisions.job_retries import work
from backfill.controller.decisions.observed import Observed
from backfill.controller.decisions.plan.complete_input import (
    incomplete_input,
    input_checks,
    say_input,
)
from backfill.controller.decisions.plan.input_wait import (
    awaits,
    seconds_until_check,
    wait_for_input,
)
from backfill.controller.decisions.plan.plan_warnings import remarks
from backfill.controller.decisions.run.assignment import steps_in_words
from backfill.controller.decisions.run.received_plans import is_of_status, mistake
from backfill.controller.decisions.run.start_obstacles import obstructed
from backfill.controller.decisions.status_draft import Draft, in_lines
from backfill.controller.jobs.kinds.make_plan import PlanJob, PlanResult
from backfill.controller.jobs.kinds.recover import RecoverJob
from backfill.controller.jobs.kinds.resolve import ResolveJob
from backfill.planning.plan import PlanHeader
from backfill.planning.workspace import Workspace

_PLANNED = ConditionType.PLANNED
APPLIED_WITHIN = timedelta(seconds=5)
"""How long objects that a Backfill refers to may be missing: ``kubectl apply`` creates the
documents of a file one by one.
"""
_FIRST_LOOK_SECONDS = 1.0
_READS = "reading the metadata of the tables"
_NOT_FOUND = Problem(
    "spec.sources",
    "is empty, but what a SparkApplication of this kind reads cannot be found out",
    "list its sources and outputs; backfill init proposes them",
)
_SEARCHES = "finding out what the application reads and writes, by running its main program"


def plan(observed: Observed, draft: Draft) -> Next:
    """Checks the outputs and makes the plan, then records it. Invalid input fails the Backfill."""
    if draft.status.plan_id is not None:
        return _recover(observed, draft, draft.status.newest_plan_id or draft.status.plan_id)
    if observed.obstacles:
        return _obstructed(observed, draft)
    if observed.backfill.spec.is_short:
        return _resolve(observed, draft)
    awaits_input = awaits(observed, draft)
    if awaits_input and (wait := seconds_until_check(observed, draft)) > 0:
        return Next(requeue_seconds=wait)
    if draft.status.input_wait is None:
        draft.condition(_PLANNED, "Unknown", Reason.PLANNING, _reading(observed))
    draft.set(workspace=observed.workspace, tagged_tables=_tagged(observed))
    job = PlanJob.of(
        observed.backfill,
        _workspace(observed),
        observed.parallelism,
        awaits_input=awaits_input,
    )
    made = work(observed, draft, job, _PLANNED)
    if isinstance(made, Next):
        return made
    if isinstance(made.error, InputAwaited):
        return wait_for_input(observed, draft, made.error.problems)
    if made.phase == "Failed":
        draft.remove_condition(ConditionType.INPUT_COMPLETE)  # of an earlier look at the tables
        _record_failure(draft, made.error)
        return Next(actions=(CancelJob(),), at_rest=True)
    if isinstance(made.result, PlanResult):
        header, spec = made.result.header, observed.backfill.spec
        if wrong := mistake(header, observed.backfill):
            draft.fail(
                _PLANNED,
                Reason.PLANNING_FAILED,
                f"the plan that the job returned does not belong to this Backfill: {wrong}; check"
                " that the image has the same version of backfill-operator as the operator",
            )
            return Next(actions=(CancelJob(),), at_rest=True)
        checks = input_checks(header, observed.now)
        say_input(draft, spec, checks)
        if refused := incomplete_input(spec, header, checks):
            draft.fail_input(_PLANNED, refused)
            return Next(actions=(CancelJob(),), at_rest=True)
    _record(draft, made.result, observed)
    return Next(requeue_seconds=0)


def _resolve(observed: Observed, draft: Draft) -> Next:
    """Finds out what the spec does not say, and records it."""
    if observed.application is None:
        draft.fail_input(_PLANNED, (_NOT_FOUND,))
        return Next(actions=(CancelJob(),), at_rest=True)
    draft.condition(_PLANNED, "Unknown", Reason.PLANNING, _SEARCHES)
    found = work(observed, draft, ResolveJob.of(observed.backfill, observed.application), _PLANNED)
    if isinstance(found, Next):
        return found
    if isinstance(found.result, Resolved):
        if wrong := _wrongly_found(observed.backfill.spec, found.result):
            draft.fail(_PLANNED, Reason.PLANNING_FAILED, wrong)
            return Next(actions=(CancelJob(),), at_rest=True)
        draft.set(resolved=found.result)
        return Next(actions=(CancelJob(),), requeue_seconds=0)
    _record_failure(draft, found.error)
    return Next(actions=(CancelJob(),), at_rest=True)


def search_again(_observed: Observed, draft: Draft) -> Next:
    """Forgets what was found for a Backfill that failed without a plan: the program, or a table,
    may have been corrected.
    """
    draft.set(resolved=None)
    return Next(requeue_seconds=0)


def _wrongly_found(spec: BackfillSpec, found: Resolved) -> str:
    """Why what a process that ran the application returned cannot complete the spec; "" if it can.
    It would be looked for again without end.
    """
    if found.found_for != search_digest(spec):
        return (
            "what was found was not looked for with this spec; check that the application's image"
            " has the same version of backfill-operator as the operator"
        )
    delivers = [each.name for each in found.outputs if each.publish.mode == "Deliver"]
    if delivers and spec.publish != "Deliver":
        return f"spec.publish is not Deliver, but {delivers[0]} was found as an output to deliver"
    return in_lines(tuple(check_spec(resolved_spec(spec, found))))


def _tagged(observed: Observed) -> tuple[str, ...]:
    """Tables in which this or an earlier try to plan may tag snapshots."""
    status, sources = observed.backfill.status, observed.backfill.spec.sources
    protected = (source.table for source in sources if source.snapshot.protect)
    return tuple(dict.fromkeys((*status.tagged_tables, *protected)))[-MOST_SOURCES:]


def _workspace(observed: Observed) -> Workspace:
    return Workspace.of(observed.backfill, observed.workspace)


def _recover(observed: Observed, draft: Draft, plan_id: str) -> Next:
    """Reads the plan header from the workspace with a job.

    Needed if its ConfigMap was lost.
    """
    lost = observed.plan_error
    if observed.policy.header_may_be_lost:
        draft.condition(
            _PLANNED, "Unknown", Reason.PLANNING, f"{lost}; recovering it from the workspace"
        )
        read = work(observed, draft, RecoverJob(plan_id, _workspace(observed)), _PLANNED)
        if isinstance(read, Next):
            return read
        if isinstance(read.result, PlanHeader) and is_of_status(read.result, draft.status):
            _say_ready(draft, read.result)
            return Next(actions=(CancelJob(),), requeue_seconds=0)  # the header is kept by then
        why = read.error or "the one in the workspace differs from the one that was planned"
        lost = f"{lost}; {why}"
    draft.fail(_PLANNED, Reason.PLANNING_FAILED, f"{lost}; cancel this backfill and start over")
    return Next(actions=(CancelJob(),) if observed.policy.header_may_be_lost else (), at_rest=True)


def _obstructed(observed: Observed, draft: Draft) -> Next:
    """Waits for obstacles on a cluster, where what is missing may be applied a moment later."""
    since = draft.status.started_at or observed.now
    if observed.policy.patient and observed.now - since < APPLIED_WITHIN:
        draft.condition(
            _PLANNED,
            "Unknown",
            Reason.PLANNING,
            f"waiting for objects that do not exist yet: {in_lines(observed.obstacles)}",
        )
        return Next(requeue_seconds=_FIRST_LOOK_SECONDS)
    return obstructed(observed, draft, _PLANNED, "Planning")


def _reading(observed: Observed) -> str:
    """Progress of planning, in words.

    The text changes only after considerable progress, because every change is a write. A screen
    shows more.
    """
    state = observed.job
    if (
        observed.policy.screen
        or state is None
        or state.phase != "Running"
        or not isinstance(state.job, PlanJob)
    ):
        return _READS
    progress = state.progress
    if progress is None or progress.files < 10:
        return _READS
    magnitude = 10 ** (len(str(progress.files)) - 1)
    told = max(factor * magnitude for factor in (1, 2, 5) if factor * magnitude <= progress.files)
    return f"reading the metadata of {progress.source}: more than {told:,} files so far"


def _record_failure(draft: Draft, error: Exception | None) -> None:
    if isinstance(error, BadInput) and not error.may_pass:
        draft.fail_input(_PLANNED, error.problems)
    else:
        draft.fail(_PLANNED, Reason.PLANNING_FAILED, str(error))


def _record(draft: Draft, result: object, observed: Observed) -> None:
    if not isinstance(result, PlanResult):
        raise TypeError(f"a plan job returned {type(result).__name__}")
    header, spec = result.header, observed.backfill.spec
    bases = {output.name: output.base_snapshot_id for output in result.outputs}
    outputs = (
        OutputStatus(name=each.name, table=each.table, base_snapshot_id=bases.get(each.name))
        for each in spec.outputs
    )
    draft.set(
        plan_id=header.plan_id,
        plan_digest=header.digest,
        progress=Progress(steps=header.steps, summary=steps_in_words(0, header.steps)),
        sources=expected(header),
        outputs=tuple(outputs),
        input_wait=None,
        hand_off=_hand_off(spec, header),
    )
    warnings = (
        *result.warnings,
        *observed.rivals,
        *remarks(spec, header, one_process=observed.policy.one_process),
    )
    _say_ready(draft, header, warnings)


def _hand_off(spec: BackfillSpec, header: PlanHeader) -> HandOffStatus | None:
    if not header.inputs.live:
        return None
    end = from_us(header.inputs.end_us)
    if spec.hand_off is None or spec.hand_off.max_distance is None:
        return HandOffStatus(history_end=end)
    if header.steps == 1:  # if no step is released, Spark commits an empty batch
        why = "the plan has a single step, which cannot be held back"
        return HandOffStatus(history_end=end, complete_because=why)
    return HandOffStatus(history_end=end, growing=True)


def _say_ready(draft: Draft, header: PlanHeader, warnings: tuple[str, ...] = ()) -> None:
    files = sum(source.files for source in header.sources)
    message = (
        f"{count(header.steps, 'step')}, about {count(header.rows, 'row')}"
        f" in {count(files, 'file')}"
    )
    draft.condition(
        _PLANNED, "True", Reason.PLAN_READY, "\n".join((message, *warnings, *header.warnings))
    )


def expected(header: PlanHeader) -> tuple[SourceStatus, ...]:
    """Status of the sources before anything is read."""
    return tuple(
        SourceStatus(name=source.name, files=source.files, rows=source.rows, bytes=source.bytes)
        for source in header.sources
    )
