"""Source watermarks and the global watermark.

The watermark of a source is the start of the first step that not all queries reading it have
committed. Steps are common to all sources, so this holds for steps in which the source has no rows,
too: no unread row is older than the start of its step, and the watermark is never ahead of an
uncommitted row. It may be behind the source's next row by the steps that are empty for it. That
costs little, since an empty step is committed as soon as it is released, and the driver, which does
not know which steps are empty, measures the same number.

No source is left out of the minimum for being idle. One is left out while it waits for its turn: if
the application starts the queries that read it after others have ended, which would otherwise wait
for it. A source is finished when all queries reading it have committed its last step; its watermark
is then the end of what is read, and the others decide the minimum.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from backfill.coordination.timeline import Timeline
from backfill.coordination.work_progress import committed_steps
from backfill.protocol.split_assignment import SplitAssignmentStatus


@dataclass(frozen=True, slots=True)
class Watermarks:
    """Event times up to which everything is read and committed, in microseconds UTC.

    Rows exactly at a watermark may still follow.
    """

    sources: Mapping[str, int]
    """Watermark of each source."""
    global_us: int
    """The earliest of them."""


def watermarks(timeline: Timeline, status: SplitAssignmentStatus | None) -> Watermarks:
    """Watermarks by a driver's report; None for no report yet.

    From a report that is late or out of order they are too early, never too late.
    """
    sources = {
        name: timeline.position_us(step) for name, step in committed_steps(timeline, status).items()
    }
    waiting = () if status is None else status.waiting_sources
    running = [time_us for name, time_us in sources.items() if name not in waiting]
    return Watermarks(sources, min(running or sources.values()))
