"""After the last step: counts the staged rows."""

from dataclasses import dataclass

from backfill.api.errors import BackfillError
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


@dataclass(frozen=True, slots=True)
class SettleResult:
    """Staged rows by output."""

    totals: dict[str, Totals]
    left_behind: str = ""
    """Why files of failed tasks could not be removed; empty if all were."""


@dataclass(frozen=True, slots=True)
class SettleJob:
    """Counts the staged rows and removes the files of failed tasks."""

    staged: tuple[StagedOutput, ...]

    def run(self, on_progress: OnProgress) -> SettleResult:
        """Returns the totals of every output.

        Raises:
            ResultLost: an output has no staged result although all steps are committed.
        """
        totals = {staged.output.name: _count(staged) for staged in self.staged}
        left = (_remove_orphans(staged) for staged in self.staged)
        return SettleResult(totals, "\n".join(dict.fromkeys(filter(None, left))))


def _count(staged: StagedOutput) -> Totals:
    from backfill.outputs.publication import output_state
    from backfill.outputs.staging import lost

    state = output_state(staged.output, staged.result)
    if state.batch_id is None and state.published_snapshot_id is None:
        raise lost(staged.output.table, staged.result)
    return Totals(state.branch, state.rows, state.rows_outside_window, state.staged_snapshot_id)


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
