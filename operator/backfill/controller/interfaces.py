"""What a controller works with, apart from Spark: the same reconcile runs on files of this machine
and on a cluster.

Every method may be called in every reconcile, and answers from memory or a cache. The controller
may be killed between any two calls; its successor reads what was written and continues.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # commands need only the error of this module, and must start quickly
    from collections.abc import Iterator, Set

    from backfill.api.backfill import Backfill
    from backfill.api.spec import BackfillSpec
    from backfill.api.status import BackfillStatus, DecisionStatus
    from backfill.controller.driver import DriverState
    from backfill.controller.jobs.any_job import Job, JobState
    from backfill.planning.plan import PlanHeader
    from backfill.planning.workspace import Workspace
    from backfill.protocol.split_assignment import SplitAssignmentSpec, SplitAssignmentStatus


class Store(Protocol):
    """Storage of one Backfill."""

    def load(self) -> Backfill | None:
        """The resource, never older than the last write here; None if it no longer exists."""

    def workspace(self, spec: BackfillSpec) -> Workspace:
        """Location of the Backfill's plan and checkpoints."""

    def writers_of(self, tables: Set[str]) -> Iterator[Backfill]:
        """Other known Backfills that have an output in one of the tables,
        as far as they can be read.
        """

    def decisions(self, backfill: Backfill) -> tuple[DecisionStatus, ...]:
        """What people have decided about the present result of the Backfill."""

    def write_status(self, status: BackfillStatus) -> None:
        """Replaces the status.

        Raises:
            ConflictError: the resource has changed since it was loaded.
        """

    def delete(self) -> None:
        """Removes the resource, or the finalizer that keeps it. Called when nothing that the
        Backfill made is left.
        """


class Channel(Protocol):
    """The controller's end of a SplitAssignment."""

    def assignment(self) -> SplitAssignmentSpec | None:
        """The last assignment that this or an earlier controller wrote."""

    def report(self, *, newest: bool = False) -> SplitAssignmentStatus | None:
        """The last report of a driver. ``newest``: include every report made before this call, not
        just what a cache has.
        """

    def write(self, assignment: SplitAssignmentSpec) -> None:
        """Replaces the assignment.

        Raises:
            ConflictError: it has changed since it was read.
        """

    def remove(self) -> None:
        """Removes the assignment if there is one."""


class LiveApplication(Protocol):
    """The live SparkApplication of one Backfill, which continues with its state."""

    def start(self, backfill: Backfill) -> None:
        """Creates it. One that is there already from an earlier try is kept."""

    def observe(self, name: str) -> DriverState:
        """Its state. ``Exited`` with reason ``Refused``: it could not be created."""


class JobRunner(Protocol):
    """Runs the jobs of one Backfill, one at a time."""

    @property
    def state(self) -> JobState | None:
        """The job in progress, or the last one."""

    def start(self, job: Job) -> None:
        """Starts a job, and abandons the one in progress. It may have to wait for a free place."""

    def cancel(self) -> None:
        """Abandons the job in progress, and forgets the last one."""

    def close(self) -> None:
        """Abandons the job in progress. No other one is started."""


class Plans(Protocol):
    """Storage of plan headers."""

    def header(self, backfill: Backfill) -> PlanHeader | None:
        """The header of the plan that the status names; None if it names none.

        Raises:
            PlanCorrupt: the header is lost here. It may still be in the workspace.
        """

    def keep(self, backfill: Backfill, header: PlanHeader) -> str:
        """Stores the header of a plan. Returns the digest of the application that is stored with
        it; empty if none is.

        For a new plan this comes before any status that names it.
        """
