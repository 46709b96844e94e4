"""Approval: which results wait for it before they are published, and what it changes."""

from backfill.api.backfill import Backfill
from backfill.api.conditions import ConditionType, Reason, find_condition
from backfill.api.output import Output, Publish, PublishMode
from backfill.api.status import OutputStatus
from backfill.api.validation import falls_short


def waits(output: Output, status: OutputStatus) -> bool:
    """Whether a staged result is published only after approval."""
    publish = output.publish
    if publish.mode is PublishMode.NONE or status.snapshot_id is not None:
        return False
    return (
        publish.approval == "Manual"
        or (publish.incomplete == "Wait" and may_delete_unreplaced(output, status))
        or (publish.mismatch == "Wait" and falls_short(output, status))
    )


def may_delete_unreplaced(output: Output, status: OutputStatus) -> bool:
    """Whether publishing may delete rows that the result does not replace, or replace rows by ones
    that are not final.

    This is so if results were still open at the end, or if the query compares rows with the current
    time, and so may have dropped some.
    """
    return output.publish.mode.takes_rows_away and (
        status.open_at_end != 0 or bool(status.by_clock)
    )


def approved(backfill: Backfill) -> dict[str, Publish]:
    """The new ``publish`` of each output that an approval changes.

    An approval covers an incomplete result, and one that does not match production, only once the
    Backfill waits with it; neither is known before that.
    """
    published = find_condition(backfill.status.conditions, ConditionType.PUBLISHED)
    waiting = published is not None and published.reason == Reason.WAITING_FOR_APPROVAL
    staged = {status.name: status for status in backfill.status.outputs}
    changed = {}
    for output in backfill.spec.outputs:
        status, publish = staged.get(output.name), output.publish
        if publish.mode is PublishMode.NONE:
            continue
        asked = waiting and status is not None and status.snapshot_id is None
        wanted = publish.model_copy(
            update={
                "approval": "Automatic",
                "incomplete": "Publish"
                if asked and status is not None and may_delete_unreplaced(output, status)
                else publish.incomplete,
                "mismatch": "Publish"
                if asked and status is not None and falls_short(output, status)
                else publish.mismatch,
            }
        )
        if wanted != publish:
            changed[output.name] = wanted
    return changed
