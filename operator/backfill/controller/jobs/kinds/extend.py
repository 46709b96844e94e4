"""Extends the plan of a hand-off with rows that its tables have got since."""

from dataclasses import dataclass
from typing import Self

from backfill.api.backfill import Backfill
from backfill.api.errors import NotExtended
from backfill.api.spec import BackfillSpec
from backfill.controller.jobs.any_job import OnProgress
from backfill.controller.jobs.kinds.make_plan import to_plan
from backfill.planning.plan import PlanHeader
from backfill.planning.workspace import Workspace, checkpoints


@dataclass(frozen=True, slots=True)
class Extension:
    """An extended plan, or why there is none."""

    header: PlanHeader | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ExtendJob:
    """Writes a plan that extends another one, if newer rows can follow on it."""

    namespace: str
    name: str
    uid: str
    spec: BackfillSpec
    """The spec with defaults for all fields that do not affect the plan."""
    workspace: Workspace
    header: PlanHeader
    """The plan that is extended."""
    kept_in: str = ""
    """Which cluster or state directory the Backfill is stored in."""

    @classmethod
    def of(cls, backfill: Backfill, workspace: Workspace, header: PlanHeader) -> Self:
        """The job for a Backfill."""
        metadata, spec = backfill.metadata, to_plan(backfill.spec)
        owner = (metadata.namespace, metadata.name, metadata.uid)
        return cls(*owner, spec, workspace, header, metadata.kept_in)

    def run(self, on_progress: OnProgress) -> Extension:
        """Returns the plan, or why there is none.

        Raises:
            InvalidPlanInput: a table cannot be read.
        """
        from backfill.planning.plan_extension import extend_plan
        from backfill.planning.planner import owner_of

        kept = checkpoints(self.workspace).child(self.uid)
        owner = owner_of(self.namespace, self.name, self.kept_in)
        try:
            header = extend_plan(
                self.spec, self.header, self.workspace, kept, owner=owner, on_progress=on_progress
            )
        except NotExtended as error:
            return Extension(reason=str(error))
        return Extension(header)
