"""Tables whose manifests say something wrong of their files: no row is left out without a word."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from planned import DAY_US, HOUR_US, Planned, moments_read, plan, source
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from backfill.api.errors import InvalidPlanInput
from backfill.planning.planner import verify_files
from backfill.planning.workspace import Workspace
from iceberg_tables import commit_files, data_file, metrics, parquet_file

FIRST = DAY_US + 7 * HOUR_US
MOMENTS = [FIRST + number for number in range(10)]


def rewritten(file: DataFile, **entry: Any) -> DataFile:
    """An entry with other values than it has."""
    names = ("file_path", "record_count", "file_size_in_bytes", "lower_bounds", "upper_bounds")
    known = {name: getattr(file, name) for name in (*names, "value_counts", "null_value_counts")}
    return data_file(2, **{**known, **entry})


def planned_with(lake: Catalog, place: Path, **entry: Any) -> Planned:
    """A plan of a table with a file of ten rows, of which the manifest says something else, and
    another file with one row.
    """
    rows = pa.table({"ts": pa.array(MOMENTS, pa.timestamp("us", "UTC")), "region": ["eu"] * 10})
    table = lake.create_table("raw.events", schema=rows.schema)
    wrong = rewritten(
        parquet_file(table, "wrong.parquet", rows, **metrics(1, FIRST, FIRST + 9)), **entry
    )
    right = parquet_file(table, "right.parquet", rows.slice(5, 1), **metrics(1, *[FIRST + 5] * 2))
    commit_files(lake, table, 1, [wrong, right])
    return plan(place, source("events"))


ALL = sorted([*MOMENTS, FIRST + 5])


@pytest.mark.parametrize("bounds", [True, False], ids=["with bounds", "without"])
@pytest.mark.parametrize("count", [0, -1, -(2**62), 2**62, 2**63 - 1])
def test_rows_of_files_with_an_impossible_number_of_rows_are_read(
    lake: Catalog, tmp_path: Path, count: int, bounds: bool
) -> None:
    without = {} if bounds else {"lower_bounds": None, "upper_bounds": None}
    planned = planned_with(lake, tmp_path / "w", record_count=count, **without)
    assert moments_read(planned.splits, "ts") == ALL
    assert planned.header.rows == len(ALL)
    (warning,) = planned.header.warnings
    assert "reads 1 file with rows of which the manifest says that there are none" in warning
    verify_files(planned.header, Workspace(str(tmp_path / "w")))


def test_a_filter_leaves_no_row_out_by_a_wrong_number_of_rows(
    lake: Catalog, tmp_path: Path
) -> None:
    planned_with(lake, tmp_path / "w", record_count=0)
    filtered = plan(tmp_path / "w", source("events", filter="region == 'eu'"))
    assert moments_read(filtered.splits, "ts") == ALL


def test_files_that_have_no_rows_are_nothing_to_warn_of(lake: Catalog, tmp_path: Path) -> None:
    rows = pa.table({"ts": pa.array(MOMENTS, pa.timestamp("us", "UTC"))})
    table = lake.create_table("raw.events", schema=rows.schema)
    some, none = (
        parquet_file(table, "some.parquet", rows, **metrics(1, FIRST, FIRST + 9)),
        parquet_file(table, "none.parquet", rows.slice(0, 0)),
    )
    commit_files(lake, table, 1, [some, none])
    planned = plan(tmp_path / "w", source("events"))
    assert planned.files == {"some.parquet"}
    assert planned.header.warnings == ()


@pytest.mark.parametrize("count", [1, 9, 11])
def test_a_file_with_more_or_fewer_rows_than_planned_is_refused_before_anything_runs(
    lake: Catalog, tmp_path: Path, count: int
) -> None:
    planned = planned_with(lake, tmp_path / "w", record_count=count)
    with pytest.raises(
        InvalidPlanInput, match=f"wrong.parquet has 10 rows, but its manifest says {count}; rewrite"
    ):
        verify_files(planned.header, Workspace(str(tmp_path / "w")))


def test_a_file_that_planning_opens_is_refused_at_once_for_its_number_of_rows(
    lake: Catalog, tmp_path: Path
) -> None:
    with pytest.raises(InvalidPlanInput, match="has 10 rows, but its manifest says 4"):
        planned_with(lake, tmp_path / "w", record_count=4, lower_bounds=None, upper_bounds=None)


@pytest.mark.parametrize("nulls", [-1, -(2**40), 11, 2**62])
def test_a_wrong_number_of_nulls_leaves_no_row_out(
    lake: Catalog, tmp_path: Path, nulls: int
) -> None:
    planned = planned_with(lake, tmp_path / "w", null_value_counts={1: nulls})
    assert moments_read(planned.splits, "ts") == ALL


@pytest.mark.parametrize("filter_", ["region is not null", "ts > '2026-03-01T00:00:00+00:00'"])
def test_unknown_counts_are_not_taken_for_all_nulls_by_a_filter(
    lake: Catalog, tmp_path: Path, filter_: str
) -> None:
    unknown = {1: -1, 2: -1}
    planned_with(lake, tmp_path / "w", value_counts=unknown, null_value_counts=unknown)
    filtered = plan(tmp_path / "w", source("events", filter=filter_))
    assert moments_read(filtered.splits, "ts") == ALL


def rewrite_manifests(table: Table, change: Callable[[dict[str, Any]], None]) -> None:
    """Rewrites manifests as writers do that make every field of an entry nullable."""

    def nullable(schema: dict[str, Any]) -> None:
        for field in schema["fields"]:
            if isinstance(field["type"], dict) and field["type"]["type"] == "record":
                nullable(field["type"])
            if not isinstance(field["type"], list):
                field["type"] = ["null", field["type"]]
            field.pop("default", None)

    snapshot = table.current_snapshot()
    assert snapshot is not None
    for manifest in snapshot.manifests(table.io):
        path = Path(manifest.manifest_path.removeprefix("file://"))
        with path.open("rb") as file:
            read = fastavro.reader(file)
            schema, entries = dict(read.writer_schema), list(read)
            kept = {key: text for key, text in read.metadata.items() if key[:5] != "avro."}
        schema = {key: value for key, value in schema.items() if not key.startswith("__")}
        nullable(schema)
        for entry in entries:
            change(entry["data_file"])
        with path.open("wb") as file:
            fastavro.writer(
                file, fastavro.parse_schema(schema, _force=True), entries, metadata=kept
            )


def test_manifests_in_which_every_field_is_nullable_are_read(lake: Catalog, tmp_path: Path) -> None:
    planned_with(lake, tmp_path / "w")
    table = lake.load_table("raw.events")
    rewrite_manifests(table, lambda entry: entry.update(null_value_counts=None))
    assert moments_read(plan(tmp_path / "v", source("events")).splits, "ts") == ALL
    rewrite_manifests(table, lambda entry: entry.update(record_count=None))
    planned = plan(tmp_path / "u", source("events"))
    assert moments_read(planned.splits, "ts") == ALL
    assert "reads 2 files with rows of which the manifest says" in planned.header.warnings[0]


def test_bounds_the_wrong_way_round_leave_no_row_out(lake: Catalog, tmp_path: Path) -> None:
    planned = planned_with(lake, tmp_path / "w", **metrics(1, FIRST + 24 * HOUR_US, FIRST))
    assert moments_read(planned.splits, "ts") == ALL
