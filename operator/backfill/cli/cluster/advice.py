"""What to do about a Backfill on a cluster."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from backfill.api.backfill import Backfill
from backfill.api.conditions import Condition, ConditionType, Reason, find_condition
from backfill.api.quantities import parse_time
from backfill.api.remedies import remedy
from backfill.cli.backfill_view import has_failed
from backfill.cli.cluster.connection import Place
from backfill.cli.exit_status import BAD_INPUT, SUCCEEDED
from backfill.cli.run_end import exit_status

_TAKEN_UP_WITHIN = timedelta(seconds=30)
_DRIVER_TROUBLE = {Reason.BACKING_OFF, Reason.DRIVER_SILENT, Reason.DRIVER_TERMINATION_STUCK}


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do, and the commands for it."""

    what: str
    commands: tuple[str, ...] = ()


def at_rest(backfill: Backfill) -> bool:
    """Whether nothing happens until a person does something.

    Judged by the status of the current generation only: after a change of the spec it is False
    until the operator has observed the change.
    """
    if (
        backfill.metadata.deletion_timestamp is not None
        or backfill.status.observed_generation < backfill.metadata.generation
    ):
        return False
    outcome = find_condition(backfill.status.conditions, ConditionType.SUCCEEDED)
    if outcome is not None and outcome.status != "Unknown":
        return True
    return _waits_for_approval(backfill) or _stands_still(backfill) or _stalled(backfill)


def next_step(backfill: Backfill, place: Place, now: datetime) -> Advice | None:
    """What to do next; None if nothing."""
    name = backfill.metadata.name
    if backfill.metadata.deletion_timestamp is not None:
        return _of_a_removal(backfill)
    if exit_status(backfill) == SUCCEEDED:
        return None
    if has_failed(backfill):
        return _of_a_failure(backfill, place)
    if backfill.status.observed_generation == 0:
        return _of_a_new_one(backfill, now)
    if _tried_again(backfill):
        return Advice("fix the problem above; the operator retries automatically")
    if _stalled(backfill):
        return Advice("fix the problem above; the operator then continues automatically")
    if backfill.spec.suspend:
        resume = place.command("resume", name)
        return Advice("the Backfill is suspended; resume it with:", (resume,))
    if _waits_for_approval(backfill):
        return Advice(
            "look at the result in the branch, then approve or reject it with:",
            (place.command("approve", name), place.command("reject", name, " --reason ...")),
        )
    running = find_condition(backfill.status.conditions, ConditionType.RUNNING)
    if running is not None and running.reason in _DRIVER_TROUBLE:
        return Advice("see why with:", (place.command("logs", name),))
    return None


def removal(backfill: Backfill) -> Condition | None:
    """Progress of the removal of what the Backfill made, as far as the operator has reported it."""
    outcome = find_condition(backfill.status.conditions, ConditionType.SUCCEEDED)
    removing = outcome is not None and outcome.reason in (Reason.REMOVING, Reason.REMOVAL_FAILED)
    return outcome if removing else None


def _of_a_removal(backfill: Backfill) -> Advice:
    outcome = removal(backfill)
    if outcome is not None and outcome.reason == Reason.REMOVAL_FAILED:
        return Advice("cleanup has not succeeded yet; fix the cause, and the operator retries")
    return Advice("the Backfill is being removed")


def _of_a_new_one(backfill: Backfill, now: datetime) -> Advice | None:
    created = (backfill.metadata.model_extra or {}).get("creationTimestamp")
    if created is None or now - parse_time(created) < _TAKEN_UP_WITHIN:
        return None
    return Advice(
        "no operator has picked it up; is one running, and does it watch this namespace?",
        ("kubectl get pods -A -l app.kubernetes.io/name=backfill-operator",),
    )


def _of_a_failure(backfill: Backfill, place: Place) -> Advice:
    name = backfill.metadata.name
    outcome = find_condition(backfill.status.conditions, ConditionType.SUCCEEDED)
    retry, logs = place.command("retry", name), place.command("logs", name)
    if outcome is not None and (first := remedy(outcome.reason).start_over):
        return Advice(f"{first}:", (place.command("cancel", name),))
    refused = exit_status(backfill) == BAD_INPUT or backfill.status.attempts
    if refused and backfill.status.plan_id is None:
        return Advice(
            "correct the manifest and apply it again or, if whatever was missing exists now, retry"
            " with:",
            (retry,),
        )
    if backfill.status.attempts and outcome is not None and remedy(outcome.reason).in_log:
        return Advice(
            "find out why; once the cause is fixed, resume from where it stopped with:",
            (logs, retry),
        )
    return Advice("once the cause is fixed, resume with:", (retry,))


def _waits_for_approval(backfill: Backfill) -> bool:
    published = find_condition(backfill.status.conditions, ConditionType.PUBLISHED)
    return published is not None and published.reason == Reason.WAITING_FOR_APPROVAL


def _tried_again(backfill: Backfill) -> bool:
    return any(condition.reason == Reason.TRYING_AGAIN for condition in backfill.status.conditions)


def _stalled(backfill: Backfill) -> bool:
    stalled = find_condition(backfill.status.conditions, ConditionType.STALLED)
    return stalled is not None and stalled.status == "True"


def _stands_still(backfill: Backfill) -> bool:
    """Whether it is suspended, in whichever stage."""
    return backfill.spec.suspend and any(
        condition.reason == Reason.SUSPENDED for condition in backfill.status.conditions
    )
