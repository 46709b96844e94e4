"""What a person can do about a Backfill of a cluster."""

from datetime import datetime, timedelta

from backfill.api.backfill import Backfill
from backfill.api.conditions import Condition, ConditionType, Reason, find_condition
from backfill.api.quantities import parse_time
from backfill.cli.cluster.place import Place
from backfill.cli.ending import BAD_INPUT, SUCCEEDED, exit_status
from backfill.cli.view import has_failed

_TAKEN_UP_WITHIN = timedelta(seconds=30)


def at_rest(backfill: Backfill) -> bool:
    """Whether nothing more happens until a person does something, by what the operator says of this generation."""
    if backfill.metadata.deletion_timestamp is not None or backfill.status.observed_generation < backfill.metadata.generation:
        return False
    outcome = find_condition(backfill.status.conditions, ConditionType.SUCCEEDED)
    if outcome is not None and outcome.status != "Unknown":
        return True
    return _waits_for_approval(backfill) or _stands_still(backfill)


def next_step(backfill: Backfill, place: Place, now: datetime) -> str:
    """What to do next, with the command; empty where there is nothing to be done."""
    name = backfill.metadata.name
    if backfill.metadata.deletion_timestamp is not None:
        return _of_a_removal(backfill, place)
    if exit_status(backfill) == SUCCEEDED:
        return ""
    if backfill.status.observed_generation == 0:
        return _of_a_new_one(backfill, now)
    if has_failed(backfill):
        return _of_a_failure(backfill, place)
    if backfill.spec.suspend:
        return f"go on with: {place.command('resume', name)}"
    if _waits_for_approval(backfill):
        return f"look at the result, then publish it with: {place.command('approve', name)}"
    running = find_condition(backfill.status.conditions, ConditionType.RUNNING)
    if running is not None and running.reason == Reason.BACKING_OFF:
        return f"see why with: {place.command('logs', name)}"
    return ""


def removal(backfill: Backfill) -> Condition | None:
    """How far the removal of what it made is, as far as the operator has said."""
    outcome = find_condition(backfill.status.conditions, ConditionType.SUCCEEDED)
    return outcome if outcome is not None and outcome.reason in (Reason.REMOVING, Reason.REMOVAL_FAILED) else None


def _of_a_removal(backfill: Backfill, place: Place) -> str:
    outcome = removal(backfill)
    if outcome is None or outcome.reason != Reason.REMOVAL_FAILED:
        return "it is being removed"
    return (
        f"what it made can not be removed; when the cause is gone it is, see: {place.command('status', backfill.metadata.name)}"
    )


def _of_a_new_one(backfill: Backfill, now: datetime) -> str:
    created = (backfill.metadata.model_extra or {}).get("creationTimestamp")
    if created is None or now - parse_time(created) < _TAKEN_UP_WITHIN:
        return ""
    return (
        "no operator has taken it up; is one running, and does it watch this namespace? "
        "kubectl get pods -A -l app.kubernetes.io/name=backfill-operator"
    )


def _of_a_failure(backfill: Backfill, place: Place) -> str:
    name, outcome = backfill.metadata.name, find_condition(backfill.status.conditions, ConditionType.SUCCEEDED)
    if exit_status(backfill) == BAD_INPUT and not backfill.status.plan_id:
        return "correct the manifest and apply it again, or when what was missing is there: " + place.command("retry", name)
    mend = f"when the cause is gone, go on with: {place.command('retry', name)}"
    if (
        backfill.status.attempts
        and outcome is not None
        and outcome.reason not in {Reason.PUBLISH_CONFLICT, Reason.PUBLISH_FAILED}
    ):
        return f"see why with: {place.command('logs', name)}; {mend}"
    return mend


def _waits_for_approval(backfill: Backfill) -> bool:
    published = find_condition(backfill.status.conditions, ConditionType.PUBLISHED)
    return published is not None and published.reason == Reason.WAITING_FOR_APPROVAL


def _stands_still(backfill: Backfill) -> bool:
    running = find_condition(backfill.status.conditions, ConditionType.RUNNING)
    return backfill.spec.suspend and running is not None and running.reason == Reason.SUSPENDED
