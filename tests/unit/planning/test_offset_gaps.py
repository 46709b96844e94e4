"""Kafka offsets that are missing or there twice, by what manifests say of files."""

from collections.abc import Sequence
from itertools import pairwise
from random import Random

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from backfill.planning.missing_offsets import NO_BOUNDS, Offsets, check_offsets, in_words
from backfill.planning.partition_files import Gap

File = tuple[int, int, int, int, int]


def of(partition: int, first: int, last: int, rows: int | None = None) -> File:
    return (partition, partition, first, last, last - first + 1 if rows is None else rows)


def checked(
    files: Sequence[File],
    others: Sequence[File] = (),
    arrived: Sequence[tuple[int, int]] | None = None,
    near: Sequence[tuple[File, tuple[int, int]]] = (),
    read: tuple[int, int] = (0, 1_000_000),
) -> Offsets:
    """What offsets say of files whose rows, unless it is said otherwise, arrived in their order.
    Those near the range are given with their times.
    """
    array, rest, outside = (
        np.array(each, np.int64).reshape(-1, 5).T
        for each in (files, others, [file for file, _ in near])
    )
    times = array[2:4] if arrived is None else np.array(arrived, np.int64).reshape(-1, 2).T
    theirs = np.array([time for _, time in near], np.int64).reshape(-1, 2).T
    return check_offsets(
        array,
        times,
        lambda: [array, rest, outside],
        lambda: [np.concatenate([outside, theirs])],
        read,
    )


def test_offsets_of_several_topics_are_not_compared() -> None:
    """Each cluster, topic and topic that was created again counts on its own."""
    files = [of(0, 0, 99), of(0, 100, 199), of(0, 5_000, 5_099), of(0, 5_100, 5_199)]
    one_topic = [(0, 10), (10, 20), (30, 40), (40, 50)]
    assert checked(files, arrived=one_topic).gaps == (Gap(0, 200, 5_000),)
    a_little_late = [(0, 10), (10, 24), (20, 40), (40, 50)]
    assert checked(files, arrived=a_little_late).gaps == (Gap(0, 200, 5_000),)
    for arrived in (
        [(0, 10), (10, 20), (0, 10), (10, 20)],
        [(0, 100), (0, 100), (1, 99), (1, 99)],
        [(30, 40), (40, 50), (0, 10), (10, 20)],
    ):
        found = checked(files, arrived=arrived)
        assert found.gaps == (), arrived
        assert "as with several topics or clusters in one table" in found.notes[0]


def test_offsets_without_a_gap_lack_nothing() -> None:
    found = checked([of(0, 100, 199), of(0, 0, 99), of(1, 7, 7), of(1, 8, 20)])
    assert found == Offsets()


def test_offsets_between_files_are_missing() -> None:
    found = checked([of(0, 0, 99), of(0, 150, 199), of(0, 205, 300), of(1, 0, 9)])
    assert found.gaps == (Gap(0, 100, 150), Gap(0, 200, 205))
    assert list(in_words(found.gaps)) == [
        "Kafka partition 0 lacks 55 offsets: 100 to 149, 200 to 204"
    ]


def test_offsets_that_the_table_has_outside_of_the_range_are_not_missing() -> None:
    files = [of(0, 0, 99), of(0, 150, 199)]
    assert not checked(files, [of(0, 100, 149)]).gaps
    assert not checked(files, [(0, 3, 0, 500, 90)]).gaps, "it may have them"
    assert not checked(files, [(NO_BOUNDS, NO_BOUNDS, 0, 0, 10)]).gaps, "it may have them"
    assert checked(files, [of(1, 100, 149)]).gaps == (Gap(0, 100, 150),)
    some = [of(0, 110, 119), of(0, 90, 104), of(0, 130, 160)]
    assert checked(files, some).gaps == (Gap(0, 105, 110), Gap(0, 120, 130))


def test_a_topic_that_leaves_offsets_out_can_not_tell() -> None:
    """A transaction's marker takes an offset, within files as well as between them."""
    found = checked([of(0, 0, 99, rows=98), of(0, 101, 199)])
    assert found.gaps == ()
    assert "transactions" in found.notes[0]


def test_a_marker_after_each_file_is_no_missing_row() -> None:
    """Where an ingestion writes a file for each transaction of the producer."""
    files = [of(0, 100 * number, 100 * number + 98) for number in range(20)]
    found = checked(files)
    assert found.gaps == ()
    assert "transactions" in found.notes[0]
    assert checked([of(0, 0, 99), of(0, 101, 199)]) == Offsets()


def test_files_of_several_partitions_can_not_tell() -> None:
    found = checked([(0, 3, 0, 99, 100), of(0, 200, 299)])
    assert found.gaps == ()
    assert "1 of 2 files contain rows of several partitions" in found.notes[0]


def test_rows_that_are_there_twice_are_counted() -> None:
    twice = "at least 100 rows have the same Kafka offset as another row"
    assert checked([of(0, 0, 99), of(0, 0, 99), of(0, 100, 150)]).notes == (twice,)
    assert checked([of(0, 0, 99, rows=200), of(0, 100, 150)]).notes == (twice,)
    assert checked([of(0, 0, 149), of(0, 50, 199)]).notes == (twice,)


@given(
    st.lists(
        st.lists(st.tuples(st.integers(1, 50), st.sampled_from([0, 0, 0, 2, 9]), st.booleans())),
        min_size=1,
        max_size=3,
    ).filter(any),
    st.randoms(use_true_random=False),
)
def test_what_is_left_out_and_repeated_is_found(
    partitions: list[list[tuple[int, int, bool]]], random: Random
) -> None:
    """Files of each partition: rows, offsets lost before the next file, whether it is repeated."""
    files, lost, twice, gaps = [], 0, 0, 0
    for number, made in enumerate(partitions):
        offset = 0
        for place, (rows, after, repeated) in enumerate(made):
            files += [of(number, offset, offset + rows - 1)] * (1 + repeated)
            twice += rows * repeated
            gaps += after > 0 and place < len(made) - 1
            lost += after if after > 2 and place < len(made) - 1 else 0
            offset += rows + after
    random.shuffle(files)
    found = checked(files)
    assume(gaps <= 5 or 2 * gaps <= len(files))
    assert sum(gap.end - gap.start for gap in found.gaps) == lost
    rows = "1 row has" if twice == 1 else f"{twice:,} rows have"
    assert found.notes == (
        (f"at least {rows} the same Kafka offset as another row",) if twice else ()
    )


HOUR = 1_000
"""In the tests of edges, the range lasts from hour 0 to hour 6."""


def hourly(lost: Sequence[int], partition: int = 0, rows: int = 50) -> dict[int, File]:
    """A file for each hour of a partition from three before the range to three after it."""
    return {
        hour: of(partition, rows * (hour + 3), rows * (hour + 4) - 1)
        for hour in range(-3, 9)
        if hour not in lost
    }


def by_the_hour(*partitions: dict[int, File]) -> Offsets:
    """What offsets say of them."""
    files = [
        (file, (hour * HOUR, (hour + 1) * HOUR - 1))
        for partition in partitions
        for hour, file in partition.items()
    ]
    within = [each for each in files if 0 <= each[1][0] < 6 * HOUR]
    return checked(
        [file for file, _ in within],
        arrived=[time for _, time in within],
        near=[each for each in files if each not in within],
        read=(0, 6 * HOUR),
    )


def test_offsets_that_are_missing_at_an_edge_of_the_range_or_in_all_of_it_are_found() -> None:
    others = [hourly([], 0), hourly([], 1)]
    for lost in (range(-1, 3), range(3, 7), range(-1, 7), range(6), [0], [5]):
        found = by_the_hour(*others, hourly(lost, 2))
        assert found.gaps == (Gap(2, 50 * (lost[0] + 3), 50 * (lost[-1] + 4)),), lost


def test_what_is_missing_beside_the_range_is_none_of_it() -> None:
    assert by_the_hour(hourly([-2, -1, 6, 7])).gaps == ()
    few = hourly([-1, 0, 5, 6], rows=10)  # too few to say whether some were in the range
    assert by_the_hour(few).gaps == ()
    long_after = checked(
        [of(0, 0, 9, rows=10)],
        arrived=[(0, 5 * HOUR)],
        near=[(of(0, 500_000, 500_009), (5_000 * HOUR, 5_010 * HOUR))],
        read=(0, 6 * HOUR),
    )
    assert long_after.gaps == (), "ten rows in five hours are not many in the sixth"


def test_offsets_that_another_file_may_have_are_not_missing_at_an_edge() -> None:
    lacking = hourly([-1, 0])
    assert by_the_hour(lacking).gaps == (Gap(0, 100, 200),)
    elsewhere = {**lacking, -3: (0, 5, 0, 700, 400)}
    assert by_the_hour(elsewhere).gaps == (), "files of several partitions may have them"
    late = {**lacking, 8: of(0, 100, 199)}
    assert by_the_hour(late).gaps == ()


def test_a_partition_may_begin_end_or_be_created_again() -> None:
    assert by_the_hour(hourly([]), hourly(range(-3, 2), 1)).gaps == ()
    assert by_the_hour(hourly([]), hourly(range(4, 9), 1)).gaps == ()
    silent = {**hourly(range(9), 1), 7: of(1, 150, 199)}
    assert by_the_hour(hourly([]), silent).gaps == ()
    before = {**hourly([]), -3: of(0, 7_000, 7_049), -2: of(0, 7_050, 7_099)}
    assert by_the_hour(before).gaps == ()
    assert by_the_hour({**before, -1: of(0, 7_100, 7_149)}).gaps == ()
    after = {**hourly([]), 6: of(0, 0, 49), 7: of(0, 50, 99), 8: of(0, 100, 149)}
    assert by_the_hour(after).gaps == ()
    whole = {-1: of(0, 7_000, 7_049), 6: of(0, 0, 49), 7: of(0, 50, 99)}
    assert by_the_hour(whole).gaps == ()


@given(
    st.lists(
        st.tuples(st.integers(50, 90), st.sets(st.integers(-3, 8), max_size=9)),
        min_size=1,
        max_size=3,
    )
)
def test_what_the_range_lacks_is_found_wherever_it_is(
    partitions: list[tuple[int, set[int]]],
) -> None:
    """Of each partition: rows of an hour, and the hours that are lost."""
    made = [hourly(sorted(lost), number, rows) for number, (rows, lost) in enumerate(partitions)]
    expected, gaps = set[tuple[int, int]](), 0
    for number, files in enumerate(made):
        hours = sorted(files)
        for ahead, after in pairwise(hours):
            if after > ahead + 1 and ahead < 5 and after > 0:
                expected.add((number, ahead + 1))
            gaps += after > ahead + 1
    assume(gaps <= 5)
    found = by_the_hour(*made)
    assert {
        (gap.partition, gap.start // partitions[gap.partition][0] - 3) for gap in found.gaps
    } == expected
