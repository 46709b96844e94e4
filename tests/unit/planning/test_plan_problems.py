"""Input that cannot be planned: each mistake is one clear problem, and all of them are told
together.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from planned import DAY_US, HOUR_US, hourly, plan, source
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import FileFormat
from pyiceberg.table import Table

from backfill.api.errors import InvalidPlanInput, Problem
from backfill.api.quantities import format_time, from_us
from backfill.planning.planner import verify_snapshots
from iceberg_tables import commit_files, parquet_file

TS = pa.timestamp("us", "UTC")


@pytest.fixture
def events(lake: Catalog) -> Table:
    """A day of events in one file."""
    rows = pa.table(
        {
            "ts": pa.array(hourly(), TS),
            "number": pa.array(range(144), pa.int64()),
            "region": ["eu"] * 144,
        }
    )
    table = lake.create_table("raw.events", schema=rows.schema)
    table.append(rows)
    return table


def problems(tmp_path: Path, *sources: dict[str, Any], **fields: Any) -> list[Problem]:
    with pytest.raises(InvalidPlanInput) as raised:
        plan(tmp_path / "w", *sources, **fields)
    assert not list((tmp_path / "w").rglob("*.*"))
    return list(raised.value.problems)


@pytest.mark.usefixtures("events")
@pytest.mark.parametrize(
    ("fields", "field", "message", "fix"),
    [
        (
            {"table": "sea.raw.events"},
            "table",
            "catalog sea is not configured",
            "PYICEBERG_CATALOG__SEA__URI",
        ),
        (
            {"table": "lake.raw.event"},
            "table",
            "table lake.raw.event does not exist",
            "did you mean lake.raw.events?",
        ),
        (
            {"table": "lake.row.events"},
            "table",
            "table lake.row.events does not exist",
            "namespace row",
        ),
        ({"timestampColumn": "tss"}, "timestampColumn", "has no column tss", "did you mean ts?"),
        ({"timestampColumn": "TS"}, "timestampColumn", "has no column TS", "did you mean ts?"),
        (
            {"timestampColumn": "region"},
            "timestampColumn",
            "column region of lake.raw.events is a string",
            "a timestamp column",
        ),
        (
            {"timestampColumn": "number"},
            "timestampUnit",
            "is a long; its unit is missing",
            "set timestampUnit to s, ms, us or ns",
        ),
        (
            {"timestampUnit": "ms"},
            "timestampUnit",
            "is a timestamptz, which has its own unit",
            "omit timestampUnit",
        ),
        (
            {"filter": "region = = 'eu'"},
            "filter",
            "is not a filter that PyIceberg can parse",
            "region == 'us-east-1'",
        ),
        (
            {"filter": "regio == 'eu'"},
            "filter",
            "is not valid for table lake.raw.events",
            "did you mean region?",
        ),
        (
            {"filter": "number == 'eu'"},
            "filter",
            "is not valid for table lake.raw.events",
            "number (long)",
        ),
        (
            {"regions": {"column": "zone", "in": ["eu"]}},
            "regions",
            "is not valid for table",
            "the table's columns are",
        ),
        (
            {"kafka": {"offsetColumn": "offset"}},
            "kafka.offsetColumn",
            "has no column offset",
            "available: number, region, ts",
        ),
        (
            {"kafka": {"partitionColumn": "region"}},
            "kafka.partitionColumn",
            "is a string",
            "use an int or long column",
        ),
        (
            {"snapshot": {"id": 77}},
            "snapshot.id",
            "snapshot 77 of lake.raw.events does not exist",
            "choose one of the 1 retained",
        ),
        (
            {"snapshot": {"asOf": "2020-01-01T00:00:00Z"}},
            "snapshot.asOf",
            "no snapshot as old as 2020",
            "or omit the field to use the current snapshot",
        ),
    ],
)
def test_a_mistake_is_named_with_what_to_do(
    tmp_path: Path, fields: dict[str, Any], field: str, message: str, fix: str
) -> None:
    (problem,) = problems(tmp_path, source("events", **fields))
    assert problem.field == f"spec.sources[0].{field}"
    assert message in problem.message
    assert fix in problem.fix


def test_a_time_in_a_map_that_is_written_like_a_field_is_refused_with_how_to_write_it(
    lake: Catalog, tmp_path: Path
) -> None:
    times = pa.array([[("ingested", 1)]], pa.map_(pa.string(), pa.int64()))
    rows = pa.table({"metadata": times, "metadata_ts": pa.array([DAY_US], TS)})
    lake.create_table("raw.mapped", rows.schema).append(rows)
    wish = {"timestampColumn": "metadata.ingested", "timestampUnit": "ms"}
    (problem,) = problems(tmp_path, source("events", **{"table": "lake.raw.mapped", **wish}))
    assert problem.field == "spec.sources[0].timestampColumn"
    assert problem.message.startswith("column metadata of lake.raw.mapped is a map")
    assert "written as map['key']" in problem.fix
    (problem,) = problems(
        tmp_path, source("events", table="lake.raw.mapped", timestampColumn="metadata_t")
    )
    assert "did you mean metadata_ts" in problem.fix


@pytest.mark.usefixtures("events")
def test_the_mistakes_of_all_sources_are_told_together(tmp_path: Path) -> None:
    found = problems(
        tmp_path,
        source("events", timestampColumn="when", filter="a b"),
        source("plays"),
        source("more", table="lake.raw.events", snapshot={"id": 1}),
    )
    assert [problem.field for problem in found] == [
        "spec.sources[0].timestampColumn",
        "spec.sources[0].filter",
        "spec.sources[1].table",
        "spec.sources[2].snapshot.id",
    ]


def test_a_table_nothing_was_written_to_is_named(lake: Catalog, tmp_path: Path) -> None:
    lake.create_table("raw.events", schema=pa.schema([("ts", TS)]))
    (problem,) = problems(tmp_path, source("events"))
    assert "has no snapshot: nothing was ever written" in problem.message
    assert "append without rows to it" in problem.fix


@pytest.mark.usefixtures("events")
def test_a_window_without_rows_is_told_what_the_table_has(tmp_path: Path) -> None:
    window = {"start": "2026-04-01T00:00:00Z", "end": "2026-04-02T00:00:00Z"}
    (problem,) = problems(tmp_path, source("events"), window=window)
    assert "no rows with ts from 2026-04-01T00:00:00Z to 2026-04-02T00:00:00Z" in problem.message
    assert "rows from 2026-03-01T00:00:00Z to 2026-03-01T23:50:00Z" in problem.fix


@pytest.mark.parametrize("unit", ["s", "us"])
def test_a_wrong_unit_that_leaves_nothing_to_read_is_thought_of(
    lake: Catalog, tmp_path: Path, unit: str
) -> None:
    rows = pa.table({"ms": pa.array([ts // 1000 for ts in hourly()], pa.int64())})
    lake.create_table("raw.events", schema=rows.schema).append(rows)
    (problem,) = problems(tmp_path, source("events", timestampColumn="ms", timestampUnit=unit))
    assert "timestampUnit" in problem.fix


def test_files_without_statistics_are_refused_naming_the_property_to_set(
    lake: Catalog, tmp_path: Path
) -> None:
    rows = pa.table({"ts": pa.array(hourly(), TS)})
    table = lake.create_table("raw.events", schema=rows.schema)
    file = parquet_file(table, "a.parquet", rows)
    pq.write_table(pq.read_table(file.file_path), file.file_path, write_statistics=False)
    commit_files(lake, table, 1, [file])
    (problem,) = problems(tmp_path, source("events"))
    assert problem.field == "spec.sources[0].timestampColumn"
    assert "1 data file of lake.raw.events has no statistics of column ts" in problem.message
    assert file.file_path in problem.message
    assert "write.metadata.metrics.column.ts=full" in problem.fix


@pytest.mark.parametrize("damage", ["missing", "corrupt"])
def test_a_data_file_whose_footer_is_needed_but_can_not_be_read_is_named(
    lake: Catalog, tmp_path: Path, damage: str
) -> None:
    rows = pa.table({"ts": pa.array(hourly(), TS)})
    table = lake.create_table("raw.events", schema=rows.schema)
    file = parquet_file(table, "a.parquet", rows)
    commit_files(lake, table, 1, [file])
    if damage == "missing":
        Path(file.file_path).unlink()
    else:
        Path(file.file_path).write_bytes(b"no parquet at all")
    (problem,) = problems(tmp_path, source("events"))
    assert (
        f"1 data file of lake.raw.events cannot be read; the first: {file.file_path}"
        in problem.message
    )


def test_files_in_another_format_are_refused(lake: Catalog, tmp_path: Path) -> None:
    rows = pa.table({"ts": pa.array(hourly(), TS)})
    table = lake.create_table("raw.events", schema=rows.schema)
    commit_files(lake, table, 1, [parquet_file(table, "a.orc", rows, file_format=FileFormat.ORC)])
    assert (
        "files in the range that are not Parquet" in problems(tmp_path, source("events"))[0].message
    )


def test_a_manifest_that_is_gone_is_named(events: Table, tmp_path: Path) -> None:
    (manifest,) = events.current_snapshot().manifests(events.io)
    Path(manifest.manifest_path).unlink()
    assert manifest.manifest_path in problems(tmp_path, source("events"))[0].message


def test_the_snapshot_of_a_moment_is_the_one_that_was_current(
    events: Table, tmp_path: Path
) -> None:
    first = events.current_snapshot()
    events.append(
        pa.table(
            {
                "ts": pa.array([DAY_US + 7 * HOUR_US], TS),
                "number": pa.array([1], pa.int64()),
                "region": ["eu"],
            }
        )
    )
    second = events.current_snapshot()
    for snapshot, moment_ms in ((first, second.timestamp_ms - 1), (second, second.timestamp_ms)):
        as_of = format_time(from_us(moment_ms * 1000))
        planned = plan(tmp_path / "w", source("events", snapshot={"asOf": as_of}))
        assert planned.header.inputs.sources[0].snapshot_id == snapshot.snapshot_id


def test_a_moment_whose_snapshot_has_expired_does_not_give_the_rows_of_an_older_one(
    events: Table, tmp_path: Path
) -> None:
    snapshots = []
    for hour in range(3):
        time = pa.array([DAY_US + hour * HOUR_US], TS)
        events.append(pa.table({"ts": time, "number": pa.array([1], pa.int64()), "region": ["eu"]}))
        snapshots.append(events.current_snapshot())
    before, expired, after = snapshots
    events.maintenance.expire_snapshots().by_id(expired.snapshot_id).commit()
    (problem,) = problems(
        tmp_path,
        source("events", snapshot={"asOf": format_time(from_us(expired.timestamp_ms * 1000))}),
    )
    assert f"is unknown: snapshots after {before.snapshot_id} have expired" in problem.message
    (problem,) = problems(
        tmp_path,
        source("events", snapshot={"asOf": format_time(from_us((after.timestamp_ms - 1) * 1000))}),
    )
    assert "is unknown" in problem.message
    planned = plan(
        tmp_path / "w",
        source("events", snapshot={"asOf": format_time(from_us(after.timestamp_ms * 1000))}),
    )
    assert planned.header.inputs.sources[0].snapshot_id == after.snapshot_id


def test_an_attempt_is_refused_once_the_pinned_snapshot_has_expired(
    lake: Catalog, events: Table, tmp_path: Path
) -> None:
    header = plan(tmp_path / "w", source("events")).header
    verify_snapshots(header)
    events.append(
        pa.table(
            {"ts": pa.array([DAY_US], TS), "number": pa.array([1], pa.int64()), "region": ["eu"]}
        )
    )
    events.maintenance.expire_snapshots().older_than(datetime.now(UTC) + timedelta(days=1)).commit()
    with pytest.raises(
        InvalidPlanInput,
        match=(
            r"spec.sources\[0\].snapshot: snapshot \d+ of lake.raw.events, which the plan reads,"
            r" has expired"
        ),
    ):
        verify_snapshots(header)


def test_an_attempt_is_refused_once_the_table_was_made_again(
    lake: Catalog, events: Table, tmp_path: Path
) -> None:
    header = plan(tmp_path / "w", source("events")).header
    lake.drop_table("raw.events")
    lake.create_table("raw.events", schema=events.schema())
    with pytest.raises(InvalidPlanInput, match="dropped and created again"):
        verify_snapshots(header)


@pytest.mark.usefixtures("events")
@pytest.mark.parametrize("workspace", ["/dev/null/workspace", "gopher://lake/workspace"])
def test_a_workspace_that_can_not_be_written_to_is_told_with_all_other_mistakes(
    workspace: str,
) -> None:
    with pytest.raises(InvalidPlanInput) as raised:
        plan(workspace, source("events", timestampColumn="tz"))
    fields = [problem.field for problem in raised.value.problems]
    assert fields == ["spec.sources[0].timestampColumn", "spec.workspace"]
    assert f"{workspace} cannot be written to" in str(raised.value)
    assert raised.value.problems[1].may_pass == workspace.startswith("/"), (
        "only what the store itself says may pass"
    )
