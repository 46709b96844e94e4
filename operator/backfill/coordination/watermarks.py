"""How far each source is read and committed, and how far all of them are.

The watermark of a source is the start of the first step that not all queries reading it have committed. It is right
with steps in which the source has no rows, because steps are common to all sources: no row that is still to be read is
older than the start of the step it is in, so the watermark is never ahead of an uncommitted row. It may be behind the
source's next row by the steps that are empty for it. That costs little (an empty step is committed as soon as it is
released, and the first uncommitted step always is) and keeps the number one that the driver, which does not know which
steps are empty, measures as well.

Being finished is not being idle: nothing is left out of the least value for having been silent. A source is past all
steps when its last step is committed by all queries reading it; its watermark is then the end of what is read, and the
least value is decided by the others.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from backfill.coordination.progress import committed_steps
from backfill.coordination.timeline import Timeline
from backfill.protocol.split_assignment import SplitAssignmentStatus


@dataclass(frozen=True, slots=True)
class Watermarks:
    """Everything older is read and committed; rows exactly at a watermark may still come. Microseconds, UTC."""

    sources: Mapping[str, int]
    """Each source's watermark."""
    global_us: int
    """The least of them."""


def watermarks(timeline: Timeline, status: SplitAssignmentStatus | None) -> Watermarks:
    """The watermarks that follow from a driver's report; None stands for no report yet.

    A report that is late or out of order gives watermarks that are too early, never too late.
    """
    sources = {name: timeline.position_us(step) for name, step in committed_steps(timeline, status).items()}
    return Watermarks(sources, min(sources.values()))
