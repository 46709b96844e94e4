"""Types and reasons of conditions, and setting them.

A condition's status is True, False or Unknown: False with the reason of a failure, Unknown while
the outcome is open.
"""

from datetime import datetime
from enum import StrEnum
from typing import Literal

from backfill.api.base import Message, Model
from backfill.api.quantities import Time


class ConditionType(StrEnum):
    """Types of conditions."""

    PLANNED = "Planned"
    INPUT_COMPLETE = "InputComplete"
    RUNNING = "Running"
    VALIDATED = "Validated"
    PUBLISHED = "Published"
    HANDED_OVER = "HandedOver"
    SUCCEEDED = "Succeeded"

    READY = "Ready"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"


SUMMARIES = (ConditionType.READY, ConditionType.RECONCILING, ConditionType.STALLED)
"""Summaries of the others, for tools that know nothing of backfills (kstatus, Argo CD, Flux)."""


class Reason(StrEnum):
    """Reasons of conditions."""

    PLANNING = "Planning"
    PLAN_READY = "PlanReady"
    INVALID_INPUT = "InvalidInput"
    PLANNING_FAILED = "PlanningFailed"

    INPUT_COMPLETE = "InputComplete"
    INPUT_INCOMPLETE = "InputIncomplete"
    INCOMPLETE_INPUT_ALLOWED = "IncompleteInputAllowed"
    INPUT_UNKNOWN = "InputUnknown"
    WAITING_FOR_INPUT = "WaitingForInput"

    STARTING = "Starting"
    DRIVER_PENDING = "DriverPending"
    DRIVER_START_BLOCKED = "DriverStartBlocked"
    DRIVER_SILENT = "DriverSilent"
    DRIVER_TERMINATION_STUCK = "DriverTerminationStuck"
    REPLAYING = "Replaying"
    EXTENDING = "Extending"
    BACKING_OFF = "BackingOff"
    SUSPENDING = "Suspending"
    SUSPENDED = "Suspended"
    ATTEMPTS_EXHAUSTED = "AttemptsExhausted"
    UNSUPPORTED_PROGRAM = "UnsupportedProgram"
    PROGRAM_FAILED = "ProgramFailed"
    BATCH_RESULTS_DIFFER = "BatchResultsDiffer"
    ALL_STEPS_COMMITTED = "AllStepsCommitted"

    COMPARING = "Comparing"
    MATCHED = "Matched"
    BELOW_MIN_MATCH = "BelowMinMatch"
    NOT_COMPARABLE = "NotComparable"

    PUBLISHING = "Publishing"
    DELIVERING = "Delivering"
    WAITING_FOR_APPROVAL = "WaitingForApproval"
    PUBLISHED = "Published"
    NOT_PUBLISHED = "PublishModeNone"
    PUBLISH_CONFLICT = "PublishConflict"
    PUBLISH_FAILED = "PublishFailed"
    RESULT_LOST = "ResultLost"
    REJECTED = "Rejected"
    UNDOING = "Undoing"
    UNDONE = "Undone"

    PREPARED = "Prepared"
    CATCHING_UP = "CatchingUp"
    LIVE = "Live"
    LIVE_START_BLOCKED = "LiveStartBlocked"
    HAND_OFF_FAILED = "HandOffFailed"

    REMOVING = "Removing"
    REMOVAL_FAILED = "RemovalFailed"
    CLEANUP_INCOMPLETE = "CleanupIncomplete"

    TRYING_AGAIN = "TryingAgain"
    JOB_POD_BLOCKED = "JobPodBlocked"

    IN_PROGRESS = "InProgress"
    FINISHED = "Finished"


class Condition(Model):
    """One aspect of the resource's state, in the form of Kubernetes conditions."""

    type: ConditionType
    """Type of the condition."""
    status: Literal["True", "False", "Unknown"]
    """Status of the condition."""
    reason: Reason
    """Reason for the status, as one CamelCase word."""
    message: Message = ""
    """Human-readable details, including what to do, if anything."""
    last_transition_time: Time
    """When ``status`` last changed."""
    observed_generation: int = 0
    """Generation of the spec that the condition was set for."""


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
    """The conditions with one of them set. Its transition time changes only with its status.

    The status is compared with that of ``recorded``, by default the conditions themselves: a
    condition that a decision sets twice changes once.
    """
    old = find_condition(conditions if recorded is None else recorded, kind)
    since = old.last_transition_time if old and old.status == status else now
    new = Condition(
        type=kind,
        status=status,
        reason=reason,
        message=message,
        last_transition_time=since,
        observed_generation=generation,
    )
    if find_condition(conditions, kind) is None:
        return (*conditions, new)
    return tuple(new if condition.type == kind else condition for condition in conditions)


def find_condition(conditions: tuple[Condition, ...], kind: ConditionType) -> Condition | None:
    """The condition of a type, or None if it was never set."""
    return next((condition for condition in conditions if condition.type == kind), None)
