"""Holes and early ends of a source: found where rows are missing, and nowhere else."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from made_files import made_inputs, source_files

from backfill.iceberg.timestamp_units import GREATEST_US, LEAST_US
from backfill.planning.plan import InputCheck
from backfill.planning.source_completeness import FALSE_ALARMS, Arrivals, OtherFiles, check_input
from backfill.planning.usual_pauses import compare

MINUTE = 60_000_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
Files = Sequence[tuple[int, int, int]]
"""Files by the first and last moment of their rows, and how many they have."""


def checked(
    files: Files, end: int, *, start: int = 0, before: bool = True, after: bool = True
) -> InputCheck:
    """What is found of a table's files in a range."""
    table = np.array(files, np.int64).reshape(-1, 3)
    inside = [file for file in files if file[0] < end and file[1] >= start]
    source = source_files("clicks", inside)
    inputs = made_inputs(start, end, [source])
    around = OtherFiles(lambda: before, lambda: after, lambda ranges: [table.T])
    return check_input(source, inputs, around)


def every(step: int, start: int, end: int, rows: int = 100, lasting: int | None = None) -> Files:
    """Files that follow one another, or are bursts that last shorter than a step."""
    length = step - 1 if lasting is None else lasting
    return [(first, first + length, rows) for first in range(start, end, step)]


def without(files: Files, start: int, end: int) -> Files:
    return [file for file in files if file[1] < start or file[0] >= end]


def test_rows_after_the_end_show_that_it_is_complete() -> None:
    found = checked(every(5 * MINUTE, 0, DAY), DAY)
    assert (found.complete, found.reached) == (True, True)
    assert "rows arrived at or after the end" in found.known_from


def test_a_table_that_ends_early_lacks_rows() -> None:
    found = checked(every(5 * MINUTE, 0, 20 * HOUR), DAY, after=False)
    assert found.complete is False
    (missing,) = found.missing
    assert "the newest row arrived at 1970-01-01T19:59:59Z, 4h before the end" in missing
    assert "about 4,800 more would be usual" in missing


def test_a_last_row_seconds_before_the_end_is_no_early_end() -> None:
    files = [(first, first + MINUTE - 12_000_000, 600) for first in range(0, DAY, MINUTE)]
    found = checked(files, DAY, after=False)
    assert (found.complete, found.reached) == (True, False)
    assert "as close to the end of the input range as usual" in found.known_from


def business_days(days: int, first: int, last: int) -> Files:
    """Files from nine to five, from Monday to Friday; day 0 is a Monday."""
    hours = [(day * DAY + 9 * HOUR, day * DAY + 17 * HOUR) for day in range(days) if day % 7 < 5]
    files = [file for start, end in hours for file in every(5 * MINUTE, start, end)]
    return [file for file in files if file[1] >= first and file[0] < last]


def test_nightly_pauses_and_weekends_are_no_holes() -> None:
    files = business_days(28, 0, 28 * DAY)
    for first in range(28):
        for days in (1, 3, 7):
            start, end = first * DAY, min(first + days, 28) * DAY
            if any(start <= file[0] < end for file in files):
                found = checked(files, end, start=start)
                assert found.missing == (), (first, days)
    for last in range(8, 26):
        end = last * DAY + 17 * HOUR
        until = business_days(28, 0, end)
        found = checked(until, last * DAY + DAY, start=last * DAY - 2 * DAY, after=False)
        assert found.missing == (), last


def test_a_few_bursts_a_day_at_any_time_are_no_holes() -> None:
    """Neither within a day, nor compared with days on which they came a little earlier or later."""
    random = np.random.default_rng(1)
    for bursts in (1, 2, 5):
        times = [
            day * DAY + (2 * number + 1) * DAY // (2 * bursts) + int(random.normal() * 10 * MINUTE)
            for day in range(40)
            for number in range(bursts)
        ]
        files = [(time, time + 2 * MINUTE, 10_000) for time in times]
        for day in range(15, 38):
            assert checked(files, (day + 1) * DAY, start=day * DAY).missing == (), (bursts, day)
    times = sorted(random.integers(0, 40 * DAY, 200).tolist())
    files = [(time, time + 2 * MINUTE, 10_000) for time in times]
    for day in range(15, 38):
        assert checked(files, (day + 1) * DAY, start=day * DAY).missing == (), day


def test_a_hole_beside_a_nightly_pause_is_found() -> None:
    files = without(business_days(14, 0, 14 * DAY), 8 * DAY + 14 * HOUR, 9 * DAY)
    found = checked(files, 9 * DAY + 12 * HOUR, start=8 * DAY)
    assert len(found.missing) == 1
    assert "no rows from 1970-01-09T14:00:00Z to 1970-01-10T09:00:00Z (19h)" in found.missing[0]


def test_an_outage_of_several_days_is_found() -> None:
    files = without(every(5 * MINUTE, 0, 30 * DAY), 14 * DAY, 17 * DAY)
    assert len(checked(files, 20 * DAY, start=12 * DAY).missing) == 1


def test_an_outage_that_began_days_before_the_range_is_found() -> None:
    files = without(every(5 * MINUTE, 0, 30 * DAY), 10 * DAY, 14 * DAY + 2 * HOUR)
    assert len(checked(files, 15 * DAY, start=14 * DAY).missing) == 1


def test_days_that_are_compacted_can_not_tell() -> None:
    """Today's files show a pause at night, and those of the other days are a day long."""
    compacted = [(day * DAY, (day + 1) * DAY - 1, 20_000) for day in range(6)]
    today = without(every(5 * MINUTE, 6 * DAY, 7 * DAY), 6 * DAY + HOUR, 6 * DAY + 5 * HOUR)
    found = checked([*compacted, *today], 7 * DAY, start=6 * DAY)
    assert found.complete is None
    assert "files of other days span too much time to compare" in found.unknown[0]


def test_too_few_rows_can_not_tell_whether_more_are_to_come() -> None:
    found = checked([(0, HOUR, 5), (5 * HOUR, 6 * HOUR, 5)], 8 * HOUR, after=False)
    assert found.complete is None
    assert "too few rows to judge" in found.unknown[0]


def test_a_hole_is_found_with_its_rows() -> None:
    files = without(every(5 * MINUTE, 0, DAY), 9 * HOUR, 10 * HOUR)
    found = checked(files, DAY)
    assert found.complete is False
    assert found.missing == (
        "no rows from 1970-01-01T09:00:00Z to 1970-01-01T10:00:00Z (1h),"
        " where about 1,200 would be usual",
    )


def test_several_holes_are_all_found() -> None:
    files = every(5 * MINUTE, 0, DAY)
    for hour in (3, 9, 15):
        files = without(files, hour * HOUR, hour * HOUR + 40 * MINUTE)
    assert len(checked(files, DAY).missing) == 3


def test_a_few_big_files_that_overlap_hide_everything_and_are_no_hole() -> None:
    files = [(0, DAY - 1, 10**6), (HOUR, DAY - HOUR, 10**6), (2 * HOUR, 20 * HOUR, 10**6)]
    assert checked(files, DAY).complete is True


def test_bursts_are_no_holes() -> None:
    for hours in (2, 3, 4, 24):
        bursts = every(HOUR, 0, hours * HOUR, rows=10_000, lasting=MINUTE)
        assert checked(bursts, hours * HOUR).complete is True, hours


def test_a_burst_at_the_start_of_a_young_table_can_not_tell() -> None:
    """A nearly empty source, such as settings that are written once."""
    burst = (10_000_000, 40_000_000, 150)
    found = checked([burst], 12 * HOUR, before=False, after=False)
    assert found.complete is None
    assert "unless rows arrive in bursts" in found.unknown[0]
    found = checked([burst, (13 * HOUR, 13 * HOUR, 150)], 12 * HOUR, before=False)
    assert found.complete is None
    assert "the table has too few other days to compare" in found.unknown[0]
    an_hour = every(5 * MINUTE, 0, HOUR)
    assert checked(an_hour, 12 * HOUR, before=False, after=False).complete is False


def test_bounds_of_all_integers_hide_no_hole_of_other_days() -> None:
    """They are what columns without a sensible value have."""
    files = without(every(5 * MINUTE, 0, 10 * DAY), 5 * DAY + 9 * HOUR, 5 * DAY + 11 * HOUR)
    everywhere = (LEAST_US, GREATEST_US, 1)
    found = compare(
        [((5 * DAY + 9 * HOUR, 5 * DAY + 11 * HOUR), 2400.0)],
        lambda _: [np.array([*files, everywhere], np.int64).T],
    )
    assert (found[0].pauses, found[0].rows) == (0, 2)
    assert checked(files, 6 * DAY, start=5 * DAY + 6 * HOUR).complete is False
    lower, upper, rows = np.array([everywhere], np.int64).T
    arrivals = Arrivals(lower, upper, rows, 0, DAY)
    assert 0 < arrivals.rows < 1


def test_two_bursts_left_out_of_many_are_a_hole() -> None:
    bursts = without(every(HOUR, 0, DAY, rows=10_000, lasting=MINUTE), 9 * HOUR, 12 * HOUR)
    assert checked(bursts, DAY).complete is False


def test_a_pause_shorter_than_a_minute_is_no_hole() -> None:
    files = without(every(MINUTE // 6, 0, DAY, rows=100_000), HOUR, HOUR + MINUTE)
    assert checked(files, DAY, after=True).complete is False
    files = without(every(MINUTE // 6, 0, DAY, rows=100_000), HOUR, HOUR + MINUTE - 10_000_000)
    assert checked(files, DAY).complete is True


def test_a_table_that_begins_in_the_range_can_not_tell_what_was_before() -> None:
    files = every(5 * MINUTE, 6 * HOUR, DAY)
    found = checked(files, DAY, before=False)
    assert found.complete is None
    assert "whether older rows existed is unknown" in found.unknown[0]
    assert checked(files, DAY, before=True).complete is False


def test_a_source_without_rows_is_unknown() -> None:
    found = checked([], DAY, after=False)
    assert (found.complete, found.reached) == (None, False)
    assert found.unknown == ("no rows in the input range; no rows arrived later either",)


def test_a_source_without_rows_that_has_them_on_other_days_lacks_them() -> None:
    files = without(every(HOUR, 0, 10 * DAY), 5 * DAY, 6 * DAY)
    found = checked(files, 6 * DAY, start=5 * DAY)
    assert found.missing == ("no rows in the input range, although other days have rows",)


def poisson(seed: int, rows: int, end: int) -> Files:
    """Rows that arrive at random, in files of random numbers of them."""
    random = np.random.default_rng(seed)
    moments = np.sort(random.integers(0, end, rows))
    cuts = np.sort(random.choice(np.arange(1, rows), random.integers(0, rows), replace=False))
    return [(int(each[0]), int(each[-1]), len(each)) for each in np.split(moments, cuts)]


@given(
    seed=st.integers(0, 2**32 - 1),
    rows=st.integers(2, 3000),
    hours=st.integers(1, 100),
    after=st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_rows_that_arrive_at_random_cause_no_alarm(
    seed: int, rows: int, hours: int, after: bool
) -> None:
    assert checked(poisson(seed, rows, hours * HOUR), hours * HOUR, after=after).complete is not (
        False
    )


@given(
    seed=st.integers(0, 2**32 - 1),
    rows=st.integers(500, 3000),
    at=st.floats(0.2, 0.7),
)
@settings(max_examples=200, deadline=None)
def test_a_hole_of_many_rows_is_found_wherever_it_is(seed: int, rows: int, at: float) -> None:
    """Twice as many as chance could leave out: what is around it is an estimate, too."""
    lost = 2 * (math.log(rows) - math.log(FALSE_ALARMS)) + 20
    end = DAY
    hole = int(lost / rows * end)
    random = np.random.default_rng(seed)
    moments = np.sort(random.integers(0, end, rows))
    first = int(at * end)
    kept = moments[(moments < first) | (moments >= first + hole)]
    files = [(int(moment), int(moment), 1) for moment in kept]
    found = checked(files, end)
    assert found.complete is False, found


def test_the_work_does_not_grow_with_holes() -> None:
    """Only the longest stretches are looked at, however many there are."""
    count = 100_000
    lower = np.arange(count, dtype=np.int64) * MINUTE
    arrivals = Arrivals(lower, lower + 1, np.ones(count, np.int64), 0, count * MINUTE)
    assert arrivals.suspicious() == []


def test_results_do_not_depend_on_the_order_of_files() -> None:
    files = list(without(every(5 * MINUTE, 0, DAY), 9 * HOUR, 10 * HOUR))
    shuffled: list[Any] = [
        files[place] for place in np.random.default_rng(3).permutation(len(files))
    ]
    assert checked(files, DAY) == checked(shuffled, DAY)
