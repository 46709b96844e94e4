"""Files written under older schemas, read in the table's: by field id, promoted, filled where
absent.
"""

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from files_of_a_table import read, sliced, source_table, v3_table, write_file, write_plain_file
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
)

from backfill.api.errors import InvalidPlanInput
from backfill.planning.plan import Split

AT = NestedField(1, "at", TimestampType())


def at(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)


def table_with_old_file(
    lake: Catalog, tmp_path: Path, *fields: NestedField, rows: list[dict[str, object]]
) -> tuple[Table, Split]:
    table = lake.create_table("raw.events", schema=Schema(AT, *fields))
    names = [field.name for field in table.schema().fields]
    table.append(
        pa.Table.from_pylist(
            [{"at": at(0), **row} for row in rows], table.schema().as_arrow()
        ).select(names)
    )
    old = pa.Table.from_pylist([{"at": at(0), **row} for row in rows], table.schema().as_arrow())
    return table, write_file(tmp_path / "old.parquet", table.schema(), old)


def rows_without_time(rows: pa.Table) -> list[dict[str, object]]:
    return rows.drop_columns("at").to_pylist()


def test_renamed_columns_keep_their_values_and_a_new_column_of_the_old_name_is_empty(
    lake: Catalog, tmp_path: Path
) -> None:
    table, old = table_with_old_file(
        lake, tmp_path, NestedField(2, "user", LongType()), rows=[{"user": 7}]
    )
    with table.update_schema() as change:
        change.rename_column("user", "account")
    with table.update_schema() as change:
        change.add_column("user", StringType())
    assert rows_without_time(read(source_table(table), old)) == [{"account": 7, "user": None}]


def test_columns_are_given_in_the_tables_order_and_dropped_ones_are_left_out(
    lake: Catalog, tmp_path: Path
) -> None:
    fields = (
        NestedField(2, "a", LongType()),
        NestedField(3, "b", LongType()),
        NestedField(4, "c", LongType()),
    )
    table, old = table_with_old_file(lake, tmp_path, *fields, rows=[{"a": 1, "b": 2, "c": 3}])
    with table.update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("b")
        change.move_first("c")
    assert read(source_table(table), old).to_pylist() == [{"c": 3, "at": at(0), "a": 1}]


def test_numbers_and_decimals_are_widened(lake: Catalog, tmp_path: Path) -> None:
    fields = (
        NestedField(2, "whole", IntegerType()),
        NestedField(3, "real", FloatType()),
        NestedField(4, "price", DecimalType(9, 2)),
    )
    rows = [
        {"whole": -5, "real": 0.5, "price": Decimal("12.34")},
        {"whole": None, "real": None, "price": None},
    ]
    table, old = table_with_old_file(lake, tmp_path, *fields, rows=rows)
    with table.update_schema() as change:
        change.update_column("whole", LongType())
        change.update_column("real", DoubleType())
        change.update_column("price", DecimalType(18, 2))
    found = read(source_table(table), old)
    assert [found.schema.field(name).type for name in ("whole", "real", "price")] == [
        pa.int64(),
        pa.float64(),
        pa.decimal128(18, 2),
    ]
    assert rows_without_time(found) == rows


def nested_fields() -> tuple[NestedField, ...]:
    point = StructType(NestedField(10, "x", IntegerType()), NestedField(11, "y", IntegerType()))
    item = StructType(NestedField(20, "sku", StringType()))
    return (
        NestedField(2, "point", point),
        NestedField(3, "items", ListType(21, item, element_required=False)),
        NestedField(4, "tags", MapType(30, StringType(), 31, item, value_required=False)),
    )


NESTED_ROWS = [
    {
        "point": {"x": 1, "y": 2},
        "items": [{"sku": "a"}, None, {"sku": "b"}],
        "tags": [("k", {"sku": "c"})],
    },
    {"point": None, "items": None, "tags": None},
    {"point": {"x": None, "y": 4}, "items": [], "tags": []},
    {
        "point": {"x": 5, "y": 6},
        "items": [{"sku": "d"}],
        "tags": [("l", None), ("m", {"sku": "e"})],
    },
]


def evolved_row(row: dict[str, object]) -> dict[str, object]:
    def item(value: object) -> object:
        return None if value is None else {"code": value["sku"], "count": None}  # type: ignore[index]

    point, items, tags = row["point"], row["items"], row["tags"]
    return {
        "point": point and {"z": None, "x": point["x"]},  # type: ignore[index]
        "items": None if items is None else [item(each) for each in items],  # type: ignore[attr-defined]
        "tags": None if tags is None else [(key, item(value)) for key, value in tags],  # type: ignore[attr-defined]
    }


def evolve_nested(table: Table) -> None:
    with table.update_schema(allow_incompatible_changes=True) as change:
        change.add_column(("point", "z"), DoubleType())
        change.delete_column(("point", "y"))
        change.move_first(("point", "z"))
        change.update_column(("point", "x"), LongType())
        change.rename_column(("items", "sku"), "code")
        change.add_column(("items", "count"), LongType())
        change.rename_column(("tags", "sku"), "code")
        change.add_column(("tags", "count"), LongType())


def test_structs_also_within_lists_and_maps_evolve_and_nulls_stay_nulls(
    lake: Catalog, tmp_path: Path
) -> None:
    table, old = table_with_old_file(lake, tmp_path, *nested_fields(), rows=NESTED_ROWS)
    evolve_nested(table)
    assert rows_without_time(read(source_table(table), old)) == [
        evolved_row(row) for row in NESTED_ROWS
    ]


@pytest.mark.parametrize("times", [2, 3, 5])
def test_nested_rows_cut_out_of_a_batch_are_the_right_ones(
    lake: Catalog, tmp_path: Path, times: int
) -> None:
    rows = [{**row, "at": at(number)} for number, row in enumerate(NESTED_ROWS * times)]
    table, old = table_with_old_file(lake, tmp_path, *nested_fields(), rows=rows)
    evolve_nested(table)
    found = read(source_table(table), sliced(old, 1_000_000, 1_000_000 * (2 * times + 1)))
    assert found.to_pylist() == [
        {"at": row["at"], **evolved_row(row)} for row in rows[1 : 2 * times + 1]
    ]


@pytest.mark.parametrize(
    ("row_filter", "matches"), [(None, 1), ("level == 3 and note == 'none'", 1), ("level == 4", 0)]
)
def test_a_new_column_has_its_initial_default_in_old_files(
    tmp_path: Path, row_filter: str | None, matches: int
) -> None:
    old = write_file(
        tmp_path / "old.parquet",
        Schema(AT),
        pa.table({"at": pa.array([at(0)], pa.timestamp("us"))}),
    )
    level = NestedField(2, "level", LongType(), required=True, initial_default=3)
    day = NestedField(4, "day", DateType(), initial_default=date(2021, 7, 11))
    schema = Schema(AT, level, NestedField(3, "note", StringType(), initial_default="none"), day)
    found = read(v3_table(schema, row_filter=row_filter), old)
    assert (
        rows_without_time(found)
        == [{"level": 3, "note": "none", "day": date(2021, 7, 11)}] * matches
    )


def test_partition_columns_that_are_not_in_the_file_come_from_the_partition(
    lake: Catalog, tmp_path: Path
) -> None:
    schema = pa.schema([("at", pa.timestamp("us")), ("day", pa.date32()), ("region", pa.string())])
    table = lake.create_table("raw.events", schema=schema)
    table.append(pa.table({"at": [at(0)], "day": [date(2021, 7, 11)], "region": ["eu"]}, schema))
    only_time = table.schema().select("at").as_arrow()
    imported = write_plain_file(tmp_path / "imported.parquet", pa.table({"at": [at(0)]}, only_time))
    split = replace(imported, partition='{"2": "2021-07-11", "3": "eu"}')
    expected = [{"day": date(2021, 7, 11), "region": "eu"}]
    assert rows_without_time(read(source_table(table), split)) == expected
    matching = source_table(table, row_filter="day == '2021-07-11' and region == 'eu'")
    assert rows_without_time(read(matching, split)) == expected
    assert read(source_table(table, row_filter="region == 'us'"), split).num_rows == 0


def test_files_without_field_ids_are_read_by_the_tables_name_mapping(
    lake: Catalog, tmp_path: Path
) -> None:
    mapping = (
        '[{"field-id": 1, "names": ["at", "time"]}, {"field-id": 2, "names": ["user", "uid"]}]'
    )
    schema = Schema(AT, NestedField(2, "account", LongType()))
    table = lake.create_table(
        "raw.events", schema=schema, properties={"schema.name-mapping.default": mapping}
    )
    table.append(pa.table({"at": [at(0)], "account": [1]}, table.schema().as_arrow()))
    rows = pa.table({"time": pa.array([at(5)], pa.timestamp("us")), "uid": [7], "other": ["x"]})
    imported = write_plain_file(tmp_path / "imported.parquet", rows)
    found = read(source_table(table), sliced(imported, 5_000_000, 5_000_001))
    assert found.to_pylist() == [{"at": at(5), "account": 7}]


def test_a_required_column_that_a_file_does_not_have_is_named(
    lake: Catalog, tmp_path: Path
) -> None:
    table = lake.create_table(
        "raw.events", schema=Schema(AT, NestedField(2, "user", LongType(), required=True))
    )
    table.append(pa.table({"at": [at(0)], "user": [1]}, table.schema().as_arrow()))
    without = write_plain_file(
        tmp_path / "bad.parquet", pa.table({"at": [at(0)]}, table.schema().select("at").as_arrow())
    )
    with pytest.raises(InvalidPlanInput, match="column user, which is required"):
        read(source_table(table), without)


def test_a_file_without_field_ids_is_refused_in_a_table_without_a_name_mapping(
    lake: Catalog, tmp_path: Path
) -> None:
    table, _ = table_with_old_file(
        lake, tmp_path, NestedField(2, "user", LongType()), rows=[{"user": 7}]
    )
    rows = pa.table(
        {"at": pa.array([at(5)], pa.timestamp("us")), "user": pa.array([8], pa.int64())}
    )
    registered = write_plain_file(tmp_path / "registered.parquet", rows)
    message = (
        "registered.parquet has no field ids.*; set the table property schema.name-mapping.default"
    )
    with pytest.raises(InvalidPlanInput, match=message):
        read(source_table(table), registered)
