"""Restores a plan header that the cluster has lost."""

from dataclasses import dataclass

from backfill.api.errors import PlanCorrupt, first_line
from backfill.controller.jobs.any_job import OnProgress
from backfill.planning.plan import PlanHeader, plan_directory, read_header
from backfill.planning.workspace import Workspace


@dataclass(frozen=True, slots=True)
class RecoverJob:
    """Reads the header of a plan from the workspace after the cluster has lost its copy."""

    plan_id: str
    """By :meth:`backfill.planning.plan.PlanInputs.own_id`."""
    workspace: Workspace

    def run(self, on_progress: OnProgress) -> PlanHeader:
        """Returns the header.

        Raises:
            PlanCorrupt: the workspace does not have it either, or it cannot be read.
        """
        directory = plan_directory(self.workspace, self.plan_id)
        try:
            header = read_header(directory)
        except FileNotFoundError:
            raise PlanCorrupt(f"it is not in {directory.uri} either") from None
        except ValueError as error:
            raise PlanCorrupt(
                f"it cannot be read from {directory.uri} either: {first_line(error)}"
            ) from error
        if header.inputs.own_id() != self.plan_id:
            raise PlanCorrupt(f"{directory.uri} contains plan {header.inputs.own_id()}")
        return header
