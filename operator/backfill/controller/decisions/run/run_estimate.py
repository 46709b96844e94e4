"""What a run will take, by what earlier runs of the same application have taken."""

from collections.abc import Iterable
from datetime import UTC, datetime

from backfill.api.backfill import Backfill
from backfill.planning.plan_summary import MeasuredEstimate

_MOST = 5
_LEAST_SHARE = 0.01
"""Share of the bytes that an earlier run must have read: of a smaller one, the time says how long
starting takes.
"""
_NEVER = datetime.min.replace(tzinfo=UTC)


def by_earlier_runs(
    wanted: Backfill, bytes_to_read: int, others: Iterable[Backfill]
) -> MeasuredEstimate | None:
    """The estimate for a Backfill whose plan reads this many bytes; None without earlier runs.

    The latest five count that have read everything, and not less than a hundredth of these bytes,
    are of the same application in the same namespace, and have the same ``execution`` and
    ``maxRowsPerSecond``.
    """
    found = sorted(
        (
            other
            for other in others
            if _is_like(wanted, other) and _bytes_read(other) >= _LEAST_SHARE * bytes_to_read
        ),
        key=lambda other: other.status.finished_at or _NEVER,
        reverse=True,
    )[:_MOST]
    costs = [other.status.cost for other in found if other.status.cost is not None]
    read = sum(cost.bytes_read for cost in costs)
    if not read:
        return None
    share = bytes_to_read / read
    return MeasuredEstimate(
        seconds=round(share * sum(cost.driver_seconds for cost in costs), 1),
        executor_seconds=round(share * sum(cost.executor_seconds for cost in costs), 1),
        backfills=tuple(other.metadata.name for other in found),
        bytes_read=read,
    )


def _is_like(wanted: Backfill, other: Backfill) -> bool:
    mine, its, status = wanted.metadata, other.metadata, other.status
    return (
        (mine.namespace, mine.name) != (its.namespace, its.name)
        and mine.namespace == its.namespace
        and wanted.spec.application_ref == other.spec.application_ref
        and wanted.spec.execution == other.spec.execution
        and wanted.spec.max_rows_per_second == other.spec.max_rows_per_second
        and 0 < status.progress.steps == status.progress.committed
        and _bytes_read(other) > 0
        and status.cost is not None
        and status.cost.driver_seconds > 0
    )


def _bytes_read(backfill: Backfill) -> int:
    cost = backfill.status.cost
    return 0 if cost is None else cost.bytes_read
