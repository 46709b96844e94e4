"""What a run has taken is counted once, whoever counts it and however often."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill.api.quantities import from_us
from backfill.api.status import Attempt, Cost
from backfill.controller.decisions.decide import decide
from backfill.controller.decisions.run.run_cost import spent
from backfill.controller.driver import DriverState
from situations import NOW, STEPS, reported, running
from situations import attempt as an_attempt

START = from_us(1_000_000_000_000_000)
_SECONDS = st.integers(0, 100_000)


def attempt(number: int, after: int) -> Attempt:
    return Attempt(number=number, started_at=START + timedelta(seconds=after))


@given(st.lists(_SECONDS, min_size=1), st.integers(0, 50))
def test_it_does_not_matter_how_often_it_is_counted(moments: list[int], executors: int) -> None:
    """Nor whether two operators do so, of which one looks at an older moment."""
    cost = Cost()
    for seconds in moments:
        cost = spent(cost, attempt(1, 10), executors, START + timedelta(seconds=seconds))
    ran = max(max(moments) - 10, 0)
    assert (cost.driver_seconds, cost.executor_seconds) == (ran, executors * ran)


def test_the_time_between_attempts_costs_nothing() -> None:
    first = spent(Cost(), attempt(1, 0), 0, START + timedelta(seconds=60))
    first = spent(first, attempt(1, 0), 4, START + timedelta(seconds=100))
    second = spent(first, attempt(2, 5_000), 2, START + timedelta(seconds=5_010))
    assert (second.driver_seconds, second.executor_seconds) == (110, 4 * 40 + 2 * 10)


@pytest.mark.parametrize(
    ("report", "resource"),
    [
        (reported("Finished", committed=STEPS + 1, executors=3), {}),
        (reported("Running", committed=4, executors=3), {}),
        (None, {"suspend": True}),
    ],
)
def test_the_time_after_a_driver_has_ended_costs_nothing_however_late_it_is_seen(
    report: Any, resource: dict[str, Any]
) -> None:
    """As by an operator that was away meanwhile."""
    began = an_attempt(started_at=NOW - timedelta(hours=9))
    ended = DriverState("Exited", 0, since=NOW - timedelta(hours=8))
    status = decide(running((began,), driver=ended, report=report, resource=resource)).status
    assert status.cost is not None
    assert status.cost.driver_seconds == 3_600
    assert status.attempts[0].finished_at == ended.since
