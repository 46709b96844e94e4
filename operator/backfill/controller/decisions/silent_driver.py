"""A driver that runs and is not heard of."""

from datetime import timedelta

from backfill.api.conditions import ConditionType, Reason
from backfill.api.status import Attempt
from backfill.controller.decisions.actions import Next
from backfill.controller.decisions.attempts import kill
from backfill.controller.decisions.observed import Observed
from backfill.controller.decisions.status_draft import Draft

HEARTBEAT_LIMIT_SECONDS = 60.0
"""A driver that has not been heard of for so long is taken to hang."""
FIRST_REPORT_LIMIT_SECONDS = 300.0
"""The same for one whose container has started and that has said nothing yet: Spark starts first."""
CONFIRMATION = timedelta(seconds=30)
"""On a cluster the silence is recorded first, and the driver killed when it goes on: the API server may have been away for
both, and a record that could be written shows that it is back."""
_RUNNING = ConditionType.RUNNING


def watch_silence(observed: Observed, draft: Draft, attempt: Attempt) -> Next | None:
    """Kills a driver that hangs. None: it is heard of."""
    age, limit = _silence(observed)
    if age < limit:
        if attempt.unheard_since is not None:
            draft.change_attempt(unheard_since=None)
        return None
    since = attempt.unheard_since
    if since is None and observed.policy.patient:
        draft.change_attempt(unheard_since=observed.now)
        message = f"attempt {attempt.number} has not been heard of for {age:.0f} s; its driver is killed if that goes on"
        draft.condition(_RUNNING, "Unknown", Reason.DRIVER_SILENT, message)
        return Next(requeue_seconds=CONFIRMATION.total_seconds())
    due = observed.now if since is None else since + CONFIRMATION
    if due > observed.now:
        return Next(requeue_seconds=(due - observed.now).total_seconds())
    return kill(observed, draft, attempt, f"not heard of for {age:.0f} s; killed", due)


def until_silent(observed: Observed) -> float:
    """After how many seconds without a word the driver would be taken to hang."""
    age, limit = _silence(observed)
    return max(limit - age, 0.1)


def _silence(observed: Observed) -> tuple[float, float]:
    """For how long the driver was silent, and for how long it may be. A pod is listened to from the start of its container."""
    age, started = observed.report_age_seconds, observed.driver.since
    if observed.report is None and started is not None:
        return min(age, (observed.now - started).total_seconds()), FIRST_REPORT_LIMIT_SECONDS
    return age, HEARTBEAT_LIMIT_SECONDS
