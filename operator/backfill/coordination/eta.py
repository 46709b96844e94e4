"""Estimated time of completion."""

from backfill.coordination.recent_rate import Rate

_MICROSECONDS = 1_000_000
_FAR_SECONDS = 10 * 366 * 24 * 3600


def eta(now_us: int, rows_left: int, rate: Rate) -> int | None:
    """When no rows are left if the rate stays the same, in microseconds UTC.

    None if unknown: nothing has been measured yet, or it would take more than ten years.
    """
    if rows_left <= 0:
        return now_us
    per_second = rate.per_second
    if per_second is None or rows_left / per_second > _FAR_SECONDS:
        return None
    return now_us + round(rows_left / per_second * _MICROSECONDS)
