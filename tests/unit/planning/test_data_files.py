"""Data files that are gone or damaged are named before anything runs, though planning itself did
not have to open them.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from planned import DAY_US, HOUR_US, hourly, moments_read, plan, source, spec
from pyiceberg.catalog import Catalog

from backfill.api.errors import InvalidPlanInput
from backfill.planning.planner import make_plan, verify_files
from backfill.planning.workspace import Workspace
from iceberg_tables import commit_files, data_file, metrics, parquet_file


@pytest.fixture
def files(lake: Catalog) -> list[Path]:
    """Three files that the plan reads whole, by the manifest alone."""
    rows = pa.table({"ts": pa.array(hourly(), pa.timestamp("us", "UTC"))})
    table = lake.create_table("raw.events", schema=rows.schema)
    for hour in (6, 8, 10):
        table.append(rows.slice(hour * 6, 6))
    return [Path(task.file.file_path.removeprefix("file://")) for task in table.scan().plan_files()]


def test_files_that_can_be_read_are_no_problem(files: list[Path], tmp_path: Path) -> None:
    place = Workspace(str(tmp_path / "w"))
    assert len(files) == 3
    verify_files(make_plan(spec(source("events")), place, parallelism=1), place)


def test_every_file_that_is_gone_cut_off_or_garbled_is_named(
    files: list[Path], tmp_path: Path
) -> None:
    gone, short, garbled = files
    gone.unlink()
    short.write_bytes(short.read_bytes()[:-10])
    garbled.write_bytes(b"x" * len(garbled.read_bytes()))
    place = Workspace(str(tmp_path / "w"))
    header = make_plan(spec(source("events")), place, parallelism=1)
    with pytest.raises(InvalidPlanInput) as raised:
        verify_files(header, place)
    problems = sorted(str(problem) for problem in raised.value.problems)
    assert len(problems) == 3
    for path, why in (
        (gone, "cannot be read"),
        (short, "bytes, but the table's metadata says"),
        (garbled, "cannot be read"),
    ):
        (found,) = [problem for problem in problems if path.name in problem]
        assert found.startswith("spec.sources[0].table: a data file of lake.raw.events")
        assert why in found
        assert found.endswith("restore the file, or read a snapshot without it")


def register(lake: Catalog, column: str, *, bounds: bool, **options: Any) -> list[int]:
    """A table with one file that has no field ids and calls ``ts`` as given; returns the moments in
    it.
    """
    moments = hourly()[36:72]
    rows = pa.table(
        {
            "ts": pa.array(moments, pa.timestamp("us", "UTC")),
            "number": pa.array(range(36), pa.int64()),
        }
    )
    table = lake.create_table("raw.events", schema=rows.schema, **options)
    path = Path(table.location().removeprefix("file://")) / "data" / "registered.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(rows.rename_columns([column, "number"]), path)
    known = {**metrics(1, moments[0], moments[-1]), "split_offsets": [4]} if bounds else {}
    size = path.stat().st_size
    commit_files(
        lake,
        table,
        1,
        [data_file(2, file_path=str(path), record_count=36, file_size_in_bytes=size, **known)],
    )
    return moments


KAFKA = {"kafka": {"partitionColumn": "number", "offsetColumn": "number"}}


@pytest.mark.parametrize("policy", ["WithinLateness", "Strict"])
def test_a_file_whose_columns_nothing_tells_is_refused_when_planned(
    lake: Catalog, tmp_path: Path, policy: str
) -> None:
    register(lake, "ts", bounds=policy == "Strict")
    with pytest.raises(InvalidPlanInput) as raised:
        plan(tmp_path / "w", source("events", **KAFKA), ordering={"policy": policy})
    (problem,) = raised.value.problems
    assert problem.field == "spec.sources[0].table"
    assert (
        "registered.parquet has no field ids, and the table has no name mapping" in problem.message
    )
    assert problem.fix.startswith("set the table property schema.name-mapping.default")


def test_a_file_whose_columns_nothing_tells_is_refused_before_anything_runs(
    lake: Catalog, tmp_path: Path
) -> None:
    register(lake, "ts", bounds=True)
    header = plan(tmp_path / "w", source("events")).header
    with pytest.raises(
        InvalidPlanInput,
        match=r"registered.parquet has no field ids.*set the table property schema.name-map",
    ):
        verify_files(header, Workspace(str(tmp_path / "w")))


def test_the_tables_name_mapping_tells_the_columns_of_files_without_field_ids(
    lake: Catalog, tmp_path: Path
) -> None:
    mapping = '[{"field-id": 1, "names": ["ts", "time"]}, {"field-id": 2, "names": ["number"]}]'
    moments = register(
        lake, "time", bounds=False, properties={"schema.name-mapping.default": mapping}
    )
    planned = plan(tmp_path / "w", source("events"))
    assert moments_read(planned.splits, "time") == moments
    verify_files(planned.header, Workspace(str(tmp_path / "w")))


def write_four_row_groups(lake: Catalog, split_offsets: list[int]) -> list[int]:
    """A table with one file that is worth several tasks, with these offsets in its manifest;
    returns the moments in it.
    """
    first, count = DAY_US + 7 * HOUR_US, 700_000
    moments = np.arange(first, first + count)
    noise = np.random.default_rng(1).integers(0, 2**62, count)
    rows = pa.table({"ts": pa.array(moments, pa.timestamp("us", "UTC")), "number": noise})
    table = lake.create_table("raw.events", schema=rows.schema)
    known = metrics(1, first, first + count - 1)
    file = parquet_file(
        table, "big.parquet", rows, row_group_size=count // 4, split_offsets=split_offsets, **known
    )
    commit_files(lake, table, 1, [file])
    return [int(moment) for moment in moments]


@pytest.mark.parametrize("offsets", [[4, 2_000_000], [4, 5, 6, 7, 8, 9]])
def test_a_manifest_that_miscounts_the_row_groups_is_refused_before_anything_runs(
    lake: Catalog, tmp_path: Path, offsets: list[int]
) -> None:
    write_four_row_groups(lake, offsets)
    header = plan(tmp_path / "w", source("events")).header
    with pytest.raises(
        InvalidPlanInput,
        match=rf"big.parquet has 4 row groups, but its manifest says {len(offsets)}; rewrite",
    ):
        verify_files(header, Workspace(str(tmp_path / "w")))


@pytest.mark.parametrize("offsets", [[4, 2**40], [2_000_000, 4]])
def test_row_groups_that_can_not_be_where_the_manifest_says_are_looked_up(
    lake: Catalog, tmp_path: Path, offsets: list[int]
) -> None:
    moments = write_four_row_groups(lake, offsets)
    planned = plan(tmp_path / "w", source("events"))
    assert len(planned.splits) > 1
    assert moments_read(planned.splits, "ts") == moments
    verify_files(planned.header, Workspace(str(tmp_path / "w")))
