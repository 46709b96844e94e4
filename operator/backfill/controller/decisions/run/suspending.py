"""Suspending a Backfill, and stopping the driver when the controller shuts down."""

from datetime import timedelta

from backfill.api.conditions import ConditionType, Reason
from backfill.api.quantities import format_duration
from backfill.api.status import Attempt
from backfill.controller.decisions.actions import Action, CancelJob, Next, WriteAssignment
from backfill.controller.decisions.observed import Observed
from backfill.controller.decisions.run.assignment import record_progress, stop_assignment
from backfill.controller.decisions.run.attempts import end_attempt, kill
from backfill.controller.decisions.run.silent_driver import until_silent, watch_silence
from backfill.controller.decisions.status_draft import Draft
from backfill.controller.jobs.kinds.extend import ExtendJob
from backfill.controller.jobs.kinds.make_plan import PlanJob
from backfill.controller.jobs.kinds.verify import VerifyJob

STOP_LIMIT = timedelta(minutes=15)
"""Time after which a driver that was asked to stop and still runs is killed. Steps it has not
committed are read again.
"""
_RUNNING = ConditionType.RUNNING


def stop(observed: Observed, draft: Draft) -> Next:
    """Lets the driver commit the steps in progress; the next attempt continues after them."""
    attempt = observed.attempt
    if attempt is not None and observed.driver.alive:
        said = Reason.SUSPENDING, "committing the steps in progress, then stopping"
        return stop_driver(observed, draft, attempt, said)
    if attempt is not None:
        stopping = attempt.model_copy(
            update={"stopping_since": attempt.stopping_since or observed.now}
        )
        end_attempt(observed, draft, stopping)
    return _stopped(observed, draft)


def stop_driver(
    observed: Observed, draft: Draft, attempt: Attempt, said: tuple[Reason, str]
) -> Next:
    """Asks the driver to stop after what is under way, and kills it if it does not.

    ``said`` is what the condition says meanwhile.
    """
    record_progress(observed, draft)
    since = attempt.stopping_since or observed.now
    draft.change_attempt(stopping_since=since)
    if observed.driver.phase == "Pending":
        draft.condition(_RUNNING, "Unknown", Reason.SUSPENDING, "cancelling the pending driver")
        return kill(observed, draft, attempt, "stopped before it started", since)
    draft.condition(_RUNNING, "Unknown", *said)
    silent = watch_silence(observed, draft, attempt)
    if silent is not None:
        return silent
    if observed.now - since >= STOP_LIMIT:
        return kill(
            observed,
            draft,
            attempt,
            f"did not stop within {format_duration(STOP_LIMIT)}; killed",
            since + STOP_LIMIT,
        )
    last_word = stop_assignment(observed, attempt.number)
    actions: tuple[Action, ...] = (
        () if last_word == observed.assignment else (WriteAssignment(last_word),)
    )
    return Next(
        actions,
        requeue_seconds=min(
            until_silent(observed), (since + STOP_LIMIT - observed.now).total_seconds()
        ),
    )


def _stopped(observed: Observed, draft: Draft) -> Next:
    job = observed.job
    prepares = job is not None and isinstance(job.job, PlanJob | ExtendJob | VerifyJob)
    if job is not None and job.phase == "Running" and not prepares:
        return Next()
    running = draft.find(_RUNNING)
    committed = running is not None and running.reason == Reason.ALL_STEPS_COMMITTED
    message = _in_words(observed, draft)
    if not committed:
        draft.condition(_RUNNING, "False", Reason.SUSPENDED, message)
    elif not observed.policy.screen:
        draft.condition(ConditionType.PUBLISHED, "Unknown", Reason.SUSPENDED, message)
    # its result may no longer be true when the Backfill is resumed
    return Next(actions=(CancelJob(),) if prepares else (), at_rest=True)


def _in_words(observed: Observed, draft: Draft) -> str:
    backfill = observed.backfill
    if not backfill.spec.suspend:
        return "interrupted; everything committed so far is kept"
    kept = (
        "everything committed so far is kept"
        if backfill.status.attempts
        else "the plan is ready, and no attempt has started"
    )
    resume = (
        ""
        if observed.policy.screen
        else f". Resume with: {draft.kubectl('resume')} (it sets spec.suspend to false)"
    )
    return f"suspended; {kept}{resume}"
