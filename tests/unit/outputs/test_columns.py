"""Rows are fitted to the table by name and without loss, or refused before the first batch with
every reason.
"""

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
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
)

from backfill.api.errors import BackfillError
from backfill.outputs.column_conversion import fit, mismatches, zone_mismatches
from cases import cases

NEW_YORK = pa.timestamp("us", tz="America/New_York")
MOMENT_US = 1_625_961_600_000_000


def table(**columns: IcebergType) -> Schema:
    return Schema(
        *(NestedField(number, name, kind) for number, (name, kind) in enumerate(columns.items(), 1))
    )


@pytest.mark.parametrize(
    ("given", "kind", "problem"),
    [
        (pa.timestamp("us", "UTC"), TimestamptzType(), None),
        (pa.timestamp("us"), TimestampType(), None),
        (
            pa.timestamp("us", "UTC"),
            TimestampType(),
            "column a of t is a timestamp_ntz, but the rows have a timestamp: production converts",
        ),
        (
            pa.timestamp("us"),
            TimestamptzType(),
            "column a of t is a timestamp, but the rows have a timestamp_ntz: production converts",
        ),
        (
            pa.list_(pa.timestamp("us")),
            ListType(9, TimestamptzType()),
            "column a.element of t is a timestamp",
        ),
        (
            pa.map_(pa.string(), pa.timestamp("us")),
            MapType(8, StringType(), 9, TimestamptzType()),
            "column a.value of t is a",
        ),
        (
            pa.struct([("B", pa.timestamp("us"))]),
            StructType(NestedField(9, "b", TimestamptzType())),
            "column a.b of t is a",
        ),
    ],
    ids=str,
)
def test_times_that_only_one_side_gives_a_zone_depend_on_the_sessions(
    given: pa.DataType, kind: IcebergType, problem: str | None
) -> None:
    found = [
        str(each)
        for each in zone_mismatches(
            pa.schema([("A", given)]), table(a=kind), "t", "America/New_York"
        )
    ]
    assert len(found) == (problem is not None)
    assert all(each.startswith(problem or "") and "America/New_York" in each for each in found)


def batch(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


@cases(
    ("given", "kind", "value"),
    {
        "a byte fits a long": (pa.array([1], pa.int8()), LongType(), 1),
        "an int fits a long": (pa.array([1], pa.int32()), LongType(), 1),
        "a float fits a double": (pa.array([0.5], pa.float32()), DoubleType(), 0.5),
        "a decimal fits one with more digits": (
            pa.array([Decimal("1.25")]),
            DecimalType(10, 2),
            Decimal("1.25"),
        ),
        "a string fits a string": (pa.array(["x"], pa.string()), StringType(), "x"),
        "nothing fits everything": (pa.array([None], pa.null()), StringType(), None),
        "a list of ints fits one of longs": (
            pa.array([[1]], pa.list_(pa.int32())),
            ListType(9, LongType()),
            [1],
        ),
        "a map to ints fits one to longs": (
            pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int32())),
            MapType(8, StringType(), 9, LongType()),
            [("a", 1)],
        ),
    },
)
def test_values_are_widened_where_nothing_is_lost(
    given: pa.Array, kind: IcebergType, value: object
) -> None:
    schema = table(a=kind)
    assert not mismatches(batch(a=given).schema, schema, "t")
    assert fit(batch(a=given), schema).column("a").to_pylist() == [value]


@pytest.mark.parametrize("given", [pa.timestamp("us"), pa.timestamp("us", tz="UTC"), NEW_YORK])
@pytest.mark.parametrize("kind", [TimestampType(), TimestamptzType()])
def test_a_timestamp_without_a_zone_is_the_moment_in_utc(
    given: pa.DataType, kind: IcebergType
) -> None:
    rows = batch(a=pa.array([MOMENT_US]).cast(given))
    assert not mismatches(rows.schema, table(a=kind), "t")
    assert fit(rows, table(a=kind)).column("a").cast(pa.int64()).to_pylist() == [MOMENT_US]


@cases(
    ("given", "kind"),
    {
        "a long does not fit an int": (pa.int64(), IntegerType()),
        "a double does not fit a long": (pa.float64(), LongType()),
        "a long does not fit a double": (pa.int64(), DoubleType()),
        "a string does not fit a long": (pa.string(), LongType()),
        "a long does not fit a string": (pa.int64(), StringType()),
        "a string does not fit a timestamp": (pa.string(), TimestampType()),
        "a timestamp does not fit a date": (pa.timestamp("us"), DateType()),
        "a decimal does not fit one of another scale": (pa.decimal128(10, 3), DecimalType(10, 2)),
        "a list of longs does not fit one of ints": (
            pa.list_(pa.int64()),
            ListType(9, IntegerType()),
        ),
        "a long does not fit a list": (pa.int64(), ListType(9, LongType())),
    },
)
def test_values_that_may_not_fit_are_refused_by_their_type(
    given: pa.DataType, kind: IcebergType
) -> None:
    (problem,) = mismatches(pa.schema([("a", given)]), table(a=kind), "lake.raw.out")
    assert "column a of lake.raw.out is a" in problem.message
    assert problem.fix == "cast it in the application"


def test_columns_are_matched_by_name_whatever_their_case_and_order() -> None:
    rows = batch(B=pa.array(["x"]), a=pa.array([1]))
    assert fit(rows, table(A=LongType(), b=StringType())).to_pylist() == [{"A": 1, "b": "x"}]


def test_fields_of_structs_are_matched_by_name_and_null_structs_stay_null() -> None:
    schema = table(
        s=StructType(NestedField(11, "one", LongType()), NestedField(12, "two", StringType()))
    )
    given = pa.array(
        [{"TWO": "x", "one": 1}, None], pa.struct([("TWO", pa.string()), ("one", pa.int32())])
    )
    assert not mismatches(batch(s=given).schema, schema, "t")
    assert fit(batch(s=given), schema).column("s").to_pylist() == [{"one": 1, "two": "x"}, None]


def test_fitting_a_slice_fits_the_slice() -> None:
    schema = table(s=StructType(NestedField(11, "one", LongType())))
    given = pa.array([{"one": 1}, {"one": 2}, None], pa.struct([("one", pa.int32())]))
    assert fit(batch(s=given).slice(1), schema).column("s").to_pylist() == [{"one": 2}, None]


def test_an_optional_column_that_is_not_given_is_null() -> None:
    assert not mismatches(pa.schema([("a", pa.int64())]), table(a=LongType(), b=StringType()), "t")
    assert fit(batch(a=pa.array([1])), table(a=LongType(), b=StringType())).to_pylist() == [
        {"a": 1, "b": None}
    ]


def test_every_mistake_is_told_at_once() -> None:
    schema = Schema(
        NestedField(1, "a", LongType(), required=True), NestedField(2, "b", StringType())
    )
    given = pa.schema([("b", pa.int64()), ("c", pa.int64()), ("C", pa.int64())])
    assert [problem.message for problem in mismatches(given, schema, "lake.raw.out")] == [
        "the rows for lake.raw.out have several columns named c",
        "the rows have a column c that table lake.raw.out does not have",
        "the rows have a column C that table lake.raw.out does not have",
        "column a of lake.raw.out is required, but the rows do not have it",
        "column b of lake.raw.out is a large_string, but the rows have a int64",
    ]


def test_a_null_in_a_required_column_fails_with_its_name() -> None:
    schema = Schema(NestedField(1, "a", LongType(), required=True))
    with pytest.raises(BackfillError, match="a is null in 1 row, but the output table requires it"):
        fit(batch(a=pa.array([1, None])), schema)


def test_columns_whose_names_differ_in_case_only_are_not_mixed_up() -> None:
    rows = batch(K=pa.array(["upper"]), k=pa.array(["lower"]))
    schema = table(k=StringType(), K=StringType(), s=StructType(NestedField(9, "a", LongType())))
    assert fit(rows, schema).to_pylist() == [{"k": "lower", "K": "upper", "s": None}]
    inner = table(s=StructType(NestedField(11, "k", LongType()), NestedField(12, "K", LongType())))
    given = batch(s=pa.array([{"K": 1, "k": 2}]))
    assert fit(given, inner).to_pylist() == [{"s": {"k": 2, "K": 1}}]
    one = batch(k=pa.array(["lower"]), s=pa.array([{"K": 1}]))
    both = table(K=StringType(), k=StringType(), s=inner.fields[0].field_type)
    assert fit(one, both).to_pylist() == [{"K": None, "k": "lower", "s": {"k": None, "K": 1}}]
    required = Schema(NestedField(1, "K", StringType(), required=True), *both.fields[1:])
    (problem,) = mismatches(one.schema, required, "t")
    assert problem.message == "column K of t is required, but the rows do not have it"


REQUIRED = StructType(
    NestedField(20, "x", LongType(), required=True),
    NestedField(21, "deep", StructType(NestedField(22, "y", StringType(), required=True))),
    NestedField(23, "many", ListType(24, LongType(), element_required=True), required=True),
    NestedField(25, "inner", StructType(NestedField(26, "z", LongType())), required=True),
)
GIVEN = pa.struct(
    {
        "x": pa.int64(),
        "deep": pa.struct({"y": pa.string()}),
        "many": pa.list_(pa.int64()),
        "inner": pa.struct({"z": pa.int64()}),
    }
)
"""The same as Spark gives it: all fields may be null."""
ROW = {"x": 1, "deep": None, "many": [2], "inner": {"z": None}}


def as_spark_gives(array: pa.Array) -> pa.Array:
    """The same values, with all fields null where a struct is."""
    if pa.types.is_struct(array.type):
        fields = list(array.type)
        children = [as_spark_gives(pc.struct_field(array, [n])) for n in range(len(fields))]
        return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null())
    if pa.types.is_map(array.type):
        items = as_spark_gives(array.items)
        return pa.MapArray.from_arrays(array.offsets, array.keys, items, mask=array.is_null())
    if pa.types.is_list(array.type):
        values = as_spark_gives(array.values)
        return pa.ListArray.from_arrays(array.offsets, values, mask=array.is_null())
    return array


@cases(
    ("given", "kind", "values"),
    {
        "a struct": (GIVEN, REQUIRED, [ROW, None]),
        "a list": (
            pa.list_(GIVEN),
            ListType(9, REQUIRED, element_required=False),
            [None, [ROW, None], [], [ROW]],
        ),
        "a map": (
            pa.map_(pa.string(), GIVEN),
            MapType(8, StringType(), 9, REQUIRED, value_required=False),
            [None, [("a", ROW), ("b", None)], [], [("c", ROW)]],
        ),
        "a struct with a list": (
            pa.struct({"of": pa.list_(GIVEN)}),
            StructType(NestedField(10, "of", ListType(9, REQUIRED, element_required=False))),
            [None, {"of": None}, {"of": [ROW, None]}],
        ),
    },
)
def test_a_null_struct_is_written_whatever_fields_it_would_need(
    given: pa.DataType, kind: IcebergType, values: list[object], tmp_path: Path
) -> None:
    rows = batch(c=as_spark_gives(pa.array(values, given)))
    for first in range(len(values) + 1):
        fitted = fit(rows.slice(first), table(c=kind))
        pq.write_table(pa.Table.from_batches([fitted]), tmp_path / "rows.parquet")
        assert pq.read_table(tmp_path / "rows.parquet")["c"].to_pylist() == values[first:]


def test_a_null_in_a_required_field_of_a_struct_that_is_there_fails_with_its_name() -> None:
    schema = table(s=StructType(NestedField(9, "x", LongType(), required=True)))
    given = pa.array([{"x": 1}, None, {"x": None}], pa.struct([("x", pa.int64())]))
    with pytest.raises(BackfillError, match="x is null inside a column in 1 row, but"):
        fit(batch(s=given), schema)
