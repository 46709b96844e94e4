"""Plan headers for a controller that can access the workspace: they are read from there."""

from backfill.api.backfill import Backfill
from backfill.api.errors import BackfillError, PlanCorrupt
from backfill.planning.plan import PlanHeader, plan_directory, read_header
from backfill.planning.workspace import Workspace


class StoredPlans:
    """Reads a header once and keeps it, since plans never change."""

    def __init__(self) -> None:
        self._header: PlanHeader | None = None

    def header(self, backfill: Backfill) -> PlanHeader | None:
        """The header of the plan that the status names; None if it names none.

        Raises:
            PlanCorrupt: it cannot be read.
        """
        plan_id, workspace = backfill.status.newest_plan_id, backfill.status.workspace
        if plan_id is None or workspace is None:
            return None
        if self._header is None or self._header.inputs.own_id() != plan_id:
            try:
                place = Workspace.of(backfill, workspace)
                self._header = read_header(plan_directory(place, plan_id))
            except (OSError, ValueError, BackfillError) as error:
                raise PlanCorrupt(
                    f"plan {plan_id} cannot be read from {workspace}: {error}"
                ) from error
        return self._header

    def keep(self, backfill: Backfill, header: PlanHeader) -> str:
        """Does nothing: planning has written the header to the workspace."""
        self._header = header
        return ""
