"""From a driver's report: committed steps, and how much work is done and left."""

from dataclasses import dataclass

from backfill.coordination.timeline import Timeline
from backfill.protocol.split_assignment import SplitAssignmentStatus


@dataclass(frozen=True, slots=True)
class Work:
    """Work in planned rows, and in steps of the slowest query.

    A row counts once for every query that reads it.
    """

    rows_done: int
    rows_left: int
    steps_left: int


def committed_steps(timeline: Timeline, status: SplitAssignmentStatus | None) -> dict[str, int]:
    """For each source, the number of steps that all queries reading it have committed.

    After the flush it is ``steps + 1``. A source that no query reports has no committed steps. Nor
    has any source while the driver is starting, because a query that it has not started yet may
    read the source and be far behind.
    """
    reported: dict[str, int] = {}
    if status is not None and status.phase != "Starting":
        for query in status.queries:
            for source in query.sources:
                reported[source.name] = min(
                    source.committed, reported.get(source.name, source.committed)
                )
    return {source.name: reported.get(source.name, 0) for source in timeline.sources}


def work(timeline: Timeline, status: SplitAssignmentStatus | None) -> Work:
    """How much is done and left. Before any query is reported, each source counts once.

    A driver that is starting reports what was known before it, which is good enough for an
    estimate.
    """
    step_rows = {source.name: source.step_rows for source in timeline.sources}
    reads = [
        source
        for query in (status.each_query if status else ())
        for source in query.sources
        if source.name in step_rows
    ]
    waiting = (step_rows.keys() & set(status.waiting_sources)) if status else set()
    if not reads:
        return Work(rows_done=0, rows_left=timeline.rows, steps_left=timeline.steps)
    return Work(
        rows_done=sum(sum(step_rows[read.name][: read.committed]) for read in reads),
        rows_left=sum(sum(step_rows[read.name][read.committed :]) for read in reads)
        + sum(sum(step_rows[name]) for name in waiting),
        steps_left=max(timeline.steps - min(read.committed for read in reads), 0),
    )
