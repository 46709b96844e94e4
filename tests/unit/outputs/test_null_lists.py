"""A list, map or struct that is null is not an empty one: not in a result, nor in production's rows
that are written anew.
"""

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import (
    IcebergType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from backfill.outputs.publication import publish
from iceberg_tables import commit_files, parquet_file
from staged import COLUMNS, DAY_START_US, DAY_US, RESULT, WINDOW, make_table, output, stage_rows


def _list(field_id: int, element: IcebergType) -> ListType:
    return ListType(field_id, element, element_required=False)


STRUCT = StructType(NestedField(20, "x", LongType()))
COLUMN_TYPES: dict[str, tuple[IcebergType, list[Any]]] = {
    "a list of structs": (_list(10, STRUCT), [None, [], [None, {"x": None}, {"x": 1}]]),
    "a map to structs": (
        MapType(10, StringType(), 11, STRUCT, value_required=False),
        [None, [], [("a", None), ("b", {"x": 1})]],
    ),
    "a list of maps to structs": (
        _list(12, MapType(10, StringType(), 11, STRUCT, value_required=False)),
        [None, [], [None, [], [("a", None), ("b", {"x": 1})]]],
    ),
    "a list of lists of structs": (
        _list(10, _list(11, STRUCT)),
        [None, [], [None, [], [{"x": 1}]]],
    ),
    "a struct with a list of structs": (
        StructType(NestedField(10, "many", _list(11, STRUCT))),
        [None, {"many": None}, {"many": [{"x": 1}]}],
    ),
    "a list of numbers": (_list(10, LongType()), [None, [], [None, 1]]),
}


@pytest.mark.parametrize("kind", COLUMN_TYPES)
def test_null_stays_null_in_a_result_and_in_files_written_anew(lake: Catalog, kind: str) -> None:
    column, values = COLUMN_TYPES[kind]
    table = make_table(lake, columns=Schema(*COLUMNS.fields, NestedField(4, "value", column)))
    old = [(number, DAY_START_US + DAY_US, value) for number, value in enumerate(values)]
    in_window = (10, DAY_START_US, values[-1])
    table = commit_files(
        lake, table, 1, [parquet_file(table, "old.parquet", _rows(table, [in_window, *old]))]
    )
    new = [(20 + number, DAY_START_US, value) for number, value in enumerate(values)]
    stage_rows(table, 0, _rows(table, new))
    publish(output(), RESULT, WINDOW, 1)

    files = [task.file.file_path for task in table.refresh().scan().plan_files()]
    there = pa.concat_tables(
        [pq.read_table(file.removeprefix("file://"), columns=["id", "value"]) for file in files]
    )
    assert sorted((row["id"], repr(row["value"])) for row in there.to_pylist()) == sorted(
        (number, repr(value)) for number, _, value in [*old, *new]
    )
    by_id = table.scan().to_arrow().select(["id", "value"])  # as readers of the table find columns
    assert sorted(map(repr, by_id.to_pylist())) == sorted(map(repr, there.to_pylist()))


def _rows(table: Table, rows: list[tuple[int, int, Any]]) -> pa.Table:
    target = schema_to_pyarrow(table.schema(), include_field_ids=False)
    ids, times, values = (list(column) for column in zip(*rows, strict=True))
    columns = [
        pa.array(ids),
        pa.array(times).cast(target.field("ts").type),
        pa.nulls(len(rows), pa.string()),
    ]
    return pa.Table.from_arrays(
        [*columns, pa.array(values, target.field("value").type)], schema=target
    )
