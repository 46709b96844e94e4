"""The rules themselves, away from any cluster."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated_run import History
from timelines import MINUTE_US, histories, timeline

from backfill.api.quantities import from_us
from backfill.coordination.released_steps import release, release_ahead
from backfill.coordination.timeline import Timeline
from backfill.coordination.watermarks import watermarks
from backfill.coordination.work_progress import Work, committed_steps, work
from backfill.protocol.split_assignment import QueryProgress, SourceProgress, SplitAssignmentStatus
from cases import cases

Committed = dict[str, dict[str, int]]
THREE_STEPS = timeline(0, 5, 60, rows={"a": (10, 0, 20), "b": (1, 1, 0)})


def status(committed: Committed, *, starting: bool = False) -> SplitAssignmentStatus:
    queries = tuple(
        QueryProgress(
            name=query,
            sources=tuple(
                SourceProgress(name=name, committed=steps) for name, steps in sources.items()
            ),
        )
        for query, sources in committed.items()
    )
    return SplitAssignmentStatus(
        attempt=1,
        phase="Starting" if starting else "Running",
        queries=queries,
        heartbeat=from_us(0),
    )


@cases(
    ("committed", "starting", "minutes"),
    {
        "what nobody reports is at its first step": ({}, False, (0, 0)),
        "nothing counts while queries are still being started": (
            {"q": {"a": 2, "b": 2}},
            True,
            (0, 0),
        ),
        "a source without a query holds the others": ({"q": {"a": 2}}, False, (60, 0)),
        "a step empty for one source counts as any other": ({"q": {"a": 1, "b": 1}}, False, (5, 5)),
        "a source is where its slowest query is": (
            {"p": {"a": 2, "b": 2}, "q": {"a": 1}},
            False,
            (5, 60),
        ),
        "a finished source is at the end and holds nobody": (
            {"p": {"a": 3}, "q": {"b": 2}},
            False,
            (65, 60),
        ),
        "when all is committed the end is reached before the flush": (
            {"q": {"a": 3, "b": 3}},
            False,
            (65, 65),
        ),
        "the flush changes nothing": ({"q": {"a": 4, "b": 4}}, False, (65, 65)),
        "a source that is not of the plan is not looked at": (
            {"q": {"a": 1, "b": 1, "c": 0}},
            False,
            (5, 5),
        ),
    },
)
def test_the_watermark_of_a_source(
    committed: Committed, starting: bool, minutes: tuple[int, int]
) -> None:
    marks = watermarks(THREE_STEPS, status(committed, starting=starting))
    assert marks.sources == {"a": minutes[0] * MINUTE_US, "b": minutes[1] * MINUTE_US}
    assert marks.global_us == min(minutes) * MINUTE_US


def test_a_source_whose_queries_start_after_others_have_ended_does_not_keep_these_from_ending() -> (
    None
):
    first = status({"q": {"a": 1}}).model_copy(update={"waiting_sources": ("b",)})
    assert watermarks(THREE_STEPS, first).global_us == 5 * MINUTE_US
    assert work(THREE_STEPS, first) == Work(rows_done=10, rows_left=22, steps_left=2)
    ended = status({"q": {"a": 4}}).model_copy(update={"waiting_sources": ("b",)})
    assert watermarks(THREE_STEPS, ended).global_us == 65 * MINUTE_US
    assert watermarks(THREE_STEPS, status({"q": {"a": 4}, "r": {"b": 0}})).global_us == 0
    nothing = status({}).model_copy(update={"waiting_sources": ("a", "b")})
    assert watermarks(THREE_STEPS, nothing).global_us == 0


def test_without_any_report_all_sources_are_at_the_beginning() -> None:
    assert watermarks(THREE_STEPS, None).sources == {"a": 0, "b": 0}
    assert committed_steps(THREE_STEPS, None) == {"a": 0, "b": 0}


@st.composite
def any_progress(draw: st.DrawFn) -> tuple[History, Committed]:
    past = draw(histories())
    offsets = st.integers(0, past.timeline.steps + 1)
    return past, {
        query: {source: draw(offsets) for source in sources}
        for query, sources in past.queries.items()
    }


@given(any_progress())
def test_no_watermark_is_ever_ahead_of_an_uncommitted_row(case: tuple[History, Committed]) -> None:
    past, committed = case
    marks = watermarks(past.timeline, status(committed))
    for sources in committed.values():
        for source, steps in sources.items():
            left = [
                row.at_us
                for step in range(steps, past.timeline.steps)
                for row in past.rows[source, step]
            ]
            assert all(at_us >= marks.sources[source] >= marks.global_us for at_us in left)


@given(any_progress(), st.data())
def test_more_progress_never_gives_an_earlier_watermark_or_a_smaller_release(
    case: tuple[History, Committed], data: st.DataObject
) -> None:
    past, committed = case
    line = past.timeline
    further = {
        query: {
            source: data.draw(st.integers(steps, line.steps + 1))
            for source, steps in sources.items()
        }
        for query, sources in committed.items()
    }
    before, after = watermarks(line, status(committed)), watermarks(line, status(further))
    assert all(before.sources[name] <= after.sources[name] for name in before.sources)
    assert release(line, before.global_us, 0) <= release(line, after.global_us, 0)


@given(any_progress(), st.integers(0, 8))
def test_a_release_holds_the_bound_goes_on_and_never_back(
    case: tuple[History, Committed], before: int
) -> None:
    past, committed = case
    line, previous = past.timeline, min(before, past.timeline.steps)
    watermark_us = watermarks(line, status(committed)).global_us
    released = release(line, watermark_us, previous)
    assert previous <= released <= line.steps
    assert all(
        end <= watermark_us + line.max_misalignment_us for end in line.ends_us[previous:released]
    )
    assert (
        released == line.steps or line.ends_us[released] > watermark_us + line.max_misalignment_us
    )
    assert (
        released > min(min(sources.values()) for sources in committed.values())
        or released == line.steps
    )


@given(any_progress(), st.integers(0, 9))
def test_spans_may_read_many_steps_after_what_is_committed(
    case: tuple[History, Committed], ahead: int
) -> None:
    past, committed = case
    line = past.timeline
    marks = watermarks(line, status(committed))
    done = min(min(sources.values()) for sources in committed.values())
    least = min(done + ahead, line.steps) if ahead else 0
    for previous in (0, line.steps):
        assert release_ahead(line, marks.global_us, previous, ahead) == max(previous, least)


@cases(
    ("line", "watermark_min", "previous", "expected"),
    {
        "a step that ends exactly at the bound may be read": (
            timeline(0, 5, 10, rows={"a": (1, 1, 1)}),
            0,
            0,
            2,
        ),
        "a step committed, a step released": (timeline(0, 5, 10, rows={"a": (1, 1, 1)}), 5, 0, 3),
        "after a long silence the next step is the first left": (
            timeline(0, 60, rows={"a": (1, 1)}),
            60,
            1,
            2,
        ),
        "the first step left may be too long": (
            timeline(0, 5, rows={"a": (1, 1)}, max_misalignment_min=1),
            0,
            0,
            1,
        ),
        "at the end all is released": (
            timeline(0, 5, rows={"a": (1, 1)}, max_misalignment_min=1),
            10,
            1,
            2,
        ),
        "unordered sources are not aligned": (
            timeline(0, 5, 60, rows={"a": (1, 1, 1)}, aligned=False),
            0,
            0,
            3,
        ),
    },
)
def test_how_much_is_released(
    line: Timeline, watermark_min: int, previous: int, expected: int
) -> None:
    assert release(line, watermark_min * MINUTE_US, previous) == expected


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        pytest.param(
            None, Work(0, 32, 3), id="before any report each source is taken to be read once"
        ),
        pytest.param(
            status({"q": {"a": 1, "b": 2}}), Work(12, 20, 2), id="rows of committed steps are done"
        ),
        pytest.param(
            status({"p": {"a": 1}, "q": {"a": 4}}),
            Work(40, 20, 2),
            id="a row counts for every query that reads it",
        ),
        pytest.param(
            status({"q": {"a": 4, "b": 4}}), Work(32, 0, 0), id="after the flush nothing is left"
        ),
    ],
)
def test_how_much_work_is_left(reported: SplitAssignmentStatus | None, expected: Work) -> None:
    assert work(THREE_STEPS, reported) == expected
