"""Jobs that a phase depends on: run once, and retried if that may help."""

from datetime import timedelta

from backfill.api.conditions import ConditionType, Reason
from backfill.api.errors import BadInput, CanNotPublish, PlanCorrupt, ServerUnavailable
from backfill.api.quantities import format_time
from backfill.api.spec import FailurePolicy
from backfill.api.status import JobRetry
from backfill.controller.decisions.actions import CancelJob, Next, StartJob
from backfill.controller.decisions.observed import Observed
from backfill.controller.decisions.status_draft import Draft
from backfill.controller.jobs.any_job import Job, JobState, job_kind

_LONGEST_BACKOFF = timedelta(minutes=10)
PATIENCE = timedelta(minutes=30)
"""How long a job that fails for a temporary reason is retried,
from its first failure, before the Backfill fails.
"""
FIRST_RETRY = timedelta(seconds=10)
"""Delay after the first failure. It doubles with each further one."""
LONGEST_RETRY = timedelta(minutes=5)
"""Maximum delay between two tries."""
_MOST_MESSAGE = 1_000


def work(observed: Observed, draft: Draft, job: Job, kind: ConditionType) -> Next | JobState:
    """Runs a job: what to wait for, or its result. Failures are reported in condition ``kind``."""
    state = observed.job
    if state is not None and state.job == job and state.phase == "Failed":
        later = try_again(observed, draft, job, state.error, kind)
        if later is not None:
            return later
    if state is not None and state.job == job and state.phase != "Running":
        draft.set(retry=None)
        return state
    _say_retry(observed, draft, job, kind)
    say_wait(observed, draft, job, kind)
    return start(observed, draft, job)


def try_again(
    observed: Observed, draft: Draft, job: Job, error: Exception | None, kind: ConditionType
) -> Next | None:
    """Tries a job that failed again later; None if that does not help, or was done long enough."""
    if not _worth_another_try(observed, job, error):
        return None
    note_failure(observed, draft, job, error)
    _say_retry(observed, draft, job, kind)
    return Next(actions=(CancelJob(),), requeue_seconds=seconds_until_retry(observed, draft, job))


def start(observed: Observed, draft: Draft, job: Job) -> Next:
    """Starts a job unless it is in progress, or has failed and is not due yet."""
    if observed.job is not None and observed.job.job == job:
        return Next()
    wait = seconds_until_retry(observed, draft, job)
    return Next(requeue_seconds=wait) if wait > 0 else Next(actions=(StartJob(job),))


def say_wait(observed: Observed, draft: Draft, job: Job, kind: ConditionType) -> None:
    """Adds to a condition why a job that was started is still waiting.

    This decision must have set the condition.
    """
    state, said = observed.job, draft.find(kind)
    if state is not None and state.job == job and state.waits_for and said is not None:
        shown = state.blocked and kind in (ConditionType.PLANNED, ConditionType.RUNNING)
        draft.condition(
            kind,
            said.status,
            Reason.JOB_POD_BLOCKED if shown else said.reason,
            f"{said.message.rstrip('.')}; waiting for {state.waits_for}",
        )


def note_failure(observed: Observed, draft: Draft, job: Job, error: Exception | None) -> None:
    """Records another failure of a job, and when it is retried."""
    last = _retry_of(draft, job)
    failures = last.failures + 1 if last else 1
    if observed.policy.patient:
        wait = min(FIRST_RETRY * 2 ** min(failures - 1, 10), LONGEST_RETRY)
    else:
        wait = backoff(observed.backfill.spec.failure_policy, failures)
    message = str(error)[:_MOST_MESSAGE]
    since = last.since if last else observed.now
    next_at = observed.now + wait
    draft.set(
        retry=JobRetry(
            job=job_kind(type(job)),
            failures=failures,
            since=since,
            next_at=next_at,
            message=message,
        )
    )


def seconds_until_retry(observed: Observed, draft: Draft, job: Job) -> float:
    """Seconds until a job that failed is due; zero or less if it is due now."""
    retry = _retry_of(draft, job)
    return (retry.next_at - observed.now).total_seconds() if retry else 0.0


def _say_retry(observed: Observed, draft: Draft, job: Job, kind: ConditionType) -> None:
    """Reports the last failure until the job has succeeded."""
    retry = _retry_of(draft, job)
    if retry is None:
        return
    until, next_at = (
        format_time(at.replace(microsecond=0)) for at in (retry.since + PATIENCE, retry.next_at)
    )
    if observed.policy.patient:
        message = f"{retry.message}\nRetrying until {until}; next attempt at {next_at}."
    else:
        most = observed.backfill.spec.failure_policy.max_attempts
        tries = f"attempt {retry.failures} of {most} failed, the next one is at {next_at}"
        message = f"{tries}: {retry.message}"
    draft.condition(kind, "Unknown", Reason.TRYING_AGAIN, message)


def _worth_another_try(observed: Observed, job: Job, error: Exception | None) -> bool:
    lasts = isinstance(error, CanNotPublish | PlanCorrupt) or (
        isinstance(error, BadInput) and not error.may_pass
    )
    retry = observed.backfill.status.retry
    if retry is not None and retry.job != job_kind(type(job)):
        retry = None
    if observed.policy.patient:
        return not lasts and (retry is None or observed.now - retry.since < PATIENCE)
    failures = retry.failures + 1 if retry is not None else 1
    return _unavailable(error) and failures < observed.backfill.spec.failure_policy.max_attempts


def _unavailable(error: Exception | None) -> bool:
    return isinstance(error, ServerUnavailable) or (
        isinstance(error, BadInput) and error.unavailable
    )


def _retry_of(draft: Draft, job: Job) -> JobRetry | None:
    retry = draft.status.retry
    return retry if retry is not None and retry.job == job_kind(type(job)) else None


def backoff(policy: FailurePolicy, fruitless: int) -> timedelta:
    """Delay before the next attempt, by the number of consecutive attempts without progress."""
    doubled: timedelta = policy.backoff * 2 ** max(fruitless - 1, 0)
    return min(doubled, _LONGEST_BACKOFF)
