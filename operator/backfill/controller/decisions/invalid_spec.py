"""The status of a Backfill whose spec cannot be read or breaks a rule,
so that nothing can be decided. Pure.
"""

from datetime import datetime

from backfill.api.backfill import ObjectMeta, unread
from backfill.api.conditions import ConditionType, Reason
from backfill.api.errors import Problem
from backfill.api.status import BackfillStatus
from backfill.controller.decisions.observed import Observed
from backfill.controller.decisions.readiness import summarise
from backfill.controller.decisions.status_draft import Draft, in_lines


def refused(
    metadata: ObjectMeta, recorded: BackfillStatus, problems: tuple[Problem, ...], now: datetime
) -> BackfillStatus:
    """The status of a Backfill that fails because of these problems, until its spec changes.

    Unchanged if that is recorded already.
    """
    draft = Draft(Observed(unread(metadata, recorded), now))
    outcome, generation = draft.find(ConditionType.SUCCEEDED), metadata.generation
    said = outcome is not None and (outcome.reason, outcome.observed_generation) == (
        Reason.INVALID_INPUT,
        generation,
    )
    if said and outcome is not None and outcome.message == in_lines(problems):
        return recorded
    draft.condition(ConditionType.SUCCEEDED, "False", Reason.INVALID_INPUT, in_lines(problems))
    # what was tried before may be tried again
    draft.set(observed_generation=generation, finished_at=now, spec_digest="")
    summarise(draft)
    return draft.status
