"""What all jobs have in common. A job is work that takes longer than a reconcile: it runs in a
process of its own, one at a time for each Backfill, and may be repeated at any time.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final, Literal, Protocol

from pydantic import Field

from backfill.kube.object_names import Key
from backfill.planning.planning_progress import PlanningProgress

OnProgress = Callable[[PlanningProgress], None]
"""Receives the progress of planning; jobs of other kinds report none."""


class Job(Protocol):
    """Jobs are compared by value: one that equals the job in progress is not started again."""

    def run(self, on_progress: OnProgress) -> object:
        """Does the work and returns its result."""


def job_kind(kind: type[Job]) -> str:
    """``resolve``, ``plan``, ``extend``, ``recover``, ``verify``, ``settle``, ``publish``,
    ``undo`` or ``discard``.
    """
    return kind.__name__.removesuffix("Job").lower()


MOST_USED_SECONDS: Final = 10_000_000
MOST_USED_BYTES: Final = 2**50
"""What a pod reports of itself is added to a metric over all jobs,
so it is limited to what can be true.
"""


@dataclass(frozen=True, slots=True)
class Used:
    """What a job has used, as measured by its process."""

    seconds: Annotated[float, Field(ge=0, le=MOST_USED_SECONDS, allow_inf_nan=False)]
    peak_bytes: Annotated[int, Field(ge=0, le=MOST_USED_BYTES)]
    """Peak memory of the process."""


ITS_TURN: Final = "its turn"
"""What a job waits for until the pods of other jobs have ended."""


@dataclass(frozen=True, slots=True)
class JobState:
    """A job and its state."""

    job: Job
    phase: Literal["Running", "Done", "Failed"]
    progress: PlanningProgress | None = None
    """Last progress of a plan job."""
    waits_for: str = ""
    """What a running job waits for, in words: its turn, or a pod that does not start."""
    blocked: bool = False
    """Whether it waits until a person does something."""
    result: object = None
    """Result of a job that is done."""
    error: Exception | None = None
    """Why a job failed."""
    used: Used | None = None
    """What a job that has ended has used; None if its process could not report it."""


@dataclass(frozen=True, slots=True)
class JobUsage:
    """What a job has used, for metrics."""

    key: Key
    kind: str
    """As :func:`job_kind` names it."""
    outcome: Literal["Done", "Failed"]
    waited_seconds: float
    """Waiting for its turn, and for its pod to start."""
    seconds: float
    """Duration, including the start of its process."""
    peak_bytes: int | None
    """Peak memory of its process; None if it is unknown, as for a pod that ended without a report.
    """
