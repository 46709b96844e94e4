"""What a run has taken so far: time of its pods, and bytes."""

from datetime import datetime

from backfill.api.status import Attempt, Cost


def spent(cost: Cost | None, attempt: Attempt, executors: int, until: datetime) -> Cost:
    """The cost up to a moment of an attempt, since when it was last counted.

    Args:
        executors: how many ran since then.
    """
    cost = cost or Cost()
    begun = attempt.started_at
    since = begun if cost.counted_until is None else max(cost.counted_until, begun)
    seconds = max((until - since).total_seconds(), 0.0)
    return cost.model_copy(
        update={
            "driver_seconds": round(cost.driver_seconds + seconds, 3),
            "executor_seconds": round(cost.executor_seconds + executors * seconds, 3),
            "counted_until": max(until, since),
        }
    )
