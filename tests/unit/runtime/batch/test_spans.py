"""Spans follow each other without a gap, whatever they weigh."""

from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill.planning.plan import PlanHeader, PlanInputs, SourceTotals
from backfill.runtime.batch import spans as spans_module
from backfill.runtime.batch.arrival_lags import StepBounds
from backfill.runtime.batch.spans import (
    LookAround,
    Span,
    closed_until_us,
    left_from,
    row_wise_spans,
    spans_of_time,
    with_strips,
)
from backfill.runtime.batch.time_reach import Reach


def plan_of(target: int = 3, **sizes: list[int]) -> PlanHeader:
    """The header of a plan with steps of so many bytes, by source."""
    steps = len(next(iter(sizes.values())))
    sources = tuple(
        SourceTotals(
            name=name,
            files=1,
            splits=1,
            rows=sum(each),
            bytes=sum(each),
            wide_files=0,
            step_rows=tuple(each),
            step_bytes=tuple(each),
        )
        for name, each in sizes.items()
    )
    starts = tuple(range(0, 10 * steps, 10))
    inputs = PlanInputs.model_construct(target_step_bytes=target)
    return PlanHeader.model_construct(
        inputs=inputs, sources=sources, step_starts_us=starts, step_ends_us=starts
    )


def test_steps_are_taken_together_up_to_so_many_bytes_of_all_sources_that_are_read() -> None:
    plan = plan_of(impressions=[1, 2, 3, 10, 1, 1], playbacks=[5, 0, 0, 0, 0, 1])
    both = row_wise_spans(plan, ["impressions", "playbacks"], 0)
    assert [span.steps for span in both] == [range(0, 2), range(2, 3), range(3, 4), range(4, 6)]
    assert both[0] == Span(range(0, 2), {"impressions": range(0, 2), "playbacks": range(0, 2)})
    one = row_wise_spans(plan, ["impressions"], 0)
    assert [span.steps for span in one] == [range(0, 3), range(3, 4), range(4, 6)]
    assert [span.read_end for span in one] == [3, 4, 6]


def test_it_goes_on_after_what_is_committed() -> None:
    plan = plan_of(impressions=[1] * 6)
    assert [span.steps for span in row_wise_spans(plan, ["impressions"], 4)] == [range(4, 6)]
    assert row_wise_spans(plan, ["impressions"], 6) == []


@given(
    st.lists(st.integers(0, 20), min_size=1, max_size=40), st.integers(0, 40), st.integers(1, 60)
)
def test_every_step_that_is_left_is_in_one_span(sizes: list[int], done: int, most: int) -> None:
    spans = row_wise_spans(plan_of(most, impressions=sizes), ["impressions"], min(done, len(sizes)))
    steps = [step for span in spans for step in span.steps]
    assert steps == list(range(min(done, len(sizes)), len(sizes)))
    for span in spans:
        assert len(span.steps) == 1 or sum(sizes[step] for step in span.steps) <= 3 * most


@dataclass(frozen=True)
class Row:
    """A row of a source, in microseconds."""

    happened: int
    arrived: int
    step: int


@dataclass(frozen=True)
class Past:
    """A plan, and the rows that its steps read."""

    header: PlanHeader
    rows: dict[str, list[Row]]
    around: dict[str, LookAround]
    reach: dict[str, Reach]

    @property
    def bounds(self) -> dict[str, StepBounds]:
        found: dict[str, StepBounds] = {}
        for source, rows in self.rows.items():
            steps = {row.step for row in rows}
            arrived = {
                step: [row.arrived for row in rows if row.step == step] for step in sorted(steps)
            }
            found[source] = StepBounds(
                {step: (min(times), max(times)) for step, times in arrived.items()}
            )
        return found

    def spans(self, committed: int) -> list[Span]:
        closed_us = closed_until_us(self.header, self.around.values())
        return spans_of_time(self.header, self.around, self.bounds, committed, closed_us)


@st.composite
def pasts(draw: st.DrawFn) -> Past:
    lengths = draw(st.lists(st.integers(1, 9), min_size=1, max_size=12))
    starts = [sum(lengths[:number]) for number in range(len(lengths))]
    end = sum(lengths)
    window_start, window_end = sorted(draw(st.lists(st.integers(0, end), min_size=2, max_size=2)))
    lateness = draw(st.integers(0, 3))
    rows, around, reach = {}, {}, {}
    for source in ("impressions", "playbacks")[: draw(st.integers(1, 2))]:
        delay = draw(st.integers(0, 4))
        reach[source] = Reach(draw(st.integers(-2, 6)), draw(st.integers(-2, 6)), delay, "happened")
        around[source] = LookAround.of(reach[source], "arrived", lateness)
        rows[source] = []
        for happened in draw(st.lists(st.integers(-5, end + 5), max_size=20)):
            arrived = happened + draw(st.integers(-lateness, delay))
            if 0 <= arrived < end:
                at = max(step for step, start in enumerate(starts) if start <= arrived)
                behind = [step for step in range(at) if starts[step + 1] + lateness > arrived]
                rows[source].append(Row(happened, arrived, draw(st.sampled_from([at, *behind]))))
    inputs = PlanInputs.model_construct(
        target_step_bytes=draw(st.integers(1, 5)),
        start_us=window_start,
        end_us=window_end,
        warm_up_us=window_start,
        drain_us=end - window_end,
        allowed_lateness_us=lateness,
    )
    sources = tuple(
        SourceTotals.model_construct(name=source, step_bytes=(1,) * len(lengths)) for source in rows
    )
    header = PlanHeader.model_construct(
        inputs=inputs, sources=sources, step_starts_us=tuple(starts), step_ends_us=tuple(starts)
    )
    return Past(header, rows, around, reach)


@given(pasts(), st.data())
def test_each_result_is_given_once_by_a_span_that_reads_all_that_it_depends_on(
    past: Past, data: st.DataObject
) -> None:
    inputs, steps = past.header.inputs, past.header.steps
    committed = data.draw(st.integers(0, steps))
    done, spans = past.spans(0), past.spans(committed)
    assert [step for span in spans for step in span.steps] == list(range(committed, steps))
    begun_us = next((span.stretch.start_us for span in spans if span.stretch), inputs.end_us)
    closed_us = closed_until_us(past.header, past.around.values())
    for time_us in range(begun_us, inputs.end_us):
        giving = [
            span
            for span in spans
            if span.stretch and span.stretch.start_us <= time_us < span.stretch.end_us
        ]
        left_open = [
            span
            for span in spans
            if span.stretch and span.stretch.end_us <= time_us < span.stretch.open_us
        ]
        assert (len(giving), len(left_open)) == ((1, 0) if time_us < closed_us else (0, 1))
        for source, reach in past.reach.items():
            wanted = {
                row
                for row in past.rows[source]
                if time_us - reach.back_us <= row.happened <= time_us + reach.ahead_us
            }
            (span,) = giving or left_open
            read = {row for row in past.rows[source] if row.step in span.reads[source]}
            assert wanted <= read
    if committed == 0 and spans:
        assert begun_us == inputs.start_us
        assert done == spans


@given(pasts())
def test_what_follows_a_span_goes_on_where_it_ended(past: Past) -> None:
    spans = past.spans(0)
    for before, after in pairwise(spans):
        resumed = past.spans(before.steps.stop)
        assert before.stretch
        assert resumed[0].stretch
        assert after.stretch
        assert before.stretch.end_us == resumed[0].stretch.start_us == after.stretch.start_us
        assert before.stretch.end_us == before.stretch.open_us


@given(pasts())
def test_what_is_computed_twice_is_computed_from_all_that_it_depends_on(past: Past) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spans_module, "_STRIPS", 2)  # times here are a few microseconds long
        spans = with_strips(past.spans(0), past.around, past.bounds)
    for first, second in pairwise(spans):
        assert first.stretch
        assert second.stretch
        meet_us = second.stretch.start_us
        assert not (first.after_us and second.before_us)
        assert first.stretch.start_us <= meet_us - second.before_us
        assert meet_us + first.after_us <= second.stretch.open_us
        for source, reach in past.reach.items():
            for span in (first, second):
                read = {row for row in past.rows[source] if row.step in span.reads[source]}
                for time_us in range(meet_us - second.before_us, meet_us + first.after_us):
                    assert read >= {
                        row
                        for row in past.rows[source]
                        if time_us - reach.back_us <= row.happened <= time_us + reach.ahead_us
                    }
    assert not spans or not (spans[0].before_us or spans[-1].after_us)


@dataclass(frozen=True)
class Even:
    """Three hundred steps of ten microseconds, and a query over all of them."""

    reach: Reach
    target: int = 1

    def spans(self, committed: int = 0, *, strips: bool = True) -> list[Span]:
        header = plan_of(self.target, events=[1] * 300)
        inputs = header.inputs.model_copy(update={"start_us": 0, "end_us": 3000, "drain_us": 0})
        header = header.model_copy(update={"inputs": inputs})
        bounds = {"events": StepBounds({step: (10 * step, 10 * step + 9) for step in range(300)})}
        around = {"events": LookAround.of(self.reach, "at", 0)}
        spans = spans_of_time(header, around, bounds, committed, 3000)
        return with_strips(spans, around, bounds) if strips else spans


AHEAD, BACK = Reach(0, 13, 0, "at"), Reach(13, 0, 0, "at")


@pytest.mark.parametrize(("reach", "after"), [(AHEAD, True), (BACK, False)])
def test_the_span_that_reads_fewer_steps_for_it_computes_a_strip(reach: Reach, after: bool) -> None:
    spans = Even(reach).spans()
    assert [span.reads for span in spans] == [
        span.reads for span in Even(reach).spans(strips=False)
    ]
    for first, second in pairwise(spans[:-1]):  # the last one may be short
        assert (first.after_us > 0, second.before_us > 0) == (after, not after)


def test_for_a_strip_a_span_reads_what_its_results_depend_on() -> None:
    first, second, *_ = Even(Reach(0, 15, 0, "at"), target=20).spans()
    assert (first.after_us, second.before_us) == (12, 0)
    assert first.reads == {"events": range(63)}
    assert second.reads["events"].start == 60
    first, second, *_ = Even(Reach(15, 0, 0, "at"), target=20).spans()
    assert (first.after_us, second.before_us) == (0, 12)
    assert first.reads == {"events": range(60)}
    assert second.reads["events"].start == 57


def test_a_span_is_not_made_much_too_large_to_read_little_twice() -> None:
    long = Reach(400, 100, 0, "at")
    spans = Even(long).spans(strips=False)
    assert [span.steps for span in spans] == [range(0, 100), range(100, 200), range(200, 300)]
    assert spans[1].reads["events"] == range(60, 210)
    assert len(Even(long, target=20).spans()) == 1, "it has at most ten times as much as it should"
    short = Even(Reach(28, 0, 0, "at")).spans()
    assert {len(span.steps) for span in short[:-1]} == {28}, "ten times as long as what is shared"


@pytest.mark.parametrize("reach", [AHEAD, BACK, Reach(400, 100, 0, "at")])
def test_every_attempt_goes_on_with_the_spans_of_the_first(reach: Reach) -> None:
    every = Even(reach).spans()
    assert len(every) >= 3
    for number, span in enumerate(every):
        assert left_from(span.steps.start, Even(reach).spans) == every[number:]
    assert left_from(300, Even(reach).spans) == []


def test_it_goes_on_with_other_spans_after_steps_that_are_not_those_of_whole_ones() -> None:
    left = left_from(7, Even(AHEAD).spans)
    assert [step for span in left for step in span.steps] == list(range(7, 300))
