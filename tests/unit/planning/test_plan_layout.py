"""Steps and splits over any layout of files: nothing lost, nothing doubled, bounds kept."""

import io
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_files import Groups, made_inputs, made_source, read_sources, rows_of, rows_wanted

from backfill.api.errors import InvalidPlanInput
from backfill.api.spec import OrderingPolicy
from backfill.planning.divide_into_steps import lay_out
from backfill.planning.plan import PlanHeader

START, END = 1_000, 2_000
NAMES = ("a", "b")

moments = st.integers(START - 150, END + 150)
groups = st.one_of(
    st.lists(moments, min_size=1, max_size=6),
    st.builds(lambda first, width: list(range(first, first + width)), moments, st.integers(1, 12)),
    st.lists(st.one_of(st.none(), moments), min_size=1, max_size=4),
)
files = st.lists(groups, min_size=1, max_size=4).filter(
    lambda made: any(
        START <= moment < END for group in made for moment in group if moment is not None
    )
)
sources = st.tuples(st.lists(files, min_size=1, max_size=8), st.lists(files, max_size=3))
wishes = st.fixed_dictionaries(
    {
        "policy": st.sampled_from(
            [OrderingPolicy.WITHIN_LATENESS, OrderingPolicy.EXACT, OrderingPolicy.UNORDERED]
        ),
        "allowed_lateness_us": st.sampled_from([0, 1, 10, 60, 5_000]),
        "max_misalignment_us": st.sampled_from([1, 2, 40, 100, 5_000]),
        "target_step_bytes": st.sampled_from([1, 1_500, 4_000, 10**9]),
        "parallelism": st.sampled_from([1, 4]),
    }
)


def plan(
    made: Sequence[Sequence[Groups]], known_groups: bool = True, **asked: Any
) -> tuple[PlanHeader, pa.Table, dict[str, bytes]]:
    pairs = [
        made_source(name, files, known_groups=known_groups)
        for name, files in zip(NAMES, made, strict=False)
    ]
    all_files = [files for files, _ in pairs]
    header, splits = lay_out(read_sources(all_files), made_inputs(START, END, all_files, **asked))
    return header, splits, {path: data for _, content in pairs for path, data in content.items()}


@settings(max_examples=100)
@given(sources, wishes, st.booleans())
def test_every_row_of_the_range_is_read_once_and_within_the_promises(
    made: tuple[list[Groups], list[Groups]], asked: dict[str, Any], known_groups: bool
) -> None:
    header, splits, content = plan(made, known_groups, **asked)
    read = rows_of(splits, content)
    assert Counter((path, row) for _, path, row, _ in read) == rows_wanted(made, NAMES, START, END)

    starts, ends = header.step_starts_us, header.step_ends_us
    assert list(starts) == sorted(set(starts))
    assert all(
        0 < end - start <= max(asked["max_misalignment_us"] // 2, 1)
        for start, end in zip(starts, ends, strict=True)
    )
    assert all(end <= start for end, start in zip(ends[:-1], starts[1:], strict=True))
    assert (
        {step for step, *_ in read} <= set(range(header.steps)) == set(splits["step"].to_pylist())
    )
    assert all(moment >= starts[step] for step, _, _, moment in read)
    assert [total.splits for total in header.sources] == [
        splits["source"].to_pylist().count(t.name) for t in header.sources
    ]
    assert [sum(total.step_bytes) for total in header.sources] == [
        total.bytes for total in header.sources
    ]
    for total in header.sources:
        assert all(
            total.step_rows[step] > 0 for step, path, *_ in read if path.startswith(total.name)
        )
    if asked["policy"] is not OrderingPolicy.UNORDERED:
        check_order(read, starts, ends, asked)


def check_order(
    read: list[tuple[int, str, int, int]],
    starts: Sequence[int],
    ends: Sequence[int],
    asked: dict[str, Any],
) -> None:
    """Disorder and misalignment of the rows themselves, pair by pair."""
    lateness = (
        asked["allowed_lateness_us"] if asked["policy"] is OrderingPolicy.WITHIN_LATENESS else 0
    )
    misalignment = asked["max_misalignment_us"]
    newest_before = START
    for step in range(len(starts)):
        rows = [moment for at, _, _, moment in read if at == step]
        assert all(newest_before - moment <= lateness for moment in rows)
        newest_before = max([newest_before, *rows])
        released_from = [
            start for start in starts[: step + 1] if ends[step] <= start + misalignment
        ] or [starts[step]]
        assert all(moment - released_from[0] <= misalignment + lateness for moment in rows)


@settings(max_examples=15)
@given(sources, wishes)
def test_the_same_input_gives_the_same_plan(
    made: tuple[list[Groups], list[Groups]], asked: dict[str, Any]
) -> None:
    first, second = plan(made, **asked), plan(made, **asked)
    assert first[0] == second[0]
    assert first[1].equals(second[1])


def steps_of(header: PlanHeader) -> list[tuple[int, int]]:
    return list(zip(header.step_starts_us, header.step_ends_us, strict=True))


def test_a_step_is_as_long_as_half_the_misalignment_where_data_is_sparse() -> None:
    header, _, _ = plan([[[[moment]] for moment in range(START, END, 10)]])
    assert header.steps == 20


def test_stretches_without_data_belong_to_no_step() -> None:
    header, _, _ = plan([[[[1_003, 1_005]], [[1_700]]]])
    assert [start for start, _ in steps_of(header)] == [1_003, 1_700]


def test_a_step_takes_no_more_than_its_bytes_where_data_is_dense() -> None:
    made = [[[moment, moment + 1]] for moment in range(START, START + 40, 2)]
    size = made_source("a", made)[0].file_bytes
    header, _, _ = plan([made], target_step_bytes=int(size[0]) * 5)
    assert header.steps == 4
    assert header.sources[0].step_bytes == tuple(
        int(size[first : first + 5].sum()) for first in range(0, 20, 5)
    )


def test_a_step_ends_early_rather_than_cutting_a_file() -> None:
    made = [[list(range(first, first + 48))] for first in (START, START + 48, START + 96)]
    header, splits, _ = plan([made], allowed_lateness_us=0)
    assert steps_of(header)[0] == (1_000, 1_048)
    assert splits["slice_start_us"].null_count == 3


def test_a_file_that_ends_within_the_lateness_of_its_step_is_read_whole() -> None:
    _, splits, _ = plan([[[list(range(1_000, 1_061))]]], allowed_lateness_us=10)
    assert splits.select(["step", "slice_start_us"]).to_pylist() == [
        {"step": 0, "slice_start_us": None}
    ]


def test_a_file_that_ends_later_is_cut_into_one_slice_a_step() -> None:
    header, splits, _ = plan([[[list(range(1_000, 1_061))]]], allowed_lateness_us=9)
    slices = splits.select(["step", "slice_start_us", "slice_end_us"]).to_pylist()
    assert slices == [
        {"step": 0, "slice_start_us": 1_000, "slice_end_us": 1_050},
        {"step": 1, "slice_start_us": 1_050, "slice_end_us": 1_100},
    ]
    assert header.sources[0].wide_files == 1
    assert header.sources[0].rows == 61


def test_a_wide_file_gives_each_step_only_the_row_groups_it_overlaps() -> None:
    wide = [[moment, moment + 20] for moment in range(1_000, 1_400, 100)]
    _, splits, _ = plan([[wide]], allowed_lateness_us=0)
    assert splits["row_groups"].to_pylist() == [[0], [1], [2], [3]]
    assert splits["slice_start_us"].null_count == 4


def test_a_big_file_is_shared_between_tasks_by_its_row_groups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("backfill.planning.splits.MIN_SPLIT_BYTES", 1)
    for known_groups in (True, False):
        _, splits, content = plan(
            [[[[1_000 + group] * 500 for group in range(8)]]], known_groups, parallelism=4
        )
        assert 2 <= splits.num_rows <= 6
        assert sorted(
            group for row_groups in splits["row_groups"].to_pylist() for group in row_groups
        ) == list(range(8))
        assert len(rows_of(splits, content)) == sum(splits["rows"].to_pylist()) == 4_000


def test_a_range_that_needs_too_many_steps_is_refused() -> None:
    with pytest.raises(InvalidPlanInput, match="raise maxMisalignment"):
        files, _ = made_source("a", [[range(1_000, 6_000_000, 40)]])
        lay_out(read_sources([files]), made_inputs(START, 400_000_000, [files]))


def test_files_that_only_reach_around_the_range_leave_nothing_to_read() -> None:
    files, _ = made_source("a", [[[START - 1], [END]]])
    with pytest.raises(InvalidPlanInput, match="some of their files contain older and newer rows"):
        lay_out(read_sources([files]), made_inputs(START, END, [files]))


FAR = 10**9
"""Long before and after all that is read."""


def test_a_row_of_1970_and_one_of_2099_in_each_file_leave_the_others_their_steps() -> None:
    made = [[list(range(first, first + 60, 2))] for first in range(START, END - 60, 20)]
    strays = [[[-FAR, *group, FAR]] for (group,) in made]
    asked = {"max_misalignment_us": 20, "allowed_lateness_us": 5}
    tidy, splits_of_tidy, _ = plan([made], **asked)
    header, splits, content = plan([strays], **asked)
    read = rows_of(splits, content)
    assert Counter((path, row) for _, path, row, _ in read) == rows_wanted(
        [strays], NAMES[:1], START, END
    )
    assert (header.step_starts_us, header.step_ends_us, len(splits)) == (
        tidy.step_starts_us,
        tidy.step_ends_us,
        len(splits_of_tidy),
    )
    assert header.sources[0].rows == len(read)
    (warning,) = header.warnings
    assert f"source a: {len(made)} files also contain {2 * len(made)} rows far outside" in warning


def test_a_row_far_from_the_others_of_its_file_is_read_in_a_step_of_its_own() -> None:
    group = list(range(START, START + 100))
    header, splits, content = plan(
        [[[[*group, END - 1]]]], max_misalignment_us=40, allowed_lateness_us=0
    )
    assert header.steps == 6
    assert splits["rows"].to_pylist()[-1] == 1
    assert rows_of(splits, content)[-1][3] == END - 1
    assert header.sources[0].rows == 101
    (warning,) = header.warnings
    assert "1 row with ts" in warning


def test_files_that_have_rows_all_over_the_range_are_not_all_read() -> None:
    rows = list(range(START, END, 5))
    opened: list[str] = []
    files, content = made_source("a", [[rows]] * 100)

    def opening(path: str) -> io.BytesIO:
        opened.append(path)
        return io.BytesIO(content[path])

    files.open = opening
    inputs = made_inputs(START, END, [files], max_misalignment_us=20, allowed_lateness_us=0)
    header, _ = lay_out(read_sources([files]), inputs)
    assert (len(set(opened)), len(opened)) == (64, 64)
    assert header.sources[0].rows == 100 * len(rows)
