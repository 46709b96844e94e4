"""Suspending, and ending in good order when the controller itself is asked to end."""

from backfill.api.conditions import ConditionType, Reason
from backfill.controller.coordinate import record_progress, stop_assignment
from backfill.controller.decision import Action, CancelJob, Next, WriteAssignment
from backfill.controller.draft import Draft
from backfill.controller.jobs import PlanJob, VerifyJob
from backfill.controller.observed import Observed
from backfill.controller.phases.running import end_attempt, hangs, kill_hanging, until_hanging

_RUNNING = ConditionType.RUNNING


def stop(observed: Observed, draft: Draft) -> Next:
    """Lets the driver commit the step under way; what was committed is kept for the next attempt."""
    attempt = observed.attempt
    if attempt is not None and observed.driver.phase == "Running":
        record_progress(observed, draft)
        draft.condition(_RUNNING, "Unknown", Reason.SUSPENDING, "commits the step under way, then stops")
        if hangs(observed):
            return kill_hanging(observed, draft, attempt)
        last_word = stop_assignment(observed, attempt.number)
        actions: tuple[Action, ...] = () if last_word == observed.assignment else (WriteAssignment(last_word),)
        return Next(actions, requeue_seconds=until_hanging(observed))
    if attempt is not None:
        end_attempt(observed, draft, attempt)
    return _stopped(observed, draft)


def _stopped(observed: Observed, draft: Draft) -> Next:
    under_way = observed.job is not None and observed.job.phase == "Running"
    if under_way and observed.job is not None and not isinstance(observed.job.job, PlanJob | VerifyJob):
        return Next()
    running = draft.find(_RUNNING)
    if running is None or running.reason != Reason.ALL_STEPS_COMMITTED:
        message = "suspended" if observed.backfill.spec.suspend else "interrupted"
        draft.condition(_RUNNING, "False", Reason.SUSPENDED, f"{message}; everything committed so far is kept")
    return Next(actions=(CancelJob(),) if under_way else (), at_rest=True)
