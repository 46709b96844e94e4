from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill.api.quantities import (
    format_duration,
    format_time,
    from_us,
    parse_bytes,
    parse_duration,
    parse_time,
    to_us,
)

MOMENTS = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))


@given(st.integers(0, 3660 * 86_400_000).map(lambda count: timedelta(milliseconds=count)))
def test_a_duration_is_read_as_it_is_written(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration)) == duration


@given(MOMENTS)
def test_a_time_is_read_as_it_is_written(moment: datetime) -> None:
    assert parse_time(format_time(moment.replace(tzinfo=UTC))) == moment.replace(tzinfo=UTC)


@given(MOMENTS, st.integers(-14 * 60, 14 * 60))
def test_a_time_with_an_offset_is_the_same_moment_in_utc(
    moment: datetime, offset_minutes: int
) -> None:
    elsewhere = moment.replace(tzinfo=UTC).astimezone(timezone(timedelta(minutes=offset_minutes)))
    assert parse_time(elsewhere.isoformat()) == elsewhere
    assert parse_time(elsewhere.isoformat()).tzinfo is UTC


@given(MOMENTS)
def test_microseconds_since_the_epoch_are_exact(moment: datetime) -> None:
    assert from_us(to_us(moment.replace(tzinfo=UTC))) == moment.replace(tzinfo=UTC)


@given(st.integers(-(10**17), 10**17))
def test_a_number_of_microseconds_is_a_length_of_time_exactly(count: int) -> None:
    assert to_us(timedelta(microseconds=count)) == count


@given(
    st.integers(1, 10**6),
    st.sampled_from([("", 1), ("k", 10**3), ("Ki", 2**10), ("Gi", 2**30), ("T", 10**12)]),
)
def test_a_size_is_its_number_times_its_unit(count: int, unit: tuple[str, int]) -> None:
    assert parse_bytes(f"{count}{unit[0]}") == count * unit[1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0s", timedelta()),
        ("15m", timedelta(minutes=15)),
        ("90s", timedelta(seconds=90)),
        ("1d12h", timedelta(hours=36)),
        ("1h30m5s7ms", timedelta(hours=1, minutes=30, seconds=5, milliseconds=7)),
    ],
)
def test_a_duration(text: str, expected: timedelta) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize(
    "value",
    [
        "",
        "15",
        "m",
        "15 m",
        "-1h",
        "1.5h",
        "5m1h",
        "1H",
        "PT1H",
        "1m\n",
        "1w",
        "\uff19s",
        15,
        None,
        True,
        "9999999999d",
    ],
)
def test_is_no_duration(value: object) -> None:
    with pytest.raises(ValueError, match=r"^is .*; "):
        parse_duration(value)


@pytest.mark.parametrize(
    "value",
    [
        "2021-07-11",
        "2021-07-11 00:00:00Z",
        "2021-07-11T00:00:00",
        "2021-07-11T00:00Z",
        "2021-02-30T00:00:00Z",
        "2021-07-11T00:00:00.1234567Z",
        "2021-07-11T00:00:00+25:00",
        "0001-01-01T00:00:00+01:00",
        "",
        1625961600,
        None,
        datetime(2021, 7, 11),
    ],
)
def test_is_no_time(value: object) -> None:
    with pytest.raises(ValueError, match=r"^is no.*; write it as 2021-07-11T00:00:00"):
        parse_time(value)


@pytest.mark.parametrize(
    "value", ["", "0", "0Gi", "-1", "1.5Gi", "1 Gi", "1GB", "Gi", 0, -5, True, None, 1.5]
)
def test_is_no_size(value: object) -> None:
    with pytest.raises(ValueError, match=r"^is not a size; "):
        parse_bytes(value)
