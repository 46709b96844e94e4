"""What prevents any driver from being started: reported at once,
and waited for where the cluster may provide it.
"""

from backfill.api.conditions import ConditionType, Reason
from backfill.controller.decisions.actions import Next
from backfill.controller.decisions.observed import Observed
from backfill.controller.decisions.status_draft import Draft, in_lines

_LOOK_SECONDS = 30.0
"""Time between two checks. No event announces that a person has fixed the problem."""


def obstructed(observed: Observed, draft: Draft, kind: ConditionType, what_waits: str) -> Next:
    """Reports obstacles in condition ``kind``.

    A local run ends, so that a person can fix them. On a cluster they are waited for, and no
    attempt is used up.
    """
    if not observed.policy.patient:
        draft.fail_input(kind, observed.obstacles)
        return Next(at_rest=True)
    message = (
        f"{in_lines(observed.obstacles)}\n{what_waits} starts automatically once this is fixed."
    )
    draft.condition(kind, "False", Reason.INVALID_INPUT, message)
    return Next(requeue_seconds=_LOOK_SECONDS)
