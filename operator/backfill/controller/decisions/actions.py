"""Decisions: the status to record, then the actions to take, in this order."""

from dataclasses import dataclass

from backfill.api.status import BackfillStatus
from backfill.controller.jobs.any_job import Job
from backfill.protocol.split_assignment import SplitAssignmentSpec


@dataclass(frozen=True, slots=True)
class StartJob:
    """Start a job. A job in progress is abandoned."""

    job: Job


@dataclass(frozen=True, slots=True)
class CancelJob:
    """Abandon the job in progress, or forget the result of the last one.

    It runs again when it is needed.
    """


@dataclass(frozen=True, slots=True)
class WriteAssignment:
    """Write the driver's assignment."""

    assignment: SplitAssignmentSpec


@dataclass(frozen=True, slots=True)
class RemoveAssignment:
    """Remove the driver's assignment. A driver that starts without one ends at once."""


@dataclass(frozen=True, slots=True)
class StartDriver:
    """Start the driver of an attempt that has been recorded."""

    attempt: int


@dataclass(frozen=True, slots=True)
class KillDriver:
    """Kill the driver of an attempt and every process or pod that it started."""

    attempt: int


@dataclass(frozen=True, slots=True)
class StartLive:
    """Create the live SparkApplication, whose name has been recorded. One that is there is kept."""


@dataclass(frozen=True, slots=True)
class RemoveResource:
    """Remove the finalizer of the Backfill, or its files: nothing that it made is left."""


Action = (
    StartJob
    | CancelJob
    | WriteAssignment
    | RemoveAssignment
    | StartDriver
    | KillDriver
    | StartLive
    | RemoveResource
)


@dataclass(frozen=True, slots=True)
class Next:
    """What to do after the status is recorded."""

    actions: tuple[Action, ...] = ()
    requeue_seconds: float | None = None
    """Reconcile again after this time even if nothing changes; None waits for a change."""
    at_rest: bool = False
    """Whether nothing more happens until a person does something."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The status to record, and what to do after that."""

    status: BackfillStatus
    next: Next
