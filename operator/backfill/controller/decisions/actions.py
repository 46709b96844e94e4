"""What is decided: the status to record, and then the acts to do, in this order."""

from dataclasses import dataclass

from backfill.api.status import BackfillStatus
from backfill.controller.jobs.kinds import Job
from backfill.protocol.split_assignment import SplitAssignmentSpec


@dataclass(frozen=True, slots=True)
class StartJob:
    """Let the worker do a job. One that is under way is abandoned."""

    job: Job


@dataclass(frozen=True, slots=True)
class CancelJob:
    """Abandon the job under way, or forget the one that ended: the next time it is wanted it is done anew."""


@dataclass(frozen=True, slots=True)
class WriteAssignment:
    """Tell the driver what it may do."""

    assignment: SplitAssignmentSpec


@dataclass(frozen=True, slots=True)
class StartDriver:
    """Start the driver of an attempt that is recorded already."""

    attempt: int


@dataclass(frozen=True, slots=True)
class KillDriver:
    """End the driver of an attempt at once, with everything it started."""

    attempt: int


@dataclass(frozen=True, slots=True)
class RemoveResource:
    """Forget the Backfill: nothing it made is left."""


Action = StartJob | CancelJob | WriteAssignment | StartDriver | KillDriver | RemoveResource


@dataclass(frozen=True, slots=True)
class Next:
    """What to do after the status is recorded."""

    actions: tuple[Action, ...] = ()
    requeue_seconds: float | None = None
    """Look again after this time even if nothing changed; None waits for a change."""
    at_rest: bool = False
    """Nothing more will happen until a person does something."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The status to record first, and what follows."""

    status: BackfillStatus
    next: Next
