"""Whatever the lag of rows, a span reads all of those that a stream may use for its results."""

from dataclasses import dataclass

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from backfill.runtime.batch.arrival_lags import Assumed, AtWatermark, Cells, Lags, StepBounds

STEP = 10


@dataclass(frozen=True)
class Row:
    """A row of a source."""

    arrived: int
    happened: int

    @property
    def step(self) -> int:
        return self.arrived // STEP


@dataclass(frozen=True)
class Source:
    """A source with a watermark."""

    rows: tuple[Row, ...]
    delay: int

    @property
    def bounds(self) -> StepBounds:
        steps: dict[int, list[int]] = {}
        for row in self.rows:
            steps.setdefault(row.step, []).append(row.arrived)
        return StepBounds({step: (min(times), max(times)) for step, times in steps.items()})

    def at(self, name: str, width: int) -> AtWatermark:
        """Its rows in cells of this width."""
        cells: dict[tuple[int, int], list[Row]] = {}
        for row in self.rows:
            place = row.arrived // width, (row.arrived - row.happened) // width
            cells.setdefault(place, []).append(row)
        columns = [
            (
                min(row.arrived for row in cell),
                max(row.arrived for row in cell),
                min(row.happened for row in cell),
                max(row.happened for row in cell),
                max(row.arrived - row.happened for row in cell),
                len(cell),
            )
            for cell in cells.values()
        ]
        arrays = np.array(columns, np.int64).reshape(-1, 6).T
        return AtWatermark(frozenset({name}), self.delay, Cells(*arrays))


def watermark(sources: dict[str, Source], step: int) -> float:
    """By which a stream's batch of a step drops rows."""
    passed = [
        max((row.happened for row in source.rows if row.step < step - 1), default=-np.inf)
        - source.delay
        for source in sources.values()
    ]
    return float(min(passed))


times = st.integers(0, 199)
rows = st.builds(lambda arrived, lag: Row(arrived, arrived - lag), times, st.integers(-30, 90))
source = st.builds(Source, st.lists(rows, max_size=30).map(tuple), st.integers(0, 20))
sources = st.dictionaries(st.sampled_from(["one", "other"]), source, min_size=1)


def lags_of(given: dict[str, Source], width: int, waits: int = 0, *, hidden: bool = False) -> Lags:
    return Lags(
        [each.at(name, width) for name, each in given.items()],
        {name: each.bounds for name, each in given.items()},
        steps=20,
        read_end_us=200,
        waits_us=waits,
        hidden=hidden,
    )


@given(sources, st.integers(1, 8), times, st.integers(1, 50), st.integers(0, 20))
def test_all_rows_are_read_that_a_stream_may_use(
    sources: dict[str, Source], width: int, start: int, length: int, ahead: int
) -> None:
    lags, end = lags_of(sources, width), start + length
    for name, source in sources.items():
        measured = lags.of(name, also=None)
        assert measured is not None
        first, after = measured.between(start, end + ahead, end + ahead)
        for row in source.rows:
            if not start <= row.happened < end + ahead:
                continue
            punctual = row.arrived - row.happened <= max(each.delay for each in sources.values())
            if punctual or watermark(sources, row.step) <= end + ahead:
                assert first <= row.arrived < after


@given(sources, st.integers(1, 8), times, st.integers(1, 50))
def test_with_another_watermark_that_may_be_behind_no_row_is_late(
    sources: dict[str, Source], width: int, start: int, length: int
) -> None:
    lags, end = lags_of(sources, width, hidden=True), start + length
    for name, source in sources.items():
        measured = lags.of(name, also=None)
        assert measured is not None
        first, after = measured.between(start, end, end)
        for row in source.rows:
            assert not start <= row.happened < end or first <= row.arrived < after
    assert lags.late_rows(range(20)) == 0
    assert not lags.any_late(start, end, end)


bounds = st.dictionaries(
    st.integers(0, 30), st.tuples(st.integers(0, 99), st.integers(0, 99)).map(sorted).map(tuple)
)


@given(bounds.map(StepBounds), st.integers(0, 99), st.integers(-5, 60))
def test_steps_of_a_time_are_those_that_may_have_its_rows(
    bounds: StepBounds, start: int, length: int
) -> None:
    end = start + length
    some = [step for step, (lower, upper) in bounds.items() if lower < end and upper >= start]
    expected = range(min(some), max(some) + 1) if some else range(0)
    assert bounds.between(start, end) == expected


@given(sources, st.integers(1, 8), st.integers(0, 20))
def test_only_rows_are_counted_as_late_that_a_stream_drops(
    sources: dict[str, Source], width: int, waits: int
) -> None:
    """Rows of two steps that are in one cell count for the earlier one."""
    lags = lags_of(sources, width, waits)
    dropped = [
        row.step
        for source in sources.values()
        for row in source.rows
        if row.happened + waits < watermark(sources, row.step)
    ]
    for first in range(20):
        assert lags.late_rows(range(first, 20)) <= sum(step >= first for step in dropped)
    assert lags.late_rows(range(20)) == sum(lags.late_rows(range(s, s + 1)) for s in range(20))


def regular(lag: int, until: int = 200) -> Source:
    return Source(tuple(Row(at, at - lag) for at in range(0, until)), 5)


def test_stragglers_are_counted_and_not_read() -> None:
    punctual = regular(0)
    straggler = Row(150, 20)
    lags = lags_of({"one": Source((*punctual.rows, straggler), 5)}, 1)
    measured = lags.of("one", also=None)
    assert measured is not None
    assert measured.between(10, 30, 30)[1] < 60
    assert lags.late_rows(range(15, 16)) == 1
    assert lags.late_rows(range(20)) == 1
    assert lags.any_late(10, 30, 30)
    assert not lags.any_late(30, 60, 60)
    assert lags.late_us == 5


def test_a_constant_lag_moves_what_is_read_and_closes_results_later() -> None:
    lags = lags_of({"one": regular(40)}, 1)
    measured = lags.of("one", also=None)
    assert measured is not None
    assert measured.between(50, 70, 70) == (90, 110)
    assert lags.late_rows(range(20)) == 0
    assert lags.late_us == 40


def test_a_lag_that_has_ended_leaves_nothing_open() -> None:
    caught_up = Source((*regular(40, 100).rows, *regular(0).rows[100:]), 5)
    assert lags_of({"one": caught_up}, 1).late_us == 6


def test_a_clock_that_is_years_ahead_makes_no_other_row_late() -> None:
    lags = lags_of({"one": Source((*regular(0).rows, Row(3, 10**9)), 5)}, 1)
    measured = lags.of("one", also=None)
    assert measured is not None
    assert measured.between(50, 70, 70) == (50, 70)
    assert lags.late_rows(range(20)) == 0


def test_rows_that_no_watermark_sees_arrive_as_is_assumed() -> None:
    lags = lags_of({"one": regular(40)}, 1)
    measured = lags.of("one", also=Assumed(3, 7))
    assert measured is not None
    assert measured.between(50, 70, 70) == (47, 110)
    assert lags.of("other", also=None) is None
