from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill.api.pods import Scaling
from backfill.coordination.eta import eta
from backfill.coordination.executor_target import Load, executor_target
from backfill.coordination.recent_rate import Rate
from cases import cases

HOUR = 3600.0


def scaling(low: int = 2, high: int = 40, within: str | None = "5h") -> Scaling:
    return Scaling(min_executors=low, max_executors=high, complete_within=within)


def load(rows_left: int = 1_620_000, rate: float | None = 100.0, **other: float) -> Load:
    """By default five executors are needed: 1,620,000 rows in an hour at 90 rows a second each."""
    usual = {"steps_left": 100, "elapsed_seconds": 4 * HOUR, "seconds_since_change": HOUR}
    return Load(rows_left=rows_left, rows_per_executor_second=rate, **(usual | other))  # type: ignore[arg-type]


@cases(
    ("bounds", "at", "current", "expected", "reason"),
    {
        "as many as finish in time": (scaling(), load(), 2, 5, "need 5"),
        "equal bounds leave no choice": (scaling(3, 3), load(), 3, 3, "both 3"),
        "without a deadline all that are allowed": (
            scaling(within=None),
            load(),
            2,
            40,
            "completeWithin is not set",
        ),
        "before anything is measured the least": (
            scaling(),
            load(rate=None),
            None,
            2,
            "until the rate",
        ),
        "before the first spans are committed all": (
            scaling(),
            load(rate=None, first_spans=True),
            2,
            40,
            "the first batch jobs use all 40 executors until the rate",
        ),
        "once a rate is measured as many as finish in time": (
            scaling(),
            load(first_spans=True),
            40,
            5,
            "need 5",
        ),
        "past the deadline all that are allowed": (
            scaling(),
            load(elapsed_seconds=6 * HOUR),
            5,
            40,
            "has passed",
        ),
        "what cannot be done in time is said": (scaling(high=4), load(), 2, 4, "finish 15m late"),
        "never below the least": (scaling(low=8), load(), 8, 8, "minExecutors is 8"),
        "fewer when fewer do": (scaling(), load(), 20, 5, "need 5"),
        "one less of six is not worth it": (scaling(), load(), 6, 6, "difference is small"),
        "none is given back in the last steps": (
            scaling(),
            load(steps_left=3),
            20,
            20,
            "about to end",
        ),
        "more are still asked for in the last steps": (
            scaling(),
            load(steps_left=3),
            2,
            5,
            "need 5",
        ),
        "a change is given time to show": (
            scaling(),
            load(seconds_since_change=10),
            2,
            2,
            "changed 10 s ago",
        ),
        "a minute is time enough": (scaling(), load(seconds_since_change=60), 2, 5, "need 5"),
        "new bounds hold at once": (
            scaling(high=10),
            load(seconds_since_change=0),
            20,
            5,
            "need 5",
        ),
        "none is added where the limit of rows per second is reached": (
            scaling(),
            load(rows_per_second_limit=200.0),
            2,
            2,
            "need 5; stays at 2, maxRowsPerSecond is reached",
        ),
        "nor past the deadline": (
            scaling(),
            load(elapsed_seconds=6 * HOUR, rows_per_second_limit=200.0),
            2,
            2,
            "stays at 2, maxRowsPerSecond is reached",
        ),
        "a limit that is far does not matter": (
            scaling(),
            load(rows_per_second_limit=300.0),
            2,
            5,
            "need 5",
        ),
        "what the limit makes idle is given back": (
            scaling(),
            load(rows_per_second_limit=2_000.0),
            20,
            5,
            "need 5",
        ),
        "nothing left needs the least": (scaling(), load(rows_left=0), 5, 2, "minExecutors is 2"),
    },
)
def test_the_executor_target(
    bounds: Scaling, at: Load, current: int | None, expected: int, reason: str
) -> None:
    target = executor_target(bounds, at, current)
    assert target.count == expected
    assert reason in target.reason


LOADS = st.builds(
    Load,
    rows_left=st.integers(0, 10**12),
    steps_left=st.integers(0, 10**5),
    rows_per_executor_second=st.none() | st.floats(1e-6, 1e9),
    elapsed_seconds=st.floats(0, 1e6),
    seconds_since_change=st.floats(0, 1e6),
    rows_per_second_limit=st.none() | st.floats(1, 1e9),
)
SCALINGS = st.builds(
    lambda low, more, within: Scaling(
        min_executors=low, max_executors=low + more, complete_within=within
    ),
    st.integers(1, 50),
    st.integers(0, 100),
    st.none() | st.integers(1, 10**6).map(lambda seconds: timedelta(seconds=seconds)),
)


@given(SCALINGS, LOADS, st.none() | st.integers(0, 200))
def test_the_target_is_within_bounds_and_a_single_sentence(
    bounds: Scaling, at: Load, current: int | None
) -> None:
    target = executor_target(bounds, at, current)
    assert bounds.min_executors <= target.count <= bounds.max_executors
    assert target.reason
    assert "\n" not in target.reason


@given(SCALINGS, LOADS, st.integers(1, 150))
def test_an_unchanged_situation_keeps_its_target(bounds: Scaling, at: Load, current: int) -> None:
    settled = executor_target(bounds, at, current).count
    assert executor_target(bounds, at, settled).count == settled


def test_a_run_whose_rate_is_steady_settles_and_finishes_in_time() -> None:
    bounds, rate, rows_left, elapsed, changed_at = scaling(1, 40, "2h"), 50.0, 3_600_000, 0.0, 0.0
    count, measured, changes = 1, None, 0
    while rows_left > 0:
        at = Load(rows_left, rows_left // 10_000, measured, elapsed, elapsed - changed_at)
        wanted = executor_target(bounds, at, count).count
        changes, changed_at = (changes + 1, elapsed) if wanted != count else (changes, changed_at)
        count, measured = wanted, rate
        rows_left, elapsed = rows_left - round(count * rate * 10), elapsed + 10
    assert elapsed <= 2 * HOUR
    assert changes <= 3


def test_the_first_measurement_counts_fully() -> None:
    assert Rate().after(500, 5).per_second == 100


def test_nothing_is_known_before_the_first_work() -> None:
    assert Rate().per_second is None
    assert Rate().after(0, 30).per_second is None


def test_the_rate_follows_a_change_within_minutes() -> None:
    rate = Rate()
    for speed in (100, 10):
        for _ in range(300):
            rate = rate.after(speed, 1)
    assert rate.per_second == pytest.approx(10, rel=0.1)


@given(st.lists(st.tuples(st.integers(1, 10**6), st.floats(0.01, 100)), min_size=1, max_size=50))
def test_the_rate_lies_between_the_slowest_and_the_fastest_measured(
    measured: list[tuple[int, float]],
) -> None:
    rate = Rate()
    for work, seconds in measured:
        rate = rate.after(work, seconds)
    speeds = [work / seconds for work, seconds in measured]
    assert rate.per_second is not None
    assert min(speeds) * 0.999 <= rate.per_second <= max(speeds) * 1.001


@pytest.mark.parametrize(
    ("work", "seconds"),
    [
        pytest.param(5, 0, id="no time has passed"),
        pytest.param(-5, 1, id="an old report came in between"),
    ],
)
def test_the_rate_stays_as_it_is_when(work: float, seconds: float) -> None:
    rate = Rate().after(10, 1)
    assert rate.after(work, seconds) == rate


@pytest.mark.parametrize(
    ("rows_left", "rate", "expected"),
    [
        pytest.param(600, Rate(10, 1), 1_060_000_000, id="what is left divided by the rate"),
        pytest.param(0, Rate(), 1_000_000_000, id="now if nothing is left, whatever the rate"),
        pytest.param(600, Rate(), None, id="unknown before anything is measured"),
        pytest.param(10**15, Rate(1, 1), None, id="unknown if it would take for ever"),
    ],
)
def test_the_eta_is(rows_left: int, rate: Rate, expected: int | None) -> None:
    assert eta(1_000_000_000, rows_left, rate) == expected
