"""Conditions and their reasons, as constants beside each other.

A condition's status is True, False or Unknown; False with a reason says what failed, Unknown that it is not known yet.
"""

from datetime import datetime
from enum import StrEnum
from typing import Literal

from backfill.api.base import Message, Model
from backfill.api.quantities import Time


class ConditionType(StrEnum):
    """What a condition speaks of."""

    PLANNED = "Planned"
    RUNNING = "Running"
    VALIDATED = "Validated"
    PUBLISHED = "Published"
    SUCCEEDED = "Succeeded"

    READY = "Ready"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"


SUMMARIES = (ConditionType.READY, ConditionType.RECONCILING, ConditionType.STALLED)
"""They say nothing of their own: tools that know no backfills (kstatus, Argo CD, Flux) read them instead of the others."""


class Reason(StrEnum):
    """Why a condition has its status."""

    PLANNING = "Planning"
    PLAN_READY = "PlanReady"
    INVALID_INPUT = "InvalidInput"
    PLANNING_FAILED = "PlanningFailed"

    STARTING = "Starting"
    DRIVER_PENDING = "DriverPending"
    DRIVER_START_BLOCKED = "DriverStartBlocked"
    DRIVER_SILENT = "DriverSilent"
    DRIVER_TERMINATION_STUCK = "DriverTerminationStuck"
    REPLAYING = "Replaying"
    BACKING_OFF = "BackingOff"
    SUSPENDING = "Suspending"
    SUSPENDED = "Suspended"
    ATTEMPTS_EXHAUSTED = "AttemptsExhausted"
    UNSUPPORTED_PROGRAM = "UnsupportedProgram"
    ALL_STEPS_COMMITTED = "AllStepsCommitted"

    NOT_VALIDATED = "NotValidated"  # of earlier versions, whose Backfills are still read

    PUBLISHING = "Publishing"
    WAITING_FOR_APPROVAL = "WaitingForApproval"
    PUBLISHED = "Published"
    NOT_PUBLISHED = "PublishModeNone"
    PUBLISH_CONFLICT = "PublishConflict"
    PUBLISH_FAILED = "PublishFailed"
    RESULT_LOST = "ResultLost"

    REMOVING = "Removing"
    REMOVAL_FAILED = "RemovalFailed"
    CLEANUP_INCOMPLETE = "CleanupIncomplete"

    TRYING_AGAIN = "TryingAgain"

    IN_PROGRESS = "InProgress"
    FINISHED = "Finished"


class Condition(Model):
    """One aspect of where a resource stands, in the form of Kubernetes' own conditions."""

    type: ConditionType
    """What this condition speaks of."""
    status: Literal["True", "False", "Unknown"]
    """Whether it holds."""
    reason: Reason
    """Why, in one word that programs can rely on."""
    message: Message = ""
    """Why, in a sentence for people, with what to do where something is to be done."""
    last_transition_time: Time
    """When ``status`` last changed."""
    observed_generation: int = 0
    """The generation of the spec this was computed from."""


def set_condition(  # noqa: PLR0917 - one caller, and no two neighbours of one type
    conditions: tuple[Condition, ...],
    kind: ConditionType,
    status: Literal["True", "False", "Unknown"],
    reason: Reason,
    message: str,
    now: datetime,
    generation: int,
    *,
    recorded: tuple[Condition, ...] | None = None,
) -> tuple[Condition, ...]:
    """The conditions with one of them set; its transition time moves only when its status changes.

    The change is counted from what is ``recorded``, by default the conditions themselves: what a decision sets and sets
    again is one change.
    """
    old = find_condition(conditions if recorded is None else recorded, kind)
    since = old.last_transition_time if old and old.status == status else now
    new = Condition(
        type=kind, status=status, reason=reason, message=message, last_transition_time=since, observed_generation=generation
    )
    if find_condition(conditions, kind) is None:
        return (*conditions, new)
    return tuple(new if condition.type == kind else condition for condition in conditions)


def find_condition(conditions: tuple[Condition, ...], kind: ConditionType) -> Condition | None:
    """The condition of a type, if it was ever set."""
    return next((condition for condition in conditions if condition.type == kind), None)
