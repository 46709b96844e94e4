"""Every type of a table's column as Spark gets it, and exact time slices of every kind of
timestamp.
"""

import json
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from files_of_a_table import read, sliced, v3_table, write_file, write_plain_file
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    IcebergType,
    ListType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from backfill.api.errors import InvalidPlanInput
from backfill.iceberg.timestamp_units import ticks_of
from backfill.runtime.source.schemas import refuse_names_alike, spark_schema

IDS = [UUID("6f9619ff-8b86-d011-b42d-00c04fc964ff"), None, UUID(int=0), UUID(int=2**128 - 1)]
MOMENT = datetime(2021, 7, 11, 12, 30, 15, 123456)
IN_UTC = MOMENT.replace(tzinfo=UTC)


def stored_and_given(path: Path, kind: IcebergType, values: pa.Array) -> pa.ChunkedArray:
    schema = Schema(NestedField(1, "at", LongType()), NestedField(9, "v", kind))
    split = write_file(
        path / "file.parquet", schema, pa.table({"at": [0] * len(values), "v": values})
    )
    return read(v3_table(schema, timestamp_unit="ms"), split)["v"]


@pytest.mark.parametrize(
    ("kind", "values", "given_type", "given"),
    [
        (BooleanType(), pa.array([True, None]), pa.bool_(), [True, None]),
        (DoubleType(), pa.array([0.1, None]), pa.float64(), [0.1, None]),
        (DateType(), pa.array([date(1969, 7, 20)]), pa.date32(), [date(1969, 7, 20)]),
        (DecimalType(38, 5), pa.array([Decimal("-1.00001")]), pa.decimal128(38, 5), [Decimal("-1.00001")]),
        (BinaryType(), pa.array([b"\x00\xff", None]), pa.binary(), [b"\x00\xff", None]),
        (FixedType(3), pa.array([b"abc", None], pa.binary(3)), pa.binary(), [b"abc", None]),
        (TimeType(), pa.array([time(23, 59, 59, 999999)]), pa.string(), ["23:59:59.999999"]),
        (TimestampType(), pa.array([MOMENT]), pa.timestamp("us"), [MOMENT]),
        (TimestamptzType(), pa.array([MOMENT], pa.timestamp("us", "UTC")), pa.timestamp("us", "UTC"), [IN_UTC]),
        (UUIDType(), pa.array([i and i.bytes for i in IDS], pa.uuid()), pa.string(), [i and str(i) for i in IDS]),
    ],
    ids=lambda value: str(value) if isinstance(value, IcebergType) else "",
)  # fmt: skip
def test_values_arrive_as_they_are_stored(
    tmp_path: Path,
    kind: PrimitiveType,
    values: pa.Array,
    given_type: pa.DataType,
    given: list[object],
) -> None:
    found = stored_and_given(tmp_path, kind, values)
    assert found.type == given_type
    assert found.to_pylist() == given


@pytest.mark.parametrize(
    ("kind", "stored", "given"),
    [
        (BooleanType(), False, False),
        (LongType(), 2**40, 2**40),
        (DoubleType(), 0.5, 0.5),
        (StringType(), "eu", "eu"),
        (DateType(), "2021-07-11", date(2021, 7, 11)),
        (TimeType(), "12:30:15.000001", "12:30:15.000001"),
        (TimestampType(), "2021-07-11T12:30:15.123456", MOMENT),
        (TimestamptzType(), "2021-07-11T12:30:15.123456+00:00", IN_UTC),
        (DecimalType(9, 2), "14.20", Decimal("14.20")),
        (UUIDType(), str(IDS[0]), str(IDS[0])),
        (BinaryType(), "00ff", b"\x00\xff"),
        (FixedType(2), "00ff", b"\x00\xff"),
    ],
    ids=str,
)
def test_the_value_of_a_partition_stands_for_a_column_that_is_not_in_the_file(
    tmp_path: Path, kind: IcebergType, stored: object, given: object
) -> None:
    at = NestedField(1, "at", LongType())
    file = write_file(tmp_path / "file.parquet", Schema(at), pa.table({"at": [0]}))
    split = replace(file, partition=json.dumps({"2": stored}))
    table = v3_table(
        Schema(at, NestedField(2, "v", kind)), timestamp_unit="ms", row_filter="v is not null"
    )
    assert read(table, split)["v"].to_pylist() == [given]


@pytest.mark.parametrize("kind", [TimestampNanoType(), TimestamptzNanoType()], ids=str)
def test_nanoseconds_become_the_microsecond_they_lie_in_also_before_1970(
    tmp_path: Path, kind: PrimitiveType
) -> None:
    zone = "UTC" if isinstance(kind, TimestamptzNanoType) else None
    stored = pa.array([-1_001, -1_000, -1, 0, 999, 1_000, None], pa.timestamp("ns", zone))
    found = stored_and_given(tmp_path, kind, stored)
    assert found.type == pa.timestamp("us", zone)
    assert found.cast(pa.int64()).to_pylist() == [-2, -1, -1, 0, 0, 1, None]


def test_types_within_structs_and_lists_are_given_as_they_are_at_the_top(tmp_path: Path) -> None:
    kind = ListType(
        2, StructType(NestedField(3, "id", UUIDType()), NestedField(4, "t", TimestampNanoType()))
    )
    ids = pa.array([IDS[0].bytes, None], pa.uuid())
    structs = pa.StructArray.from_arrays(
        [ids, pa.array([1_500, None], pa.timestamp("ns"))], ["id", "t"]
    )
    lists = pa.ListArray.from_arrays([0, 2, 2, 2], structs, mask=pa.array([False, True, False]))
    given = stored_and_given(tmp_path, kind, lists).to_pylist()
    microsecond = datetime(1970, 1, 1, microsecond=1)
    assert given == [[{"id": str(IDS[0]), "t": microsecond}, {"id": None, "t": None}], None, []]


class FakeType(PrimitiveType):
    """A type of a later version of Iceberg."""

    root: str = "complex"


def test_a_type_that_spark_does_not_have_is_refused_by_the_columns_name() -> None:
    schema = Schema(
        NestedField(1, "ok", LongType()),
        NestedField(2, "s", StructType(NestedField(3, "what", FakeType()))),
    )
    with pytest.raises(
        InvalidPlanInput, match=r"column s\.what of lake\.raw\.events has the type complex"
    ):
        spark_schema(schema, "lake.raw.events")


def test_columns_that_differ_only_in_case_are_named_where_records_have_both() -> None:
    names = ("id", "Zone", "ID", "zone", "note")
    schema = Schema(*(NestedField(n, name, LongType()) for n, name in enumerate(names, 1)))
    with pytest.raises(
        InvalidPlanInput,
        match=r"lake\.raw\.events differ only in case: id and ID, Zone and zone; set spark\.sql\.caseSens",
    ):
        refuse_names_alike(spark_schema(schema, "lake.raw.events"), "lake.raw.events")
    other = Schema(NestedField(1, "id", LongType()), NestedField(2, "zone", LongType()))
    refuse_names_alike(spark_schema(other, "lake.raw.events"), "lake.raw.events")


TICKS = st.integers(-5_000, 5_000)
KINDS: dict[str, tuple[PrimitiveType, pa.DataType, str | None]] = {
    "timestamp": (TimestampType(), pa.timestamp("us"), None),
    "timestamptz": (TimestamptzType(), pa.timestamp("us", "UTC"), None),
    "timestamp_ns": (TimestampNanoType(), pa.timestamp("ns"), None),
    "timestamptz_ns": (TimestamptzNanoType(), pa.timestamp("ns", "UTC"), None),
    **{f"long in {unit}": (LongType(), pa.int64(), unit) for unit in ("s", "ms", "us", "ns")},
}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ticks=st.lists(TICKS, min_size=1, max_size=20), start=TICKS, length=st.integers(0, 3_000))
@example(ticks=[-1_000, -999, -1, 0, 1, 999, 1_000], start=-1, length=1)
@example(ticks=[-1_000, -999, -1, 0, 1, 999, 1_000], start=0, length=1)
def test_a_slice_takes_exactly_the_rows_in_it(
    tmp_path: Path, kind: str, ticks: list[int], start: int, length: int
) -> None:
    iceberg, arrow, unit = KINDS[kind]
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(3, "meta", StructType(NestedField(2, "at", iceberg))),
    )
    times = pa.StructArray.from_arrays([pa.array(ticks, pa.int64()).cast(arrow)], ["at"])
    split = write_file(
        tmp_path / "file.parquet", schema, pa.table({"id": list(range(len(ticks))), "meta": times})
    )
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[ticks_of(str(iceberg), unit).unit]
    scale = max(10**6 // per_second, 1)  # slices as wide as the ticks are long
    found = read(
        v3_table(schema, "meta.at", unit), sliced(split, start * scale, (start + length) * scale)
    )
    inside = [
        number
        for number, tick in enumerate(ticks)
        if start * scale * per_second <= tick * 10**6 < (start + length) * scale * per_second
    ]
    assert found["id"].to_pylist() == inside


def test_timestamps_in_old_files_may_be_int96_or_milliseconds(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "at", TimestampType()))
    at = [MOMENT, datetime(1, 1, 1), datetime(9999, 1, 1)]
    rows = pa.table({"at": pa.array(at, pa.timestamp("us"))}, schema_to_pyarrow(schema))
    in_ms = pa.schema([rows.schema.field(0).with_type(pa.timestamp("ms"))])
    split = write_plain_file(tmp_path / "file.parquet", rows.cast(in_ms, safe=False))
    start = 1_626_006_615_123_000
    assert read(v3_table(schema), sliced(split, start, start + 1))["at"].to_pylist() == [
        MOMENT.replace(microsecond=123000)
    ]
    pq.write_table(rows, split.path, use_deprecated_int96_timestamps=True)
    assert read(v3_table(schema), split)["at"].to_pylist() == at
