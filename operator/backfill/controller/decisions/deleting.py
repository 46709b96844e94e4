"""Deletion of a Backfill: kill the driver, then remove everything that the Backfill made."""

from datetime import datetime, timedelta

from backfill.api.backfill import Backfill
from backfill.api.conditions import ConditionType, Reason
from backfill.api.errors import NowhereToRun
from backfill.api.quantities import format_duration
from backfill.controller.decisions.actions import (
    CancelJob,
    KillDriver,
    Next,
    RemoveAssignment,
    RemoveResource,
)
from backfill.controller.decisions.job_retries import (
    note_failure,
    say_wait,
    seconds_until_retry,
    start,
)
from backfill.controller.decisions.observed import Observed
from backfill.controller.decisions.run.attempts import LOOK_SECONDS
from backfill.controller.decisions.status_draft import Draft
from backfill.controller.jobs.any_job import ITS_TURN
from backfill.controller.jobs.kinds.discard import DiscardJob
from backfill.controller.jobs.kinds.publish import PublishJob
from backfill.controller.jobs.kinds.undo import UndoJob
from backfill.protocol.branches import result_branch

REMOVAL_LIMIT = timedelta(minutes=5)
"""Time after which the deletion of a Backfill completes even if something could not be removed, so
that a namespace does not wait for a catalog that no longer exists. The condition Succeeded, and
with it an Event, names what is left.
"""
WORKING_LIMIT = timedelta(hours=1)
"""The same while its cleanup is at work, or waits for the pods of others."""
_LIMIT = format_duration(REMOVAL_LIMIT)
_SUCCEEDED = ConditionType.SUCCEEDED


def remove(observed: Observed, draft: Draft) -> Next:
    """Removes everything that the Backfill made.

    Branches, plan and checkpoints are removed first and the resource last, so that a removal that
    fails midway is retried.
    """
    if draft.status.workspace is None or draft.status.discarded_at is not None:
        return _without_driver(observed, draft) or Next(actions=(RemoveResource(),), at_rest=True)
    if _overdue(observed):
        return _let_go(observed, draft)
    following = (
        _without_driver(observed, draft)
        or _without_assignment(observed)
        or _discard(observed, draft)
    )
    return _within_limit(observed, following)


def _without_driver(observed: Observed, draft: Draft) -> Next | None:
    """Kills the driver; None once there is none."""
    attempt = observed.attempt
    if attempt is None or not observed.driver.alive or _overdue(observed):
        return None
    draft.condition(
        _SUCCEEDED,
        "Unknown",
        Reason.REMOVING,
        "stopping the driver, then removing everything except published results",
    )
    # what an earlier cleanup has removed may be there again
    actions = (CancelJob(), KillDriver(attempt.number))
    return Next(actions=actions, requeue_seconds=LOOK_SECONDS)


def _without_assignment(observed: Observed) -> Next | None:
    """Removes the assignment; None once there is none.

    A Spark operator that lags may still submit the child that was deleted. That driver would write
    again what the cleanup removes, even after it, until the assignment is collected as garbage. One
    that has found its assignment before is seen by the next reconcile.
    """
    if observed.assignment is None:
        return None
    return Next(actions=(RemoveAssignment(),), requeue_seconds=0)


def _discard(observed: Observed, draft: Draft) -> Next:
    state, job = observed.job, DiscardJob.of(observed.backfill)
    if draft.status.retry is None or draft.status.retry.job != "discard":
        draft.condition(
            _SUCCEEDED, "Unknown", Reason.REMOVING, "removing everything except published results"
        )
        say_wait(observed, draft, job, _SUCCEEDED)
    if (
        state is not None
        and state.phase == "Running"
        and isinstance(state.job, PublishJob | UndoJob)
    ):
        return Next()  # what it commits must be over before branches go
    if state is None or state.job != job:
        return start(observed, draft, job)
    if state.phase == "Running":
        stuck = state.blocked and _never_planned(observed.backfill)
        if stuck and observed.policy.abandons_removals:
            return _let_go(observed, draft, f", while it waited for {state.waits_for}")
        return Next()
    if state.phase == "Done":
        return Next(actions=(RemoveResource(),), at_rest=True)
    # what kept it from being planned keeps it from being cleaned up
    planned = draft.find(ConditionType.PLANNED)
    kept = planned is None or planned.reason != Reason.PLANNING
    hopeless = (kept and _never_planned(observed.backfill)) or isinstance(state.error, NowhereToRun)
    if observed.policy.abandons_removals and hopeless:
        return _let_go(observed, draft, f" ({state.error})")
    draft.condition(_SUCCEEDED, "False", Reason.REMOVAL_FAILED, _failure(observed, state.error))
    if not observed.policy.patient:
        return Next(at_rest=True)
    note_failure(observed, draft, job, state.error)
    return Next(actions=(CancelJob(),), requeue_seconds=seconds_until_retry(observed, draft, job))


def _failure(observed: Observed, error: Exception | None) -> str:
    message = f"cleanup failed: {error}"
    return (
        message
        if not observed.policy.abandons_removals
        else f"{message}\nRetrying until {_LIMIT} after the deletion was requested."
    )


def _never_planned(backfill: Backfill) -> bool:
    return backfill.status.plan_id is None and not backfill.status.attempts


def _let_go(observed: Observed, draft: Draft, cause: str = "") -> Next:
    """Completes the deletion, and names what is left so that a person can remove it."""
    status, retry = draft.status, draft.status.retry
    branch = result_branch(observed.backfill.metadata.namespace, observed.backfill.metadata.name)
    branches = [f"branch {output.branch or branch} of {output.table}" for output in status.outputs]
    published = {output.name for output in status.outputs if output.is_published}
    exports = [
        f"unfinished files in {output.destination}"
        for output in observed.backfill.spec.outputs
        if output.publish.location is not None and output.name not in published
    ]
    tags = [f"tags of snapshots of {table}" for table in status.tagged_tables]
    left = ", ".join((*branches, *tags, *exports, f"plans and checkpoints in {status.workspace}"))
    if not cause:
        last = f" ({retry.message})" if retry is not None and retry.job == "discard" else ""
        cause = f", {_LIMIT} after the deletion was requested{last}"
    message = (
        f"deleted before cleanup finished{cause}."
        f" Possibly left behind: {left}. Remove these by hand."
    )
    draft.condition(_SUCCEEDED, "False", Reason.CLEANUP_INCOMPLETE, message)
    # a driver that is left is deleted with its owner
    return Next(actions=(RemoveResource(),), at_rest=True)


def removal_overdue(backfill: Backfill, now: datetime, limit: timedelta = REMOVAL_LIMIT) -> bool:
    """Whether the time limit of the deletion has passed.

    It then completes without waiting for anything more.
    """
    asked = backfill.metadata.deletion_timestamp
    return asked is not None and now >= asked + limit


def _overdue(observed: Observed) -> bool:
    """Whether to complete the deletion although something is left."""
    return observed.policy.abandons_removals and removal_overdue(
        observed.backfill, observed.now, _limit(observed)
    )


def _limit(observed: Observed) -> timedelta:
    """The longer one while the cleanup works, or waits for the pods of other Backfills only."""
    state = observed.job
    works = (
        state is not None
        and isinstance(state.job, DiscardJob)
        and state.phase == "Running"
        and state.waits_for in ("", ITS_TURN)
    )
    return WORKING_LIMIT if works else REMOVAL_LIMIT


def _within_limit(observed: Observed, following: Next) -> Next:
    """Reconciles again at the time limit at the latest."""
    asked = observed.backfill.metadata.deletion_timestamp
    if not observed.policy.abandons_removals or asked is None or following.at_rest:
        return following
    left = max((asked + _limit(observed) - observed.now).total_seconds(), 0.1)
    requeue = left if following.requeue_seconds is None else min(following.requeue_seconds, left)
    return Next(following.actions, requeue, following.at_rest)
