"""What jobs need to know of a staged result."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from backfill.api.backfill import Backfill
from backfill.api.output import Output

if TYPE_CHECKING:
    from backfill.outputs.result_names import Result


@dataclass(frozen=True, slots=True)
class StagedOutput:
    """An output, and what identifies the result of one plan for it."""

    namespace: str
    name: str
    uid: str
    plan_id: str
    output: Output
    base_snapshot_id: int | None
    """The table's snapshot before the run."""
    staged_snapshot_id: int | None = None
    """The snapshot of the branch whose rows were counted; None before that."""

    @property
    def result(self) -> "Result":
        """The staged result."""
        from backfill.outputs.result_names import Result

        return Result(self.namespace, self.name, self.uid, self.plan_id, self.output.name)


def staged_outputs(backfill: Backfill) -> tuple[StagedOutput, ...]:
    """The outputs of a Backfill, in the order of its spec; none before it is planned."""
    plan_id, metadata = backfill.status.plan_id, backfill.metadata
    known = {status.name: status for status in backfill.status.outputs}
    if plan_id is None:
        return ()
    owner = (metadata.namespace, metadata.name, metadata.uid)
    return tuple(
        StagedOutput(
            *owner,
            plan_id,
            output,
            known[output.name].base_snapshot_id,
            known[output.name].staged_snapshot_id,
        )
        for output in backfill.spec.outputs
    )
