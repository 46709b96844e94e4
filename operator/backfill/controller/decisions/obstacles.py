"""What keeps any driver from being started: told at once, and waited for where a cluster may have it a moment later."""

from backfill.api.conditions import ConditionType, Reason
from backfill.controller.decisions.actions import Next
from backfill.controller.decisions.observed import Observed
from backfill.controller.decisions.status_draft import Draft, in_lines

_LOOK_SECONDS = 30.0
"""Between two looks at what is in the way; it is not told when a person repairs it."""


def obstructed(observed: Observed, draft: Draft, kind: ConditionType, what_waits: str) -> Next:
    """Says under ``kind`` what is in the way. Locally somebody reads it and tries again; on a cluster it is waited for, and no
    attempt is used up by that.
    """
    if not observed.policy.patient:
        draft.fail_input(kind, observed.obstacles)
        return Next(at_rest=True)
    message = f"{in_lines(observed.obstacles)}\n{what_waits} starts automatically once this is fixed."
    draft.condition(kind, "False", Reason.INVALID_INPUT, message)
    return Next(requeue_seconds=_LOOK_SECONDS)
