"""What cannot be compared is found in the table's schema, before anything runs."""

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
)

from backfill.api.output import Output
from backfill.outputs.comparable_outputs import check_columns, check_comparison, compared_schema

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "at", TimestamptzType()),
    NestedField(3, "seen", TimestamptzType()),
)


@pytest.mark.parametrize(
    ("tolerance", "problem"),
    [
        ("3660d", None),
        ("3661d", "seen: '3661d' is longer than ten years; use a shorter duration"),
        ("999999999d999999999h", "seen: '999999999d999999999h' is longer than ten years; use"),
        ("5", "seen: '5' is not a duration; use a form such as 500ms, 5s or 1d"),
    ],
)
def test_a_tolerance_is_a_duration_that_can_be_compared_with(
    tolerance: str, problem: str | None
) -> None:
    output = Output.model_validate(
        {
            "name": "events",
            "table": "lake.raw.events",
            "timestampColumn": "at",
            "validate": {"keys": ["id"], "tolerance": {"seen": tolerance}},
        }
    )
    found = [str(each) for each in check_comparison(SCHEMA, output, "spec.outputs[0]")]
    assert len(found) == (problem is not None)
    assert (problem or "") in "".join(found)


def struct(**kinds: IcebergType) -> StructType:
    return StructType(*(NestedField(7, name, kind) for name, kind in kinds.items()))


@pytest.mark.parametrize(
    ("ours", "theirs", "common"),
    [
        (IntegerType(), LongType(), LongType()),
        (DoubleType(), FloatType(), DoubleType()),
        (TimestampType(), TimestamptzType(), TimestamptzType()),
        (DecimalType(9, 2), DecimalType(6, 4), DecimalType(11, 4)),
        (DecimalType(38, 2), DecimalType(38, 3), None),
        (DateType(), TimestampType(), None),
        (LongType(), TimestamptzType(), None),
        (IntegerType(), StringType(), None),
        (TimeType(), StringType(), None),
        (struct(a=IntegerType()), struct(a=LongType()), struct(a=LongType())),
        (struct(a=LongType(), b=LongType()), struct(b=LongType(), a=LongType()), None),
        (struct(a=LongType()), struct(a=LongType(), b=LongType()), None),
        (struct(), struct(), struct()),
        (ListType(1, IntegerType()), ListType(2, LongType()), ListType(1, LongType(), False)),
        (ListType(1, struct(a=DateType())), ListType(2, struct(a=TimeType())), None),
        (
            MapType(1, StringType(), 2, FloatType()),
            MapType(8, StringType(), 9, DoubleType()),
            MapType(1, StringType(), 2, DoubleType(), False),
        ),
        (MapType(1, StringType(), 2, FloatType()), MapType(1, StringType(), 2, DateType()), None),
    ],
)
def test_values_are_compared_in_a_type_that_holds_those_of_both(
    ours: IcebergType, theirs: IcebergType, common: IcebergType | None
) -> None:
    sides = [Schema(NestedField(5, "v", kind)) for kind in (ours, theirs)]
    found = compared_schema(*sides)
    assert [each.field_type for each in found.fields] == ([] if common is None else [common])
    problems = list(check_columns(*sides, against(), "spec.outputs[0]"))
    assert [each.field for each in problems] == (
        [] if common is not None else ["spec.outputs[0].validate.reference.table"]
    )


def against(**validate: object) -> Output:
    reference = {"against": "Reference", "reference": {"table": "lake.audit.events"}}
    return Output.model_validate(
        {
            "name": "events",
            "table": "lake.raw.events",
            "timestampColumn": "at",
            "validate": {**reference, **validate},
        }
    )


def test_columns_that_the_reference_lacks_are_named_with_what_to_do() -> None:
    theirs = Schema(NestedField(1, "ID", LongType()), NestedField(2, "at", DateType()))
    found = check_columns(SCHEMA, theirs, against(keys=["id"]), "spec.outputs[0]")
    assert [str(each) for each in found] == [
        "spec.outputs[0].validate.reference.table: lake.audit.events has no top-level column id,"
        " which lake.raw.events has; use keys that both tables have",
        "spec.outputs[0].validate.reference.table: column at is a date in lake.audit.events and a"
        " timestamptz in lake.raw.events, which cannot be compared; add at to validate.ignore",
        "spec.outputs[0].validate.reference.table: lake.audit.events has no top-level column seen,"
        " which lake.raw.events has; add seen to validate.ignore",
    ]
    less = Schema(NestedField(1, "id", LongType()), NestedField(9, "more", TimeType()))
    ignored = against(keys=["id"], ignore=["at", "seen"])
    assert list(check_columns(SCHEMA, less, ignored, "spec.outputs[0]")) == []
