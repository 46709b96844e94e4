"""After the last step: count the staged rows, and remove what failed tasks left behind."""

from backfill.api.conditions import ConditionType, Reason
from backfill.api.spec import Window
from backfill.api.status import DeliveryStatus, OutputStatus
from backfill.controller.decisions.actions import CancelJob, Next
from backfill.controller.decisions.job_retries import work
from backfill.controller.decisions.observed import Observed
from backfill.controller.decisions.open_result_messages import left_out, nothing, null_columns
from backfill.controller.decisions.result.publishing import reason_of
from backfill.controller.decisions.status_draft import Draft
from backfill.controller.jobs.kinds.settle import SettleJob, SettleResult, Totals
from backfill.controller.jobs.staged_outputs import staged_outputs

_RUNNING = ConditionType.RUNNING


def settle(observed: Observed, draft: Draft) -> Next:
    """Counts the staged rows with a job, and records them."""
    draft.condition(_RUNNING, "True", Reason.REPLAYING, "all steps committed; counting staged rows")
    draft.remove_condition(ConditionType.PUBLISHED)  # set by a failure before this retry
    job = SettleJob(staged_outputs(observed.backfill), observed.backfill.spec.window)
    counted = work(observed, draft, job, _RUNNING)
    if isinstance(counted, Next):
        return counted
    found, names = counted.result, {output.name for output in draft.status.outputs}
    if not isinstance(found, SettleResult) or not names <= found.totals.keys():
        why = counted.error or "the job did not count every output"
        draft.fail(
            ConditionType.PUBLISHED,
            reason_of(counted.error),
            f"the staged result cannot be read: {why}",
        )
        return Next(actions=(CancelJob(),), at_rest=True)
    _record(draft, found, observed.backfill.spec.window)
    return Next(requeue_seconds=0)


def _record(draft: Draft, result: SettleResult, window: Window) -> None:
    """Records the staged rows, and what is missing from them.

    A person who approves the result must know that before it is published.
    """
    draft.set(
        outputs=tuple(
            _counted(output, result.totals[output.name]) for output in draft.status.outputs
        )
    )
    missing = [left_out(output, window) for output in draft.status.outputs]
    missing.append(nothing(draft.status))
    missing += [
        null_columns(output, output.null_columns)
        for output in draft.status.outputs
        if output.null_columns
    ]
    message = f"all steps are committed: {draft.status.progress.steps:,}"
    left = f"files of failed tasks remain: {result.left_behind}" if result.left_behind else ""
    draft.condition(
        _RUNNING,
        "False",
        Reason.ALL_STEPS_COMMITTED,
        "; ".join(filter(None, (message, *missing, left))),
    )


def _counted(output: OutputStatus, totals: Totals) -> OutputStatus:
    fields: dict[str, object] = {
        "branch": totals.branch,
        "rows": totals.rows,
        "rows_outside_window": totals.rows_outside_window,
        "staged_snapshot_id": totals.snapshot_id,
        # what is published has replaced its rows, and is itself what production has
        "losses": totals.losses or output.losses,
        "null_columns": totals.null_columns or output.null_columns,
    }
    if totals.batches is not None:
        delivery = output.delivery or DeliveryStatus()
        if delivery.started_at is None:
            fields["delivery"] = delivery.model_copy(update={"batches": totals.batches})
    return output.model_copy(update=fields)
