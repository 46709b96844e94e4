"""Committed steps and rows count once, and the distance ahead of the watermark is never
understated.
"""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from backfill.api.quantities import from_us
from backfill.planning.plan import PlanHeader
from backfill.protocol.split_assignment import QueryProgress, SourceProgress, SplitAssignmentStatus
from backfill.runtime.queries.tracker import OpenResults, ReportedBatch, Tracker, Traits

SOURCES = ("impressions", "playbacks")


class FakeClock:
    """Moves by a second each time it is asked."""

    now_us = 0

    def __call__(self) -> int:
        self.now_us += 1_000_000
        return self.now_us


def _tracker(
    header: PlanHeader, before: SplitAssignmentStatus | None = None
) -> tuple[Tracker, FakeClock, list[tuple[str, int]]]:
    clock = FakeClock()
    counted: list[tuple[str, int]] = []

    def count_rows(source: str, step: int) -> int:
        counted.append((source, step))
        return 10

    return Tracker(header, SOURCES, count_rows, clock, before), clock, counted


def _batch(
    clock: FakeClock,
    ends: Mapping[str, int],
    rows: int = 10,
    newest_us: int | None = None,
    query: str = "q",
) -> ReportedBatch:
    (end,) = set(ends.values())
    return ReportedBatch(
        query,
        clock.now_us,
        clock.now_us + 500_000,
        end,
        dict.fromkeys(ends, rows),
        newest_us,
        late_rows=1,
    )


def _sources(tracker: Tracker, query: int = 0) -> list[tuple[str, int, int]]:
    return [
        (source.name, source.committed, source.rows) for source in tracker.queries[query].sources
    ]


def _status(header: PlanHeader, *queries: QueryProgress) -> SplitAssignmentStatus:
    return SplitAssignmentStatus(
        attempt=1, queries=queries, heartbeat=from_us(0), max_observed_misalignment_seconds=7.0
    )


def _reported(
    output: str, committed: int, rows: int, source: str = "impressions", name: str = "q"
) -> QueryProgress:
    progress = SourceProgress(name=source, committed=committed, rows=rows)
    return QueryProgress(name=name, output=output, sources=(progress,), late_rows=3)


def test_a_warning_of_times_is_reported_once_for_each_output(header: PlanHeader) -> None:
    tracker, _, _ = _tracker(header)
    tracker.add_function("q", {"impressions": 0}, Traits(), ("one", "two"))
    for _ in range(2):
        tracker.warn("q", ["of clicks, times are whole seconds"])
    found = [each.warnings for each in tracker.queries]
    assert found == ["of clicks, times are whole seconds"] * 2


def test_a_batch_reported_twice_counts_once(header: PlanHeader) -> None:
    tracker, clock, counted = _tracker(header)
    tracker.add("q", "o", dict.fromkeys(SOURCES, 0))
    for _ in range(2):
        tracker.commit(_batch(clock, dict.fromkeys(SOURCES, 1)))
    assert _sources(tracker) == [("impressions", 1, 10), ("playbacks", 1, 10)]
    assert (tracker.queries[0].late_rows, tracker.busy_seconds, counted) == (1, 0.5, [])


def test_rows_that_arrived_late_add_up_over_spans_and_attempts(header: PlanHeader) -> None:
    before = _reported("o", 1, 10).model_copy(update={"arrived_late": 5})
    tracker, clock, _ = _tracker(header, _status(header, before))
    tracker.add("q", "o", {"impressions": 1})
    for step in (2, 3):
        tracker.commit(replace(_batch(clock, {"impressions": step}), arrived_late=2))
    assert tracker.queries[0].arrived_late == 9


def test_a_step_whose_report_was_lost_is_counted_by_reading(header: PlanHeader) -> None:
    tracker, clock, counted = _tracker(header)
    tracker.add("q", "o", {"impressions": 0})
    tracker.commit(_batch(clock, {"impressions": 3}))
    assert _sources(tracker) == [("impressions", 3, 30)]
    assert counted == [("impressions", 0), ("impressions", 1)]


def test_steps_that_only_the_checkpoint_tells_of_are_counted_by_reading_and_not_again_when_a_report_comes(
    header: PlanHeader,
) -> None:
    tracker, clock, counted = _tracker(header)
    tracker.add("q", "o", {"impressions": 0})
    tracker.commit(_batch(clock, {"impressions": 1}))
    tracker.catch_up("q", 3)
    tracker.commit(_batch(clock, {"impressions": 3}))
    assert _sources(tracker) == [("impressions", 3, 30)]
    assert counted == [("impressions", 1), ("impressions", 2)]


def test_a_checkpoint_that_is_behind_the_reports_takes_nothing_back(header: PlanHeader) -> None:
    tracker, clock, _ = _tracker(header)
    tracker.add("q", "o", {"impressions": 0})
    tracker.commit(_batch(clock, {"impressions": 1}))
    tracker.catch_up("q", 0)
    assert _sources(tracker) == [("impressions", 1, 10)]


def test_a_report_that_comes_while_lost_steps_are_counted_is_kept(header: PlanHeader) -> None:
    def count_rows(_source: str, _step: int) -> int:
        tracker.commit(_batch(clock, {"impressions": 1}, rows=7))
        return 10

    clock = FakeClock()
    tracker = Tracker(header, SOURCES, count_rows, clock)
    tracker.add("q", "o", {"impressions": 0})
    tracker.catch_up("q", 1)
    assert _sources(tracker) == [("impressions", 1, 7)]


def test_the_flush_reads_nothing_and_a_lost_report_of_it_is_not_read(header: PlanHeader) -> None:
    tracker, _, counted = _tracker(header, _status(header, _reported("o", header.steps, 60)))
    tracker.add("q", "o", {"impressions": header.steps + 1})
    assert _sources(tracker) == [("impressions", header.steps + 1, 60)]
    assert counted == []
    assert tracker.all_reached(header.steps + 1)


@pytest.mark.parametrize(
    ("reported", "committed", "rows", "read"),
    [
        pytest.param(2, 2, 25, [], id="the report is complete"),
        pytest.param(2, 4, 45, [2, 3], id="a batch was committed after the report"),
        pytest.param(2, 0, 0, [], id="the checkpoint begins anew"),
        pytest.param(4, 2, 20, [0, 1], id="the report is ahead of the checkpoint"),
    ],
)
def test_after_a_restart_the_checkpoint_is_the_truth(
    header: PlanHeader, reported: int, committed: int, rows: int, read: list[int]
) -> None:
    tracker, _, counted = _tracker(header, _status(header, _reported("o", reported, 25)))
    tracker.add("q", "o", {"impressions": committed})
    assert _sources(tracker) == [("impressions", committed, rows)]
    assert [step for _, step in counted] == read
    assert tracker.queries[0].late_rows == 3


def test_rows_are_measured_against_the_slowest_query(header: PlanHeader) -> None:
    tracker, clock, _ = _tracker(header)
    tracker.add("fast", "a", {"impressions": 0})
    tracker.add("slow", "b", {"playbacks": 0})
    starts = header.step_starts_us
    tracker.commit(_batch(clock, {"impressions": 1}, newest_us=starts[0] + 5, query="fast"))
    tracker.commit(_batch(clock, {"impressions": 2}, newest_us=starts[1] + 7, query="fast"))
    assert tracker.misalignment_seconds == (starts[1] + 7 - starts[0]) / 1e6


def test_a_commit_that_comes_while_a_batch_runs_does_not_excuse_it(header: PlanHeader) -> None:
    tracker, clock, _ = _tracker(header)
    tracker.add("fast", "a", {"impressions": 0})
    tracker.add("slow", "b", {"playbacks": 0})
    began = _batch(clock, {"impressions": 1}, newest_us=header.step_starts_us[1], query="fast")
    tracker.commit(_batch(clock, {"playbacks": 1}, query="slow"))
    tracker.commit(began)
    assert tracker.misalignment_seconds == 600.0


def test_a_source_that_nobody_reads_yet_holds_the_watermark(header: PlanHeader) -> None:
    tracker, clock, _ = _tracker(header)
    tracker.add("fast", "a", {"impressions": 0})
    tracker.commit(_batch(clock, {"impressions": 1}, query="fast"))
    tracker.commit(
        _batch(clock, {"impressions": 2}, newest_us=header.step_starts_us[1], query="fast")
    )
    assert tracker.misalignment_seconds == 600.0
    assert tracker.unread_sources == {"playbacks"}


def test_a_finished_source_does_not_hold_the_watermark(header: PlanHeader) -> None:
    tracker, clock, _ = _tracker(header)
    tracker.add("done", "a", {"playbacks": header.steps})
    tracker.add("q", "b", {"impressions": 2})
    tracker.commit(
        _batch(clock, {"impressions": 3}, newest_us=header.step_starts_us[2] + 1_000_000)
    )
    assert tracker.misalignment_seconds == 1.0


def test_after_a_restart_the_watermark_goes_on_where_all_queries_were(header: PlanHeader) -> None:
    before = _status(
        header,
        _reported("a", 3, 30, name="fast"),
        _reported("b", 2, 20, source="playbacks", name="slow"),
    )
    tracker, clock, _ = _tracker(header, before)
    tracker.add("fast", "a", {"impressions": 3})
    tracker.commit(
        _batch(clock, {"impressions": 4}, newest_us=header.step_starts_us[3], query="fast")
    )
    # the slow one had not begun again: it counts from its last report
    assert tracker.misalignment_seconds == 600.0


def test_the_greatest_distance_of_earlier_attempts_is_kept(header: PlanHeader) -> None:
    tracker, _, _ = _tracker(header, _status(header))
    assert tracker.misalignment_seconds == 7.0


def test_time_that_two_queries_share_is_spent_once(header: PlanHeader) -> None:
    tracker, clock, _ = _tracker(header)
    tracker.add("fast", "a", {"impressions": 0})
    tracker.add("slow", "b", {"playbacks": 0})
    start = clock.now_us
    tracker.commit(ReportedBatch("fast", start, start + 1_000_000, 1, {}))
    tracker.commit(ReportedBatch("slow", start + 500_000, start + 2_000_000, 1, {}))
    assert tracker.busy_seconds == 2.0


@pytest.mark.parametrize(
    "less", [OpenResults(unknown="the driver ended before it reported them"), OpenResults(count=3)]
)
def test_what_an_earlier_attempt_counted_open_stays_where_this_one_knows_less(
    header: PlanHeader, less: OpenResults
) -> None:
    committed = QueryProgress(
        name="q",
        output="summary",
        sources=(SourceProgress(name="impressions", committed=7, rows=9),),
        open_at_end=3,
        open_from=from_us(60_000_000),
        needed_drain_seconds=90.0,
    )
    tracker, _, _ = _tracker(header, _status(header, committed))
    tracker.add("q", "summary", {"impressions": header.steps})
    tracker.record_open_results("q", less)
    (query,) = tracker.queries
    assert (query.open_at_end, query.needed_drain_seconds) == (3, 90.0)
    assert query.open_from == committed.open_from
    tracker.record_open_results("q", OpenResults(count=2))
    assert tracker.queries[0].open_at_end == 2
    begun_again, _, _ = _tracker(header, _status(header, committed))
    begun_again.add("q", "summary", {"impressions": header.steps - 1})
    assert begun_again.queries[0].open_at_end is None


def test_what_is_found_out_of_how_rows_arrive_takes_the_place_of_what_the_plan_says(
    header: PlanHeader,
) -> None:
    tracker, _, _ = _tracker(header)
    said = Traits(execution="Batch", look_back_seconds=1.0, look_ahead_seconds=2.0)
    tracker.add("q", "summary", {"impressions": 0}, said)
    tracker.record_look_ahead("q", 30.0)
    (query,) = tracker.queries
    assert (query.look_back_seconds, query.look_ahead_seconds) == (1.0, 30.0)


def test_rows_that_a_function_reads_several_times_count_once(header: PlanHeader) -> None:
    tracker, clock, counted = _tracker(header)
    tracker.add_function("f", {"impressions": 0}, Traits(), ())
    tracker.commit(_batch(clock, {"impressions": 1}, rows=30, query="f"))
    tracker.commit(_batch(clock, {"impressions": 2}, rows=0, query="f"))
    assert _sources(tracker) == [("impressions", 2, 20)]
    assert counted == [("impressions", 0), ("impressions", 1)]


def test_a_function_that_writes_several_outputs_is_reported_for_each_and_its_late_rows_once(
    header: PlanHeader,
) -> None:
    tracker, clock, _ = _tracker(header)
    tracker.add_function("f", {"impressions": 0}, Traits(), ())
    assert [query.output for query in tracker.queries] == [None]
    for output in ("a", "b", "a"):
        tracker.wrote("f", output)
    tracker.commit(_batch(clock, {"impressions": 1}, query="f"))
    assert [(query.output, query.late_rows) for query in tracker.queries] == [("a", 1), ("b", 0)]

    reported = [
        query.model_copy(
            update={"sources": (SourceProgress(name="impressions", committed=1, rows=10),)}
        )
        for query in tracker.queries
    ]
    again, _, counted = _tracker(header, _status(header, *reported))
    again.add_function("f", {"impressions": 1}, Traits(), ("a", "b"))
    assert [(query.output, query.late_rows) for query in again.queries] == [("a", 1), ("b", 0)]
    assert (_sources(again), counted) == ([("impressions", 1, 10)], []), (
        "it goes on from the report"
    )
