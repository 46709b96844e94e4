"""What steps read of a file, as one range of arrival times that Spark can filter by."""

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from backfill.planning.footers import RowGroup
from backfill.planning.plan import Split
from backfill.runtime.batch.arrival_range import ArrivalRange, arrival_range

SPLIT = Split(
    step=0, source="events", path="/a.parquet", format="parquet", file_bytes=100, row_groups=None,
    slice_start_us=None, slice_end_us=None, lower_us=0, upper_us=9, rows=10, bytes=100,
)  # fmt: skip
Times = list[int | None]


def group_of(times: Times, *, counts_nulls: bool = True) -> RowGroup:
    known = [time for time in times if time is not None]
    nulls = len(times) - len(known)
    return RowGroup(
        rows=len(times),
        bytes=1,
        lower_us=min(known, default=None),
        upper_us=max(known, default=None),
        nulls=nulls if counts_nulls or not known else -1,
    )


def cut(start: int | None = None, end: int | None = None, *groups: int) -> Split:
    return replace(SPLIT, row_groups=groups or None, slice_start_us=start, slice_end_us=end)


def by_splits(splits: list[Split], file: list[Times]) -> Counter[tuple[int, int | None]]:
    return Counter(
        (number, time)
        for split in splits
        for number, times in enumerate(file)
        if split.row_groups is None or number in split.row_groups
        for time in times
        if split.slice_start_us is None
        or (time is not None and split.slice_start_us <= time < split.slice_end_us)
    )


def by_range(within: ArrivalRange, file: list[Times]) -> Counter[tuple[int, int | None]]:
    start, end = within.start_us, within.end_us
    return Counter(
        (number, time)
        for number, times in enumerate(file)
        for time in times
        if within.is_all
        or (time is not None and (start is None or start <= time) and (end is None or time < end))
    )


times = st.lists(st.none() | st.integers(0, 9), min_size=1, max_size=4)
slices = st.just((None, None)) | st.tuples(st.integers(0, 6), st.integers(1, 5)).map(
    lambda pair: (pair[0], pair[0] + pair[1])
)


@given(
    file=st.lists(times, min_size=1, max_size=3),
    cuts=st.lists(
        st.tuples(slices, st.none() | st.sets(st.integers(0, 3), min_size=1)), max_size=3
    ),
    counts_nulls=st.booleans(),
)
def test_a_range_has_exactly_the_rows_of_the_splits(
    file: list[Times],
    cuts: list[tuple[tuple[int | None, int | None], set[int] | None]],
    counts_nulls: bool,
) -> None:
    splits = [cut(start, end, *(groups or ())) for (start, end), groups in cuts]
    groups = [group_of(each, counts_nulls=counts_nulls) for each in file]
    within = arrival_range(splits, groups)
    if within is not None:
        assert by_range(within, file) == by_splits(splits, file)


FILE = [group_of([0, 4]), group_of([5, 9])]


def test_a_file_that_is_read_whole_has_no_limits() -> None:
    assert arrival_range([SPLIT], [group_of([None, 1]), group_of([7])]) == ArrivalRange()
    assert arrival_range([cut(None, None, 1), cut(None, None, 0)], FILE) == ArrivalRange()
    assert arrival_range([cut(0, 10)], FILE) == ArrivalRange()


def test_slices_limit_it_on_the_side_where_the_file_has_more() -> None:
    assert arrival_range([cut(2, 12)], FILE) == ArrivalRange(start_us=2)
    assert arrival_range([cut(-3, 7)], FILE) == ArrivalRange(end_us=7)
    assert arrival_range([cut(2, 5, 0), cut(5, 8, 1)], FILE) == ArrivalRange(2, 8)


def test_rows_without_a_time_are_left_out_where_slices_leave_them_out() -> None:
    assert arrival_range([cut(0, 9)], [group_of([None, 3])]) == ArrivalRange(timed=True)


def test_row_groups_beside_the_others_are_a_range() -> None:
    assert arrival_range([cut(None, None, 1)], FILE) == ArrivalRange(start_us=5)


def test_row_groups_among_others_are_no_range() -> None:
    assert arrival_range([cut(None, None, 0)], [group_of([0, 6]), group_of([5, 9])]) is None


def test_a_gap_is_no_range() -> None:
    assert arrival_range([cut(0, 2), cut(3, 5)], FILE) is None


def test_without_statistics_there_is_no_range() -> None:
    assert arrival_range([cut(0, 2)], [RowGroup(2, 1, None, None, -1)]) is None
