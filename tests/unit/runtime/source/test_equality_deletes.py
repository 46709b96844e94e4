"""Rows that equality deletes delete are not read, whatever wrote them in between: compared with
upserts that were applied one after the other.
"""

import math
import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from planned_rows import planned_day, rows_of_run
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    DoubleType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from backfill.api.errors import InvalidPlanInput
from backfill.planning.rows.equality_deletes import Deleted
from backfill.planning.workspace import Workspace
from cases import cases
from iceberg_tables import (
    commit_files,
    data_file,
    equality_file,
    parquet_file,
    partition_of,
    position_deletes,
)
from plain_values import plain_rows

SOMETHING = pa.schema([pa.field("x", pa.int64(), metadata={"PARQUET:field_id": "77"})])
DAY = datetime(2026, 3, 1, tzinfo=UTC)
SCHEMA = Schema(
    NestedField(1, "at", TimestamptzType(), required=False),
    NestedField(2, "id", LongType(), required=False),
    NestedField(3, "name", StringType(), required=False),
    NestedField(4, "region", StringType(), required=False),
    NestedField(
        5, "of", StructType(NestedField(6, "kind", StringType(), required=False)), required=False
    ),
)
BY_REGION = PartitionSpec(PartitionField(4, 1000, IdentityTransform(), "region"))
KEYS = {(2,): ["id"], (2, 3): ["id", "name"], (3, 6): ["name", "kind"], (4,): ["region"]}
Row = dict[str, Any]


def some_rows(chance: random.Random, region: str) -> list[Row]:
    return [
        {
            "at": DAY
            + timedelta(minutes=chance.randrange(24 * 60), microseconds=chance.randrange(10**6)),
            "id": chance.choice([None, *range(12)]),
            "name": chance.choice([None, "", "a", "b", "ü"]),
            "region": region,
            "of": chance.choice([None, {"kind": None}, {"kind": "x"}, {"kind": "y"}]),
        }
        for _ in range(chance.randrange(1, 40))
    ]


def key(row: Row, columns: Sequence[str]) -> tuple[Any, ...]:
    flat = row | {"kind": (row["of"] or {}).get("kind")}
    return tuple(flat[column] for column in columns)


@dataclass
class History:
    """A table, and the rows that it has by what was committed."""

    catalog: Catalog
    table: Table
    partitioned: bool
    chance: random.Random
    rows: list[Row]

    def commit(self, number: int) -> None:
        """Deletes some rows that were there before, and adds others, as an upsert does."""
        region = self.chance.choice(["eu", "us"])
        place = {"partition": partition_of(region) if self.partitioned else partition_of()}
        deletes = [
            self._delete(f"{number}-{each}", region, place)
            for each in range(self.chance.randrange(3))
        ]
        fresh = some_rows(self.chance, region)
        self.rows += fresh
        rows = pa.Table.from_pylist(fresh, _arrow(self.table.schema()))
        added = parquet_file(
            self.table,
            f"{number}.parquet",
            rows,
            row_group_size=self.chance.choice([7, None]),
            **place,
        )
        self.table = commit_files(self.catalog, self.table, number, [added], deletes)

    def _delete(self, name: str, region: str, place: dict[str, Any]) -> DataFile:
        field_ids, columns = self.chance.choice(list(KEYS.items())[: 3 if self.partitioned else 4])
        of = [*self.rows, *some_rows(self.chance, region)]
        deleted = self.chance.sample(of, min(len(of), self.chance.randrange(6)))
        keys = {key(row, columns) for row in deleted}
        self.rows = [
            row
            for row in self.rows
            if key(row, columns) not in keys or (self.partitioned and row["region"] != region)
        ]
        return equality_file(self.table, f"{name}-deletes.parquet", deleted, field_ids, **place)


def _arrow(schema: Schema) -> pa.Schema:
    return schema.as_arrow()


def shown(rows: Sequence[Row]) -> list[str]:
    return sorted(repr(sorted(row.items(), key=str)) for row in rows)


@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("policy", ["Exact", "WithinLateness"])
def test_a_table_of_upserts_has_the_rows_that_are_left(
    lake: Catalog, tmp_path: Path, policy: str, partitioned: bool
) -> None:
    for seed in range(4):
        spec = BY_REGION if partitioned else UNPARTITIONED_PARTITION_SPEC
        lake.create_namespace_if_not_exists("raw")
        table = lake.create_table("raw.events", SCHEMA, partition_spec=spec)
        history = History(lake, table, partitioned, random.Random(seed), [])
        for number in range(1, 9):
            history.commit(number)
        directory = tmp_path / f"plan-{seed}"
        header, read = planned_day(directory, policy, "6h", timestampColumn="at")
        steps = range(header.steps)
        at_once = rows_of_run(header, Workspace(str(directory)), "events", steps, 1 << 30)
        assert shown(at_once) == shown([each.values for each in read])
        left = pa.RecordBatch.from_pylist(history.rows, _arrow(SCHEMA))
        expected = list(plain_rows(left))
        assert shown([each.values for each in read]) == shown(expected), f"seed {seed}"
        lake.drop_table("raw.events")


def test_deleted_rows_are_read_where_deletes_are_to_be_ignored(
    lake: Catalog, tmp_path: Path
) -> None:
    table = lake.create_table("raw.events", SCHEMA)
    rows = some_rows(random.Random(1), "eu")
    table.append(pa.Table.from_pylist(rows, _arrow(SCHEMA)))
    deletes = equality_file(table, "deletes.parquet", rows, (2,))
    commit_files(lake, lake.load_table("raw.events"), 7, [], [deletes])
    for wish, expected in (("Apply", 0), ("Ignore", len(rows))):
        _, read = planned_day(tmp_path / wish, "Exact", "6h", timestampColumn="at", deletes=wish)
        assert len(read) == expected


def test_rows_that_one_commit_adds_and_deletes_by_value_and_by_position(
    lake: Catalog, tmp_path: Path
) -> None:
    """As Kafka Connect and Flink write a key that comes twice: the first row by its position, older
    ones by value, and the last one stays.
    """
    table = lake.create_table("raw.events", SCHEMA)
    old, first, last, other = (
        {"at": DAY, "id": key, "name": name}
        for key, name in ((3000, "old"), (3000, "first"), (3000, "last"), (5, "other"))
    )
    table.append(pa.Table.from_pylist([old], _arrow(SCHEMA)))
    table = lake.load_table("raw.events")
    added = parquet_file(
        table, "a.parquet", pa.Table.from_pylist([first, last, other], _arrow(SCHEMA))
    )
    by_value = equality_file(table, "e.parquet", [old, old, other], (2,))
    position = position_deletes(tmp_path / "p.parquet", [(added.file_path, 0)])
    by_position = data_file(
        2,
        content=DataFileContent.POSITION_DELETES,
        file_path=position.path,
        record_count=1,
        file_size_in_bytes=Path(position.path).stat().st_size,
    )
    commit_files(lake, table, 7, [added], [by_value, by_position])
    _, read = planned_day(tmp_path, "Exact", "6h", timestampColumn="at")
    assert [each.values["name"] for each in read] == ["last", "other"]


def test_deletes_by_a_column_that_was_renamed_apply(lake: Catalog, tmp_path: Path) -> None:
    table = lake.create_table("raw.events", SCHEMA)
    rows = [{"at": DAY, "id": each, "name": str(each)} for each in range(4)]
    table.append(pa.Table.from_pylist(rows, _arrow(SCHEMA)))
    table = lake.load_table("raw.events")
    deletes = equality_file(table, "deletes.parquet", [rows[1], rows[2]], (2, 3))
    with table.update_schema() as change:
        change.rename_column("id", "number")
    commit_files(lake, lake.load_table("raw.events"), 7, [], [deletes])
    _, read = planned_day(tmp_path, "Exact", "6h", timestampColumn="at")
    assert [each.values["number"] for each in read] == [0, 3]


@cases(
    "damage, message",
    {
        "gone": (Path.unlink, "deletes.parquet of lake.raw.events cannot be read: .*; restore"),
        "damaged": (
            lambda path: path.write_bytes(b"PAR1"),
            "delete file .*deletes.parquet of lake.raw.events cannot be read: .*; restore",
        ),
        "without its column": (
            lambda path: pq.write_table(pa.table({"x": [1]}, SOMETHING), path),
            "deletes.parquet of lake.raw.events cannot be read: it lacks column id; compact",
        ),
    },
)
def test_a_delete_file_that_cannot_be_read_is_named(
    lake: Catalog, tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    table = lake.create_table("raw.events", SCHEMA)
    rows = some_rows(random.Random(1), "eu")
    table.append(pa.Table.from_pylist(rows, _arrow(SCHEMA)))
    deletes = equality_file(table, "deletes.parquet", rows, (2,))
    commit_files(lake, lake.load_table("raw.events"), 7, [], [deletes])
    damage(Path(deletes.file_path.removeprefix("file://")))
    with pytest.raises(InvalidPlanInput, match=message):
        planned_day(tmp_path, "Exact", "6h", timestampColumn="at")


def test_numbers_that_are_not_numbers_are_equal_whatever_their_bits(
    lake: Catalog, tmp_path: Path
) -> None:
    schema = Schema(*SCHEMA.fields, NestedField(9, "ratio", DoubleType(), required=False))
    table = lake.create_table("raw.events", schema)
    other = struct.unpack("<d", struct.pack("<Q", 0xFFF8 << 48))[0]
    rows = [{"at": DAY, "ratio": each} for each in (math.nan, other, -0.0, 0.0, None)]
    table.append(pa.Table.from_pylist(rows, _arrow(table.schema())))
    column = table.schema().find_field("ratio").field_id
    deletes = equality_file(table, "deletes.parquet", [{"ratio": math.nan}], (column,))
    commit_files(lake, lake.load_table("raw.events"), 7, [], [deletes])
    _, read = planned_day(tmp_path, "Exact", "6h", timestampColumn="at")
    assert [each.values["ratio"] for each in read] == [-0.0, 0.0, None]


@cases(
    "kind, values",
    {
        "decimals": (pa.decimal128(20, 3), [Decimal("1.500"), Decimal("-2"), None]),
        "UUIDs": (pa.binary(16), [UUID(int=each).bytes for each in (1, 2)]),
        "bytes": (pa.binary(), [b"", b"\0", b"\0\0", None]),
        "booleans": (pa.bool_(), [True, False, None]),
        "numbers": (pa.float64(), [math.nan, math.inf, 0.1, None]),
        "times": (pa.timestamp("us", "UTC"), [DAY, DAY - timedelta(microseconds=1), None]),
        "dates": (pa.date32(), [DAY.date(), None]),
    },
)
def test_values_of_any_type_are_found_and_no_others(kind: pa.DataType, values: list[Any]) -> None:
    every = pa.chunked_array([pa.array(values, kind)])
    others = pa.chunked_array([pa.array(range(len(values)), pa.int64())])
    for place in range(len(values)):
        deleted = Deleted([every.slice(place, 1), others.slice(place, 1)])
        assert deleted.among([every, others]).tolist() == [
            each == place for each in range(len(values))
        ]
        alone = Deleted([every.slice(place, 1)])
        assert alone.among([every]).tolist() == [each == place for each in range(len(values))]


def test_no_deleted_rows_delete_nothing() -> None:
    none, some = (pa.chunked_array([pa.array(each, pa.int64())]) for each in ([], [1, None]))
    assert Deleted([none, none]).among([some, some]).tolist() == [False, False]
