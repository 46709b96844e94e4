"""Checks before an attempt that the plan can still be read."""

from dataclasses import dataclass

from backfill.controller.jobs.any_job import OnProgress
from backfill.planning.plan import PlanHeader


@dataclass(frozen=True, slots=True)
class VerifyJob:
    """Checks before an attempt that the snapshots of the plan still exist."""

    header: PlanHeader
    attempt: int

    def run(self, on_progress: OnProgress) -> None:
        """Returns if they exist.

        Raises:
            InvalidPlanInput: a table or snapshot is gone.
        """
        from backfill.planning.planner import verify_snapshots

        verify_snapshots(self.header)
