"""The end of an attempt, and whether and when the next one follows."""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from backfill.api.conditions import ConditionType, Reason
from backfill.api.quantities import count
from backfill.api.redaction import redact
from backfill.api.status import Attempt, BackfillStatus
from backfill.api.validation import to_compare
from backfill.controller.decisions.actions import KillDriver, Next
from backfill.controller.decisions.job_retries import backoff
from backfill.controller.decisions.observed import Observed
from backfill.controller.decisions.run.assignment import record_progress
from backfill.controller.decisions.run.run_cost import spent
from backfill.controller.decisions.status_draft import Draft, Outcome
from backfill.controller.driver import QUOTA_EXCEEDED, DriverState
from backfill.protocol.split_assignment import FAILED_ON_ROWS

END_LIMIT = timedelta(minutes=2)
"""A driver that still runs this long after it was killed needs a person:
no other attempt may run beside it.
"""
LOOK_SECONDS = 10.0
"""Time between two observations of a driver that was killed."""
QUOTA_RETRY = timedelta(minutes=5)
"""Time between two attempts whose driver a quota keeps out. They do not count as failures."""
_RUNNING = ConditionType.RUNNING
_NOT_TRIED_AGAIN = (
    Reason.UNSUPPORTED_PROGRAM,
    Reason.PROGRAM_FAILED,
    Reason.BATCH_RESULTS_DIFFER,
    Reason.INVALID_INPUT,
    Reason.RESULT_LOST,
)
_VALUES = re.compile(r"'[^']*'|\"[^\"]*\"|\d+")
_ALIKE = 3
"""Attempts that fail alike before it is believed that another one would: with the default backoff,
a service whose answers the program does not understand has a minute and a half to come back.
"""
_TAIL_LINES = 12
_LAST_WORDS = "error: "
"""Prefix of the line in a driver's log with the error that kept it from reporting."""
_OUTCOMES: Final[Mapping[str, Outcome]] = {"Finished": "Succeeded", "Stopped": "Stopped"}
"""Outcome of an attempt by the last phase that its driver reported;
any other phase is a failure.
"""


def driver_of(number: int) -> str:
    """What runs an attempt, in words: attempts have numbers once there are several."""
    return "the driver" if number == 1 else f"attempt {number}"


def kill(observed: Observed, draft: Draft, attempt: Attempt, why: str, due: datetime) -> Next:
    """Kills the driver of an attempt, repeatedly until it is gone.

    ``due``: when it should have ended.
    """
    if not attempt.message:
        draft.change_attempt(message=why)
    if observed.now - due >= END_LIMIT:
        details = f" ({observed.driver.message})" if observed.driver.message else ""
        fix = (
            "If its node is lost, force-delete the driver pod: no other attempt starts until it"
            " is gone."
        )
        message = (
            f"the driver of attempt {attempt.number} is still running"
            f" after being killed{details}. {fix}"
        )
        draft.condition(_RUNNING, "Unknown", Reason.DRIVER_TERMINATION_STUCK, message)
    return Next(actions=(KillDriver(attempt.number),), requeue_seconds=LOOK_SECONDS)


def end_attempt(observed: Observed, draft: Draft, attempt: Attempt) -> None:
    """Records the end of an attempt whose driver has ended."""
    ended_at = _ended_at(observed, attempt)
    record_progress(observed, draft, ended_at)
    report = observed.report
    if report is None and attempt.stopping_since is not None:
        close_attempt(draft, "Stopped", ended_at, "stopped before it read anything")
        return
    missing = (
        observed.plan.steps - draft.status.progress.committed
        if report and report.phase == "Finished"
        else 0
    )
    draft.remove_condition(ConditionType.VALIDATED)  # it said that the driver compares
    outcome: Outcome = (
        "Failed" if missing else _OUTCOMES.get(report.phase if report else "", "Failed")
    )
    message = "" if outcome != "Failed" else attempt.message or _why(observed, missing)
    if outcome == "Succeeded" and (lacking := _not_handed_over(observed)):
        outcome, message = "Failed", lacking
    if outcome == "Succeeded" and (uncompared := _uncompared(observed, draft, attempt)):
        outcome, message = "Failed", uncompared
    if outcome == "Succeeded" and (undelivered := _undelivered(draft)):
        outcome, message = "Failed", undelivered
    close_attempt(draft, outcome, ended_at, message)


def _undelivered(draft: Draft) -> str:
    """What a driver should have delivered, and did not report; empty if nothing."""
    outputs = ", ".join(output.name for output in draft.status.delivering)
    return (
        f"its driver ended without delivering all rows of {outputs}; check that the image has the"
        " same version of backfill-operator as the operator"
        if outputs
        else ""
    )


def _uncompared(observed: Observed, draft: Draft, attempt: Attempt) -> str:
    """What a driver should have compared, and did not report; empty if nothing.

    A driver that was started with another spec could not know what is asked now.
    """
    backfill = observed.backfill.model_copy(update={"status": draft.status})
    if attempt.generation != backfill.metadata.generation:
        return ""
    outputs = ", ".join(output.name for output in to_compare(backfill))
    return (
        f"its driver ended without comparing the result of {outputs}; check that the image has the"
        " same version of backfill-operator as the operator"
        if outputs
        else ""
    )


def _not_handed_over(observed: Observed) -> str:
    """That a driver has not handed its state over, as it should have; empty if it has."""
    if observed.backfill.spec.hand_off is None:
        return ""
    report = observed.report.hand_off if observed.report is not None else None
    return (
        ""
        if report is not None and report.written
        else "its driver ended without handing over its state; check that the image has the same"
        " version of backfill-operator as the operator"
    )


def close_attempt(draft: Draft, outcome: Outcome, ended_at: datetime, message: str) -> None:
    """Records the end of an attempt, and that nothing is running."""
    told = redact(message)
    draft.change_attempt(
        outcome=outcome, finished_at=ended_at, message=told, unheard_since=None, stopping_since=None
    )
    executors = draft.status.progress.executors
    draft.set(cost=spent(draft.status.cost, draft.status.attempts[-1], executors, ended_at))
    idle = {
        "eta": None,
        "rows_per_second": None,
        "rate": "",
        "executors": 0,
        "batch_steps": 0,
        "batch_tasks_percent": None,
    }
    draft.set(progress=draft.status.progress.model_copy(update=idle))


def _ended_at(observed: Observed, attempt: Attempt) -> datetime:
    """When the attempt ended; the backoff starts then.

    If the end was not observed, it is the time of the last heartbeat.
    """
    driver, report = observed.driver, observed.report
    if driver.phase == "Exited" and driver.since is not None:
        return min(driver.since, observed.now)
    if driver.exit_status is not None:
        return observed.now
    return min(report.heartbeat if report else attempt.started_at, observed.now)


def _why(observed: Observed, missing: int) -> str:
    if missing:
        return (
            "its driver reported that it had finished, but committed only"
            f" {observed.plan.steps - missing:,} of {count(observed.plan.steps, 'step')}"
        )
    if (
        observed.report is not None
        and observed.report.phase == "Failed"
        and observed.report.message
    ):
        return observed.report.message
    return _exit_in_words(observed.driver)


def _exit_in_words(driver: DriverState) -> str:
    if driver.message:
        return f"{driver.reason}: {driver.message}" if driver.reason else driver.message
    if driver.phase == "Absent":
        return "its driver was not found"
    if driver.exit_status is None:
        return (
            f"its driver ended: {driver.reason}"
            if driver.reason
            else "its driver ended while no controller was running"
        )
    if driver.exit_status < 0:
        return f"its driver was killed by signal {-driver.exit_status}"
    last_words = next(
        (line for line in reversed(driver.log_tail) if line.startswith(_LAST_WORDS)), ""
    )
    why = f": {last_words.removeprefix(_LAST_WORDS)}" if last_words else ""
    return (
        f"its driver exited with status {driver.exit_status} before all steps were committed{why}"
    )


def react(observed: Observed, draft: Draft) -> None:
    """Schedules the next attempt after one that failed.

    Fails the Backfill if no attempt is left, or if another one would fail as well.
    """
    last = draft.status.attempts[-1]
    if last.outcome != "Failed":
        return
    report, policy = observed.report, observed.backfill.spec.failure_policy
    if report is None and observed.driver.reason == QUOTA_EXCEEDED:
        _wait_for_quota(observed, draft, last)
        return
    if report is not None and report.reason in _NOT_TRIED_AGAIN:
        draft.fail(_RUNNING, Reason(report.reason), last.message)
        return
    fruitless = _fruitless_attempts(draft.status.attempts, draft.status.advance, last.generation)
    draft.change_attempt(fruitless=fruitless)
    alike = {_kind(attempt.message) for attempt in draft.status.attempts[-_ALIKE:]}
    repeats = fruitless >= _ALIKE and len(alike) == 1
    if report is not None and report.reason == FAILED_ON_ROWS and repeats:
        message = f"{_ALIKE} attempts in a row failed in the same way: {last.message}"
        draft.fail(_RUNNING, Reason.PROGRAM_FAILED, message)
        return
    tail = "\n".join(observed.driver.log_tail[-_TAIL_LINES:])
    if fruitless >= policy.max_attempts:
        many = f"{fruitless} attempts in a row ended without committing a step"
        one = "the attempt ended without committing a step"
        if draft.status.delivering:  # what failed is in the message, with its lines
            many, one = f"{fruitless} attempts in a row failed to deliver a batch", "not delivered"
            tail = "correct the cause, or list the batch in publish.deliver.skip, and retry"
        message = f"{f'{many}. Last failure' if fruitless > 1 else one}: {last.message}\n{tail}"
        draft.fail(_RUNNING, Reason.ATTEMPTS_EXHAUSTED, message.strip())
        return
    wait = backoff(policy, fruitless)
    draft.set(next_attempt_at=(last.finished_at or observed.now) + wait)
    message = (
        f"attempt {last.number} failed: {last.message}; next attempt in {wait.total_seconds():.0f}"
        " s"
    )
    draft.condition(_RUNNING, "Unknown", Reason.BACKING_OFF, message)


def _kind(message: str) -> str:
    """An error without values: attempts may read other rows first."""
    return _VALUES.sub("", message)


def _wait_for_quota(observed: Observed, draft: Draft, last: Attempt) -> None:
    """An attempt whose driver was never created has not failed. Nothing says when there is room."""
    draft.change_attempt(outcome="Stopped")
    draft.set(next_attempt_at=(last.finished_at or observed.now) + QUOTA_RETRY)
    message = (
        f"attempt {last.number} could not start its driver: {last.message}\nTried again every"
        f" {QUOTA_RETRY.total_seconds() / 60:.0f} minutes until there is room."
    )
    draft.condition(_RUNNING, "Unknown", Reason.DRIVER_START_BLOCKED, message)


def _fruitless_attempts(attempts: tuple[Attempt, ...], advance: int, generation: int) -> int:
    """Number of consecutive attempts that failed without any advance, including the last one.

    Only attempts of the current generation count.
    """
    count = 0
    for attempt in reversed(attempts):
        if (
            attempt.outcome != "Failed"
            or attempt.generation != generation
            or attempt.steps_at_start < advance
        ):
            break
        if attempt.fruitless:
            return count + attempt.fruitless  # it counted those that are not kept any more as well
        count += 1
    return count


def seconds_until_attempt(status: BackfillStatus, generation: int, now: datetime) -> float:
    """Time to wait before the next attempt; none once the spec has changed since the last one."""
    due = status.next_attempt_at
    if due is None or (status.attempts and status.attempts[-1].generation != generation):
        return 0
    return max((due - now).total_seconds(), 0)
