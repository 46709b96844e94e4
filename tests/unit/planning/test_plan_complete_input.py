"""Whether a real table has everything that a plan reads: by its rows, partitions and filters."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from planned import DAY_US, HOUR_US, plan, source
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform
from pyiceberg.types import NestedField, StringType, TimestamptzType

from backfill.planning.plan import InputCheck

SCHEMA = Schema(
    NestedField(1, "ts", TimestamptzType(), required=False),
    NestedField(2, "region", StringType(), required=False),
)
LAYOUTS = {
    "unpartitioned": PartitionSpec(),
    "by hour": PartitionSpec(PartitionField(1, 1000, HourTransform(), "hour")),
    "by day": PartitionSpec(PartitionField(1, 1000, DayTransform(), "day")),
    "by region": PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region")),
}


def table(lake: Catalog, spec: PartitionSpec = LAYOUTS["unpartitioned"]) -> Table:
    return lake.create_table("raw.events", SCHEMA, partition_spec=spec)


def hour(events: Table, *hours: float, region: str = "eu", minutes: int = 60) -> None:
    """Appends a file for each hour of the day, with a row every six seconds."""
    for each in hours:
        start = DAY_US + int(each * HOUR_US)
        moments = list(range(start, start + minutes * HOUR_US // 60, 6_000_000))
        rows = pa.table(
            {"ts": pa.array(moments, pa.timestamp("us", "UTC")), "region": [region] * len(moments)}
        )
        events.append(rows)


def found(workspace: Path, **fields: Any) -> InputCheck:
    """What is found of the table for a plan from six to twelve."""
    return plan(workspace, source("events", **fields)).header.sources[0].input


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_after_the_end_are_seen_in_whatever_partition(
    lake: Catalog, tmp_path: Path, layout: str
) -> None:
    events = table(lake, LAYOUTS[layout])
    hour(events, *range(5, 12), 30)
    check = found(tmp_path)
    assert (check.complete, check.reached) == (True, True)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_table_that_ends_too_early_is_incomplete(
    lake: Catalog, tmp_path: Path, layout: str
) -> None:
    events = table(lake, LAYOUTS[layout])
    hour(events, *range(5, 10))
    check = found(tmp_path)
    assert (check.complete, check.reached) == (False, False)
    assert check.missing[0].startswith("its newest row arrived at 2026-03-01T09:59:54Z, 2h")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_first_hour_without_rows_is_missing_only_if_there_are_older_rows(
    lake: Catalog, tmp_path: Path, layout: str
) -> None:
    events = table(lake, LAYOUTS[layout])
    hour(events, *range(8, 14))
    assert found(tmp_path / "without").complete is None
    hour(events, -30)
    check = found(tmp_path / "with")
    assert check.complete is False
    assert "no rows from 2026-03-01T06:00:00Z to 2026-03-01T08:00:00Z (2h)" in check.missing[0]


@pytest.mark.parametrize("layout", ["unpartitioned", "by region"])
def test_rows_that_the_filter_leaves_out_show_nothing(
    lake: Catalog, tmp_path: Path, layout: str
) -> None:
    events = table(lake, LAYOUTS[layout])
    hour(events, *range(5, 10), region="us")
    hour(events, *range(5, 14))
    assert found(tmp_path / "all").complete is True
    assert found(tmp_path / "eu", filter="region == 'eu'").complete is True
    assert found(tmp_path / "us", filter="region == 'us'").complete is False


@pytest.mark.parametrize("layout", ["unpartitioned", "by hour", "by day"])
def test_a_hole_is_compared_with_other_days(lake: Catalog, tmp_path: Path, layout: str) -> None:
    events = table(lake, LAYOUTS[layout])
    hour(events, *range(5, 8), *range(9, 14))
    check = found(tmp_path / "one day")
    assert check.complete is False
    assert check.missing == (
        "it has no rows from 2026-03-01T07:59:54Z to 2026-03-01T09:00:00Z (1h), where about"
        " 601 would be usual",
    )
    hour(events, *(24 + each for each in (5, 6, 7, 9, 10)))  # the same pause on the next day
    assert found(tmp_path / "pause").complete is True
    hour(events, 24 + 8)
    assert found(tmp_path / "no pause").complete is False
