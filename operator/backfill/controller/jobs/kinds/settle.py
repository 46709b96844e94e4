"""After the last step: counts the staged rows, and those of production that they replace."""

from dataclasses import dataclass

from backfill.api.errors import BackfillError
from backfill.api.output import PublishMode
from backfill.api.spec import Window
from backfill.api.status import NullColumns, WindowLosses
from backfill.controller.jobs.any_job import OnProgress
from backfill.controller.jobs.staged_outputs import StagedOutput


@dataclass(frozen=True, slots=True)
class Totals:
    """Staged rows of an output, and their branch."""

    branch: str | None
    rows: int
    rows_outside_window: int
    snapshot_id: int | None = None
    """The branch's snapshot; None if there is no branch."""
    losses: WindowLosses | None = None
    """What publishing would remove without replacement; None unless it replaces rows, and once it
    has.
    """
    null_columns: NullColumns = ()
    """Columns that are null in every row, unlike in production; empty once the result is published.
    """
    batches: int | None = None
    """Number of batches with rows, of what is to be delivered."""


@dataclass(frozen=True, slots=True)
class SettleResult:
    """Staged rows by output."""

    totals: dict[str, Totals]
    left_behind: str = ""
    """Why files of failed tasks could not be removed; empty if all were."""


@dataclass(frozen=True, slots=True)
class SettleJob:
    """Counts the staged rows, and the rows of production that they replace, and removes the files
    of failed tasks.
    """

    staged: tuple[StagedOutput, ...]
    window: Window

    def run(self, on_progress: OnProgress) -> SettleResult:
        """Returns the totals of every output.

        Raises:
            ResultLost: an output has no staged result although all steps are committed.
        """
        totals = {staged.output.name: _count(staged, self.window) for staged in self.staged}
        left = (_remove_orphans(staged) for staged in self.staged)
        return SettleResult(totals, "\n".join(dict.fromkeys(filter(None, left))))


def _count(staged: StagedOutput, window: Window) -> Totals:
    from backfill.outputs.delivered_batches import batches_of
    from backfill.outputs.lost_rows import count_losses
    from backfill.outputs.null_columns import staged_nulls
    from backfill.outputs.publication import output_state
    from backfill.outputs.staging import lost

    state = output_state(staged.output, staged.result)
    if not state.staged and state.published_snapshot_id is None:
        raise lost(staged.output.table, staged.result)
    losses: WindowLosses | None = None
    null_columns: NullColumns = ()
    batches = None
    if staged.output.publish.mode is PublishMode.DELIVER:
        batches = len(batches_of(staged.output, staged.result))
    if state.published_snapshot_id is None:
        null_columns = staged_nulls(staged.output, staged.result, window)
        if staged.output.publish.mode is PublishMode.REPLACE:
            losses = count_losses(staged.output, staged.result, window)
    return Totals(
        state.branch,
        state.rows,
        state.rows_outside_window,
        state.staged_snapshot_id,
        losses,
        null_columns,
        batches,
    )


def _remove_orphans(staged: StagedOutput) -> str:
    """Returns why they could not be removed, or an empty text. They only take up storage, and are
    removed together with the result.
    """
    from backfill.outputs.cleanup import remove_orphans

    try:
        remove_orphans(staged.output, staged.result, staged.base_snapshot_id)
    except BackfillError as error:
        return str(error)
    return ""
