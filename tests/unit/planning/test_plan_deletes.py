"""Deletes: which splits carry which of them, and what is refused."""

from pathlib import Path

import pyarrow as pa
import pytest
from planned import DAY_US, HOUR_US, Planned, plan, source
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import NestedField, StringType, TimestamptzType

from backfill.api.errors import InvalidPlanInput
from backfill.planning.plan import DeleteFile
from cases import cases
from iceberg_tables import (
    commit_files,
    commit_manifests,
    data_file,
    metrics,
    parquet_file,
    partition_of,
    write_manifest,
)

START = DAY_US + 6 * HOUR_US
PATH_COLUMN = 2147483546
SCHEMA = Schema(
    NestedField(1, "ts", TimestamptzType(), required=False),
    NestedField(2, "region", StringType(), required=False),
)
BY_REGION = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))


def make_table(lake: Catalog, version: int = 2) -> Table:
    return lake.create_table(
        "raw.events", SCHEMA, partition_spec=BY_REGION, properties={"format-version": str(version)}
    )


def data(table: Table, name: str, region: str = "eu", **entry: object) -> DataFile:
    rows = pa.table(
        {"ts": pa.array([START, START + 1], pa.timestamp("us", "UTC")), "region": [region] * 2}
    )
    return parquet_file(
        table,
        name,
        rows,
        **({"partition": partition_of(region), "split_offsets": [4]} | entry),
        **metrics(1, START, START + 1),
    )


def deletes(table: Table, name: str, region: str = "eu", **entry: object) -> DataFile:
    known = {"content": DataFileContent.POSITION_DELETES, "partition": partition_of(region)}
    known |= {"file_path": name, "record_count": 1, "file_size_in_bytes": 1_000}
    return data_file(table.format_version, **(known | entry))


def only(path: str) -> dict[str, object]:
    """Bounds of a delete file that names one data file."""
    return {
        "lower_bounds": {PATH_COLUMN: path.encode()},
        "upper_bounds": {PATH_COLUMN: path.encode()},
    }


def deletes_of(planned: Planned) -> dict[str, tuple[DeleteFile, ...]]:
    return {split.path.rpartition("/")[2]: split.deletes for split in planned.splits}


def parquet(name: str) -> DeleteFile:
    return DeleteFile(name, "parquet")


def test_positional_deletes_apply_to_their_partition_or_their_file(
    lake: Catalog, tmp_path: Path
) -> None:
    table = make_table(lake)
    files = [data(table, "a.parquet"), data(table, "b.parquet"), data(table, "c.parquet", "us")]
    shared, named = deletes(table, "d1"), deletes(table, "d2", **only(files[1].file_path))
    commit_files(lake, table, 1, files, [shared, named])
    assert deletes_of(plan(tmp_path / "w", source("events"))) == {
        "a.parquet": (parquet("d1"),),
        "b.parquet": (parquet("d1"), parquet("d2")),
        "c.parquet": (),
    }


def test_deletes_older_than_a_file_do_not_apply_to_it(lake: Catalog, tmp_path: Path) -> None:
    table = make_table(lake)
    table = commit_files(lake, table, 1, [data(table, "a.parquet")])
    table = commit_files(lake, table, 2, [], [deletes(table, "d1")])
    commit_files(lake, table, 3, [data(table, "b.parquet")])
    assert deletes_of(plan(tmp_path / "w", source("events"))) == {
        "a.parquet": (parquet("d1"),),
        "b.parquet": (),
    }


def test_deletes_of_paths_that_can_not_include_a_file_do_not_apply_to_it(
    lake: Catalog, tmp_path: Path
) -> None:
    table = make_table(lake)
    files = [data(table, name) for name in ("a.parquet", "b.parquet", "c.parquet")]
    bounds = {
        "lower_bounds": {PATH_COLUMN: files[1].file_path.encode()},
        "upper_bounds": {PATH_COLUMN: files[2].file_path.encode()},
    }
    commit_files(lake, table, 1, files, [deletes(table, "d1", **bounds)])
    applying = deletes_of(plan(tmp_path / "w", source("events")))
    assert [bool(applying[name]) for name in ("a.parquet", "b.parquet", "c.parquet")] == [
        False,
        True,
        True,
    ]


def test_a_plan_of_an_older_snapshot_knows_nothing_of_later_deletes(
    lake: Catalog, tmp_path: Path
) -> None:
    table = make_table(lake)
    table = commit_files(lake, table, 1, [data(table, "a.parquet")])
    commit_files(lake, table, 2, [], [deletes(table, "d1")])
    assert deletes_of(plan(tmp_path / "w", source("events", snapshot={"id": 1}))) == {
        "a.parquet": ()
    }


@pytest.mark.usefixtures("format_v3")
def test_a_deletion_vector_replaces_the_positional_deletes_of_its_file(
    lake: Catalog, tmp_path: Path
) -> None:
    table = make_table(lake, version=3)
    files = [data(table, "a.parquet"), data(table, "b.parquet")]
    table = commit_files(lake, table, 1, files, [deletes(table, "d1")])
    vector = {
        "file_format": FileFormat.PUFFIN,
        "referenced_data_file": files[0].file_path,
        "content_offset": 4,
    }
    commit_files(
        lake, table, 2, [], [deletes(table, "v.puffin", **vector, content_size_in_bytes=40)]
    )
    assert deletes_of(plan(tmp_path / "w", source("events"))) == {
        "a.parquet": (DeleteFile("v.puffin", "puffin"),),
        "b.parquet": (parquet("d1"),),
    }


def equality(table: Table, name: str, region: str = "eu", **entry: object) -> DataFile:
    known = {"content": DataFileContent.EQUALITY_DELETES, "equality_ids": [2, 1]}
    return deletes(table, name, region, **(known | entry))


def by_value(name: str) -> DeleteFile:
    return DeleteFile(name, "parquet", (1, 2))


def test_equality_deletes_apply_to_older_files_of_their_partition(
    lake: Catalog, tmp_path: Path
) -> None:
    table = make_table(lake)
    first = [data(table, "a.parquet"), data(table, "b.parquet", "us")]
    table = commit_files(lake, table, 1, first, [deletes(table, "d1")])
    table = commit_files(
        lake, table, 2, [data(table, "c.parquet")], [equality(table, "e2"), equality(table, "e1")]
    )
    commit_files(lake, table, 3, [data(table, "d.parquet")], [equality(table, "e3")])
    planned = plan(tmp_path / "w", source("events"))
    told = "source events: may leave out rows of 2 files, because upserts deleted or replaced"
    assert [each for each in planned.header.warnings if each.startswith(told)]
    assert deletes_of(planned) == {
        "a.parquet": (parquet("d1"), by_value("e1"), by_value("e2"), by_value("e3")),
        "b.parquet": (),
        "c.parquet": (by_value("e3"),),
        "d.parquet": (),
    }


def test_equality_deletes_without_a_partition_apply_to_files_of_any(
    lake: Catalog, tmp_path: Path
) -> None:
    """Flink writes them for a table that was partitioned later, and to delete across partitions."""
    table = lake.create_table("raw.events", SCHEMA)
    everywhere = equality(table, "e1", partition=partition_of())
    with table.update_spec() as change:
        change.add_identity("region")
    table = lake.load_table("raw.events")
    table = commit_files(lake, table, 1, [data(table, "a.parquet"), data(table, "b.parquet", "us")])
    manifest = write_manifest(
        table, f"{table.location()}/metadata/e.avro", [everywhere], 2, deletes=True, spec_id=0
    )
    current = table.current_snapshot()
    assert current is not None
    commit_manifests(lake, table, [*current.manifests(table.io), manifest], 2)
    assert deletes_of(plan(tmp_path / "w", source("events"))) == dict.fromkeys(
        ("a.parquet", "b.parquet"), (by_value("e1"),)
    )


@cases(
    "entry, most, reason",
    {
        "by a column that is gone": ({"equality_ids": [7]}, 9, "the schema has no column of id 7"),
        "by no column": ({"equality_ids": []}, 9, "e1 does not say by which columns"),
        "in Avro": ({"file_format": FileFormat.AVRO}, 9, "e1, which is not Parquet .avro."),
        "too many": ({}, 0, "1 times to files; at most 0 can be"),
        "too long": ({"record_count": 10**9}, 9, "with 2,000,000,000 values to one file; at most"),
    },
)
def test_equality_deletes_that_cannot_be_applied_are_refused_with_what_to_do(
    lake: Catalog,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    entry: dict[str, object],
    most: int,
    reason: str,
) -> None:
    monkeypatch.setattr("backfill.planning.metadata.delete_files.MOST_APPLIED", most)
    table = make_table(lake)
    table = commit_files(lake, table, 1, [data(table, "a.parquet")])
    commit_files(lake, table, 2, [], [equality(table, "e1", **entry)])
    with pytest.raises(
        InvalidPlanInput,
        match=f"equality deletes of lake.raw.events cannot be applied: .*{reason}.*; compact"
        " .* or set deletes: Ignore",
    ):
        plan(tmp_path / "w", source("events"))
    kept = plan(tmp_path / "w", source("events", deletes="Ignore"))
    assert deletes_of(kept) == {"a.parquet": ()}


def test_deletes_of_the_whole_table_that_are_older_than_its_files_may_have_any_columns(
    lake: Catalog, tmp_path: Path
) -> None:
    table = lake.create_table("raw.events", SCHEMA)
    old = equality(table, "e1", partition=partition_of(), equality_ids=[7])
    table = commit_files(lake, table, 1, [], [old])
    commit_files(lake, table, 2, [data(table, "a.parquet", partition=partition_of())])
    planned = plan(tmp_path / "w", source("events"))
    assert deletes_of(planned) == {"a.parquet": ()}
    assert planned.header.warnings == ()


def test_positional_deletes_are_not_counted_as_equality_deletes(
    lake: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backfill.planning.metadata.delete_files.MOST_APPLIED", 0)
    monkeypatch.setattr("backfill.planning.splits.MOST_APPLIED", 0)
    table = make_table(lake)
    commit_files(lake, table, 1, [data(table, "a.parquet")], [deletes(table, "d1")])
    assert deletes_of(plan(tmp_path / "w", source("events"))) == {"a.parquet": (parquet("d1"),)}


def test_splits_with_too_many_equality_deletes_are_refused(
    lake: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backfill.planning.splits.MOST_APPLIED", 0)
    table = make_table(lake)
    table = commit_files(lake, table, 1, [data(table, "a.parquet")])
    commit_files(lake, table, 2, [], [equality(table, "e1")])
    with pytest.raises(
        InvalidPlanInput,
        match=r"sources\[0\]\.table: equality deletes of lake.raw.events .* 1 times to splits",
    ):
        plan(tmp_path / "w", source("events"))


def test_a_window_without_rows_is_said_of_a_table_whose_deletes_cannot_be_applied(
    lake: Catalog, tmp_path: Path
) -> None:
    table = make_table(lake)
    table = commit_files(lake, table, 1, [data(table, "a.parquet")])
    commit_files(lake, table, 2, [], [equality(table, "e1", equality_ids=[7])])
    window = {"start": "2025-03-01T06:00:00Z", "end": "2025-03-01T12:00:00Z"}
    with pytest.raises(InvalidPlanInput, match="has no rows with ts"):
        plan(tmp_path / "w", source("events"), window=window)


def test_equality_deletes_older_than_all_data_of_the_range_do_no_harm(
    lake: Catalog, tmp_path: Path
) -> None:
    table = make_table(lake)
    equality = deletes(table, "e1", content=DataFileContent.EQUALITY_DELETES, equality_ids=[1])
    table = commit_files(lake, table, 1, [], [equality])
    commit_files(lake, table, 2, [data(table, "a.parquet")])
    assert deletes_of(plan(tmp_path / "w", source("events"))) == {"a.parquet": ()}
