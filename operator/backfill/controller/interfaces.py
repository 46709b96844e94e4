"""What a controller works with, apart from Spark: the same reconcile runs on files of this machine and on a cluster.

Everything here may be asked at every reconcile and answers from memory or a cache. What is written may be lost with the
controller between any two calls; whoever takes over reads what was written and goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # commands need no more of this than the error, and are to start quickly
    from collections.abc import Iterator, Set

    from backfill.api.backfill import Backfill
    from backfill.api.spec import BackfillSpec
    from backfill.api.status import BackfillStatus
    from backfill.controller.jobs.kinds import Job, JobState
    from backfill.planning.plan import PlanHeader
    from backfill.planning.workspace import Workspace
    from backfill.protocol.split_assignment import SplitAssignmentSpec, SplitAssignmentStatus


class Store(Protocol):
    """Where one Backfill is kept."""

    def load(self) -> Backfill | None:
        """The resource, never older than what was written here last; None when it is gone."""

    def workspace(self, spec: BackfillSpec) -> Workspace:
        """Where its plan and checkpoints are kept."""

    def writers_of(self, tables: Set[str]) -> Iterator[Backfill]:
        """Other Backfills that are known here and have an output in one of the tables, as far as they can be read."""

    def write_status(self, status: BackfillStatus) -> None:
        """Replaces the status.

        Raises:
            ConflictError: the resource has changed since it was loaded.
        """

    def delete(self) -> None:
        """Lets go of the resource: nothing that it made is left."""


class Channel(Protocol):
    """The controller's end of one SplitAssignment."""

    def assignment(self) -> SplitAssignmentSpec | None:
        """What was written last, by this controller or one before it."""

    def report(self, *, newest: bool = False) -> SplitAssignmentStatus | None:
        """What some driver reported last. ``newest``: nothing that was reported before this call may be missed."""

    def write(self, assignment: SplitAssignmentSpec) -> None:
        """Replaces the assignment.

        Raises:
            ConflictError: somebody else has written it meanwhile.
        """


class JobRunner(Protocol):
    """Does the jobs of one Backfill, one at a time."""

    @property
    def state(self) -> JobState | None:
        """The job under way or done last."""

    def start(self, job: Job) -> None:
        """Begins a job and abandons one that is under way. It may have to wait for its turn."""

    def cancel(self) -> None:
        """Abandons the job under way and forgets the last one."""

    def close(self) -> None:
        """Ends for good."""


class Plans(Protocol):
    """Where the headers of plans are found."""

    def header(self, backfill: Backfill) -> PlanHeader | None:
        """The header of the plan that the status names; None where it names none.

        Raises:
            PlanCorrupt: it is lost here. It may be found in the workspace.
        """

    def keep(self, backfill: Backfill, header: PlanHeader) -> None:
        """Sees to it that the header of a plan is found from now on. Of a new plan it comes before any status that names it."""
