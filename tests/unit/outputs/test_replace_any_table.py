"""Replace on random tables: whatever the files, the window's rows are the result's and the others
stay production's.
"""

import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    TimestampType,
    TimestamptzType,
)

from backfill.api.quantities import from_us
from backfill.api.spec import Window
from backfill.outputs.lost_rows import count_losses
from backfill.outputs.publication import publish
from backfill.outputs.staging import Part, Staged, read_staged, staged_files
from iceberg_tables import catalog_properties, commit_files, parquet_file, sqlite_catalog
from staged import DAY_START_US, DAY_US, HOUR_US, RESULT, make_table, output, stage_rows

KINDS: dict[str, tuple[IcebergType, str | None, int]] = {
    "timestamp": (TimestampType(), None, HOUR_US),
    "timestamptz": (TimestamptzType(), None, HOUR_US),
    "long in ms": (LongType(), "ms", HOUR_US // 1000),
    "int in s": (IntegerType(), "s", HOUR_US // 1_000_000),
    "date": (DateType(), None, 1),
}
"""A column's type, its unit, and how much of it one tick of the test is: an hour, or a day for
dates.
"""


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=8)
@given(
    files=st.lists(st.lists(st.none() | st.integers(-20, 20), min_size=1, max_size=6), max_size=4),
    start=st.integers(-20, 20),
    length=st.integers(1, 12),
    result=st.lists(st.integers(0, 100), min_size=1, max_size=4),
    partition=st.sampled_from([None, "identity", "bucket[3]"]),
    metrics=st.sampled_from(["full", "none", "counts"]),
)
def test_replace_gives_what_deleting_and_inserting_rows_would(
    *,
    kind: str,
    files: list[list[int | None]],
    start: int,
    length: int,
    result: list[int],
    partition: str | None,
    metrics: str,
) -> None:
    tick_us = DAY_US if kind == "date" else HOUR_US
    new = [start + tick % length for tick in result]
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        lake = _lake(Path(directory), patch)
        columns = Schema(NestedField(1, "who", LongType()), NestedField(2, "ts", KINDS[kind][0]))
        table = make_table(lake, partition, columns, **{"write.metadata.metrics.default": metrics})
        for file in files:
            table.append(_rows(table.schema(), kind, 0, file))
        base = table.metadata.current_snapshot_id
        stage_rows(table, 0, _rows(table.schema(), kind, 1, new))
        moments = [from_us(DAY_START_US + tick * tick_us) for tick in (start, start + length)]
        window = Window(start=moments[0], end=moments[1])
        publish(output(timestamp_unit=KINDS[kind][1]), RESULT, window, base)

        found = table.refresh().scan().to_arrow()
        stay = [
            (0, tick)
            for file in files
            for tick in file
            if tick is None or not start <= tick < start + length
        ]
        assert sorted(_ticks(found, kind), key=str) == sorted(
            [*stay, *((1, tick) for tick in new)], key=str
        )
        files = len(staged_files(table, RESULT))
        assert read_staged(table.metadata, RESULT) == Staged(
            len(new), 0, files, parts={"query": Part(0)}
        ), "publishing leaves the branch alone"


def test_rows_of_a_file_whose_manifest_says_that_it_has_none_are_replaced_or_stay(
    lake: Catalog,
) -> None:
    """Or they would be beside those of the result, or go with rows from outside the window."""
    columns = Schema(NestedField(1, "who", LongType()), NestedField(2, "ts", TimestampType()))
    table = make_table(lake, None, columns)
    uncounted = {"record_count": 0, "null_value_counts": {2: 0}}
    files = [
        parquet_file(table, name, _rows(table.schema(), "timestamp", 0, ticks), **uncounted)
        for name, ticks in (("in.parquet", [1, 2]), ("over.parquet", [2, 9]))
    ]
    commit_files(lake, table, 1, files)
    table.refresh()
    stage_rows(table, 0, _rows(table.schema(), "timestamp", 1, [1]))
    window = Window(start=from_us(DAY_START_US), end=from_us(DAY_START_US + 4 * HOUR_US))
    base = table.metadata.current_snapshot_id
    assert count_losses(output(), RESULT, window).production_rows == 3
    publish(output(), RESULT, window, base)
    found = table.refresh().scan().to_arrow()
    assert _ticks(found, "timestamp") == [(1, 1), (0, 9)]


def _lake(directory: Path, patch: pytest.MonkeyPatch) -> Catalog:
    (directory / "warehouse").mkdir()
    catalog = sqlite_catalog(directory)
    catalog.create_namespace("raw")
    properties = catalog_properties(directory)
    patch.setattr(
        "backfill.iceberg.open_tables.open_catalog", lambda name: type(catalog)(name, **properties)
    )
    return catalog


def _first(kind: str) -> int:
    day = DAY_START_US // DAY_US
    return day if kind == "date" else day * 24 * KINDS[kind][2]


def _rows(schema: Schema, kind: str, who: int, ticks: list[int] | list[int | None]) -> pa.Table:
    target = schema_to_pyarrow(schema, include_field_ids=False)
    values = [None if tick is None else _first(kind) + tick * KINDS[kind][2] for tick in ticks]
    width = pa.int64() if target.field("ts").type.bit_width == 64 else pa.int32()
    return pa.table(
        [pa.array([who] * len(ticks)), pa.array(values, width).cast(target.field("ts").type)],
        schema=target,
    )


def _ticks(rows: pa.Table, kind: str) -> list[tuple[int, int | None]]:
    width = pa.int64() if rows["ts"].type.bit_width == 64 else pa.int32()
    values = rows["ts"].cast(width).to_pylist()
    ticks = [
        None if value is None else (value - _first(kind)) // KINDS[kind][2] for value in values
    ]
    return list(zip(rows["who"].to_pylist(), ticks, strict=True))
