"""Which task reads which splits: everything once, evenly, and always the same."""

from hypothesis import given
from hypothesis import strategies as st

from backfill.planning.plan import OffsetRange, Split
from backfill.runtime.source.task_packing import pack_by_bytes, pack_by_kafka_partition


def split(number: int, size: int = 1, offsets: tuple[OffsetRange, ...] = ()) -> Split:
    return Split(
        step=0, source="events", path=f"/{number}.parquet", format="parquet", file_bytes=size, row_groups=None,
        slice_start_us=None, slice_end_us=None, lower_us=0, upper_us=0, rows=1, bytes=size, offsets=offsets,
    )  # fmt: skip


SIZES = st.lists(st.integers(0, 1_000), max_size=40)
TASKS = st.integers(1, 8)


@given(sizes=SIZES, tasks=TASKS)
def test_every_split_is_read_once_and_no_task_is_idle(sizes: list[int], tasks: int) -> None:
    splits = [split(number, size) for number, size in enumerate(sizes)]
    packed = pack_by_bytes(splits, tasks)
    assert len(packed) == min(tasks, len(splits))
    assert all(packed)
    assert sorted((each for task in packed for each in task), key=lambda each: each.path) == sorted(
        splits, key=lambda each: each.path
    )


@given(sizes=SIZES, tasks=TASKS)
def test_the_busiest_task_has_at_most_one_split_more_than_its_share(
    sizes: list[int], tasks: int
) -> None:
    packed = pack_by_bytes([split(number, size) for number, size in enumerate(sizes)], tasks)
    busiest = max((sum(each.bytes for each in task) for task in packed), default=0)
    assert busiest <= sum(sizes) / tasks + max(sizes, default=0)


def test_a_task_reads_its_splits_in_the_plans_order() -> None:
    packed = pack_by_bytes([split(0, 1), split(1, 9), split(2, 1), split(3, 7), split(4, 1)], 2)
    assert [[each.path for each in task] for task in packed] == [
        ["/1.parquet", "/4.parquet"],
        ["/0.parquet", "/2.parquet", "/3.parquet"],
    ]


RANGES = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 50), st.integers(1, 50)),
    max_size=6,
    unique_by=lambda each: each[0],
)


@given(ranges=st.lists(RANGES, max_size=10), tasks=TASKS)
def test_a_kafka_partition_is_read_by_one_task_with_all_its_offsets(
    ranges: list[list[tuple[int, int, int]]], tasks: int
) -> None:
    splits = [
        split(
            number,
            offsets=tuple(
                OffsetRange(partition, start, start + length) for partition, start, length in each
            ),
        )
        for number, each in enumerate(ranges)
    ]
    packed = pack_by_kafka_partition(splits, tasks)
    assert len(packed) == min(
        tasks, len({partition for each in ranges for partition, _, _ in each})
    )
    partitions = [{each.partition for part in task for each in part.offsets} for task in packed]
    assert sum(map(len, partitions)) == len(set().union(*partitions))
    read = [(part.path, each) for task in packed for part in task for each in part.offsets]
    assert sorted(read, key=repr) == sorted(
        ((part.path, each) for part in splits for each in part.offsets), key=repr
    )
