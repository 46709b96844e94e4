"""Values of a partition, for rows of files that do not have them."""

from datetime import date

from pyiceberg.schema import Schema
from pyiceberg.types import DateType, LongType, NestedField, StringType

from backfill.iceberg.missing_columns import partition_text, partition_values

ALL = Schema(
    NestedField(1, "region", StringType()),
    NestedField(2, "day", DateType()),
    NestedField(3, "id", LongType()),
)


def test_values_of_columns_that_are_not_read_are_left_out() -> None:
    text = partition_text(ALL, {1: "eu", 2: 18_819, 3: None})
    days = (date(2021, 7, 11) - date(1970, 1, 1)).days
    assert partition_values(ALL, text) == {1: "eu", 2: days, 3: None}
    assert partition_values(Schema(*ALL.fields[1:]), text) == {2: days, 3: None}
    assert partition_values(Schema(ALL.fields[2]), text) == {3: None}
