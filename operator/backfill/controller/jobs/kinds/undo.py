"""Undoing: from the published results back to what the tables held before."""

from dataclasses import dataclass
from typing import Annotated, Self

from pydantic import Field

from backfill.api.backfill import Backfill
from backfill.api.errors import CanNotPublish
from backfill.api.spec import Window
from backfill.controller.jobs.job import OnProgress
from backfill.controller.jobs.staged_outputs import StagedOutput, staged_outputs


@dataclass(frozen=True, slots=True)
class UndoResult:
    """What was undone, and why the rest was not."""

    snapshots: Annotated[dict[str, int], Field(max_length=64)]
    """By output, the snapshot that undid its publication."""
    refused: str = ""
    """Why one could not be undone; empty if all were."""


@dataclass(frozen=True, slots=True)
class UndoJob:
    """Undoes the publications of a Backfill, the last one first."""

    staged: tuple[StagedOutput, ...]
    snapshots: tuple[int, ...]
    """The snapshots that published them."""
    window: Window

    @classmethod
    def of(cls, backfill: Backfill) -> Self:
        """The job for a Backfill that has published something."""
        published = {output.name: output.snapshot_id for output in backfill.status.outputs}
        found = [
            (staged, snapshot)
            for staged in reversed(staged_outputs(backfill))
            if (snapshot := published.get(staged.output.name)) is not None
        ]
        return cls(
            tuple(staged for staged, _ in found),
            tuple(snapshot for _, snapshot in found),
            backfill.spec.window,
        )

    def run(self, on_progress: OnProgress) -> UndoResult:
        """May be repeated: what is undone already is left as it is. Nothing is undone unless all
        can be, as the tables are at the start.
        """
        from backfill.outputs.undo import Undo

        undone: dict[str, int] = {}
        name = ""
        try:
            undos = []
            for staged, snapshot in zip(self.staged, self.snapshots, strict=True):
                name = staged.output.name
                undos.append(Undo(staged.output, staged.result, self.window, snapshot))
                undos[-1].check()
            for staged, undo in zip(self.staged, undos, strict=True):
                name = staged.output.name
                undone[name] = undo.run()
        except CanNotPublish as error:
            return UndoResult(undone, f"{name}: {error}")
        return UndoResult(undone)
