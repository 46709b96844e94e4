"""Data files as other engines write them: their values arrive, or it is clear why they cannot."""

from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from files_of_a_table import read, v3_table, write_plain_file
from pyiceberg.io import load_file_io
from pyiceberg.schema import Schema
from pyiceberg.types import (
    GeographyType,
    GeometryType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    UnknownType,
)

from backfill.api.errors import InvalidPlanInput
from backfill.planning.metadata.manifests import open_file
from backfill.planning.parquet_footers import unreadable_files
from backfill.planning.plan import PlannedFile

AT = NestedField(1, "at", LongType())
PLACE = StructType(NestedField(20, "zone", StringType()), NestedField(21, "row", LongType()))


def with_id(name: str, kind: pa.DataType, field_id: int) -> pa.Field:
    return pa.field(name, kind, metadata={"PARQUET:field_id": str(field_id)})


def file_with(column: pa.Field, values: list[object]) -> pa.Table:
    """Rows with ``at``, which has a field id, and another column."""
    schema = pa.schema([with_id("at", pa.int64(), 1), column])
    return pa.table([[0] * len(values), pa.array(values, column.type)], schema=schema)


NAMELESS = pa.struct([("zone", pa.string()), ("row", pa.int64())])
HERE = {"zone": "eu", "row": 1}


@pytest.mark.parametrize(
    ("wanted", "column", "value", "named"),
    [
        (
            MapType(10, StringType(), 11, PLACE),
            with_id("v", pa.map_(pa.string(), NAMELESS), 2),
            [("a", HERE)],
            "v.value.zone",
        ),
        (
            MapType(10, PLACE, 11, StringType(), value_required=False),
            with_id("v", pa.map_(NAMELESS, pa.string()), 2),
            [(HERE, "a")],
            "v.key.zone",
        ),
        (ListType(10, PLACE), with_id("v", pa.list_(NAMELESS), 2), [HERE], "v.element.zone"),
        (PLACE, with_id("v", NAMELESS, 2), HERE, "v.zone"),
        (
            PLACE,
            with_id("v", pa.struct([with_id("zone", pa.string(), 20), ("row", pa.int64())]), 2),
            HERE,
            "v.row",
        ),
        (
            MapType(10, StringType(), 11, PLACE),
            with_id("v", pa.map_(pa.string(), pa.struct([("other", pa.string())])), 2),
            [("a", {"other": "eu"})],
            "v.value.zone",
        ),
        (StringType(), pa.field("v", pa.string()), "a", "v"),
    ],
    ids=["map value", "map key", "list", "struct", "a field of a struct", "renamed", "a column"],
)
def test_fields_without_ids_are_refused_and_not_read_as_null(
    tmp_path: Path, wanted: object, column: pa.Field, value: object, named: str
) -> None:
    schema = Schema(AT, NestedField(2, "v", wanted))
    split = write_plain_file(tmp_path / "file.parquet", file_with(column, [value]))
    with pytest.raises(
        InvalidPlanInput, match=f"has no field id for column {named}; rewrite the file"
    ):
        read(v3_table(schema, timestamp_unit="ms"), split)
    # found as well before anything runs
    planned = PlannedFile(split.path, split.file_bytes, None, None, "{}")
    opened = partial(open_file, load_file_io({}))
    (problem,) = unreadable_files(opened, [planned], schema, schema, None)
    assert f"has no field id for column {named}" in problem.reason


def test_columns_that_are_not_the_tables_need_no_ids(tmp_path: Path) -> None:
    schema = Schema(AT, NestedField(2, "v", StringType()))
    rows = file_with(pa.field("written_by", pa.string()), ["a job"])
    split = write_plain_file(tmp_path / "file.parquet", rows)
    assert read(v3_table(schema, timestamp_unit="ms"), split)["v"].to_pylist() == [None]


TEXTS = ['{"a": 1}', None, "[]"]
JSON = pa.ExtensionArray.from_storage(pa.json_(), pa.array(TEXTS))


@pytest.mark.parametrize(
    ("wanted", "written"),
    [
        (StringType(), JSON),
        (
            StructType(NestedField(20, "text", StringType())),
            pa.StructArray.from_arrays([JSON], fields=[with_id("text", pa.json_(), 20)]),
        ),
        (ListType(20, StringType()), pa.ListArray.from_arrays([0, 2, 3], JSON)),
        (
            MapType(20, StringType(), 21, StringType(), value_required=False),
            pa.MapArray.from_arrays([0, 1, 3], ["a", "b", "c"], JSON),
        ),
    ],
    ids=["a column", "in a struct", "in a list", "in a map"],
)
def test_json_in_a_string_column_is_read_as_text(
    tmp_path: Path, wanted: object, written: pa.Array
) -> None:
    schema = Schema(AT, NestedField(2, "v", wanted))
    fields = pa.schema([with_id("at", pa.int64(), 1), with_id("v", written.type, 2)])
    rows = pa.table([[0] * len(written), written], schema=fields)
    split = write_plain_file(tmp_path / "file.parquet", rows)
    given = read(v3_table(schema, timestamp_unit="ms"), split)["v"]
    assert given.to_pylist() == written.to_pylist()


def test_json_is_filtered_as_text(tmp_path: Path) -> None:
    schema = Schema(AT, NestedField(2, "v", StringType()))
    rows = file_with(with_id("v", pa.json_(), 2), TEXTS)
    split = write_plain_file(tmp_path / "file.parquet", rows)
    table = v3_table(schema, timestamp_unit="ms", row_filter="v == '[]'")
    assert read(table, split)["v"].to_pylist() == ["[]"]


@pytest.mark.parametrize(
    ("wanted", "written", "given"),
    [
        (GeometryType(), pa.array([b"\x01\x02", None]), [b"\x01\x02", None]),
        (GeographyType(), pa.array([b"\x01\x02", None], pa.large_binary()), [b"\x01\x02", None]),
        (UnknownType(), pa.nulls(2), [None, None]),
        (UnknownType(), pa.array(["a", "b"]), [None, None]),
        (UnknownType(), None, [None, None]),
    ],
    ids=["geometry", "geography", "unknown", "unknown, and something there", "not there"],
)
def test_types_that_spark_lacks_keep_no_other_column_from_being_read(
    tmp_path: Path, wanted: object, written: pa.Array | None, given: list[object]
) -> None:
    schema = Schema(AT, NestedField(2, "v", wanted))
    columns = {"at": pa.array([5, 6]), **({} if written is None else {"v": written})}
    ids = {"at": 1, "v": 2}
    fields = [with_id(name, array.type, ids[name]) for name, array in columns.items()]
    rows = pa.table(list(columns.values()), schema=pa.schema(fields))
    split = write_plain_file(tmp_path / "file.parquet", rows)
    assert read(v3_table(schema, timestamp_unit="ms"), split).to_pydict() == {
        "at": [5, 6],
        "v": given,
    }
