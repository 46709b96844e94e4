"""Splits of several steps read together: each row as often as the steps read it one by one, and no
row group more often than it must be.
"""

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from backfill.planning.plan import DeleteFile, OffsetRange, Split
from backfill.runtime.batch.merged_splits import merged

SPLIT = Split(
    step=0, source="events", path="/a.parquet", format="parquet", file_bytes=100, row_groups=None,
    slice_start_us=None, slice_end_us=None, lower_us=0, upper_us=9, rows=10, bytes=100,
)  # fmt: skip
GROUPS, MOMENTS, PARTITIONS, OFFSETS = range(3), range(6), range(2), range(6)
Row = tuple[str, int, int | None, int, int]
ROWS = [
    (path, group, moment, partition, offset)
    for path in ("/a.parquet", "/b.parquet")
    for group in GROUPS
    for moment in (None, *MOMENTS)
    for partition in PARTITIONS
    for offset in OFFSETS
]


def rows(splits: list[Split]) -> Counter[Row]:
    """Which rows splits read, of files with three row groups."""
    return Counter(row for split in splits for row in ROWS if _reads(split, row))


def _reads(split: Split, row: Row) -> bool:
    path, group, moment, partition, offset = row
    start, end = split.slice_start_us, split.slice_end_us
    return (
        split.path == path
        and (split.row_groups is None or group in split.row_groups)
        and (start is None or end is None or (moment is not None and start <= moment < end))
        and (
            not split.offsets
            or any(
                each.partition == partition and each.start <= offset < each.end
                for each in split.offsets
            )
        )
    )


slices = st.none() | st.tuples(st.integers(0, 6), st.integers(0, 6)).map(
    lambda pair: (min(pair), max(pair))
)
offsets = st.lists(
    st.builds(
        lambda partition, start, length: OffsetRange(partition, start, start + length),
        st.sampled_from(PARTITIONS),
        st.sampled_from(OFFSETS),
        st.integers(1, 4),
    ),
    max_size=2,
    unique_by=lambda each: each.partition,
)


@st.composite
def some_splits(draw: st.DrawFn) -> list[Split]:
    made = []
    for step in range(draw(st.integers(0, 5))):
        cut = draw(slices)
        groups = draw(st.none() | st.sets(st.sampled_from(GROUPS), min_size=1))
        made.append(
            replace(
                SPLIT,
                step=step,
                path=draw(st.sampled_from(["/a.parquet", "/b.parquet"])),
                row_groups=None if groups is None else tuple(sorted(groups)),
                slice_start_us=None if cut is None else cut[0],
                slice_end_us=None if cut is None else cut[1],
                offsets=tuple(draw(offsets)),
            )
        )
    return made


@given(splits=some_splits(), most_bytes=st.sampled_from([1, 60, 1_000]))
def test_every_row_is_read_as_often_as_the_steps_read_it(
    splits: list[Split], most_bytes: int
) -> None:
    assert rows(merged(splits, most_bytes)) == rows(splits)


def cut(start: int, end: int, *groups: int, step: int = 0) -> Split:
    return replace(
        SPLIT, step=step, row_groups=groups or None, slice_start_us=start, slice_end_us=end
    )


def test_slices_of_a_file_that_meet_are_one() -> None:
    found = merged([cut(4, 9, step=2), cut(1, 3), cut(3, 4, step=1)], 1_000)
    assert found == [replace(cut(1, 9), rows=30)]


def test_a_gap_between_slices_stays() -> None:
    found = merged([cut(0, 2), cut(2, 3, step=1), cut(5, 7, step=3)], 1_000)
    assert [(each.slice_start_us, each.slice_end_us) for each in found] == [(0, 3), (5, 7)]


def test_each_row_group_is_read_by_its_own_slices() -> None:
    found = merged([cut(0, 2, 0, 1), cut(2, 4, 1, 2, step=1)], 1_000)
    assert [(each.row_groups, each.slice_start_us, each.slice_end_us) for each in found] == [
        ((0,), 0, 2),
        ((1,), 0, 4),
        ((2,), 2, 4),
    ]


def test_row_groups_that_are_read_alike_share_a_split_up_to_its_bytes() -> None:
    steps = [replace(SPLIT, step=group, row_groups=(group,)) for group in GROUPS]
    assert [each.row_groups for each in merged(steps, 1_000)] == [(0, 1, 2)]
    assert [each.row_groups for each in merged(steps, 200)] == [(0, 1), (2,)]


def test_offsets_of_a_row_group_are_read_together() -> None:
    def step(number: int, *ranges: OffsetRange) -> Split:
        return replace(SPLIT, step=number, row_groups=(0,), offsets=ranges)

    (found,) = merged(
        [
            step(0, OffsetRange(0, 0, 3), OffsetRange(1, 7, 9)),
            step(1, OffsetRange(0, 3, 5)),
            step(2, OffsetRange(0, 8, 9)),
        ],
        1_000,
    )
    assert found.offsets == (OffsetRange(0, 0, 5), OffsetRange(0, 8, 9), OffsetRange(1, 7, 9))


def test_a_file_under_other_deletes_is_another_one() -> None:
    deleted = replace(cut(2, 4, step=1), deletes=(DeleteFile("/d", "puffin"),))
    assert merged([cut(0, 2), deleted], 1_000) == [cut(0, 2), deleted]
