"""Plans over real Iceberg tables: types, partitions, schema and spec evolution, statistics and
filters.
"""

from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from planned import DAY_US, HOUR_US, hourly, moments_read, plan, source, spec
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
)
from pyiceberg.types import (
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampNanoType,
    TimestamptzType,
)

from backfill.api.quantities import format_time, from_us
from backfill.planning.planner import make_plan
from backfill.planning.planning_progress import PlanningProgress
from backfill.planning.workspace import Workspace
from iceberg_tables import commit_files, metrics, parquet_file, partition_of

UTC = pa.timestamp("us", "UTC")
START, END = DAY_US + 6 * HOUR_US, DAY_US + 12 * HOUR_US
WANTED = [moment for moment in hourly() if START <= moment < END]


def write_hourly(
    lake: Catalog, name: str, moments: pa.Array, files: int = 24, **options: Any
) -> Table:
    """A table with a file for each hour, written by PyIceberg."""
    rows = pa.table({"ts": moments, "region": ["eu", "us"] * (len(moments) // 2)})
    table = lake.create_table(f"raw.{name}", schema=rows.schema, **options)
    for first in range(0, rows.num_rows, rows.num_rows // files):
        table.append(rows.slice(first, rows.num_rows // files))
    return table


@pytest.mark.parametrize("version", ["1", "2"])
def test_exactly_the_rows_of_the_window_are_read(
    lake: Catalog, tmp_path: Path, version: str
) -> None:
    write_hourly(lake, "events", pa.array(hourly(), UTC), properties={"format-version": version})
    planned = plan(tmp_path / "w", source("events"))
    assert moments_read(planned.splits, "ts") == WANTED
    assert len(planned.files) == 6
    assert len(WANTED) <= planned.header.rows <= len(WANTED) + len(planned.splits)
    assert planned.header.warnings == ()


def test_warm_up_and_drain_widen_what_is_read(lake: Catalog, tmp_path: Path) -> None:
    write_hourly(lake, "events", pa.array(hourly(), UTC))
    window = {
        "start": "2026-03-01T06:00:00Z",
        "end": "2026-03-01T12:00:00Z",
        "warmUp": "2h",
        "drain": "30m",
    }
    planned = plan(tmp_path / "w", source("events"), window=window)
    assert moments_read(planned.splits, "ts") == [
        m for m in hourly() if START - 2 * HOUR_US <= m < END + HOUR_US // 2
    ]


@pytest.mark.parametrize(("unit", "scale"), [("s", 1_000_000), ("ms", 1_000), ("us", 1)])
def test_a_long_column_is_read_in_its_unit(
    lake: Catalog, tmp_path: Path, unit: str, scale: int
) -> None:
    write_hourly(lake, "events", pa.array([moment // scale for moment in hourly()], pa.int64()))
    planned = plan(tmp_path / "w", source("events", timestampUnit=unit))
    assert len(planned.files) == 6
    assert moments_read(planned.splits, "ts", Fraction(scale)) == [
        moment // scale for moment in WANTED
    ]


def test_a_long_of_nanoseconds_outside_of_the_window_by_one_is_not_read(
    lake: Catalog, tmp_path: Path
) -> None:
    values = [START * 1000 - 1, START * 1000, END * 1000 - 1, END * 1000]
    write_hourly(lake, "events", pa.array(values, pa.int64()), files=2)
    planned = plan(tmp_path / "w", source("events", timestampUnit="ns"))
    assert moments_read(planned.splits, "ts", unit_us=Fraction(1, 1000)) == values[1:3]


@pytest.mark.usefixtures("format_v3")
def test_nanosecond_timestamps_keep_their_nanoseconds(lake: Catalog, tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "ts", TimestampNanoType(), required=False))
    table = lake.create_table("raw.events", schema, properties={"format-version": "3"})
    values = [START * 1000 - 1, START * 1000, START * 1000 + 1, END * 1000 - 1, END * 1000]
    rows = pa.table({"ts": pa.array(values, pa.timestamp("ns"))})
    commit_files(
        lake,
        table,
        1,
        [
            parquet_file(
                table, "a.parquet", rows, split_offsets=[4], **metrics(1, values[0], values[-1])
            )
        ],
    )
    planned = plan(tmp_path / "w", source("events"))
    assert moments_read(planned.splits, "ts", unit_us=Fraction(1, 1000)) == values[1:4]
    assert planned.header.inputs.sources[0].timestamp_type == "timestamp_ns"


def test_a_nested_column_without_bounds_is_found_in_the_footers(
    lake: Catalog, tmp_path: Path
) -> None:
    moments = hourly()
    nested = pa.array([{"kafka_ts": moment} for moment in moments], pa.struct([("kafka_ts", UTC)]))
    rows = pa.table({"__metadata__": nested})
    table = lake.create_table("raw.events", schema=rows.schema)
    for first in range(0, 144, 6):
        table.append(rows.slice(first, 6))
    planned = plan(tmp_path / "w", source("events", timestampColumn="__metadata__.kafka_ts"))
    assert moments_read(planned.splits, "__metadata__.kafka_ts") == WANTED
    assert planned.header.sources[0].files_without_bounds == 24
    assert planned.header.sources[0].input.complete is True, "there are rows from after the window"
    assert (
        "read the footers of 24 files, because the manifests have no bounds of __metadata__.kafka_ts"
        in planned.header.warnings[0]
    )


def test_rows_without_a_timestamp_are_left_out_and_counted(lake: Catalog, tmp_path: Path) -> None:
    moments = [None if number == 40 else moment for number, moment in enumerate(hourly())]
    write_hourly(lake, "events", pa.array(moments, UTC))
    planned = plan(tmp_path / "w", source("events"))
    assert moments_read(planned.splits, "ts") == [moment for moment in moments if moment in WANTED]
    assert planned.header.warnings == (
        "source events: ignores 1 row without ts in the files that were checked",
    )


@pytest.mark.parametrize("transform", [HourTransform(), DayTransform(), MonthTransform()])
def test_files_of_other_partitions_are_never_opened(
    lake: Catalog, tmp_path: Path, transform: Any
) -> None:
    """Files carry no metrics and those of other partitions do not exist."""
    schema = Schema(NestedField(1, "ts", TimestamptzType(), required=False))
    partition_spec = PartitionSpec(PartitionField(1, 1000, transform, "part"))
    table = lake.create_table("raw.events", schema, partition_spec=partition_spec)
    value = transform.transform(TimestamptzType())
    rows = pa.table({"ts": pa.array([START, START + 1], UTC)})
    files = [
        parquet_file(
            table, f"{day}.parquet", rows, partition=partition_of(value(START + day * 24 * HOUR_US))
        )
        for day in (-60, 0, 60)
    ]
    commit_files(lake, table, 1, files)
    for day in (-60, 60):
        Path(f"{table.location()}/data/{day}.parquet").unlink()
    assert plan(tmp_path / "w", source("events")).files == {"0.parquet"}


@pytest.mark.parametrize("transform", [IdentityTransform(), TruncateTransform(3_600_000)])
def test_a_long_partition_prunes_in_its_unit(lake: Catalog, tmp_path: Path, transform: Any) -> None:
    schema = Schema(NestedField(1, "ts", LongType(), required=False))
    table = lake.create_table(
        "raw.events",
        schema,
        partition_spec=PartitionSpec(PartitionField(1, 1000, transform, "part")),
    )
    value = transform.transform(LongType())
    made = []
    for name, moment in (
        ("old", START // 1000 - 1),
        ("first", START // 1000),
        ("last", END // 1000 - 1),
        ("new", END // 1000),
    ):
        rows = pa.table({"ts": pa.array([moment], pa.int64())})
        made.append(
            parquet_file(table, f"{name}.parquet", rows, partition=partition_of(value(moment)))
        )
    commit_files(lake, table, 1, made)
    for name in ("old", "new"):
        Path(f"{table.location()}/data/{name}.parquet").unlink()
    assert plan(tmp_path / "w", source("events", timestampUnit="ms")).files == {
        "first.parquet",
        "last.parquet",
    }


def test_the_partition_gives_bounds_where_no_statistics_do(lake: Catalog, tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "ts", TimestamptzType(), required=False))
    table = lake.create_table(
        "raw.events",
        schema,
        partition_spec=PartitionSpec(PartitionField(1, 1000, HourTransform(), "hour")),
    )
    rows = pa.table({"ts": pa.array([START + 5, START + 9], UTC)})
    file = parquet_file(table, "a.parquet", rows, partition=partition_of(START // HOUR_US))
    pq.write_table(pq.read_table(file.file_path), file.file_path, write_statistics=False)
    commit_files(lake, table, 1, [file])
    planned = plan(tmp_path / "w", source("events"))
    assert (planned.splits[0].lower_us, planned.splits[-1].upper_us) == (START, START + HOUR_US - 1)
    assert moments_read(planned.splits, "ts") == [START + 5, START + 9]


def test_each_manifest_is_read_with_the_partition_spec_it_was_written_with(
    lake: Catalog, tmp_path: Path
) -> None:
    table = write_hourly(lake, "events", pa.array(hourly(12), UTC), files=12)
    with table.update_spec() as update:
        update.add_field("ts", HourTransform(), "hour")
    table.append(pa.table({"ts": pa.array(hourly()[72:], UTC), "region": ["eu", "us"] * 36}))
    with table.update_spec() as update:
        update.remove_field("hour")
        update.add_identity("region")
    table.append(pa.table({"ts": pa.array(hourly(), UTC), "region": ["eu", "us"] * 72}))
    planned = plan(tmp_path / "w", source("events", filter="region == 'eu'"))
    identities = {split.partition for split in planned.splits}
    assert identities == {"{}", '{"2": "eu"}'}
    read = moments_read(planned.splits, "ts")
    assert sorted(set(read)) == WANTED


def test_columns_renamed_and_promoted_since_are_found_by_their_field_id(
    lake: Catalog, tmp_path: Path
) -> None:
    schema = Schema(
        NestedField(1, "seconds", IntegerType(), required=False),
        NestedField(2, "note", StringType(), required=False),
    )
    table = lake.create_table("raw.events", schema)
    arrow = pa.schema([("seconds", pa.int32()), ("note", pa.string())])
    moments = [moment // 1_000_000 for moment in hourly()]
    table.append(pa.table({"seconds": moments[:72], "note": ["x"] * 72}, schema=arrow))
    with table.update_schema() as update:
        update.update_column("seconds", LongType())
    with table.update_schema() as update:
        update.rename_column("seconds", "ts")
    table.append(pa.table({"ts": pa.array(moments[72:], pa.int64()), "note": ["y"] * 72}))
    planned = plan(tmp_path / "w", source("events", timestampUnit="s"))
    assert planned.header.inputs.sources[0].timestamp_field_id == 1
    assert len(planned.files) == 1
    assert moments_read(planned.splits, "seconds", Fraction(1_000_000)) == [
        moment // 1_000_000 for moment in WANTED
    ]


def test_the_current_snapshot_has_the_tables_schema_and_one_asked_for_its_own(
    lake: Catalog, tmp_path: Path
) -> None:
    table = write_hourly(lake, "events", pa.array(hourly(), UTC), files=2)
    snapshot = table.current_snapshot()
    with table.update_schema() as update:
        update.rename_column("ts", "arrived")
        update.add_column("device", StringType())
    current = plan(
        tmp_path / "w", source("events", timestampColumn="arrived", filter="device is null")
    )
    named = plan(tmp_path / "w", source("events", snapshot={"id": snapshot.snapshot_id}))
    at_the_time = plan(
        tmp_path / "w",
        source("events", snapshot={"asOf": format_time(from_us(snapshot.timestamp_ms * 1000))}),
    )
    pinned = [planned.header.inputs.sources[0] for planned in (current, named, at_the_time)]
    assert [each.schema_id for each in pinned] == [
        table.schema().schema_id,
        snapshot.schema_id,
        snapshot.schema_id,
    ]
    assert {each.snapshot_id for each in pinned} == {snapshot.snapshot_id}
    for planned in (current, named, at_the_time):
        assert moments_read(planned.splits, "ts") == WANTED


def test_files_older_than_the_timestamp_column_have_no_rows_to_read(
    lake: Catalog, tmp_path: Path
) -> None:
    table = lake.create_table("raw.events", schema=pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": pa.array([1, 2, 3], pa.int64())}))
    with table.update_schema() as update:
        update.add_column("ts", TimestamptzType())
    table.append(pa.table({"id": pa.array([4], pa.int64()), "ts": pa.array([START], UTC)}))
    planned = plan(tmp_path / "w", source("events"))
    assert moments_read(planned.splits, "ts") == [START]
    assert planned.header.sources[0].files == 1
    assert any("ignores 3 rows without ts" in warning for warning in planned.header.warnings)


def test_a_filter_prunes_files_by_their_metrics_and_is_kept_for_the_rows(
    lake: Catalog, tmp_path: Path
) -> None:
    for name, kept in (
        ("filtered", {"filter": "region == 'eu' and ts > '2026-03-01T07:00:00+00:00'"}),
        ("asked", {}),
    ):
        table = lake.create_table(
            f"raw.{name}", schema=pa.schema([("ts", UTC), ("region", pa.string())])
        )
        for region in ("eu", "it's"):
            table.append(pa.table({"ts": pa.array(WANTED, UTC), "region": [region] * len(WANTED)}))
        choice = kept or {"regions": {"column": "region", "in": ["it's"]}}
        planned = plan(tmp_path / name, source(name, **choice))
        assert len(planned.files) == 1
        pinned = planned.header.inputs.sources[0]
        assert (pinned.row_filter, pinned.regions) == (
            kept.get("filter"),
            None if kept else ("it's",),
        )


def test_a_source_without_rows_beside_one_with_rows_is_a_warning(
    lake: Catalog, tmp_path: Path
) -> None:
    write_hourly(lake, "events", pa.array(hourly(), UTC))
    write_hourly(lake, "late", pa.array([moment + 30 * 24 * HOUR_US for moment in hourly()], UTC))
    planned = plan(tmp_path / "w", source("events"), source("late"))
    assert planned.header.sources[1].files == 0
    assert planned.header.sources[1].lower_us is None
    assert planned.header.warnings == (
        "source late: lake.raw.late has no rows from 2026-03-01T06:00:00Z to 2026-03-01T12:00:00Z",
    )


def test_a_plan_already_made_is_returned_as_it_is(lake: Catalog, tmp_path: Path) -> None:
    write_hourly(lake, "events", pa.array(hourly(), UTC))
    first = plan(tmp_path / "w", source("events"))
    seen: list[PlanningProgress] = []
    again = make_plan(
        spec(source("events")),
        Workspace(str(tmp_path / "w")),
        parallelism=2,
        on_progress=seen.append,
    )
    assert (again, seen) == (first.header, [])


def test_the_same_tables_give_the_same_bytes(lake: Catalog, tmp_path: Path) -> None:
    write_hourly(lake, "events", pa.array(hourly(), UTC))
    for number in ("1", "2"):
        plan(tmp_path / number, source("events"))
    made = [sorted((tmp_path / number / "plans").rglob("*.*")) for number in ("1", "2")]
    assert [path.read_bytes() for path in made[0]] == [path.read_bytes() for path in made[1]]


def test_progress_tells_manifests_and_files(lake: Catalog, tmp_path: Path) -> None:
    write_hourly(lake, "events", pa.array(hourly(), UTC))
    seen: list[PlanningProgress] = []
    make_plan(
        spec(source("events")),
        Workspace(str(tmp_path / "w")),
        parallelism=2,
        on_progress=seen.append,
    )
    assert [progress.manifests_done for progress in seen] == list(range(1, 25))
    assert seen[-1] == PlanningProgress("events", 24, 24, 6)
