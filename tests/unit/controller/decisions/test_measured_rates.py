"""Rates are measured over times that say something, however steps are committed."""

from collections.abc import Iterable

import pytest

from backfill.controller.decisions.run.measured_rates import Meter
from backfill.protocol.split_assignment import QueryProgress, SourceProgress, SplitAssignmentStatus
from situations import reported, running

SPANS = [(0, 0.0), (1, 60.0), (2, 61.0), (3, 120.0), (4, 121.0)]
"""Two at a time, in a minute of all executors; each is a step of a hundred rows here."""


def report(committed: int, seconds: float, *, executors: int, spans: bool) -> SplitAssignmentStatus:
    progress = SourceProgress(name="clicks", committed=committed, rows=100 * committed)
    query = QueryProgress(
        name="query",
        output="counts",
        sources=(progress,),
        execution="Batch" if spans else "Streaming",
    )
    return reported("Running", queries=(query,), executors=executors, processing_seconds=seconds)


def meter_after(
    commits: Iterable[tuple[int, float]], *, executors: int = 1, spans: bool = True
) -> Meter:
    """After reports of so many committed steps, each at its time. All of it is work."""
    meter = Meter()
    for committed, now in commits:
        seen = report(committed, now, executors=executors, spans=spans)
        meter.note(1, running(report=seen), now)
    return meter


def test_a_span_that_is_committed_right_after_another_does_not_look_fast() -> None:
    for count in (2, 3):
        meter = meter_after(SPANS[:count], executors=40)
        assert meter.executor_rate.per_second is None
        assert meter.rate.per_second is None
    for count in (4, 5):
        meter = meter_after(SPANS[:count], executors=40)
        assert meter.executor_rate.per_second == pytest.approx(200 / 59 / 40, rel=0.05)
        assert meter.rate.per_second == pytest.approx(200 / 60, rel=0.05)


def test_work_that_is_too_short_to_be_measured_counts_later() -> None:
    commits = [(step, 2.0 * step) for step in range(9)]
    short = meter_after(commits[:6], executors=4, spans=False)
    assert short.executor_rate.per_second is None
    assert short.rate.per_second == pytest.approx(50), (
        "of a stream, whose batches follow each other"
    )
    long = meter_after(commits, executors=4, spans=False)
    assert long.executor_rate.per_second == pytest.approx(50 / 4)
    by_spans = meter_after(commits, executors=4)
    assert by_spans.executor_rate == long.executor_rate
    assert by_spans.rate.per_second == pytest.approx(50)
