"""What people have decided about the present result. Pure."""

from backfill.api.approval import undecidable, undoing
from backfill.api.conditions import ConditionType, Reason
from backfill.api.decision import next_undo
from backfill.api.status import DecisionStatus, Verdict
from backfill.controller.decisions.observed import Observed
from backfill.controller.decisions.status_draft import Draft


def note_decision(observed: Observed, draft: Draft) -> None:
    """Records the first decision to approve or reject the present result. It stays.

    While a publication is in progress, a rejection does not count yet: what was committed already
    may not be recorded.
    """
    status, job = draft.status, observed.job
    stage = draft.find(ConditionType.PUBLISHED)
    if status.decision is not None and status.decision.result == status.result:
        return
    ended = job is not None and job.phase == "Done"
    publishing = stage is not None and stage.reason in (Reason.PUBLISHING, Reason.TRYING_AGAIN)
    counts = (Verdict.APPROVE,) if publishing and not ended else (Verdict.APPROVE, Verdict.REJECT)
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
