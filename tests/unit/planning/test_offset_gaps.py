"""Kafka offsets that are missing or there twice, by what manifests say of files."""

from collections.abc import Sequence
from random import Random

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from backfill.planning.offsets import NO_BOUNDS, Gap, Offsets, check_offsets, in_words

File = tuple[int, int, int, int, int]


def of(partition: int, first: int, last: int, rows: int | None = None) -> File:
    return (partition, partition, first, last, last - first + 1 if rows is None else rows)


def checked(
    files: Sequence[File],
    others: Sequence[File] = (),
    arrived: Sequence[tuple[int, int]] | None = None,
) -> Offsets:
    """What offsets say of files whose rows, unless it is said otherwise, arrived in their order."""
    array, rest = (np.array(each, np.int64).reshape(-1, 5).T for each in (files, others))
    times = array[2:4] if arrived is None else np.array(arrived, np.int64).T
    return check_offsets(array, times, lambda: [array, rest])


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
        assert (found.gaps, found.continuous) == ((), False), arrived
        assert "as with several topics or clusters in one table" in found.notes[0]


def test_offsets_without_a_gap_are_continuous() -> None:
    found = checked([of(0, 100, 199), of(0, 0, 99), of(1, 7, 7), of(1, 8, 20)])
    assert found == Offsets(continuous=True)


def test_offsets_between_files_are_missing() -> None:
    found = checked([of(0, 0, 99), of(0, 150, 199), of(0, 205, 300), of(1, 0, 9)])
    assert found.gaps == (Gap(0, 100, 150), Gap(0, 200, 205))
    assert list(in_words(found.gaps)) == [
        "Kafka partition 0 lacks 55 offsets: 100 to 149, 200 to 204"
    ]


def test_offsets_that_the_table_has_outside_of_the_range_are_not_missing() -> None:
    files = [of(0, 0, 99), of(0, 150, 199)]
    assert checked(files, [of(0, 100, 149)]).continuous
    assert checked(files, [(0, 3, 0, 500, 90)]).continuous, "it may have them"
    assert checked(files, [(NO_BOUNDS, NO_BOUNDS, 0, 0, 10)]).continuous, "it may have them"
    assert checked(files, [of(1, 100, 149)]).gaps == (Gap(0, 100, 150),)
    some = [of(0, 110, 119), of(0, 90, 104), of(0, 130, 160)]
    assert checked(files, some).gaps == (Gap(0, 105, 110), Gap(0, 120, 130))


def test_a_topic_that_leaves_offsets_out_can_not_tell() -> None:
    """A transaction's marker takes an offset, within files as well as between them."""
    found = checked([of(0, 0, 99, rows=98), of(0, 101, 199)])
    assert found.gaps == ()
    assert not found.continuous
    assert "transactions" in found.notes[0]


def test_a_marker_after_each_file_is_no_missing_row() -> None:
    """Where an ingestion writes a file for each transaction of the producer."""
    files = [of(0, 100 * number, 100 * number + 98) for number in range(20)]
    found = checked(files)
    assert found.gaps == ()
    assert "transactions" in found.notes[0]
    assert checked([of(0, 0, 99), of(0, 101, 199)]).continuous


def test_files_of_several_partitions_can_not_tell() -> None:
    found = checked([(0, 3, 0, 99, 100), of(0, 200, 299)])
    assert (found.gaps, found.continuous) == ((), False)
    assert "1 of 2 files have rows of several partitions" in found.notes[0]


def test_rows_that_are_there_twice_are_counted() -> None:
    twice = "at least 100 rows have the Kafka offset of another row"
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
    assert found.continuous == (lost == 0)
    assert found.notes == (
        (f"at least {twice:,} rows have the Kafka offset of another row",) if twice else ()
    )
