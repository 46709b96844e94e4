"""Situations in which other systems hung, ran ahead or lost rows while aligning sources, played
through here.

They are described in public reports on Apache Flink's watermark alignment (FLINK-31632, 32414,
32496, 35157, 36751, 37399, 37670, 38477, 40093 and FLIP-471) and on Apache Iceberg's Flink source
(15867).
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
from simulated_run import Cluster, History
from timelines import MINUTE_US, history, timeline

from backfill.coordination.released_steps import release
from backfill.coordination.timeline import SourceTimeline, Timeline
from backfill.coordination.watermarks import watermarks

FAST, SLOW = 0, 1


def one_query_each(line: Timeline, lateness_us: int = 0) -> History:
    return history(
        line, {f"reads {source.name}": (source.name,) for source in line.sources}, lateness_us
    )


def started(past: History) -> Cluster:
    """A cluster whose queries have all been started and reported."""
    cluster = Cluster(past)
    cluster.controller_turn()
    for _ in past.queries:
        cluster.start_query()
    exchange(cluster)
    return cluster


def exchange(cluster: Cluster) -> None:
    """Both sides learn what the other one knows."""
    cluster.lose_messages()
    cluster.report()
    cluster.deliver_to_controller(-1)
    cluster.controller_turn()
    cluster.deliver_to_driver(-1)


def run_for(cluster: Cluster, query: int, rounds: int) -> None:
    """Only one query does anything."""
    for _ in range(rounds):
        cluster.query_turn(query, turns=100)
        exchange(cluster)


def batches(cluster: Cluster, query: int) -> int:
    return list(cluster.checkpoints.values())[query].committed


def test_a_source_without_any_file_does_not_stop_the_others() -> None:
    cluster = started(
        one_query_each(timeline(0, 5, 10, 15, rows={"full": (1, 1, 1, 1), "empty": (0, 0, 0, 0)}))
    )
    cluster.settle()


def test_a_source_without_any_file_that_is_slow_to_start_is_waited_for() -> None:
    cluster = Cluster(
        one_query_each(timeline(0, 5, 10, 15, rows={"full": (1, 1, 1, 1), "empty": (0, 0, 0, 0)}))
    )
    cluster.controller_turn()
    cluster.start_query()
    exchange(cluster)
    run_for(cluster, FAST, rounds=10)
    assert batches(cluster, FAST) == 2
    cluster.settle()


def test_one_source_in_one_file_and_one_step_runs_to_the_end() -> None:
    cluster = started(one_query_each(timeline(0, rows={"only": (3,)})))
    run_for(cluster, FAST, rounds=1)
    assert batches(cluster, FAST) == 2
    cluster.settle()


def test_a_source_that_has_finished_does_not_hold_the_others() -> None:
    cluster = started(
        one_query_each(
            timeline(*range(0, 100, 5), rows={"short": (1,) + (0,) * 19, "long": (1,) * 20})
        )
    )
    for _ in range(12):
        cluster.query_turn(FAST, turns=100)
        cluster.query_turn(SLOW, turns=100)
        exchange(cluster)
    assert batches(cluster, SLOW) == 21
    cluster.settle()


def test_a_source_whose_rows_are_all_read_is_finished_only_when_its_last_step_is_committed() -> (
    None
):
    cluster = started(
        one_query_each(timeline(0, 5, 10, rows={"fast": (1, 1, 1), "slow": (1, 0, 0)}))
    )
    cluster.query_turn(SLOW, turns=3)  # planned, read and written, but not committed
    run_for(cluster, FAST, rounds=5)
    assert batches(cluster, FAST) == 2
    cluster.settle()


def test_the_last_unfinished_source_goes_on_when_all_others_have_finished() -> None:
    line = timeline(*range(0, 50, 5), rows={"a": (1,) * 10, "b": (1,) * 10})
    assert release(line, watermarks(line, None).global_us, 0) == 2
    assert release(line, line.starts_us[9], 9) == 10
    assert release(line, line.read_end_us, 10) == 10


def test_a_bound_beyond_the_end_of_the_calendar_does_not_overflow() -> None:
    latest_us = 2**63 - 1
    line = Timeline(
        (latest_us - 2,),
        (latest_us - 1,),
        latest_us,
        (SourceTimeline("a", (1,)),),
        max_misalignment_us=latest_us,
    )
    assert release(line, latest_us, 0) == 1
    assert release(line, line.starts_us[0], 0) == 1


def test_a_source_silent_for_hours_and_back_again_is_never_taken_for_finished() -> None:
    silent = (1, *(0,) * 10, 1)
    cluster = started(
        one_query_each(timeline(*range(0, 60, 5), rows={"steady": (1,) * 12, "silent": silent}))
    )
    run_for(cluster, FAST, rounds=20)
    assert batches(cluster, FAST) == 2
    run_for(cluster, SLOW, rounds=1)
    run_for(cluster, FAST, rounds=20)
    assert batches(cluster, FAST) == 4
    cluster.settle()


def test_a_source_held_back_for_long_is_still_active_when_it_may_go_on() -> None:
    cluster = started(
        one_query_each(timeline(*range(0, 50, 5), rows={"held": (1,) * 10, "slow": (1,) * 10}))
    )
    run_for(cluster, FAST, rounds=1000)
    assert batches(cluster, FAST) == 2
    run_for(cluster, SLOW, rounds=1)
    run_for(cluster, FAST, rounds=1)
    assert batches(cluster, FAST) == 4
    cluster.settle()


def test_everyone_silent_over_a_gap_longer_than_the_bound_goes_on_after_it() -> None:
    cluster = started(
        one_query_each(timeline(0, 5, 500, 505, rows={"a": (1, 1, 1, 1), "b": (1, 1, 1, 1)}))
    )
    cluster.settle()


def test_rows_with_exactly_the_watermarks_moment_are_still_read() -> None:
    line = timeline(0, 5, 10, rows={"a": (2, 2, 2)})
    usual = history(line, {"q": ("a",)})
    rows = {
        place: tuple(replace(row, at_us=line.starts_us[row.step]) for row in step)
        for place, step in usual.rows.items()
    }
    cluster = started(replace(usual, rows=rows))
    cluster.query_turn(0, turns=4)
    cluster.report()
    cluster.deliver_to_controller(-1)
    assert watermarks(line, cluster.view).global_us == rows["a", 1][0].at_us
    cluster.settle()


def test_all_rows_at_one_moment_make_one_step() -> None:
    line = Timeline(
        (7,), (8,), 8, (SourceTimeline("a", (5,)), SourceTimeline("b", (5,))), max_misalignment_us=2
    )
    cluster = started(history(line, {"q": ("a", "b")}))
    cluster.settle()


def test_while_a_step_is_read_the_next_one_is_already_released() -> None:
    line = timeline(*range(0, 50, 5), rows={"a": (1,) * 10})
    released = 0
    for step in range(line.steps - 1):
        released = release(line, line.starts_us[step], released)
        assert released == step + 2


def test_queries_of_one_speed_wait_for_the_controller_once_in_two_steps_at_most() -> None:
    cluster = started(
        one_query_each(timeline(*range(0, 100, 5), rows={"a": (1,) * 20, "b": (1,) * 20}))
    )
    rounds = 0
    while not cluster.finished:
        for query in (FAST, SLOW):
            cluster.query_turn(query, turns=100)
        exchange(cluster)
        rounds += 1
    assert rounds <= 11


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Cluster.crash_driver, id="the driver crashes"),
        pytest.param(Cluster.restart_controller, id="the controller restarts"),
        pytest.param(Cluster.lose_messages, id="all messages are lost"),
    ],
)
@pytest.mark.parametrize("turns", range(6))
def test_a_fault_anywhere_in_a_batch_neither_loses_nor_doubles_rows(
    fault: Callable[[Cluster], None], turns: int
) -> None:
    line = timeline(0, 5, 10, rows={"a": (2, 0, 2), "b": (1, 3, 1)})
    cluster = started(history(line, {"join": ("a", "b"), "copy": ("a",)}, lateness_us=MINUTE_US))
    cluster.query_turn(0, turns)
    fault(cluster)
    cluster.settle()


def test_a_driver_that_restarts_far_ahead_of_the_reports_waits_for_the_slow_query() -> None:
    cluster = started(
        one_query_each(timeline(*range(0, 50, 5), rows={"fast": (1,) * 10, "slow": (1,) * 10}))
    )
    run_for(cluster, FAST, rounds=3)
    cluster.crash_driver()
    cluster.restart_controller()
    cluster.controller_turn()
    cluster.start_query()
    run_for(cluster, FAST, rounds=10)
    assert batches(cluster, FAST) == 2
    cluster.settle()


def test_a_report_of_an_earlier_attempt_that_comes_late_releases_nothing_wrong() -> None:
    cluster = started(
        one_query_each(timeline(*range(0, 50, 5), rows={"a": (1,) * 10, "b": (1,) * 10}))
    )
    cluster.report()
    stale = cluster.to_controller[-1]
    cluster.settle()
    released = cluster.spec.released
    cluster.view = stale
    cluster.controller_turn()
    assert cluster.spec.released == released == 10
