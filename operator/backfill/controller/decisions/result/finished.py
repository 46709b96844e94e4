"""A Backfill that has succeeded or failed: only what it made remains to be removed, after
``ttlAfterFinished``. The plan of one that was refused before it read anything is removed at once,
so that its spec can be corrected.
"""

from datetime import datetime, timedelta

from backfill.api.backfill import Backfill
from backfill.api.conditions import ConditionType, Reason, find_condition
from backfill.api.status import BackfillStatus, Progress
from backfill.controller.decisions.actions import CancelJob, KillDriver, Next
from backfill.controller.decisions.job_retries import note_failure, seconds_until_retry, start
from backfill.controller.decisions.observed import Observed
from backfill.controller.decisions.run.attempts import LOOK_SECONDS, close_attempt
from backfill.controller.decisions.status_draft import Draft
from backfill.controller.jobs.kinds.discard import DiscardJob

REMOVAL_PATIENCE = timedelta(days=1)
"""How long a removal after ``ttlAfterFinished`` is retried.
Deleting the Backfill tries once more.
"""
_LONGEST_SLEEP_SECONDS = 3600.0
_REFUSALS = (Reason.UNSUPPORTED_PROGRAM, Reason.INVALID_INPUT, Reason.PROGRAM_FAILED)
"""Reasons that last until spec, tables or program are corrected."""


def rest(observed: Observed, draft: Draft) -> Next:
    """Removes what has expired.

    Before that, kills a driver that is still running, as after an attempt during which the plan was
    lost.
    """
    _note_generation(draft)
    attempt = observed.attempt
    if attempt is not None and observed.driver.alive:
        return Next(actions=(KillDriver(attempt.number),), requeue_seconds=LOOK_SECONDS)
    if attempt is not None:
        close_attempt(
            draft, "Failed", observed.now, attempt.message or "the backfill failed meanwhile"
        )
    if _refused_unread(draft.status):
        return _unplan(observed, draft)
    due = expires_at(observed.backfill)
    if due is None:
        return Next(at_rest=True)
    if observed.now < due:
        return Next(
            at_rest=True,
            requeue_seconds=min((due - observed.now).total_seconds(), _LONGEST_SLEEP_SECONDS),
        )
    return _discard(observed, draft)


def expires_at(backfill: Backfill) -> datetime | None:
    """When to remove what a finished Backfill made.

    None if it was removed already, or is removed only together with the Backfill.
    """
    status, keep = backfill.status, backfill.spec.ttl_after_finished
    if keep is None or status.finished_at is None or status.discarded_at is not None:
        return None
    return status.finished_at + keep


def _note_generation(draft: Draft) -> None:
    """Records that a change of the spec was observed although nothing follows from it."""
    outcome = draft.find(ConditionType.SUCCEEDED)
    if outcome is not None:
        draft.condition(outcome.type, outcome.status, outcome.reason, outcome.message)


def _discard(observed: Observed, draft: Draft) -> Next:
    """Removes branches, plan and checkpoints.

    Published rows, the resource and its status are kept.
    """
    removing = _remove(observed, draft)
    if removing is not None:
        return removing
    outputs = tuple(output.model_copy(update={"branch": None}) for output in draft.status.outputs)
    draft.set(discarded_at=observed.now, outputs=outputs, retry=None)
    return Next(at_rest=True)


def _refused_unread(status: BackfillStatus) -> bool:
    """Whether a Backfill has a plan, but was refused before it read anything."""
    outcome = find_condition(status.conditions, ConditionType.SUCCEEDED)
    return (
        status.plan_id is not None
        and status.discarded_at is None
        and outcome is not None
        and outcome.status == "False"
        and outcome.reason in _REFUSALS
        and (status.progress.committed, status.progress.rows_read) == (0, 0)
        and status.result is None
    )


def _unplan(observed: Observed, draft: Draft) -> Next:
    """Removes the plan, and what else was made for it. Without a plan, the spec may change."""
    removing = _remove(observed, draft)
    if removing is not None:
        return removing
    draft.set(
        plan_id=None,
        plan_digest="",
        tagged_tables=(),
        progress=Progress(),
        watermark=None,
        sources=(),
        outputs=(),
        hand_off=None,
        retry=None,
    )
    message = "removed, because nothing was read: the spec may be corrected, and is planned again"
    draft.condition(ConditionType.PLANNED, "False", Reason.PLANNING_FAILED, message)
    return Next(actions=(CancelJob(),), at_rest=True)


def _remove(observed: Observed, draft: Draft) -> Next | None:
    """Has everything removed that was made and not published; None once that is done."""
    retry = draft.status.retry
    if retry is not None and observed.now - retry.since >= REMOVAL_PATIENCE:
        return Next(at_rest=True)
    state, job = observed.job, DiscardJob.of(observed.backfill)
    if state is None or state.job != job or state.phase == "Running":
        return start(observed, draft, job)
    if state.phase == "Done":
        return None
    if not observed.policy.patient:
        return Next(at_rest=True)
    note_failure(observed, draft, job, state.error)
    return Next(actions=(CancelJob(),), requeue_seconds=seconds_until_retry(observed, draft, job))
