"""Cleanup: removes what a Backfill made."""

from dataclasses import dataclass
from typing import Self

from backfill.api.approval import published, undoing
from backfill.api.backfill import Backfill
from backfill.api.errors import BackfillError
from backfill.api.spec import BackfillSpec
from backfill.controller.jobs.any_job import OnProgress
from backfill.controller.jobs.staged_outputs import StagedOutput, staged_outputs
from backfill.planning.workspace import Workspace, checkpoints


@dataclass(frozen=True, slots=True)
class DiscardJob:
    """Removes everything that a Backfill made and has not published: branches, staged files, tags,
    plan, checkpoints, and files of an export that was not finished.
    """

    namespace: str
    name: str
    spec: BackfillSpec
    staged: tuple[StagedOutput, ...]
    workspace: Workspace | None
    exported: tuple[str, ...] = ()
    """Outputs whose exported files stay, whatever has become of their manifest."""
    undoing: bool = False
    """Whether an undo has begun."""
    kept_in: str = ""
    """Which cluster or state directory the Backfill is stored in."""
    uid: str = ""
    """Uid of the Backfill."""
    tagged: tuple[str, ...] = ()
    """Tables in which snapshots may be tagged, besides those of the spec."""

    @classmethod
    def of(cls, backfill: Backfill) -> Self:
        """The job for a Backfill, planned or not."""
        metadata, status, location = backfill.metadata, backfill.status, backfill.status.workspace
        workspace = Workspace.of(backfill, location) if location else None
        exported = (each.name for each in published(status) if each.exported is not None)
        undo = undoing(status) is not None
        return cls(
            metadata.namespace,
            metadata.name,
            backfill.spec,
            staged_outputs(backfill),
            workspace,
            () if undo else tuple(exported),
            undo,
            metadata.kept_in,
            metadata.uid,
            status.tagged_tables,
        )

    def run(self, on_progress: OnProgress) -> None:
        """May be repeated: what no longer exists is skipped.

        Raises:
            BackfillError: a tag or a part of an output could not be removed; everything else was.
        """
        from backfill.outputs.cleanup import discard
        from backfill.outputs.delivered_batches import drop_table, is_missing
        from backfill.outputs.export import discard_unfinished
        from backfill.planning import workspace_owner
        from backfill.planning.planner import owner_of, release_snapshots

        protected = (each.table for each in self.spec.sources if each.snapshot.protect)
        tagged_by = owner_of(self.namespace, self.name, self.kept_in)
        problems = []
        try:
            release_snapshots((*self.tagged, *protected), tagged_by)
        except BackfillError as error:  # the rest is removed nevertheless
            problems.append(error)
        for table in dict.fromkeys(staged.output.table for staged in self.staged):
            mine = [staged for staged in self.staged if staged.output.table == table]
            if is_missing(mine[0].output):
                continue
            try:
                discard(
                    table,
                    [staged.result for staged in mine],
                    [staged.base_snapshot_id for staged in mine],
                )
                drop_table(mine[0].output)
            except BackfillError as error:
                problems.append(error)
        for staged in self.staged:
            if staged.output.name in self.exported:
                continue
            try:
                discard_unfinished(staged.output, staged.result, undoing=self.undoing)
            except BackfillError as error:
                problems.append(error)
        place = self.workspace
        if place is not None and not workspace_owner.belongs_to_another(place, self.uid):
            place.child("plans").remove()
            checkpoints(place).remove()
            workspace_owner.disclaim(place)
            place.remove_if_empty()
        if problems:
            raise (
                problems[0] if len(problems) == 1 else BackfillError("\n".join(map(str, problems)))
            )
