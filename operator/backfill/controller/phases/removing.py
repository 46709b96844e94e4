"""Deletion: end the driver, then remove everything the Backfill made."""

from backfill.api.conditions import ConditionType, Reason
from backfill.controller.decision import KillDriver, Next, RemoveResource, StartJob
from backfill.controller.draft import Draft
from backfill.controller.jobs import DiscardJob, PublishJob
from backfill.controller.observed import Observed


def remove(observed: Observed, draft: Draft) -> Next:
    """Branches, plan and checkpoints first, the resource last: what fails half way is tried again."""
    attempt, state = observed.attempt, observed.job
    if attempt is not None and observed.driver.phase == "Running":
        return Next(actions=(KillDriver(attempt.number),))
    if state is not None and state.phase == "Running" and isinstance(state.job, PublishJob):
        return Next()  # what it commits must be over before branches go
    job = DiscardJob.of(observed.backfill)
    if state is None or state.job != job:
        draft.condition(ConditionType.SUCCEEDED, "Unknown", Reason.REMOVING, "removes what it made")
        return Next(actions=(StartJob(job),))
    if state.phase == "Running":
        return Next()
    if state.phase == "Failed":
        draft.condition(ConditionType.SUCCEEDED, "False", Reason.REMOVAL_FAILED, f"can not be removed: {state.error}")
        return Next(at_rest=True)
    return Next(actions=(RemoveResource(),), at_rest=True)
