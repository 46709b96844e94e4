"""From a plan to all steps committed: attempts, what they may read, and what happens when they fail."""

from datetime import timedelta

from backfill.api.backfill import Attempt, FailurePolicy
from backfill.api.conditions import ConditionType, Reason
from backfill.api.errors import BadInput
from backfill.controller.coordinate import assignment, record_progress
from backfill.controller.decision import Action, CancelJob, KillDriver, Next, StartDriver, StartJob, WriteAssignment
from backfill.controller.draft import Draft
from backfill.controller.jobs import PlanJob, VerifyJob
from backfill.controller.observed import DriverState, Observed

HEARTBEAT_LIMIT_SECONDS = 60.0
"""A driver that has not been heard of for so long is taken to hang."""
_LONGEST_BACKOFF = timedelta(minutes=10)
_RUNNING = ConditionType.RUNNING
_TAIL_LINES = 12


def run(observed: Observed, draft: Draft) -> Next:
    """Watches the current attempt, or prepares the next one."""
    if observed.attempt is None:
        return _prepare_attempt(observed, draft)
    if observed.driver.phase == "Running":
        return _watch(observed, draft, observed.attempt)
    end_attempt(observed, draft, observed.attempt)
    _react(observed, draft)
    return Next(requeue_seconds=0)


def _prepare_attempt(observed: Observed, draft: Draft) -> Next:
    status = draft.status
    if status.next_attempt_at is not None and status.next_attempt_at > observed.now:
        return Next(requeue_seconds=(status.next_attempt_at - observed.now).total_seconds())
    number = status.attempts[-1].number + 1 if status.attempts else 1
    draft.condition(_RUNNING, "Unknown", Reason.STARTING, f"attempt {number} is starting")
    state = observed.job
    job = VerifyJob(observed.plan, attempt=number)
    just_planned = number == 1 and state is not None and isinstance(state.job, PlanJob) and state.phase == "Done"
    if not just_planned:
        if state is None or state.job != job:
            return Next(actions=(StartJob(job),))
        if state.phase == "Running":
            return Next()
        if state.phase == "Failed":
            _record_lost_input(draft, state.error)
            return Next(actions=(CancelJob(),), at_rest=True)
    return _start_attempt(observed, draft, number)


def _record_lost_input(draft: Draft, error: Exception | None) -> None:
    reason = Reason.INVALID_INPUT if isinstance(error, BadInput) else Reason.PLANNING_FAILED
    draft.fail(_RUNNING, reason, str(error))


def _start_attempt(observed: Observed, draft: Draft, number: int) -> Next:
    draft.add_attempt(
        Attempt(
            number=number,
            generation=observed.backfill.metadata.generation,
            started_at=observed.now,
            steps_at_start=draft.status.progress.committed,
        )
    )
    draft.set(next_attempt_at=None)
    draft.condition(_RUNNING, "Unknown", Reason.STARTING, f"attempt {number} is starting")
    first = assignment(observed, number, report=None)
    return Next(actions=(WriteAssignment(first), StartDriver(number)))


def _watch(observed: Observed, draft: Draft, attempt: Attempt) -> Next:
    record_progress(observed, draft)
    if hangs(observed):
        return kill_hanging(observed, draft, attempt)
    report = observed.report
    if report is not None and report.phase == "Running":
        draft.condition(_RUNNING, "True", Reason.REPLAYING, f"attempt {attempt.number} is reading")
    wanted = assignment(observed, attempt.number, report)
    actions: tuple[Action, ...] = () if wanted == observed.assignment else (WriteAssignment(wanted),)
    return Next(actions, requeue_seconds=until_hanging(observed))


def hangs(observed: Observed) -> bool:
    """Whether the current attempt has been silent for too long."""
    return observed.report_age_seconds >= HEARTBEAT_LIMIT_SECONDS


def until_hanging(observed: Observed) -> float:
    """After how many seconds of further silence it would have been."""
    return max(HEARTBEAT_LIMIT_SECONDS - observed.report_age_seconds, 0.1)


def kill_hanging(observed: Observed, draft: Draft, attempt: Attempt) -> Next:
    """Records why, and kills."""
    draft.change_attempt(message=f"not heard of for {observed.report_age_seconds:.0f} s; killed")
    return Next(actions=(KillDriver(attempt.number),))


def end_attempt(observed: Observed, draft: Draft, attempt: Attempt) -> None:
    """Records how an attempt ended whose driver is gone."""
    record_progress(observed, draft)
    report = observed.report
    outcome = {"Finished": "Succeeded", "Stopped": "Stopped"}.get(report.phase if report else "", "Failed")
    # Where nobody saw the end, the last sign of life is the best that is known: waits are counted from there.
    seen = observed.driver.exit_status is not None
    ended = observed.now if seen else min(report.heartbeat if report else attempt.started_at, observed.now)
    message = "" if outcome != "Failed" else attempt.message or _why(observed)
    draft.change_attempt(outcome=outcome, finished_at=ended, message=message)
    draft.set(progress=draft.status.progress.model_copy(update={"eta": None, "rows_per_second": None, "executors": 0}))


def _why(observed: Observed) -> str:
    if observed.report is not None and observed.report.message:
        return observed.report.message
    return _exit_in_words(observed.driver)


def _exit_in_words(driver: DriverState) -> str:
    if driver.phase == "Absent":
        return "its driver is gone without a trace"
    if driver.exit_status is None:
        return "its driver ended while no controller was there"
    if driver.exit_status < 0:
        return f"its driver was killed by signal {-driver.exit_status}"
    return f"its driver exited with status {driver.exit_status} before all steps were committed"


def _react(observed: Observed, draft: Draft) -> None:
    last = draft.status.attempts[-1]
    if last.outcome != "Failed":
        return
    report, policy = observed.report, observed.backfill.spec.failure_policy
    if report is not None and report.reason == Reason.UNSUPPORTED_PROGRAM:
        draft.fail(_RUNNING, Reason.UNSUPPORTED_PROGRAM, last.message)
        return
    fruitless = _fruitless_attempts(draft.status.attempts, draft.status.progress.committed, last.generation)
    tail = "\n".join(observed.driver.log_tail[-_TAIL_LINES:])
    if fruitless >= policy.max_attempts:
        many = f"{fruitless} attempts in a row ended without committing a step. The last one"
        message = f"{many if fruitless > 1 else 'the attempt ended without committing a step'}: {last.message}\n{tail}"
        draft.fail(_RUNNING, Reason.ATTEMPTS_EXHAUSTED, message.strip())
        return
    wait = backoff(policy, fruitless)
    draft.set(next_attempt_at=(last.finished_at or observed.now) + wait)
    message = f"attempt {last.number} failed: {last.message}; the next one follows in {wait.total_seconds():.0f} s"
    draft.condition(_RUNNING, "Unknown", Reason.BACKING_OFF, message)


def _fruitless_attempts(attempts: tuple[Attempt, ...], committed: int, generation: int) -> int:
    """How many attempts of this generation failed in a row without a step between them, the last one included."""
    count = 0
    for attempt in reversed(attempts):
        if attempt.outcome != "Failed" or attempt.generation != generation or attempt.steps_at_start < committed:
            break
        count += 1
    return count


def backoff(policy: FailurePolicy, fruitless: int) -> timedelta:
    """The wait after so many attempts in a row without progress; after one with progress it begins anew."""
    doubled: timedelta = policy.backoff * 2 ** max(fruitless - 1, 0)
    return min(doubled, _LONGEST_BACKOFF)
