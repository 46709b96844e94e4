"""A driver that runs without sending heartbeats."""

from datetime import timedelta

from backfill.api.conditions import ConditionType, Reason
from backfill.api.status import Attempt
from backfill.controller.decisions.actions import Next
from backfill.controller.decisions.observed import Observed
from backfill.controller.decisions.run.attempts import kill
from backfill.controller.decisions.status_draft import Draft

HEARTBEAT_LIMIT_SECONDS = 60.0
"""Seconds without a heartbeat after which a driver counts as silent."""
FIRST_REPORT_LIMIT_SECONDS = 300.0
"""The same for a driver whose container has started and that has not reported yet,
since Spark starts first.
"""
CONFIRMATION = timedelta(seconds=30)
"""On a cluster the silence is recorded first, and the driver killed
only if it continues for this time: the API server may have been
unavailable to both, and a successful write shows that it is back.
"""
_RUNNING = ConditionType.RUNNING


def watch_silence(observed: Observed, draft: Draft, attempt: Attempt) -> Next | None:
    """Kills a driver that hangs; None if it sends heartbeats."""
    age, limit = _silence(observed)
    if age < limit:
        if attempt.unheard_since is not None:
            draft.change_attempt(unheard_since=None)
        return None
    since = attempt.unheard_since
    if since is None and observed.policy.patient:
        draft.change_attempt(unheard_since=observed.now)
        message = (
            f"no heartbeat from attempt {attempt.number} for {age:.0f} s; the driver will be killed"
            " if this continues"
        )
        draft.condition(_RUNNING, "Unknown", Reason.DRIVER_SILENT, message)
        return Next(requeue_seconds=CONFIRMATION.total_seconds())
    due = observed.now if since is None else since + CONFIRMATION
    if due > observed.now:
        return Next(requeue_seconds=(due - observed.now).total_seconds())
    return kill(observed, draft, attempt, f"no heartbeat for {age:.0f} s; killed", due)


def until_silent(observed: Observed) -> float:
    """Seconds until the driver counts as silent."""
    age, limit = _silence(observed)
    return max(limit - age, 0.1)


def _silence(observed: Observed) -> tuple[float, float]:
    """How long the driver has been silent, and how long it may be, in seconds.

    For a pod, time counts from the start of its container.
    """
    age, started = observed.report_age_seconds, observed.driver.since
    if observed.report is None and started is not None:
        return min(age, (observed.now - started).total_seconds()), FIRST_REPORT_LIMIT_SECONDS
    return age, HEARTBEAT_LIMIT_SECONDS
