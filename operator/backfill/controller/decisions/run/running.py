"""From a plan to all steps committed: attempts, and how far they may read."""

from collections.abc import Iterator

from backfill.api.conditions import ConditionType, Reason
from backfill.api.errors import BadInput
from backfill.api.status import Attempt
from backfill.controller.decisions.actions import (
    Action,
    CancelJob,
    Next,
    StartDriver,
    WriteAssignment,
)
from backfill.controller.decisions.delivering import say_delivering
from backfill.controller.decisions.handing_over import (
    history_remark,
    repeats_warning,
    retention_warning,
)
from backfill.controller.decisions.job_retries import work
from backfill.controller.decisions.observed import Observed, next_attempt_number
from backfill.controller.decisions.open_result_messages import by_clock
from backfill.controller.decisions.run.assignment import assignment, record_progress
from backfill.controller.decisions.run.attempts import (
    driver_of,
    end_attempt,
    react,
    seconds_until_attempt,
)
from backfill.controller.decisions.run.execution_messages import how_run
from backfill.controller.decisions.run.extending import GOES_ON, complete, extend, held_back
from backfill.controller.decisions.run.pending_driver import begin_again, watch_pending
from backfill.controller.decisions.run.silent_driver import until_silent, watch_silence
from backfill.controller.decisions.run.start_obstacles import obstructed
from backfill.controller.decisions.run.suspending import stop_driver
from backfill.controller.decisions.status_draft import Draft
from backfill.controller.decisions.validated_condition import say_comparing
from backfill.controller.jobs.kinds.make_plan import PlanJob
from backfill.controller.jobs.kinds.verify import VerifyJob

_RUNNING = ConditionType.RUNNING
_BEFORE_READING = (Reason.DRIVER_PENDING, Reason.DRIVER_START_BLOCKED, Reason.DRIVER_SILENT)


def run(observed: Observed, draft: Draft) -> Next:
    """Watches the current attempt, or starts the next one."""
    attempt = observed.attempt
    if attempt is None:
        return _prepare_attempt(observed, draft)
    if observed.driver.phase == "Running":
        return _watch(observed, draft, attempt)
    if observed.driver.phase == "Pending":
        return watch_pending(observed, draft, attempt)
    again = begin_again(observed, attempt) if observed.driver.phase == "Absent" else None
    if again is not None:
        return again
    end_attempt(observed, draft, attempt)
    react(observed, draft)
    return Next(requeue_seconds=0)


def _prepare_attempt(observed: Observed, draft: Draft) -> Next:
    if not draft.status.delivering:  # what it said of a result may have changed
        draft.remove_condition(ConditionType.PUBLISHED)
    status = draft.status
    generation = observed.backfill.metadata.generation
    wait = seconds_until_attempt(status, generation, observed.now)
    if wait:
        return Next(requeue_seconds=wait)
    number = next_attempt_number(status.attempts)
    if observed.obstacles:
        return obstructed(observed, draft, _RUNNING, f"Attempt {number}")
    if status.attempts and held_back(observed, draft) and not complete(observed, draft):
        return extend(observed, draft)
    draft.condition(_RUNNING, "Unknown", Reason.STARTING, f"{driver_of(number)} is starting")
    state = observed.job
    just_planned = (
        number == 1
        and state is not None
        and isinstance(state.job, PlanJob)
        and state.phase == "Done"
    )
    if not just_planned and not status.delivering:  # which reads nothing of the sources
        verified = work(observed, draft, VerifyJob(observed.plan, attempt=number), _RUNNING)
        if isinstance(verified, Next):
            return verified
        if verified.phase == "Failed":
            _record_lost_input(draft, verified.error)
            return Next(actions=(CancelJob(),), at_rest=True)
    return _start_attempt(observed, draft, number)


def _record_lost_input(draft: Draft, error: Exception | None) -> None:
    reason = Reason.INVALID_INPUT if isinstance(error, BadInput) else Reason.PLANNING_FAILED
    draft.fail(_RUNNING, reason, str(error))


def _start_attempt(observed: Observed, draft: Draft, number: int) -> Next:
    draft.add_attempt(
        Attempt(
            number=number,
            child=observed.next_child,
            generation=observed.backfill.metadata.generation,
            started_at=observed.now,
            steps_at_start=draft.status.advance,
        )
    )
    draft.set(next_attempt_at=None)
    draft.condition(_RUNNING, "Unknown", Reason.STARTING, f"{driver_of(number)} is starting")
    first = assignment(observed, number)
    # the result of the job is used up
    return Next(actions=(CancelJob(), WriteAssignment(first), StartDriver(number)))


def _remarks(observed: Observed, draft: Draft) -> Iterator[str]:
    """How the query of each output is run, what to know of its result, and whether live traffic can
    follow.
    """
    window = observed.backfill.spec.window
    for output in draft.status.outputs:
        if told := how_run(output, window):
            yield f"{output.name}: {told}"
    for output in draft.status.outputs:
        if output.by_clock:
            yield f"{output.name}: {by_clock(output)}"
    # once for outputs that are made of the same records
    yield from dict.fromkeys(output.warnings for output in draft.status.outputs if output.warnings)
    status = draft.status
    yield from filter(
        None, (retention_warning(status), repeats_warning(status), history_remark(status))
    )


def _at_work(draft: Draft, attempt: Attempt) -> str:
    does = "delivers rows" if draft.status.delivering else "is reading"
    return f"{driver_of(attempt.number)} {does}"


def _watch(observed: Observed, draft: Draft, attempt: Attempt) -> Next:
    record_progress(observed, draft)
    silent = watch_silence(observed, draft, attempt)
    if silent is not None:
        return silent
    report = observed.report
    if draft.status.delivering:
        say_delivering(draft)
    if report is not None and report.comparing:
        say_comparing(observed, draft, report)
    if report is not None and report.phase == "Running":
        draft.condition(
            _RUNNING,
            "True",
            Reason.REPLAYING,
            "; ".join([_at_work(draft, attempt), *_remarks(observed, draft)]),
        )
    elif report is not None and report.phase == "Starting" and report.message:
        draft.condition(
            _RUNNING,
            "Unknown",
            Reason.STARTING,
            report.message
            if attempt.number == 1
            else f"attempt {attempt.number}: {report.message}",
        )
    elif (running := draft.find(_RUNNING)) is not None and running.reason in _BEFORE_READING:
        draft.condition(
            _RUNNING, "Unknown", Reason.STARTING, f"{driver_of(attempt.number)} is starting"
        )
    if report is not None and report.phase == "Running" and held_back(observed, draft):
        if complete(observed, draft):
            return Next(requeue_seconds=0)
        return stop_driver(observed, draft, attempt, (Reason.EXTENDING, GOES_ON))
    wanted = assignment(observed, attempt.number)
    actions: tuple[Action, ...] = (
        () if wanted == observed.assignment else (WriteAssignment(wanted),)
    )
    return Next(actions, requeue_seconds=until_silent(observed))
