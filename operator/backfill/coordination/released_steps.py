"""Which steps may be read."""

from bisect import bisect_right

from backfill.coordination.timeline import Timeline


def release(timeline: Timeline, watermark_us: int, previous: int) -> int:
    """Number of steps that may be read at a global watermark.

    ``previous`` is the number released before. A step may be read once its end is at most
    ``max_misalignment_us`` after the watermark. The first uncommitted step may always be read,
    however long it is, since all others wait for it. Released steps stay released, because they may
    have been read already; so an older watermark, from a report that arrives late, changes nothing.
    """
    if not timeline.aligned:
        return timeline.steps
    close_enough = bisect_right(timeline.ends_us, watermark_us + timeline.max_misalignment_us)
    first_uncommitted = bisect_right(timeline.starts_us, watermark_us)
    return max(close_enough, first_uncommitted, previous)


def release_ahead(timeline: Timeline, watermark_us: int, previous: int, ahead: int) -> int:
    """Number of steps that queries run by spans may read in addition to what all may read.

    ``previous`` is the number before. ``ahead`` is how many steps after the last committed one
    their spans read; zero without such queries. Reading far ahead costs no memory, because no row
    of a span is kept in state. The slowest query may always read its next spans; one that is
    further ahead waits for the others.
    """
    if ahead == 0:
        return previous
    committed = max(bisect_right(timeline.starts_us, watermark_us) - 1, 0)
    return max(min(committed + ahead, timeline.steps), previous)
