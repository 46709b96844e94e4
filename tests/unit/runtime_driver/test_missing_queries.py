"""When an application is expected to start no more queries: once it waits for them, not when it only looks at one."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from backfill.planning.plan import PlanHeader
from backfill.runtime.query import SwitchedQuery, SwitchedQueryManager
from backfill.runtime.run import Run, StartedQuery
from backfill.runtime.tracking import Tracker

ASKS = (
    pytest.param(lambda run: SwitchedQuery(None, run).isActive, id="query.isActive"),  # type: ignore[arg-type]
    pytest.param(lambda run: SwitchedQueryManager(None, run).active, id="spark.streams.active"),  # type: ignore[arg-type]
)


class FakeClock:
    """Stands still until the test moves it."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def run(header: PlanHeader, clock: FakeClock) -> Run:
    settings: Any = SimpleNamespace(outputs=[SimpleNamespace(name="summary"), SimpleNamespace(name="plays")])
    return Run(settings, Tracker(header, [], lambda _source, _step: 0, lambda: 0), clock)


def _start(run: Run, output: str) -> None:
    handle: Any = SimpleNamespace(_jsq=None)
    run.started(StartedQuery(output, output, "", handle, handle))


def test_an_application_that_waits_may_start_queries_from_other_threads_for_a_moment(run: Run, clock: FakeClock) -> None:
    _start(run, "summary")
    run.application_waits()
    clock.now += 4.0
    assert run.overdue() is None
    clock.now += 1.0
    assert "no query of the application writes the output plays" in str(run.overdue())


@pytest.mark.parametrize("asks", ASKS)
def test_an_application_that_looks_at_a_query_once_may_take_its_time_to_start_the_next(
    run: Run, clock: FakeClock, asks: Callable[[Run], object]
) -> None:
    _start(run, "summary")
    asks(run)
    clock.now += 600.0
    assert run.overdue() is None


@pytest.mark.parametrize("asks", ASKS)
def test_an_application_that_still_asks_after_a_minute_has_started_all_it_will(
    run: Run, clock: FakeClock, asks: Callable[[Run], object]
) -> None:
    _start(run, "summary")
    for _ in range(60):
        asks(run)
        assert run.overdue() is None
        clock.now += 1.0
    asks(run)
    assert "no query of the application writes the output plays" in str(run.overdue())


def test_the_minute_begins_anew_with_every_query(run: Run, clock: FakeClock) -> None:
    for output in ("summary", "other"):
        run.application_asks()
        clock.now += 40.0
        _start(run, output)
    run.application_asks()
    assert run.overdue() is None


def test_nothing_is_overdue_once_every_output_has_its_query(run: Run, clock: FakeClock) -> None:
    for output in ("summary", "plays"):
        _start(run, output)
    run.application_waits()
    clock.now += 600.0
    assert run.overdue() is None
