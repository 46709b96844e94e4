"""Columns are found by their names, as the sink finds them."""

import pytest
from pyspark.sql.types import StringType, StructField, StructType, TimestampType

from backfill.runtime.source.timestamp_columns import find_column, places_of

TIME = TimestampType()


def struct(*fields: tuple[str, StructType | TimestampType | StringType]) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields])


@pytest.mark.parametrize(
    ("columns", "name", "path"),
    [
        (struct(("at", TIME)), "at", ["at"]),
        (struct(("windowStart", TIME)), "windowstart", ["windowStart"]),
        (struct(("AT", StringType()), ("at", TIME)), "at", ["at"]),
        (struct(("at", StringType()), ("AT", TIME)), "AT", ["AT"]),
        (struct(("window", struct(("start", TIME)))), "window.start", ["window", "start"]),
        (struct(("Window", struct(("Start", TIME)))), "window.start", ["Window", "Start"]),
        (struct(("window.start", TIME)), "window.start", ["window.start"]),
        (struct(("m", struct(("a.b", TIME)))), "M.a.B", ["m", "a.b"]),
        (struct(("windows", TIME)), "window", None),
        (struct(("window", TIME)), "window.start", None),
        (struct(("window", struct(("end", TIME)))), "window.start", None),
    ],
)
def test_a_column_is_found_by_its_name(
    columns: StructType, name: str, path: list[str] | None
) -> None:
    found = find_column(columns, name)
    assert found == (None if path is None else (path, TIME))


def test_names_that_differ_only_in_case_count_where_none_is_the_same() -> None:
    assert places_of("at", ["At", "at", "AT"]) == [1]
    assert places_of("at", ["k", "At", "AT"]) == [1, 2]
    assert places_of("at.x", ["at", "AT", "attic", "at.x"]) == [0, 3]
