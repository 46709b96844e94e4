"""Whether a real table has everything that a plan reads: by its rows, partitions and filters."""

import time
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from made_files import source_input
from planned import DAY_US, HOUR_US, moments_read, plan, source, spec
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate
from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform
from pyiceberg.types import NestedField, StringType, TimestampType, TimestamptzType

from backfill.api.errors import InputAwaited, InvalidPlanInput
from backfill.planning.metadata.ingestion_watermark import ingested
from backfill.planning.plan import InputCheck, PlanHeader
from backfill.planning.planner import make_plan
from backfill.planning.workspace import Workspace

FAR_US = 4_070_908_800_000_000
"""2099-01-01T00:00:00Z."""
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
def test_a_table_that_ends_early_may_be_quiet_and_is_waited_for(
    lake: Catalog, tmp_path: Path, layout: str
) -> None:
    events = table(lake, LAYOUTS[layout])
    hour(events, *range(5, 10))
    check = found(tmp_path)
    assert (check.complete, check.reached, check.behind) == (None, False, True)
    assert check.awaited == (
        "the newest row arrived at 2026-03-01T09:59:54Z, and none at or after the end of the input"
        " range (2026-03-01T12:00:00Z)",
    )


def test_a_bank_holiday_or_an_outage_whose_rows_came_later_refuses_nothing(
    lake: Catalog, tmp_path: Path
) -> None:
    events = table(lake)
    for day in range(-2, 2):
        hour(events, *(24 * day + each for each in range(5, 14) if day or each not in (7, 8, 9)))
    check = found(tmp_path)
    assert (check.complete, check.missing, check.unknown) == (True, (), ())


@pytest.mark.parametrize("layout", ["unpartitioned", "by region"])
def test_rows_that_the_filter_leaves_out_show_nothing(
    lake: Catalog, tmp_path: Path, layout: str
) -> None:
    events = table(lake, LAYOUTS[layout])
    hour(events, *range(5, 10), region="us")
    hour(events, *range(5, 14))
    assert found(tmp_path / "all").complete is True
    assert found(tmp_path / "eu", filter="region == 'eu'").complete is True
    assert found(tmp_path / "us", filter="region == 'us'").complete is None


THROUGH = "kafka.connect.valid-through-ts"


def says(events: Table, operation: Operation, *, at: str | None = None, **properties: str) -> None:
    """Commits a snapshot with the files of the current one, of an ingestion or a compaction."""
    current = events.refresh().current_snapshot()
    assert current is not None
    made = Snapshot(
        snapshot_id=current.snapshot_id + 1,
        parent_snapshot_id=current.snapshot_id,
        sequence_number=events.last_sequence_number + 1,
        timestamp_ms=events.metadata.last_updated_ms + 1
        if at is None
        else int(datetime.fromisoformat(at).timestamp() * 1000),
        manifest_list=current.manifest_list,
        summary=Summary(operation=operation, **properties),
        schema_id=current.schema_id,
    )
    head = SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=made.snapshot_id)
    events.catalog.commit_table(events, (), (AddSnapshotUpdate(snapshot=made), head))
    events.refresh()


@pytest.mark.parametrize(
    ("value", "complete"),
    [("2026-03-01T12:00Z", True), ("2026-03-01T11:59:59.999Z", False)],
)
def test_the_watermark_of_the_sink_decides(
    lake: Catalog, tmp_path: Path, value: str, complete: bool
) -> None:
    """Whatever the newest row says: one partition may be behind, or have ended earlier."""
    events = table(lake)
    hour(events, *range(5, 9 if complete else 14))
    says(events, Operation.APPEND, **{THROUGH: value})
    check = found(tmp_path)
    assert (check.complete, check.reached) == (complete, complete)
    assert THROUGH in check.reasons[0]


def test_a_compaction_on_top_does_not_hide_the_watermark(lake: Catalog, tmp_path: Path) -> None:
    events = table(lake)
    hour(events, *range(5, 14))
    says(events, Operation.APPEND, **{THROUGH: "2026-03-01T11:00Z"})
    says(events, Operation.REPLACE)
    says(events, Operation.REPLACE)
    assert found(tmp_path / "early").complete is False
    says(events, Operation.APPEND, **{THROUGH: "2026-03-01T14:00Z"})
    says(events, Operation.REPLACE)
    assert found(tmp_path / "late").complete is True


def test_a_watermark_before_later_rows_does_not_refuse(lake: Catalog, tmp_path: Path) -> None:
    """The sink leaves it out where a partition had no rows, so that the last one may be old."""
    events = table(lake)
    hour(events, *range(5, 9))
    says(events, Operation.APPEND, **{THROUGH: "2026-03-01T09:00Z"})
    hour(events, *range(9, 14))
    assert found(tmp_path).complete is True


def test_a_quiet_table_of_the_sink_is_not_refused(lake: Catalog, tmp_path: Path) -> None:
    """The sink commits nothing where no rows arrive, so that its watermark stays where it is."""
    events = table(lake)
    for day in range(-2, 1):
        hour(events, *(24 * day + each for each in range(5, 10)))
    hour(events, -24 * 9)
    says(events, Operation.APPEND, **{THROUGH: "2026-03-01T10:00Z"})
    check = found(tmp_path / "sink")
    assert (check.complete, check.reached, check.behind) == (None, False, True)
    assert check.awaited[0].startswith("ingestion had written everything up to 2026-03-01T10:00")
    says(events, Operation.APPEND, **{"our.watermark": "2026-03-01T10:00Z"})
    assert found(tmp_path / "own", watermark={"property": "our.watermark"}).complete is False


def test_rows_after_the_last_commit_may_be_missing_and_are_waited_for(
    lake: Catalog, tmp_path: Path
) -> None:
    """However close to the end the newest row is; a later compaction brings none. Nor do rows of
    before the end that are committed later show that all are there.
    """
    events = table(lake)
    hour(events, *range(5, 12))
    says(events, Operation.APPEND, at="2026-03-01T11:59:59.900Z")
    says(events, Operation.REPLACE)
    says(events, Operation.DELETE)
    check = found(tmp_path / "before")
    assert (check.complete, check.behind) == (None, True)
    assert "committed at 2026-03-01T11:59:59Z, before the end" in check.unknown[0]
    workspace, wanted = Workspace(str(tmp_path / "w")), spec(source("events"))
    with pytest.raises(InputAwaited, match="the newest rows were committed at"):
        make_plan(wanted, workspace, parallelism=1, awaits_input=True)
    says(events, Operation.APPEND, at="2026-03-01T12:00:05Z")
    check = found(tmp_path / "after")
    assert (check.complete, check.behind) == (None, True)
    hour(events, 12)
    assert found(tmp_path / "reached").complete is True


@pytest.mark.parametrize("layout", ["unpartitioned", "by day"])
def test_a_row_of_the_far_future_does_not_show_that_the_table_goes_on(
    lake: Catalog, tmp_path: Path, layout: str
) -> None:
    events = table(lake, LAYOUTS[layout])
    hour(events, *range(5, 10))
    hour(events, 24 * 365 * 70, minutes=1)
    check = found(tmp_path / "alone")
    assert (check.complete, check.reached) == (None, False)
    moments = [DAY_US + 11 * HOUR_US, DAY_US + 24 * 365 * 70 * HOUR_US]
    far = pa.array(moments, pa.timestamp("us", "UTC"))
    events.append(pa.table({"ts": far, "region": ["eu", "eu"]}))
    assert not found(tmp_path / "beside others").reached
    hour(events, 13)
    assert found(tmp_path / "after").reached


def test_a_row_of_the_far_future_does_not_show_where_the_rows_of_its_file_end(
    lake: Catalog, tmp_path: Path
) -> None:
    events = table(lake)
    hour(events, *range(5, 9))
    moments = [DAY_US + 9 * HOUR_US, DAY_US + 24 * 365 * 70 * HOUR_US]
    events.append(
        pa.table({"ts": pa.array(moments, pa.timestamp("us", "UTC")), "region": ["eu", "eu"]})
    )
    check = found(tmp_path / "unknown")
    assert (check.complete, check.behind) == (None, True)
    assert (
        "rows with timestamps up to 2096-02-12T00:00:00Z, later than the files were committed"
        in check.unknown[0]
    )
    hour(events, 13)
    assert found(tmp_path / "after").complete is True


@pytest.mark.parametrize("beside_others", [False, True])
def test_a_row_whose_clock_is_hours_ahead_does_not_end_a_window_that_is_not_over(
    lake: Catalog, tmp_path: Path, beside_others: bool
) -> None:
    """Although a compaction is committed after its timestamp."""
    events = table(lake)
    hour(events, *range(5, 10))
    if beside_others:
        moments = [DAY_US + 10 * HOUR_US, DAY_US + 13 * HOUR_US]
        ahead = pa.array(moments, pa.timestamp("us", "UTC"))
        events.append(pa.table({"ts": ahead, "region": ["eu", "eu"]}))
    else:
        hour(events, 13, minutes=1)
    says(events, Operation.APPEND, at="2026-03-01T10:59:00Z")
    workspace, wanted = Workspace(str(tmp_path / "w")), spec(source("events"))
    moment = datetime.fromisoformat("2026-03-01T11:00:00Z")
    with pytest.raises(InputAwaited, match="the input range ends at 2026-03-01T12:00:00Z"):
        make_plan(wanted, workspace, parallelism=1, awaits_input=True, clock=lambda: moment)
    assert not found(tmp_path / "before").reached
    says(events, Operation.REPLACE, at="2026-03-01T15:00:00Z")
    assert not found(tmp_path / "compacted").reached
    says(events, Operation.APPEND, at="2026-03-01T14:00:00Z")
    assert found(tmp_path / "after").reached


def test_timestamps_without_a_zone_may_be_those_of_any_zone(lake: Catalog, tmp_path: Path) -> None:
    rows = Schema(NestedField(1, "ts", TimestampType()), NestedField(2, "region", StringType()))
    events = lake.create_table("raw.events", rows)
    for each in (*range(5, 12), 13):
        moments = range(DAY_US + each * HOUR_US, DAY_US + (each + 1) * HOUR_US, 6_000_000)
        local = pa.array(moments, pa.timestamp("us"))
        events.append(pa.table({"ts": local, "region": ["eu"] * len(local)}))
    says(events, Operation.APPEND, at="2026-03-01T08:00:00Z")
    assert found(tmp_path).reached


def test_a_watermark_in_the_future_does_not_reach_the_future(lake: Catalog, tmp_path: Path) -> None:
    events = table(lake)
    hour(events, *range(5, 12))
    largest = {"our.watermark": str(2**63 - 1)}
    named = {"watermark": {"property": "our.watermark", "unit": "ms"}}
    says(events, Operation.APPEND, at="2026-03-01T11:59:59Z", **largest)
    assert not found(tmp_path / "before", **named).reached
    says(events, Operation.APPEND, at="2026-03-01T12:00:00Z", **largest)
    assert found(tmp_path / "after", **named).reached


def test_the_connector_that_is_furthest_behind_counts(lake: Catalog, tmp_path: Path) -> None:
    events = table(lake)
    hour(events, *range(5, 14))
    eu, us = {"kafka.connect.offsets.control.eu": "{}"}, {"kafka.connect.offsets.control.us": "{}"}
    says(events, Operation.APPEND, **us)
    says(events, Operation.APPEND, **eu, **{THROUGH: "2026-03-01T13:00Z"})
    check = found(tmp_path / "silent")
    assert check.complete is None
    assert check.unknown[0].startswith("1 of 2 Kafka connectors that wrote")
    says(events, Operation.APPEND, **us, **{THROUGH: "2026-03-01T11:00Z"})
    says(events, Operation.APPEND, **eu, **{THROUGH: "2026-03-01T13:30Z"})
    check = found(tmp_path / "behind")
    assert check.complete is None, "it may have been replaced by the other one"
    assert (
        "table is behind: ingestion had written everything up to 2026-03-01T11" in check.unknown[0]
    )
    says(events, Operation.APPEND, **us, **{THROUGH: "2026-03-01T12:00Z"})
    assert found(tmp_path / "both").complete is True


def test_a_snapshot_that_is_its_own_ancestor_ends_the_search(lake: Catalog) -> None:
    events = table(lake)
    hour(events, 5)
    first = events.metadata.snapshots[0]
    own = first.model_copy(update={"parent_snapshot_id": first.snapshot_id})
    metadata = events.metadata.model_copy(update={"snapshots": [own]})
    named = source_input("events").model_copy(update={"watermark_property": "our.watermark"})
    assert "none of the last 1 snapshots" in ingested(metadata, own, named)[1]


def test_a_property_that_is_named_is_read_in_its_unit(lake: Catalog, tmp_path: Path) -> None:
    events = table(lake)
    hour(events, *range(5, 14))
    named = {"watermark": {"property": "our.watermark", "unit": "ms"}}
    check = found(tmp_path / "none", **named)
    assert check.complete is None
    assert check.unknown == (
        "none of the last 9 snapshots, the only ones that have not expired, has the property"
        " our.watermark",
    )
    says(events, Operation.APPEND, **{"our.watermark": str(DAY_US // 1000 + 12 * 3_600_000 - 1)})
    assert found(tmp_path / "early", **named).complete is False
    says(events, Operation.APPEND, **{"our.watermark": str(DAY_US // 1000 + 12 * 3_600_000)})
    assert found(tmp_path / "late", **named).complete is True
    says(events, Operation.APPEND, **{"our.watermark": "2026-03-01T12:00Z"})
    check = found(tmp_path / "wrong", **named)
    assert check.complete is None
    assert "is '2026-03-01T12:00Z', which is not a number of ms" in check.unknown[0]


def test_watermarks_that_have_expired_are_unknown(lake: Catalog, tmp_path: Path) -> None:
    events = table(lake)
    hour(events, *range(5, 14))
    says(events, Operation.APPEND, **{"our.watermark": "2026-03-01T12:00Z"})
    says(events, Operation.REPLACE)
    kept = events.refresh().current_snapshot()
    expired = [s.snapshot_id for s in events.snapshots() if s != kept]
    events.maintenance.expire_snapshots().by_ids(expired).commit()
    check = found(tmp_path, watermark={"property": "our.watermark"})
    assert check.complete is None
    assert check.unknown[0].startswith("none of the last 1 snapshots, the only ones that have")


def test_no_plan_is_made_of_rows_that_are_waited_for(
    lake: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each snapshot is read once, however often it is looked at."""
    events = table(lake)
    hour(events, *range(5, 10))
    workspace, wanted = Workspace(str(tmp_path / "w")), spec(source("events"))

    def planned() -> PlanHeader:
        return make_plan(wanted, workspace, parallelism=1, awaits_input=True)

    with pytest.raises(InputAwaited, match=r"lake\.raw\.events: the newest row arrived at"):
        planned()
    assert not list((tmp_path / "w").rglob("plan.json"))
    with monkeypatch.context() as patched:
        patched.setattr("backfill.planning.planner.read_sources", None)
        with pytest.raises(InputAwaited, match="the newest row arrived at"):
            planned()
    hour(events, 10, 11, 12)
    assert planned().sources[0].input.complete is True


def test_rows_that_have_yet_to_arrive_are_waited_for(lake: Catalog, tmp_path: Path) -> None:
    events = table(lake)
    hour(events, *range(5, 12))
    workspace, wanted = Workspace(str(tmp_path / "w")), spec(source("events"))

    def planned_at(now: str) -> PlanHeader:
        moment = datetime.fromisoformat(now)
        return make_plan(wanted, workspace, parallelism=1, awaits_input=True, clock=lambda: moment)

    with pytest.raises(InputAwaited, match="the input range ends at 2026-03-01T12:00:00Z"):
        planned_at("2026-03-01T11:59:59Z")
    with pytest.raises(InputAwaited, match="none at or after the end of the input range"):
        planned_at("2026-03-01T12:00:00Z")
    hour(events, 12, minutes=1)
    assert planned_at("2026-03-01T12:01:00Z").steps > 0


def test_a_range_without_any_row_is_waited_for(lake: Catalog, tmp_path: Path) -> None:
    """Unless the table has gone on without them."""
    events = table(lake)
    hour(events, 4)
    workspace, wanted = Workspace(str(tmp_path / "w")), spec(source("events"))

    def planned(*, awaits_input: bool) -> PlanHeader:
        return make_plan(wanted, workspace, parallelism=1, awaits_input=awaits_input)

    with pytest.raises(InputAwaited, match="no rows in the input range; no rows arrived later"):
        planned(awaits_input=True)
    with pytest.raises(InvalidPlanInput, match="check window, filter") as over:
        planned(awaits_input=False)
    assert not isinstance(over.value, InputAwaited)
    hour(events, 13)
    with pytest.raises(InvalidPlanInput, match="check window, filter") as gone_on:
        planned(awaits_input=True)
    assert not isinstance(gone_on.value, InputAwaited)


KAFKA = {"partitionColumn": "kafka_partition", "offsetColumn": "kafka_offset"}
RECORDS = pa.schema(
    [
        ("ts", pa.timestamp("us", "UTC")),
        ("kafka_partition", pa.int32()),
        ("kafka_offset", pa.int64()),
    ]
)


def record(records: Table, first: int, last: int, hour_: float, partition: int = 0) -> None:
    """Appends a file of one Kafka partition, with rows of one hour of the day."""
    count = last - first + 1
    start = DAY_US + int(hour_ * HOUR_US)
    moments = np.linspace(start, start + HOUR_US - 1, count).astype(np.int64)
    columns = [
        pa.array(moments, RECORDS.field("ts").type),
        pa.array([partition] * count, pa.int32()),
        pa.array(range(first, last + 1), pa.int64()),
    ]
    records.append(pa.table(columns, schema=RECORDS))


def test_offsets_show_a_lost_hour_that_times_do_not(lake: Catalog, tmp_path: Path) -> None:
    records = lake.create_table("raw.events", RECORDS)
    for number, hour_ in enumerate((5, 6, 7, 9, 10, 11, 12)):
        record(records, 1000 * number, 1000 * number + 999, hour_)
    assert found(tmp_path / "by time").complete is True
    assert found(tmp_path / "by offsets", kafka=KAFKA).complete is True
    record(records, 8000, 8999, 11.5)
    check = found(tmp_path / "lost", kafka=KAFKA)
    assert check.complete is False
    assert check.missing[-1] == "Kafka partition 0 lacks 1,000 offsets: 7000 to 7999"
    record(records, 7000, 7999, 40)  # they are there, and arrived on the next day by their time
    assert found(tmp_path / "late", kafka=KAFKA).complete is True


@pytest.mark.parametrize("layout", ["unpartitioned", "by hour"])
def test_offsets_show_what_one_partition_lacks_up_to_an_edge_or_everywhere(
    lake: Catalog, tmp_path: Path, layout: str
) -> None:
    records = lake.create_table("raw.events", RECORDS)
    if layout == "by hour":
        with records.update_spec() as change:
            change.add_field("ts", HourTransform(), "hour")
    lost = {0: range(5, 8), 1: range(10, 13), 2: range(5, 13)}
    for partition, missing in lost.items():
        for hour_ in set(range(4, 14)) - set(missing):
            record(records, 100 * hour_, 100 * hour_ + 99, hour_, partition)
    check = found(tmp_path, kafka=KAFKA)
    assert check.complete is False
    assert check.missing == (
        "Kafka partition 0 lacks 300 offsets: 500 to 799",
        "Kafka partition 1 lacks 300 offsets: 1000 to 1299",
        "Kafka partition 2 lacks 800 offsets: 500 to 1299",
    )
    for partition, hours in lost.items():
        for hour_ in hours:
            record(records, 100 * hour_, 100 * hour_ + 99, hour_, partition)
    assert found(tmp_path / "whole", kafka=KAFKA).complete is True


def test_rows_that_ingestion_wrote_twice_are_told(lake: Catalog, tmp_path: Path) -> None:
    records = lake.create_table("raw.events", RECORDS)
    for number, hour_ in enumerate((5, 6, 7, 8, 8, 9, 10, 11, 12)):
        start = 1000 * (number - (number > 3))
        record(records, start, start + 999, hour_)
    check = found(tmp_path, kafka=KAFKA)
    assert check.complete is True
    assert check.notes == ("at least 1,000 rows have the same Kafka offset as another row",)


def at(events: Table, *moments: int | None) -> None:
    """Appends a file with rows of these moments."""
    ts = pa.array(moments, pa.timestamp("us", "UTC"))
    events.append(pa.table({"ts": ts, "region": ["eu"] * len(ts)}))


def live(workspace: Path, *names: str, start: str = "2026-03-01T06:00:00Z") -> PlanHeader:
    """A plan of everything that the tables have since six o'clock, or another time."""
    window = {"start": start, "end": "Live"}
    return plan(workspace, *(source(name) for name in names or ("events",)), window=window).header


def test_a_live_end_is_right_after_the_newest_row_of_all_sources(
    lake: Catalog, tmp_path: Path
) -> None:
    hour(table(lake), *range(5, 10))
    hour(lake.create_table("raw.clicks", SCHEMA), 6, 7)
    inputs = live(tmp_path, "events", "clicks").inputs
    newest = DAY_US + 10 * HOUR_US - 6_000_000
    assert (inputs.live, inputs.end_us, inputs.read_end_us) == (True, newest + 1, newest + 1)


def test_no_source_is_incomplete_because_it_ends_before_live_traffic(
    lake: Catalog, tmp_path: Path
) -> None:
    hour(table(lake), *range(0, 12))
    hour(lake.create_table("raw.clicks", SCHEMA), *range(0, 8))
    header = live(tmp_path, "events", "clicks")
    checks = [totals.input for totals in header.sources]
    assert [(check.complete, check.behind) for check in checks] == [(True, False)] * 2
    assert "(2026-03-01T07:59:54Z), where live traffic continues" in checks[1].known_from


def test_few_rows_before_live_traffic_are_all_there_are(lake: Catalog, tmp_path: Path) -> None:
    hour(table(lake), 6, minutes=5)
    check = live(tmp_path).sources[0].input
    assert (check.complete, check.reached, check.unknown) == (True, True, ())


def test_rows_that_are_missing_before_live_traffic_are_seen(lake: Catalog, tmp_path: Path) -> None:
    records = lake.create_table("raw.events", RECORDS)
    for hour_ in (6, 7, 10, 11):
        record(records, 1000 * hour_, 1000 * hour_ + 999, hour_)
    window = {"start": "2026-03-01T06:00:00Z", "end": "Live"}
    check = plan(tmp_path, source("events", kafka=KAFKA), window=window).header.sources[0].input
    assert check.complete is False
    assert check.missing == ("Kafka partition 0 lacks 2,000 offsets: 8000 to 9999",)


def test_a_live_end_is_another_plan_once_the_table_has_grown(lake: Catalog, tmp_path: Path) -> None:
    events = table(lake)
    hour(events, 6, 7)
    first = live(tmp_path)
    assert live(tmp_path) == first, "the same snapshot gives the same plan"
    hour(events, 8)
    assert live(tmp_path).plan_id != first.plan_id


def test_a_live_window_without_rows_is_refused(lake: Catalog, tmp_path: Path) -> None:
    hour(table(lake), 6)
    with pytest.raises(InvalidPlanInput, match="no rows with ts from 2026-03-01T09:00:00Z on"):
        live(tmp_path, start="2026-03-01T09:00:00Z")


def test_a_row_of_2099_does_not_move_the_live_end(lake: Catalog, tmp_path: Path) -> None:
    events = table(lake)
    hour(events, *range(5, 10))
    newest = DAY_US + 10 * HOUR_US - 6_000_000
    more: list[list[int | None]] = [[newest + 1, FAR_US], [FAR_US + 1], [newest - 5, None, FAR_US]]
    for each in more:
        at(events, *each)
    planned = plan(
        tmp_path, source("events"), window={"start": "2026-03-01T06:00:00Z", "end": "Live"}
    )
    assert planned.header.inputs.end_us == newest + 2
    (totals,) = planned.header.sources
    assert totals.input.complete is True
    assert moments_read(planned.splits, "ts")[-2:] == [newest, newest + 1]
    (warning,) = (each for each in planned.header.warnings if "window.end" in each)
    assert "leaves out 3 rows with ts up to 2099-01-01T00:00:00.000001Z" in warning


def test_rows_of_clocks_that_are_a_little_ahead_are_before_the_live_end(
    lake: Catalog, tmp_path: Path
) -> None:
    ahead = int(time.time() * 1_000_000) + HOUR_US
    events = table(lake)
    hour(events, 6)
    at(events, ahead)
    header = live(tmp_path)
    assert header.inputs.end_us == ahead + 1
    assert header.warnings == ()


def test_a_table_with_rows_of_2099_alone_has_none_before_the_live_end(
    lake: Catalog, tmp_path: Path
) -> None:
    events = table(lake)
    at(events, FAR_US)
    with pytest.raises(InvalidPlanInput, match="no rows with ts"):
        live(tmp_path)
