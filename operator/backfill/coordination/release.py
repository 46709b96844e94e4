"""Which steps may be read."""

from bisect import bisect_right

from backfill.coordination.timeline import Timeline


def release(timeline: Timeline, watermark_us: int, previous: int, ahead: int = 0) -> int:
    """Number of steps that may be read at this global watermark; ``previous`` is the number
    released before, ``ahead`` how many steps a driver reads at once that runs queries by spans.

    A step may be read once its end is at most ``max_misalignment_us`` after the watermark. The
    first uncommitted step may always be read, whatever its length, since all others wait for it.
    Released steps stay released, because they may have been read already; so an older watermark,
    from a report that arrives late, changes nothing.
    """
    if not timeline.aligned:
        return timeline.steps
    close_enough = bisect_right(timeline.ends_us, watermark_us + timeline.max_misalignment_us)
    first_uncommitted = bisect_right(timeline.starts_us, watermark_us)
    # rows of a span are in no state, so that reading far ahead costs no memory
    wanted = min(max(first_uncommitted - 1, 0) + ahead, timeline.steps)
    return max(close_enough, first_uncommitted, wanted, previous)
