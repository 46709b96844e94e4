"""Undoing a publication, on request of a person."""

from collections.abc import Mapping

from backfill.api.base import shortened
from backfill.api.conditions import ConditionType, Reason
from backfill.api.errors import BackfillError
from backfill.api.quantities import count
from backfill.api.redaction import redact
from backfill.api.status import OutputStatus
from backfill.controller.decisions.actions import CancelJob, Next
from backfill.controller.decisions.human_decisions import request_to_undo
from backfill.controller.decisions.job_retries import try_again, work
from backfill.controller.decisions.observed import Observed
from backfill.controller.decisions.status_draft import Draft
from backfill.controller.jobs.kinds.undo import UndoJob, UndoResult

_PUBLISHED = ConditionType.PUBLISHED


def undo(observed: Observed, draft: Draft) -> Next:
    """Undoes what is published with a job, or records why that is not possible."""
    request = request_to_undo(observed)
    if request is None:
        raise AssertionError("nobody asked to undo")
    draft.set(undo=request)
    draft.condition(
        _PUBLISHED, "Unknown", Reason.UNDOING, f"undoing the publication, requested by {request}"
    )
    job = UndoJob.of(observed.backfill)
    ended = work(observed, draft, job, _PUBLISHED)
    if isinstance(ended, Next):
        return ended
    result = ended.result
    undone = result if isinstance(result, UndoResult) else UndoResult({}, str(ended.error))
    draft.set(outputs=tuple(_recorded(output, undone) for output in draft.status.outputs))
    refused, failed = map(_told, (undone.refused, undone.failed))
    if failed:
        draft.set(retry=observed.backfill.status.retry)  # the job has not done everything
        later = try_again(observed, draft, job, BackfillError(failed), _PUBLISHED)
        if later is not None:
            return later
    refused = refused or failed
    draft.set(undo=request.model_copy(update={"refused": refused}))
    if refused:
        _say_as_before(draft, refused)
    else:
        message = f"undone by {request}; {_restored(draft.status.outputs, undone.gained)}"
        draft.condition(_PUBLISHED, "False", Reason.UNDONE, message)
        draft.condition(ConditionType.SUCCEEDED, "False", Reason.UNDONE, message)
    return Next(actions=(CancelJob(),), at_rest=True)


def _come_back(rows: int) -> str:
    return f" and {count(rows, 'row')} restored" if rows > 0 else ""


def _told(text: str) -> str:
    """What catalogs and pods say, as it is shown."""
    return redact(str(shortened(text)))


def _recorded(output: OutputStatus, result: UndoResult) -> OutputStatus:
    if output.exported is not None and output.name in result.exports:
        undone = output.exported.model_copy(update={"undone": True})
        return output.model_copy(update={"exported": undone})
    snapshot = result.snapshots.get(output.name)
    return output if snapshot is None else output.model_copy(update={"undo_snapshot_id": snapshot})


def _say_as_before(draft: Draft, refused: str) -> None:
    """Says what is still published, or why publishing failed, and why it was not undone."""
    outcome, restored = draft.find(ConditionType.SUCCEEDED), _restored(draft.status.outputs)
    why = "; ".join(filter(None, (restored, f"not undone: {refused}")))
    if outcome is not None and outcome.status == "False":
        draft.condition(_PUBLISHED, "False", outcome.reason, f"{outcome.message}\n{why}")
    else:
        draft.condition(_PUBLISHED, "True", Reason.PUBLISHED, why)


def _restored(outputs: tuple[OutputStatus, ...], gained: Mapping[str, int] | None = None) -> str:
    """What was removed from each output and came back to it."""
    return ", ".join(
        f"{count(output.rows, 'row')} removed from {output.destination}"
        + _come_back(output.rows + (gained or {}).get(output.name, -output.rows))
        + (f" by snapshot {output.undo_snapshot_id}" if output.undo_snapshot_id else "")
        for output in outputs
        if output.is_undone
    )
