"""Which rows a split reads: row groups, time slices, deletes, filters and offsets, against plain
Python.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
from files_of_a_table import read, sliced, source_table, write_file
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.table import Table

from backfill.api.errors import BackfillError, InvalidPlanInput
from backfill.planning.plan import (
    DeleteFile,
    OffsetRange,
    PlanHeader,
    PlanInputs,
    Proof,
    Split,
    splits_schema,
    write_plan,
)
from backfill.planning.rows.pinned_table import SourceTable
from backfill.planning.workspace import Workspace
from backfill.runtime.source.schemas import spark_schema
from backfill.runtime.source.split_reading import count_rows, read_in_offset_order
from backfill.runtime.spark_versions import to_arrow_schema
from iceberg_tables import catalog_properties, deletion_vectors, position_deletes, sqlite_catalog

ROWS = 100
GROUP = 13
SECOND = 1_000_000
TIMES = [number * 37 % ROWS for number in range(ROWS)]  # seconds, in no order
WITHOUT_TIME = {5, 50}


@dataclass(frozen=True)
class File:
    """One data file with columns id, at, region, partition and offset, and the table it belongs
    to.
    """

    directory: Path
    table: Table
    split: Split

    def delete(self, positions: set[int], how: str) -> tuple[DeleteFile, ...]:
        """A delete file for these positions, which also deletes something in another file."""
        path = self.directory / f"{uuid4().hex}"
        others = {"/elsewhere.parquet": [0, 1, 2]}
        if how == "vector":
            return (deletion_vectors(path, {**others, self.split.path: sorted(positions)}),)
        pairs = [
            (file, each)
            for file, positions_ in {**others, self.split.path: list(positions)}.items()
            for each in positions_
        ]
        return (position_deletes(path, pairs),)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> File:
    directory = tmp_path_factory.mktemp("lake")
    with pytest.MonkeyPatch.context() as patch:
        for key, value in catalog_properties(directory).items():
            patch.setenv(f"PYICEBERG_CATALOG__LAKE__{key.upper()}", value)
        (directory / "warehouse").mkdir()
        catalog = sqlite_catalog(directory)
    catalog.create_namespace("raw")
    rows = pa.table(
        {
            "id": list(range(ROWS)),
            "at": pa.array(
                [None if n in WITHOUT_TIME else TIMES[n] * SECOND for n in range(ROWS)],
                pa.timestamp("us"),
            ),
            "region": [None if n % 11 == 0 else ("eu", "us")[n % 2] for n in range(ROWS)],
            "partition": pa.array([n % 3 for n in range(ROWS)], pa.int32()),
            "offset": [(ROWS - n) // 3 for n in range(ROWS)],
        }
    )
    table = catalog.create_table("raw.events", schema=rows.schema)
    table.append(rows)
    return File(
        directory, table, write_file(directory / "data.parquet", table.schema(), rows, GROUP)
    )


@pytest.fixture
def described(file: File, monkeypatch: pytest.MonkeyPatch) -> SourceTable:
    configure(file, monkeypatch)
    return source_table(file.table)


def configure(file: File, patch: pytest.MonkeyPatch) -> None:
    from pyiceberg.utils.config import Config

    for key, value in catalog_properties(file.directory).items():
        patch.setenv(f"PYICEBERG_CATALOG__LAKE__{key.upper()}", value)
    patch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())


groups = st.none() | st.sets(st.integers(0, (ROWS - 1) // GROUP))
deletes = st.tuples(st.sets(st.integers(0, ROWS - 1)), st.sampled_from(["positions", "vector"]))
moments = st.integers(-2 * SECOND, (ROWS + 1) * SECOND)


@settings(max_examples=60)
@given(
    groups=groups, deleted=deletes, start=st.none() | moments, length=st.integers(0, 200 * SECOND)
)
def test_rows_of_the_row_groups_that_are_in_the_slice_and_not_deleted(
    file: File,
    groups: set[int] | None,
    deleted: tuple[set[int], str],
    start: int | None,
    length: int,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        configure(file, patch)
        table = source_table(file.table)
    positions, how = deleted
    split = replace(file.split, deletes=file.delete(positions, how) if positions else ())
    split = split if groups is None else replace(split, row_groups=tuple(sorted(groups)))
    split = split if start is None else sliced(split, start, start + length)

    def expected(row: int) -> bool:
        in_groups = groups is None or row // GROUP in groups
        in_slice = start is None or (
            row not in WITHOUT_TIME and start <= TIMES[row] * SECOND < start + length
        )
        return in_groups and in_slice and row not in positions

    assert read(table, split)["id"].to_pylist() == [row for row in range(ROWS) if expected(row)]


@pytest.mark.parametrize(
    "row_filter",
    [
        "region == 'eu'",
        "region != 'eu'",
        "region is null or id < 10",
        "region in ('eu', 'zz') and id >= 30",
        "not (id < 90)",
        "at >= '1970-01-01T00:00:50'",
    ],
)
def test_a_filter_leaves_the_rows_that_the_tables_own_scan_leaves(
    file: File, monkeypatch: pytest.MonkeyPatch, row_filter: str
) -> None:
    configure(file, monkeypatch)
    scanned = file.table.scan(row_filter=row_filter).to_arrow()["id"].to_pylist()
    assert 0 < len(scanned) < ROWS
    assert (
        read(source_table(file.table, row_filter=row_filter), file.split)["id"].to_pylist()
        == scanned
    )


def test_a_filter_slice_and_deletes_hold_together(
    file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(file, monkeypatch)
    table = source_table(file.table, row_filter="region == 'us'")
    split = replace(
        sliced(file.split, 10 * SECOND, 60 * SECOND),
        deletes=file.delete({1, 3, 7, 33}, "positions"),
    )
    expected = [
        row
        for row in range(ROWS)
        if row % 2 == 1
        and row % 11
        and 10 <= TIMES[row] < 60
        and row not in WITHOUT_TIME | {1, 3, 7, 33}
    ]
    assert read(table, split)["id"].to_pylist() == expected


def test_several_delete_files_of_one_data_file_add_up(file: File, described: SourceTable) -> None:
    both = file.delete({1, 2}, "positions") + file.delete({2, 3}, "vector")
    read_ids = read(described, replace(file.split, deletes=both))["id"].to_pylist()
    assert read_ids == [row for row in range(ROWS) if row not in {1, 2, 3}]


def test_a_file_with_other_row_groups_than_planned_is_not_read(
    file: File, described: SourceTable
) -> None:
    split = replace(file.split, row_groups=(0,), file_row_groups=8)
    assert read(described, split).num_rows == GROUP
    with pytest.raises(
        InvalidPlanInput,
        match=r"data.parquet has 8 row groups, but its manifest says 7; rewrite the file",
    ):
        read(described, replace(split, file_row_groups=7))


@pytest.fixture
def with_offsets(file: File, monkeypatch: pytest.MonkeyPatch) -> SourceTable:
    configure(file, monkeypatch)
    return source_table(
        file.table, kafka_partition_column="partition", kafka_offset_column="offset"
    )


def test_only_rows_in_the_offset_ranges_are_read_and_they_come_in_offset_order(
    file: File, with_offsets: SourceTable
) -> None:
    ranges = (OffsetRange(partition=2, start=5, end=20), OffsetRange(partition=0, start=0, end=7))
    first, second = (
        replace(file.split, row_groups=groups, offsets=ranges)
        for groups in ((0, 1, 2, 3), (4, 5, 6, 7))
    )
    target = to_arrow_schema(spark_schema(with_offsets.open().schema, "events"))
    rows = pa.Table.from_batches(
        read_in_offset_order(with_offsets, [second, first], target)
    ).to_pylist()
    keys = [(row["partition"], row["offset"]) for row in rows]
    wanted = sorted(
        (n % 3, (ROWS - n) // 3)
        for n in range(ROWS)
        if (n % 3 == 2 and 5 <= (ROWS - n) // 3 < 20) or (n % 3 == 0 and (ROWS - n) // 3 < 7)
    )
    assert keys == wanted


def test_no_rows_in_the_offset_ranges_give_no_batch(file: File, with_offsets: SourceTable) -> None:
    split = replace(file.split, offsets=(OffsetRange(partition=9, start=0, end=100),))
    target = to_arrow_schema(spark_schema(with_offsets.open().schema, "events"))
    assert list(read_in_offset_order(with_offsets, [split], target)) == []


@pytest.mark.parametrize(
    ("change", "rows"),
    [
        ({}, ROWS),
        ({"row_groups": (0, 7), "rows": ROWS - 6 * GROUP}, ROWS - 6 * GROUP),
        ({"slice_start_us": 10 * SECOND, "slice_end_us": 20 * SECOND}, 10),
    ],
)
def test_rows_of_a_step_are_counted_as_they_are_read(
    file: File, described: SourceTable, tmp_path: Path, change: dict[str, object], rows: int
) -> None:
    split = replace(file.split, **change)
    inputs = PlanInputs(
        start_us=0, end_us=ROWS * SECOND, policy="Exact", allowed_lateness_us=0, max_misalignment_us=SECOND,
        target_step_bytes=1, parallelism=1, sources=(described.source,),
    )  # fmt: skip
    proof = Proof(greatest_disorder_us=0, greatest_misalignment_us=0)
    header = PlanHeader(
        plan_id=inputs.plan_id(),
        inputs=inputs,
        step_starts_us=(0,),
        step_ends_us=(1,),
        sources=(),
        proof=proof,
    )
    table = pa.Table.from_pylist(
        [{name: getattr(split, name) for name in splits_schema().names}], splits_schema()
    )
    plan = write_plan(Workspace(str(tmp_path)), header, [table])
    assert count_rows(plan, "events", 0) == rows == read(described, split).num_rows
    assert count_rows(plan, "events", 1) == 0


@pytest.mark.parametrize(
    "content", [None, b"PAR1 and then nothing"], ids=["a file that is gone", "a damaged file"]
)
def test_a_file_that_can_not_be_read_is_named(
    file: File, described: SourceTable, tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "events.parquet"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BackfillError, match=f"{path} of lake.raw.events cannot be read"):
        read(described, replace(file.split, path=str(path)))
