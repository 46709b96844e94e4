"""Static tables are pinned with the plan: every attempt reads the same rows."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from planned import DAY_US, HOUR_US, plan, source
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.types import IntegerType
from rich.console import Console

from backfill.api.errors import InvalidPlanInput
from backfill.api.quantities import format_time, from_us
from backfill.api.static_table import StaticTable
from backfill.cli.plan_page import render_plan
from backfill.planning.plan_summary import summarize
from backfill.planning.planner import verify_snapshots


@pytest.fixture
def users(lake: Catalog) -> Table:
    """Two snapshots of users, and an event."""
    moments = pa.array([DAY_US + 7 * HOUR_US], pa.timestamp("us", "UTC"))
    events = pa.table({"ts": moments, "user": [1]})
    lake.create_table("raw.events", schema=events.schema).append(events)
    rows = pa.table({"user": [1], "name": ["Ada"]})
    table = lake.create_table("raw.users", schema=rows.schema)
    table.append(rows)
    with table.update_schema() as update:
        update.add_column("age", IntegerType())
    table.append(pa.table({"user": [2], "name": ["Bo"], "age": pa.array([3], pa.int32())}))
    return table


def planned(tmp_path: Path, as_of: str = "now") -> Any:
    static = [{"table": "lake.raw.users", "asOf": as_of}]
    return plan(tmp_path / "w", source("events"), staticTables=static).header


def test_the_snapshot_is_the_one_of_its_time(users: Table, tmp_path: Path) -> None:
    first, second = (entry.snapshot_id for entry in users.history())
    then = format_time(from_us(users.snapshots()[0].timestamp_ms * 1_000))
    found = {}
    for as_of in ("now", then):
        header = planned(tmp_path, as_of)
        (static,) = header.inputs.static_tables
        found[as_of] = (static.snapshot_id, static.schema_id)
        verify_snapshots(header)
    assert found == {"now": (second, 1), then: (first, 0)}
    assert len(list((tmp_path / "w").glob("plans/*"))) == 2, "another snapshot is another plan"


def test_what_cannot_be_read_is_named(users: Table, tmp_path: Path) -> None:
    with pytest.raises(InvalidPlanInput) as raised:
        planned(tmp_path, "window")
    (problem,) = raised.value.problems
    assert problem.field == "spec.staticTables[0].asOf"
    assert problem.message == "lake.raw.users has no snapshot as old as 2026-03-01T12:00:00Z"
    assert "omit the field to use the current snapshot" in problem.fix
    static = [{"table": "lake.raw.user"}]
    with pytest.raises(InvalidPlanInput, match="did you mean") as raised:
        plan(tmp_path / "w", source("events"), staticTables=static)
    assert raised.value.problems[0].field == "spec.staticTables[0].table"


def test_a_snapshot_that_has_expired_stops_the_next_attempt(users: Table, tmp_path: Path) -> None:
    then = format_time(from_us(users.snapshots()[0].timestamp_ms * 1_000))
    header = planned(tmp_path, then)
    users.maintenance.expire_snapshots().by_id(users.history()[0].snapshot_id).commit()
    with pytest.raises(InvalidPlanInput, match="has expired") as raised:
        verify_snapshots(header)
    assert raised.value.problems[0].field == "spec.staticTables[0].asOf"


def test_the_plan_says_which_snapshot_is_read(users: Table, tmp_path: Path) -> None:
    header = planned(tmp_path)
    summary = summarize(header, from_us(DAY_US))
    console = Console(width=100, record=True, file=(tmp_path / "screen").open("w"))
    console.print(render_plan("january", summary, estimated_for="2 cores"))
    current = users.refresh().current_snapshot()
    assert current is not None
    assert f"static table lake.raw.users: snapshot {current.snapshot_id}" in console.export_text()


@pytest.mark.parametrize(
    "as_of",
    ["yesterday", "2026-03-01T06", "2026-13-01T00:00:00Z", "now ", "", "2026-03-01T00:00:00"],
)
def test_other_times_are_refused(as_of: str) -> None:
    with pytest.raises(ValueError, match=r"asOf"):
        StaticTable.model_validate({"table": "lake.raw.users", "asOf": as_of})
