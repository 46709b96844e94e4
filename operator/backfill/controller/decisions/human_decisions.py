"""What people have decided about the present result. Pure."""

from backfill.api.approval import undecidable, undoing
from backfill.api.conditions import ConditionType, Reason
from backfill.api.decision import next_undo
from backfill.api.status import DecisionStatus, Verdict
from backfill.controller.decisions.observed import Observed
from backfill.controller.decisions.status_draft import Draft
from backfill.controller.jobs.kinds.publish import PublishResult


def note_decision(observed: Observed, draft: Draft) -> None:
    """Records the first decision to approve or reject the present result. It stays.

    A rejection counts while the result waits for approval, and once a publication has ended.
    Otherwise one may be in progress, or was before the Backfill was suspended or failed, and what
    was committed may not be recorded yet.
    """
    status, job = draft.status, observed.job
    stage = draft.find(ConditionType.PUBLISHED)
    if status.decision is not None and status.decision.result == status.result:
        return
    ended = job is not None and isinstance(job.result, PublishResult)
    waits = stage is not None and stage.reason == Reason.WAITING_FOR_APPROVAL
    counts = (Verdict.APPROVE, Verdict.REJECT) if waits or ended else (Verdict.APPROVE,)
    found = (
        each
        for each in observed.decisions
        if each.decision in counts and each.result == status.result
    )
    draft.set(decision=next(found, None))


def request_to_undo(observed: Observed) -> DecisionStatus | None:
    """The request to undo that is being carried out, or is to be; None if there is none."""
    backfill = observed.backfill
    if (asked := undoing(backfill.status)) is not None:
        return asked
    number = next_undo(backfill.status)
    found = (
        each
        for each in observed.decisions
        if each.decision is Verdict.UNDO
        and (each.result, each.number) == (backfill.status.result, number)
    )
    request = next(found, None)
    return None if request is None or undecidable(backfill, Verdict.UNDO) else request
