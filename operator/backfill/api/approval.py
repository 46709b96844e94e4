"""Approval: which results wait for it before they are published, and what may be decided when."""

from fractions import Fraction

from backfill.api.backfill import Backfill
from backfill.api.conditions import ConditionType, Reason, find_condition
from backfill.api.errors import BadInput, Problem
from backfill.api.output import Output, PublishMode
from backfill.api.remedies import remedy
from backfill.api.status import (
    BackfillStatus,
    DecisionStatus,
    LostStretch,
    OutputStatus,
    Verdict,
)
from backfill.api.validation import falls_short


def waits(output: Output, status: OutputStatus) -> bool:
    """Whether a staged result is published only after approval."""
    if output.publish.mode is PublishMode.NONE or status.is_published:
        return False
    return needed_approval(output, status)


def needed_approval(output: Output, status: OutputStatus) -> bool:
    """Whether a staged result is, or was, published only after approval."""
    publish = output.publish
    return (
        output.needs_approval
        or loses_too_much(output, status)
        or bool(unexplained_nulls(output, status))
        or (publish.incomplete == "Wait" and may_delete_unreplaced(output, status))
        or (publish.mismatch == "Wait" and falls_short(output, status))
    )


def is_empty(status: BackfillStatus) -> bool:
    """Whether no result has a row in the window, although rows were read. It waits for approval
    then, since the application may filter by fields that its records do not have.
    """
    return status.progress.rows_read > 0 and not any(output.rows for output in status.outputs)


def may_delete_unreplaced(output: Output, status: OutputStatus) -> bool:
    """Whether publishing may delete rows that the result does not replace, or replace rows by ones
    that are not final.

    This is so if results were still open at the end, or if the query compares rows with the current
    time, and so may have dropped some.
    """
    return output.publish.mode.takes_rows_away and (
        status.open_at_end != 0 or bool(status.by_clock)
    )


def unexplained_nulls(output: Output, status: OutputStatus) -> tuple[str, ...]:
    """Columns that are null in every row of a result, unlike in production, and that
    ``publish.allowNull`` does not name.
    """
    return tuple(name for name in status.null_columns if not output.publish.allows_null(name))


def loses_too_much(output: Output, status: OutputStatus) -> bool:
    """Whether ``Replace`` may remove more rows than ``maxLoss`` allows without replacing them,
    somewhere in the window. What was not counted may lose everything.
    """
    if output.publish.mode is not PublishMode.REPLACE or Fraction(output.publish.max_loss) == 100:
        return False
    losses = status.losses
    if losses is None or losses.problem:
        return True
    return any(exceeds(stretch, output.publish.max_loss) for stretch in losses.stretches)


def exceeds(stretch: LostStretch, max_loss: str) -> bool:
    """Whether more than a percentage of production's rows are lost in a stretch. Exact."""
    lost = stretch.production_rows - stretch.result_rows
    return 100 * lost > Fraction(max_loss) * stretch.production_rows


def is_decided(status: BackfillStatus, verdict: Verdict) -> bool:
    """Whether the present result was approved, or rejected."""
    decision = status.decision
    return (
        decision is not None and decision.decision is verdict and decision.result == status.result
    )


def already(backfill: Backfill, verdict: Verdict) -> str:
    """Who has decided the same already; empty if nobody has."""
    status, name = backfill.status, backfill.metadata.name
    if verdict is Verdict.UNDO:
        done = bool(published(status)) and not left_to_undo(status)
        return f"{name} was already undone by {status.undo}" if done else ""
    did = "approved" if verdict is Verdict.APPROVE else "rejected"
    same = is_decided(status, verdict)
    return f"{name} was already {did} by {status.decision}" if same else ""


def published(status: BackfillStatus) -> list[OutputStatus]:
    """Outputs whose result was published, whether or not that was undone."""
    return [output for output in status.outputs if output.is_published]


def left_to_undo(status: BackfillStatus) -> list[OutputStatus]:
    """Outputs whose result is published."""
    return [output for output in published(status) if not output.is_undone]


def delivered(status: BackfillStatus) -> str:
    """Why what is published cannot be undone, if rows were delivered; empty otherwise."""
    names = [each.name for each in status.outputs if each.delivery and each.delivery.started_at]
    return f"has delivered rows of {', '.join(names)}, which cannot be undone" if names else ""


def undoing(status: BackfillStatus) -> DecisionStatus | None:
    """The request to undo that is being carried out; None if there is none."""
    asked = status.undo
    return asked if asked is not None and not asked.refused and left_to_undo(status) else None


def check_goes_on(backfill: Backfill) -> None:
    """Checks that no decision of a person has ended the Backfill for good.

    Raises:
        BadInput: it was rejected or undone.
    """
    outcome = find_condition(backfill.status.conditions, ConditionType.SUCCEEDED)
    if outcome is not None and outcome.reason in (Reason.REJECTED, Reason.UNDONE):
        message = f"{backfill.metadata.name} was {outcome.message.partition(';')[0]}"
        raise BadInput(Problem("", message, remedy(outcome.reason).start_over))


def undecidable(backfill: Backfill, verdict: Verdict) -> str:
    """Why there is nothing to decide now; empty if there is."""
    status, name = backfill.status, backfill.metadata.name
    if backfill.metadata.deletion_timestamp is not None:
        return f"{name} is being removed"
    if verdict is Verdict.UNDO:
        return _not_to_undo(backfill)
    if status.decision is not None and status.decision.result == status.result:
        did = "approved" if status.decision.decision is Verdict.APPROVE else "rejected"
        return f"{name} was already {did} by {status.decision}"
    stage = find_condition(status.conditions, ConditionType.PUBLISHED)
    if stage is None or stage.reason != Reason.WAITING_FOR_APPROVAL:
        return f"{name} has no result waiting for approval"
    if backfill.spec.suspend:
        return f"{name} is suspended; resume it before you decide"
    if status.result is None:
        return (
            f"{name} was last reconciled by an older operator; upgrade the operator before you"
            " decide"
        )
    return ""


def _not_to_undo(backfill: Backfill) -> str:
    status, name = backfill.status, backfill.metadata.name
    outcome = find_condition(status.conditions, ConditionType.SUCCEEDED)
    if why := delivered(status):
        return f"{name} {why}"
    if not left_to_undo(status) or status.result is None:
        return f"{name} has published nothing to undo"
    if outcome is None or outcome.status == "Unknown":
        return f"{name} is still in progress; wait until it has finished before you undo it"
    return ""
