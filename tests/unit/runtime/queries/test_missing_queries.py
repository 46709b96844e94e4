"""When an application is expected to start no more queries, and what it is told until then."""

import sys
import threading
from collections.abc import Iterator, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from backfill.api.output import PublishMode
from backfill.api.quantities import from_us
from backfill.planning.plan import PlanHeader
from backfill.protocol.split_assignment import QueryProgress, SplitAssignmentStatus
from backfill.runtime.queries.application_threads import application_works
from backfill.runtime.queries.run_state import Run, StartedQuery
from backfill.runtime.queries.tracker import Tracker
from backfill.runtime.switching.query_handle import SwitchedQuery, SwitchedQueryManager
from waiting import PATIENCE_SECONDS, eventually

PLAYS = "no query of the application writes the output plays"


class FakeClock:
    """Stands still until the test moves it."""

    now = 100.0
    step = 0.0
    """How far looking at it moves it."""

    def __call__(self) -> float:
        self.now += self.step
        return self.now


class Threads:
    """The application's threads, as the test says."""

    at_work = False

    def __call__(self, waiting: Set[int]) -> bool:
        return self.at_work


def named(name: str, mode: PublishMode = PublishMode.NONE) -> Any:
    """An output of which only the name and the mode matter."""
    return SimpleNamespace(name=name, publish=SimpleNamespace(mode=mode))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def threads() -> Threads:
    return Threads()


@pytest.fixture
def run(header: PlanHeader, clock: FakeClock, threads: Threads) -> Run:
    settings: Any = SimpleNamespace(outputs=[named("summary"), named("plays")], hand_off=None)
    return Run(settings, Tracker(header, [], lambda _source, _step: 0, lambda: 0), clock, threads)


def _start(run: Run, output: str) -> None:
    handle: Any = SimpleNamespace(_jsq=None, isActive=True)
    run.started(StartedQuery(output, output, "", handle, handle, handle))


def test_an_application_all_of_whose_threads_wait_is_told_within_seconds_what_it_has_not_started(
    run: Run, clock: FakeClock
) -> None:
    _start(run, "summary")
    run.application_waits()
    clock.now += 14.0
    assert run.overdue() is None
    clock.now += 1.0
    assert PLAYS in str(run.overdue())


def test_an_application_on_a_slow_machine_may_take_minutes_between_two_queries_while_its_main_thread_waits(
    run: Run, clock: FakeClock, threads: Threads
) -> None:
    threads.at_work = True
    run.application_waits()
    for output in ("other", "summary"):
        clock.now += 590.0
        assert run.overdue() is None
        _start(run, output)
    clock.now += 599.0
    assert run.overdue() is None


def test_an_application_that_neither_waits_nor_asks_nor_starts_the_rest_does_not_hang_for_ever(
    run: Run, clock: FakeClock, threads: Threads
) -> None:
    threads.at_work = True
    _start(run, "summary")
    clock.now += 600.0
    assert PLAYS in str(run.overdue())


def test_an_application_may_prepare_for_hours_before_its_first_query(
    run: Run, clock: FakeClock, threads: Threads
) -> None:
    threads.at_work = True
    clock.now += 36_000.0
    assert run.overdue() is None
    assert run.waits_for == "the program is running, and has started no queries so far"


def test_what_a_slow_start_waits_for_is_said_before_anything_is_refused(
    run: Run, clock: FakeClock
) -> None:
    _start(run, "summary")
    assert run.waits_for == "the program is running, and has started 1 query so far"
    clock.now += 30.0
    assert run.waits_for == PLAYS
    _start(run, "plays")
    clock.now += 3_600.0
    assert run.waits_for == ""


def test_a_program_that_starts_nothing_is_one_problem(run: Run, clock: FakeClock) -> None:
    run.application_waits()
    clock.now += 3_600.0
    (problem,) = run.missing()
    assert str(run.overdue()) == str(problem)
    assert problem.message == "the program has started no streaming query that a backfill runs"


def test_looking_at_queries_or_waiting_for_a_moment_is_no_promise_to_start_no_more(
    run: Run, clock: FakeClock
) -> None:
    _start(run, "summary")
    query = SwitchedQuery(None, run, lambda: False, ends=False)  # type: ignore[arg-type]
    assert query.isActive
    assert SwitchedQueryManager(None, run).active  # type: ignore[arg-type]
    assert query.awaitTermination(0) is False  # type: ignore[arg-type]
    clock.now += 599.0
    assert run.overdue() is None


@contextmanager
def _awaited(run: Run, **settings: Any) -> Iterator[threading.Event]:
    """A query that the application waits for, and that ends once the event is set."""
    done = threading.Event()
    query = SwitchedQuery(None, run, done.is_set, ends=True)  # type: ignore[arg-type]
    thread = threading.Thread(target=query.awaitTermination, kwargs=settings, daemon=True)
    thread.start()
    eventually(lambda: bool(run._awaiting), "it waits")
    yield done
    done.set()
    thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive()
    assert not query.isActive


def test_an_application_that_waits_for_a_query_that_ends_may_start_the_next_one_hours_later(
    run: Run, clock: FakeClock
) -> None:
    _start(run, "summary")
    with _awaited(run):
        clock.now += 36_000.0
        assert run.overdue() is None
        assert run.in_turn
    assert run.overdue() is None
    run.application_waits()
    clock.now += 15.0
    assert PLAYS in str(run.overdue()), "it has started nothing more"


def test_queries_are_taken_for_others_at_the_same_time_until_the_application_only_waits(
    run: Run, clock: FakeClock, threads: Threads
) -> None:
    threads.at_work = True
    _start(run, "summary")
    with _awaited(run):
        clock.now += 59.0
        assert not run.in_turn, "another thread may be about to start the other one"
        threads.at_work = False
        assert run.in_turn
    threads.at_work = True
    assert run.in_turn, "the next one follows"


def test_queries_of_a_pool_that_is_too_small_for_all_run_one_after_the_other(
    run: Run, clock: FakeClock, threads: Threads
) -> None:
    threads.at_work = True
    _start(run, "summary")
    with _awaited(run, timeout=PATIENCE_SECONDS):
        clock.now += 60.0
        assert run.in_turn


def test_where_all_queries_have_started_none_waits_for_its_turn(run: Run, clock: FakeClock) -> None:
    for output in ("summary", "plays"):
        _start(run, output)
    with _awaited(run):
        clock.now += 3_600.0
        assert not run.in_turn


def test_where_queries_go_on_with_live_traffic_none_ends_before_the_others(
    run: Run, clock: FakeClock
) -> None:
    _start(run, "summary")
    run.settings.hand_off = object()  # type: ignore[assignment]
    query = SwitchedQuery(None, run, lambda: True, ends=True)  # type: ignore[arg-type]
    assert query.awaitTermination(0) is False  # type: ignore[arg-type]
    run.application_waits()
    clock.now += 15.0
    assert PLAYS in str(run.overdue())


def test_the_run_does_not_end_before_the_application_can_start_its_next_query(
    run: Run, clock: FakeClock, threads: Threads
) -> None:
    threads.at_work = True
    assert not run.may_go_on, "it has waited for nothing"
    with _awaited(run):
        pass
    assert run.may_go_on
    threads.at_work = False
    assert not run.may_go_on
    threads.at_work = True
    clock.now += 600.0
    assert not run.may_go_on


def test_a_wait_for_any_query_ends_with_the_first_that_ends(run: Run) -> None:
    manager = SwitchedQueryManager(None, run)  # type: ignore[arg-type]
    ended = [threading.Event(), threading.Event()]
    for output, event in zip(("summary", "plays"), ended, strict=True):
        view: Any = SwitchedQuery(None, run, event.is_set, ends=True)  # type: ignore[arg-type]
        run.started(StartedQuery(output, output, "", view, view, view))
    assert manager.awaitAnyTermination(0) is False
    waiting = threading.Thread(target=manager.awaitAnyTermination, daemon=True)
    for event in ended:
        waiting.start()
        eventually(lambda: bool(run._awaiting), "it waits")
        event.set()
        waiting.join(PATIENCE_SECONDS)
        assert not waiting.is_alive()
        waiting = threading.Thread(target=manager.awaitAnyTermination, daemon=True)
    assert manager.active == []
    manager.awaitAnyTermination()  # all have ended


def test_nothing_is_overdue_once_every_output_has_its_query(run: Run, clock: FakeClock) -> None:
    for output in ("summary", "plays"):
        _start(run, output)
    run.application_waits()
    clock.now += 3_600.0
    assert run.overdue() is None


@contextmanager
def _busy(where: Any) -> Iterator[int]:
    """A thread in which ``where`` calls a function of this module, which then stays there."""
    inside, over, thread = threading.Event(), threading.Event(), []

    def stay() -> None:
        thread.append(threading.get_ident())
        inside.set()
        over.wait()

    where(stay)
    assert inside.wait(PATIENCE_SECONDS)
    try:
        yield thread[0]
    finally:
        over.set()


def test_a_thread_that_runs_code_of_the_application_may_still_start_a_query() -> None:
    # also of whoever runs the tests, which `threading` does not know
    others = set(sys._current_frames())
    with ThreadPoolExecutor(1) as pool, _busy(pool.submit) as worker:
        assert application_works(others)
        assert not application_works(others | {worker})


def test_a_pool_that_waits_for_work_starts_nothing_by_itself() -> None:
    # also of whoever runs the tests, which `threading` does not know
    others = set(sys._current_frames())
    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        assert set(sys._current_frames()) - others, "the pool has a thread"
        assert not application_works(others)


def test_a_function_may_write_any_output_that_no_query_has_taken_once_nothing_else_starts(
    run: Run, clock: FakeClock, threads: Threads
) -> None:
    threads.at_work = True
    handle: Any = SimpleNamespace(_jsq=None)
    run.started(StartedQuery("f", None, "", handle, handle, handle))
    assert [problem.message for problem in run.missing()][1] == PLAYS, "another query may start"
    assert (run.writes("f", "plays"), run.writes("other", "plays")) == ((), ("f",))
    assert PLAYS not in [problem.message for problem in run.missing()]
    clock.now += 15.0
    assert run.missing() == []
    assert run.writers == {"plays": ("f", "other")}


def test_an_output_is_missing_until_the_query_that_writes_it_has_started(run: Run) -> None:
    """Or a plan is explained without it, and progress does not wait for it."""
    handle: Any = SimpleNamespace(_jsq=None)
    assert run.writes("plays", "plays") == ()
    _start(run, "summary")
    assert PLAYS in [problem.message for problem in run.missing()]
    run.started(StartedQuery("plays", "plays", "", handle, handle, handle))
    assert PLAYS not in [problem.message for problem in run.missing()]


def test_the_application_may_start_another_query_of_the_same_output_until_it_waits(
    run: Run, clock: FakeClock, threads: Threads
) -> None:
    """Or a run that is short ends without the rows of its second query."""
    handle: Any = SimpleNamespace(_jsq=None)
    threads.at_work = True
    run.started(StartedQuery("plays", "plays", "", handle, handle, handle))
    assert run.may_start_more
    clock.now += 61.0
    assert not run.may_start_more, "it may look after its queries in a loop"
    with run.starting():
        assert run.may_start_more, "however long that takes"
    run.started(StartedQuery("other", "plays", "", handle, handle, handle))
    assert run.may_start_more
    threads.at_work = False
    assert not run.may_start_more


def test_a_query_of_an_earlier_attempt_is_missing_until_it_has_started_again(
    header: PlanHeader, clock: FakeClock, threads: Threads
) -> None:
    """Or a run whose queries were all done before would end after the first of them."""
    settings: Any = SimpleNamespace(outputs=[named("plays")], hand_off=None)
    before = SplitAssignmentStatus(
        attempt=1,
        queries=tuple(QueryProgress(name=name, output="plays") for name in ("one", "other")),
        heartbeat=from_us(0),
    )
    tracker = Tracker(header, [], lambda _source, _step: 0, lambda: 0, before)
    run = Run(settings, tracker, clock, threads)
    handle: Any = SimpleNamespace(_jsq=None)
    for name in ("one", "other"):
        assert run.missing() != []
        tracker.add(name, "plays", {})
        run.started(StartedQuery(name, "plays", "", handle, handle, handle))
    assert run.missing() == []


def test_a_query_that_is_named_otherwise_than_before_is_refused_once_nothing_else_starts(
    header: PlanHeader, clock: FakeClock, threads: Threads
) -> None:
    """Or its rows would be in the result twice."""
    settings: Any = SimpleNamespace(outputs=[named("plays")], hand_off=None)
    reported = QueryProgress(name="run-1", output="plays")
    before = SplitAssignmentStatus(attempt=1, queries=(reported,), heartbeat=from_us(0))
    tracker = Tracker(header, [], lambda _source, _step: 0, lambda: 0, before)
    run = Run(settings, tracker, clock, threads)
    handle: Any = SimpleNamespace(_jsq=None)
    tracker.add("run-2", "plays", {})
    run.started(StartedQuery("run-2", "plays", "", handle, handle, handle))
    run.application_waits()
    clock.now += 15.0
    assert "an earlier attempt has run the query run-1 for the output plays" in str(run.overdue())


def test_an_output_of_a_function_is_never_missing_whenever_it_is_asked_for(
    run: Run, clock: FakeClock
) -> None:
    handle: Any = SimpleNamespace(_jsq=None)
    run.started(StartedQuery("f", None, "", handle, handle, handle))
    run.application_waits()
    clock.now += 14.75
    clock.step = 0.125
    for _ in range(10):
        assert run.overdue() is None


def test_a_function_does_not_take_an_output_whose_rows_are_delivered(
    run: Run, clock: FakeClock
) -> None:
    run.settings.outputs = (*run.settings.outputs, named("alerts", PublishMode.DELIVER))
    handle: Any = SimpleNamespace(_jsq=None)
    run.started(StartedQuery("f", None, "", handle, handle, handle))
    clock.now += 15.0
    assert [each.message for each in run.missing()] == [
        "no query of the application writes the output alerts"
    ]


def test_a_function_does_not_take_an_output_that_the_application_may_yet_start_a_query_for(
    run: Run, clock: FakeClock, threads: Threads
) -> None:
    handle: Any = SimpleNamespace(_jsq=None)
    run.started(StartedQuery("f", None, "", handle, handle, handle))
    threads.at_work = True
    clock.now += 15.0
    run.application_waits()
    assert run.missing() == []
    assert run.may_write_more, "a thread may load a model before it starts its query"
    threads.at_work = False
    assert not run.may_write_more
    threads.at_work = True
    clock.now += 585.0
    assert not run.may_write_more


def test_a_function_that_has_written_all_outputs_need_not_wait(run: Run, threads: Threads) -> None:
    handle: Any = SimpleNamespace(_jsq=None)
    run.started(StartedQuery("f", None, "", handle, handle, handle))
    threads.at_work = True
    assert run.may_write_more
    run.writes("f", "plays")
    run.writes("f", "summary")
    assert not run.may_write_more


def test_queries_that_would_have_the_same_name_get_numbers(run: Run) -> None:
    handle: Any = SimpleNamespace(_jsq=None)
    run.started(StartedQuery("write", None, "", handle, handle, handle))
    assert [run.unused_name(each) for each in ("write", "write", "read", "write-2")] == [
        "write-2",
        "write-3",
        "read",
        "write-2-2",
    ]
