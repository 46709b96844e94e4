"""What to do next with a Backfill. Pure: the same observation gives the same decision."""

import hashlib
import json
from collections.abc import Callable

from backfill.api.approval import undoing
from backfill.api.backfill import Backfill
from backfill.api.conditions import ConditionType, Reason, find_condition
from backfill.api.spec import BackfillSpec
from backfill.api.validation import to_compare
from backfill.controller.decisions.actions import Decision, Next
from backfill.controller.decisions.deleting import remove
from backfill.controller.decisions.human_decisions import request_to_undo
from backfill.controller.decisions.observed import Observed
from backfill.controller.decisions.plan.planning import plan, search_again
from backfill.controller.decisions.readiness import summarise
from backfill.controller.decisions.result.finished import rest
from backfill.controller.decisions.result.publishing import publish
from backfill.controller.decisions.result.staged_rows import settle
from backfill.controller.decisions.result.undoing import undo
from backfill.controller.decisions.run.running import run
from backfill.controller.decisions.run.suspending import stop
from backfill.controller.decisions.status_draft import Draft

_Phase = Callable[[Observed, Draft], Next]


def decide(observed: Observed) -> Decision:
    """The status to record and the actions to take, for an observation."""
    draft, phase = Draft(observed), _phase(observed)
    generation = observed.backfill.metadata.generation
    if phase not in (rest, remove, undo):
        _begin(observed, draft)
    draft.set(observed_generation=generation)
    following = phase(observed, draft)
    if draft.status != observed.backfill.status:
        summarise(draft)  # from what is recorded it follows already
    return Decision(draft.status, following)


def finished(backfill: Backfill) -> bool:
    """Whether a Backfill has succeeded or failed.

    A failed Backfill is retried when its spec changes, by ``retryNonce`` or by a correction. A
    change of ``ttlAfterFinished`` does not count, and once that time has passed there is nothing
    left to continue with.
    """
    status = backfill.status
    outcome = find_condition(status.conditions, ConditionType.SUCCEEDED)
    if (
        outcome is None
        or outcome.status == "Unknown"
        or outcome.reason in (Reason.REMOVAL_FAILED, Reason.CLEANUP_INCOMPLETE)
    ):
        return False
    if outcome.status == "True" or status.discarded_at is not None:
        return True
    if outcome.reason in (Reason.REJECTED, Reason.UNDONE):
        return True  # what a person has decided is final
    if undoing(status) is not None:
        return True  # a retry waits until it is known what is still published
    same_generation = outcome.observed_generation >= backfill.metadata.generation
    return same_generation or status.spec_digest == digest(backfill.spec)


def digest(spec: BackfillSpec) -> str:
    """Digest of the part of the spec whose change retries a failed Backfill.

    That is all of it except ``ttlAfterFinished``.
    """
    wanted = spec.model_copy(update={"ttl_after_finished": None}).to_manifest()
    return hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()[:16]


def _begin(observed: Observed, draft: Draft) -> None:
    status, backfill = draft.status, observed.backfill
    if status.observed_generation != backfill.metadata.generation or not status.spec_digest:
        draft.set(spec_digest=digest(backfill.spec), retry=None, input_wait=None)
    elif status.plan_id is None and status.resolved is not None:
        draft.set(spec_digest=digest(backfill.spec))  # it is complete now
    if status.plan_id is None and status.finished_at is not None:  # it was refused, and begins anew
        draft.remove_condition(ConditionType.RUNNING)
        draft.set(started_at=None)
    draft.set(started_at=draft.status.started_at or observed.now, finished_at=None)
    draft.condition(ConditionType.SUCCEEDED, "Unknown", Reason.IN_PROGRESS, "in progress")


def _phase(observed: Observed) -> _Phase:
    status = observed.backfill.status
    if observed.backfill.metadata.deletion_timestamp is not None:
        return remove
    if finished(observed.backfill):
        return undo if request_to_undo(observed) is not None else rest
    if status.plan_id is not None and observed.header is None:
        return plan  # without it nothing is known of a run, not even where to stop
    if observed.shutting_down or (observed.backfill.spec.suspend and status.plan_id is not None):
        # a suspended Backfill is planned all the same: that starts nothing,
        # and shows what would be read
        return stop
    if status.plan_id is None:
        begins_anew = status.finished_at is not None
        return search_again if begins_anew and status.resolved is not None else plan
    if not status.attempts or status.attempts[-1].outcome != "Succeeded":
        return run
    if to_compare(observed.backfill) or status.delivering:
        return run  # another attempt, which finds everything committed, and compares or delivers
    running = find_condition(status.conditions, ConditionType.RUNNING)
    return publish if running and running.reason == Reason.ALL_STEPS_COMMITTED else settle
