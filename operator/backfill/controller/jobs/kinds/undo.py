"""Undoing: from the published results back to what tables and directories held before."""

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field

from backfill.api.approval import published
from backfill.api.backfill import Backfill
from backfill.api.errors import BadInput, CanNotPublish, first_line
from backfill.api.spec import MOST_OUTPUTS, Window
from backfill.controller.jobs.any_job import OnProgress
from backfill.controller.jobs.staged_outputs import StagedOutput, staged_outputs

if TYPE_CHECKING:
    from backfill.outputs.export import ExportUndo
    from backfill.outputs.undo_publication import Undo


@dataclass(frozen=True, slots=True)
class UndoResult:
    """What was undone, and why the rest was not."""

    snapshots: Annotated[dict[str, int], Field(max_length=MOST_OUTPUTS)]
    """By output, the snapshot that undid its publication."""
    refused: str = ""
    """Why one could not be undone; empty if all were."""
    exports: Annotated[tuple[str, ...], Field(max_length=MOST_OUTPUTS)] = ()
    """Outputs whose exported files were removed."""
    failed: str = ""
    """Why the rest is not undone yet, if trying again may help."""
    gained: Annotated[dict[str, int], Field(max_length=MOST_OUTPUTS)] = field(default_factory=dict)
    """By output, how many rows more its table has than with the result, where it is known."""


@dataclass(frozen=True, slots=True)
class UndoJob:
    """Undoes the publications of a Backfill, the last one first."""

    staged: tuple[StagedOutput, ...]
    snapshots: tuple[int | None, ...]
    """The snapshots that published them; None for those that were exported."""
    window: Window

    @classmethod
    def of(cls, backfill: Backfill) -> Self:
        """The job for a Backfill that has published something."""
        snapshots = {each.name: each.snapshot_id for each in published(backfill.status)}
        found = [
            staged
            for staged in reversed(staged_outputs(backfill))
            if staged.output.name in snapshots
        ]
        return cls(
            tuple(found),
            tuple(snapshots[staged.output.name] for staged in found),
            backfill.spec.window,
        )

    def run(self, on_progress: OnProgress) -> UndoResult:
        """May be repeated: what is undone already is left as it is. Nothing is undone unless all
        can be, as the tables are at the start.

        Raises:
            Exception: nothing was undone.
        """

        undone: dict[str, int] = {}
        gained: dict[str, int] = {}
        removed: list[str] = []
        name = ""
        try:
            undos = []
            for staged, snapshot in zip(self.staged, self.snapshots, strict=True):
                name = staged.output.name
                undos.append(_undo_of(staged, snapshot, self.window))
                undos[-1].check()
            for staged, undo in zip(self.staged, undos, strict=True):
                name = staged.output.name
                by = undo.run()
                if by is None:
                    removed.append(name)
                else:
                    undone[name] = by
                    gained |= _gained_by(undo, name)
        except CanNotPublish as error:
            return UndoResult(undone, f"{name}: {error}", tuple(removed))
        except Exception as error:  # catalogs raise whatever their client libraries raise
            if not (undone or removed):
                raise
            lasts = isinstance(error, BadInput) and not error.may_pass
            why = f"{name}: {first_line(error)}"
            return UndoResult(
                undone, why if lasts else "", tuple(removed), failed="" if lasts else why
            )
        return UndoResult(undone, exports=tuple(removed), gained=gained)


def _gained_by(undo: "Undo | ExportUndo", name: str) -> dict[str, int]:
    """The rows that came with an undo. It is done, whether or not these can be counted."""
    with suppress(Exception):
        if (rows := undo.rows_gained) is not None:
            return {name: rows}
    return {}


def _undo_of(staged: StagedOutput, snapshot: int | None, window: Window) -> "Undo | ExportUndo":
    from backfill.outputs.export import ExportUndo
    from backfill.outputs.undo_publication import Undo

    if snapshot is None:
        return ExportUndo(staged.output, staged.result)
    return Undo(staged.output, staged.result, window, snapshot)
