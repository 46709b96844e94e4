"""Sources whose timestamp column is a value of a map, planned and read."""

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from planned_rows import PlannedRow, planned_day
from pyiceberg.catalog import Catalog

from backfill.api.errors import InvalidPlanInput
from backfill.iceberg.file_columns import part_of
from backfill.planning.plan import PlanHeader
from iceberg_tables import commit_files, parquet_file

START = 1_772_323_200_000_000
"""2026-03-01T00:00:00Z; the window is the day that begins then."""
HOUR = 3_600_000_000
DAY = 24 * HOUR
UTC = pa.timestamp("us", "UTC")
TIMES = pa.map_(pa.string(), UTC)


def planned(
    directory: Path, policy: str = "WithinLateness", **source: Any
) -> tuple[PlanHeader, list[PlannedRow]]:
    """The plan of the day, and the rows it reads."""
    return planned_day(directory, policy, "4h", **source)


def maps_of(moments: list[int | None]) -> list[list[tuple[str, int | None]] | None]:
    """A map for each row, with other keys around the time; without a time, the map is null, empty,
    without the key, or has null there.
    """
    without: list[list[tuple[str, int | None]] | None] = [
        None,
        [],
        [("other", START)],
        [("ts", None)],
    ]
    return [
        without[number % 4] if moment is None else [("other", START), ("ts", moment), ("x", 0)]
        for number, moment in enumerate(moments)
    ]


@pytest.mark.parametrize("policy", ["WithinLateness", "Exact", "Unordered", "Strict"])
def test_rows_whose_time_is_in_a_map_are_read_in_its_order_and_window(
    lake: Catalog, tmp_path: Path, policy: str
) -> None:
    moments: list[int | None] = [
        START + number * HOUR // 4 + minute
        for number in range(-8, 24 * 4 + 8)
        for minute in (-1, 0, 1)
    ]
    Random(3).shuffle(some := list(range(0, len(moments), 7)))
    for number in some:
        moments[number] = None
    inner = pa.array(maps_of(moments), TIMES)
    ids = pa.array(range(len(moments)), pa.int64())
    rows = pa.table(
        {
            "a": pa.StructArray.from_arrays([inner], ["meta"]),
            "partition": pa.array([0] * len(moments), pa.int32()),
            "offset": ids,
        }
    )
    table = lake.create_table("raw.events", schema=rows.schema)
    third = len(moments) // 3
    files = [
        parquet_file(table, "wide.parquet", rows.slice(0, 2 * third), row_group_size=20),
        parquet_file(table, "end.parquet", rows.slice(2 * third)),
    ]
    commit_files(lake, table, 1, files)
    header, read = planned(
        tmp_path / "w",
        policy,
        timestampColumn="a.meta['ts']",
        kafka={"partitionColumn": "partition", "offsetColumn": "offset"},
    )
    wanted = [
        number
        for number, moment in enumerate(moments)
        if moment is not None and START <= moment < START + DAY
    ]
    assert sorted(row.values["offset"] for row in read) == wanted
    if policy == "Strict":
        assert [row.values["offset"] for row in read] == wanted
    if policy in {"Exact", "Strict"}:
        for row in read:
            moment = moments[row.values["offset"]]
            assert moment is not None
            assert header.step_starts_us[row.step] <= moment < header.step_ends_us[row.step]
    (warning, *_) = header.warnings
    assert warning.startswith("source events: ignores ")
    assert "read a.meta['ts'] in 2 files" in " ".join(header.warnings)
    assert header.sources[0].input.complete is True  # there are rows from after the window


@pytest.mark.parametrize("policy", ["WithinLateness", "Strict"])
def test_a_file_without_the_map_has_no_rows_to_read(
    lake: Catalog, tmp_path: Path, policy: str
) -> None:
    old = pa.table({"partition": pa.array([0], pa.int32()), "offset": pa.array([0], pa.int64())})
    table = lake.create_table("raw.events", schema=old.schema)
    table.append(old)
    with table.update_schema() as update:
        update.union_by_name(pa.schema([*old.schema, ("meta", pa.map_(pa.string(), pa.int64()))]))
    new = old.set_column(1, "offset", pa.array([1], pa.int64()))
    new = new.append_column(
        "meta", pa.array([[("ts", START // 1000)]], pa.map_(pa.string(), pa.int64()))
    )
    table.append(new)
    _, read = planned(
        tmp_path / "w",
        policy,
        timestampColumn='meta["ts"]',
        timestampUnit="ms",
        kafka={"partitionColumn": "partition", "offsetColumn": "offset"},
    )
    assert [row.values["offset"] for row in read] == [1]


def test_a_stray_time_in_a_map_leaves_the_other_rows_their_steps(
    lake: Catalog, tmp_path: Path
) -> None:
    moments: list[int | None] = [START + 10 * HOUR + number for number in range(100)] + [
        -DAY,
        4_070_908_800_000_000,
    ]
    rows = pa.table({"meta": pa.array(maps_of(moments), TIMES), "id": range(len(moments))})
    table = lake.create_table("raw.events", schema=rows.schema)
    table.append(rows)
    header, read = planned(tmp_path / "w", timestampColumn="meta['ts']")
    assert header.steps == 1
    assert sorted(row.values["id"] for row in read) == list(range(100))
    assert "2 rows far outside of the time to be read" in " ".join(header.warnings)


def test_what_is_no_time_in_a_map_is_refused_with_how_to_write_one(
    lake: Catalog, tmp_path: Path
) -> None:
    rows = pa.table(
        {
            "texts": pa.array([[("ts", "now")]], pa.map_(pa.string(), pa.string())),
            "numbers": pa.array([[("ts", 1)]], pa.map_(pa.string(), pa.int64())),
            "by_number": pa.array([[(1, START)]], pa.map_(pa.int32(), UTC)),
        }
    )
    lake.create_table("raw.events", schema=rows.schema).append(rows)

    def refused(column: str) -> str:
        with pytest.raises(InvalidPlanInput) as error:
            planned(tmp_path / "w", timestampColumn=column)
        return str(error.value)

    assert "column texts['ts'] of lake.raw.events is a string" in refused("texts['ts']")
    assert "set timestampUnit" in refused("numbers['ts']")
    assert "is written as map['key']" in refused("numbers.ts")
    assert "is inside a list or map" in refused("numbers.value")
    assert "column by_number of lake.raw.events is a map" in refused("by_number['1']")
    assert "has no column none['ts']" in refused("none['ts']")


def test_a_column_whose_name_looks_like_a_key_is_that_column(lake: Catalog, tmp_path: Path) -> None:
    rows = pa.table({"meta['ts']": pa.array([START + 1, START - 1], UTC), "id": [1, 2]})
    lake.create_table("raw.events", schema=rows.schema).append(rows)
    _, read = planned(tmp_path / "w", timestampColumn="meta['ts']")
    assert [row.values["id"] for row in read] == [1]


def test_values_of_maps_are_found_by_their_keys_in_every_slice() -> None:
    random = Random(7)
    maps = [
        None
        if random.random() < 0.2
        else [
            (random.choice("abc"), random.choice([None, 1, 2])) for _ in range(random.randrange(4))
        ]
        for _ in range(300)
    ]
    expected = [
        next((value for key, value in each if key == "b"), None) if each else None for each in maps
    ]
    for keys in (pa.string(), pa.binary(), pa.large_string()):
        made = pa.array(maps, pa.map_(keys, pa.int64()))
        for first, length in ((0, 300), (17, 100), (299, 1), (5, 0)):
            found = part_of(made.slice(first, length), ["b"])
            assert found.to_pylist() == expected[first : first + length]
