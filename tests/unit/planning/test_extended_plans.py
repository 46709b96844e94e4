"""A plan goes on with rows that its tables have got since, and only if they come after its own."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from planned import DAY_US, source, spec
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.types import StringType

from backfill.api.errors import NotExtended
from backfill.api.spec import BackfillSpec
from backfill.planning.plan import (
    PlanHeader,
    PlanSplits,
    plan_directory,
    read_splits,
    read_splits_of_steps,
    step_bounds,
)
from backfill.planning.plan_extension import extend_plan
from backfill.planning.planner import make_plan, release_snapshots, verify_files
from backfill.planning.recorded_offsets import offsets_file, starts_file, write_offsets
from backfill.planning.rows.pinned_table import load_source_table
from backfill.planning.workspace import Workspace
from backfill.runtime.source.split_reading import read_split
from compacting import compact

ROWS = pa.schema(
    [
        ("ts", pa.timestamp("us", "UTC")),
        ("part", pa.int32()),
        ("at", pa.int64()),
    ]
)
MINUTE_US = 60_000_000


class Raw:
    """``lake.raw.events`` with a row a minute, in two Kafka partitions, and the plan that reads the
    first hours.
    """

    def __init__(
        self,
        lake: Catalog,
        place: Path,
        *,
        ordering: dict[str, str] | None = None,
        drop_duplicates: bool = False,
        **fields: Any,
    ):
        lake.create_namespace_if_not_exists("raw")
        self.table: Table = lake.create_table("raw.events", schema=ROWS)
        self.append(range(360, 720))
        self.place, self.kept = Workspace(str(place / "plan")), Workspace(str(place / "kept"))
        kafka = {"partitionColumn": "part", "offsetColumn": "at", "dropDuplicates": drop_duplicates}
        self.spec: BackfillSpec = spec(
            source("events", kafka=kafka, live={"kafka": {"topic": "events"}}, **fields),
            window={"start": "2026-03-01T06:00:00Z", "end": "Live"},
            ordering=ordering or {"policy": "WithinLateness", "allowedLateness": "10m"},
            handOff={"to": "Live"},
            maxMisalignment="2h",
        )
        self.header = make_plan(self.spec, self.place, parallelism=1)
        self.record_offsets(self.header)

    def record_offsets(self, header: PlanHeader, after: int = 720) -> None:
        name = offsets_file(header.inputs.own_id(), "events")
        write_offsets(self.kept, name, {0: after, 1: after})

    def append(
        self, minutes: Sequence[int], *, late: int = 0, offset: int = 0, step: int = 1
    ) -> None:
        rows = {
            "ts": [DAY_US + (minute - late) * MINUTE_US for minute in minutes],
            "part": [minute % 2 for minute in minutes],
            "at": [minute // step + offset for minute in minutes],
        }
        self.table.append(pa.table(rows, schema=ROWS))

    def extend(self, header: PlanHeader | None = None) -> PlanHeader:
        before = header or self.header
        return extend_plan(
            self.spec,
            before,
            self.place,
            self.kept,
            owner="streaming/january",
            on_progress=lambda _: None,
        )

    def offsets_read(self, header: PlanHeader) -> list[int]:
        directory = plan_directory(self.place, header.inputs.own_id())
        table = load_source_table(header.inputs.sources[0])
        splits = read_splits_of_steps(directory, range(header.steps), "events")
        batches = (batch for split in splits for batch in read_split(table, split, ROWS))
        return sorted(row["at"] for batch in batches for row in batch.to_pylist())

    def compact(self) -> None:
        compact(self.table)


@pytest.fixture
def raw(lake: Catalog, tmp_path: Path) -> Raw:
    return Raw(lake, tmp_path)


def test_an_extended_plan_goes_on_after_the_steps_of_the_first(raw: Raw) -> None:
    first = raw.header
    raw.append(range(720, 780))
    raw.compact()
    raw.append(range(780, 840))

    second = raw.extend()

    assert second.plan_id == first.plan_id == second.inputs.plan_id()
    assert second.inputs.own_id() != first.plan_id
    assert second.inputs.extends == first.inputs
    assert second.step_starts_us[: first.steps] == first.step_starts_us
    assert second.step_ends_us[: first.steps] == first.step_ends_us
    assert list(second.step_starts_us) == sorted(set(second.step_starts_us))
    assert (first.rows, second.rows) == (360, 480), "what was compacted is not read again"
    assert second.inputs.end_us == DAY_US + 839 * MINUTE_US + 1
    old, new = (plan_directory(raw.place, each.inputs.own_id()) for each in (first, second))
    for step in range(first.steps):
        assert read_splits(new, step, "events") == read_splits(old, step, "events")
    bounds = step_bounds(PlanSplits(new), "events")
    assert (min(bounds), max(bounds)) == (0, second.steps - 1)
    verify_files(second, raw.place)
    assert raw.extend() == second, "the same tables give the same plan"

    raw.record_offsets(second, 840)
    raw.append(range(840, 870))
    third = raw.extend(second)

    assert third.plan_id == first.plan_id
    assert third.rows == 510
    assert third.step_starts_us[: second.steps] == second.step_starts_us


@pytest.mark.parametrize("policy", ["Exact", "WithinLateness", "Strict"])
def test_every_row_is_read_once_in_whatever_manifests_and_files_it_is(
    lake: Catalog, tmp_path: Path, policy: str
) -> None:
    lateness = {} if policy == "Exact" else {"allowedLateness": "10m"}
    raw = Raw(lake, tmp_path, ordering={"policy": policy, **lateness})
    with raw.table.transaction() as change:
        merged = "commit.manifest.min-count-to-merge"
        change.set_properties({"commit.manifest-merge.enabled": "true", merged: "2"})
    for start in range(720, 900, 30):
        raw.append(range(start, start + 30))
    manifests = raw.table.refresh().inspect.manifests()
    assert manifests.num_rows == 1, "what was there before is in the manifest with what was added"
    raw.compact()
    raw.append(range(900, 930))
    second = raw.extend()
    assert raw.offsets_read(second) == list(range(360, 930))

    raw.record_offsets(second, 930)
    raw.compact()
    raw.append(range(930, 960), late=0 if policy == "Exact" else 5)
    raw.append([])
    third = raw.extend(second)
    assert raw.offsets_read(third) == list(range(360, 960))
    assert third.rows == 600


def test_late_rows_are_in_the_first_step_of_an_extension(raw: Raw) -> None:
    raw.append(range(720, 900), late=9)

    header = raw.extend()

    assert header.rows == 540
    assert header.step_starts_us[raw.header.steps] >= raw.header.step_ends_us[-1]
    assert 0 < header.proof.greatest_disorder_us <= 10 * MINUTE_US


def test_a_plan_is_not_extended_by_rows_between_which_offsets_are_missing(raw: Raw) -> None:
    for hour in (720, 780):  # files of one Kafka partition
        for part in range(2):
            raw.append(range(hour + part, hour + 60, 2), step=2, offset=360)
    raw.extend()
    for part in range(2):
        raw.append(range(1_000 + part, 1_060, 2), step=2, offset=360)
    with pytest.raises(NotExtended, match="Kafka partition 0 lacks 80 offsets: 780 to 859"):
        raw.extend()


def test_offsets_may_be_missing_in_files_of_several_kafka_partitions(raw: Raw) -> None:
    raw.append(range(720, 780), step=2, offset=360)
    raw.append(range(842, 900), step=2, offset=360)
    with pytest.raises(NotExtended, match="Kafka partition 0 lacks 31 offsets: 750 to 780"):
        raw.extend()
    raw.append(range(780, 840), step=2, offset=360)  # and not 780, as where a transaction ends
    assert raw.extend().rows == 360 + 178


@pytest.mark.parametrize(
    ("after", "starts", "partition"),
    [
        ({0: 720, 1: 750}, {}, 0),
        ({0: 750}, {1: 720}, 1),
        ({0: 750}, {}, 1),
    ],
    ids=["with rows", "without rows", "new"],
)
def test_a_plan_is_not_extended_by_rows_that_do_not_follow_at_once(
    raw: Raw, after: dict[int, int], starts: dict[int, int], partition: int
) -> None:
    raw.append(range(780, 840), step=2, offset=360)  # a file with offsets 750 to 779 of both
    write_offsets(raw.kept, offsets_file(raw.header.inputs.own_id(), "events"), after)
    write_offsets(raw.kept, starts_file(raw.header.plan_id, "events"), starts)
    missing = f"partition {partition} lacks [0-9]+ offsets: (720|0) to 749"
    with pytest.raises(NotExtended, match=missing):
        raw.extend()
    raw.append(range(720, 780), step=2, offset=360)  # by another writer, later
    raw.record_offsets(raw.header)
    assert raw.extend().rows == 480


def test_a_plan_is_not_extended_by_rows_that_were_appended_twice(
    lake: Catalog, tmp_path: Path
) -> None:
    raw = Raw(lake, tmp_path)
    raw.append(range(720, 780))
    raw.append(range(750, 810))
    with pytest.raises(NotExtended, match="twice, such as the one with offset 750 of Kafka part"):
        raw.extend()


def test_rows_that_were_appended_twice_are_left_out_where_the_source_says_so(
    lake: Catalog, tmp_path: Path
) -> None:
    raw = Raw(lake, tmp_path, drop_duplicates=True)
    raw.append(range(720, 780))
    raw.append(range(750, 810))
    assert raw.offsets_read(raw.extend()) == list(range(360, 810))


@pytest.mark.parametrize(
    "minutes",
    [range(721, 780), range(726, 800, 8)],
    ids=["by transactions", "in a compacted topic"],
)
def test_offsets_that_are_left_out_everywhere_are_not_missing(raw: Raw, minutes: range) -> None:
    raw.append(minutes)
    assert raw.extend().rows == 360 + len(minutes)


def test_a_plan_is_not_extended_by_rows_without_a_timestamp(raw: Raw) -> None:
    raw.append(range(720, 780))
    raw.table.append(pa.table({"ts": [None], "part": [0], "at": [780]}, schema=ROWS))
    with pytest.raises(NotExtended, match="1 row without ts appended to"):
        raw.extend()


def test_nothing_new_extends_nothing(raw: Raw) -> None:
    with pytest.raises(NotExtended, match="no newer snapshots"):
        raw.extend()
    raw.compact()
    with pytest.raises(NotExtended, match="no newer snapshots"):
        raw.extend()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            lambda raw: raw.append(range(720, 900), late=30),
            "29m before rows that were already read, but ordering allows only 10m",
        ),
        (lambda raw: raw.append(range(720, 900), offset=-1), "a row with offset 719 of Kafka"),
        (lambda raw: raw.table.delete("part = 1"), "by the operation overwrite"),
        (lambda raw: raw.table.overwrite(raw.table.scan().to_arrow()), "by the operation delete"),
        (
            lambda raw: raw.table.update_schema().add_column("more", StringType()).commit(),
            "the schema of lake.raw.events has changed",
        ),
        (
            lambda raw: (
                raw.append(range(720, 780)),
                raw.append(range(780, 800)),
                raw.table.maintenance.expire_snapshots()
                .by_id(raw.table.history()[1].snapshot_id)
                .commit(),
            ),
            "have expired",
        ),
        (
            lambda raw: raw.append(range(100, 200), offset=1_000),
            "no newer rows",
        ),
    ],
    ids=["late", "again", "deleted", "overwritten", "schema", "expired", "before the window"],
)
def test_a_plan_is_not_extended_by_rows_that_cannot_follow(raw: Raw, change: Any, why: str) -> None:
    change(raw)
    raw.table.refresh()
    with pytest.raises(NotExtended, match=why):
        raw.extend()


def test_files_that_are_compacted_later_are_held(lake: Catalog, tmp_path: Path) -> None:
    raw = Raw(lake, tmp_path, snapshot={"protect": True})
    raw.append(range(720, 780))
    raw.append(range(780, 800))
    appended = raw.table.current_snapshot()
    raw.compact()
    raw.append(range(800, 820))
    newest = raw.table.current_snapshot()

    raw.extend()

    assert appended and newest
    held = {ref.snapshot_id for name, ref in raw.table.refresh().refs().items() if name != "main"}
    assert held == {appended.snapshot_id, newest.snapshot_id}
    release_snapshots([raw.spec.sources[0].table], "streaming/january")
    assert list(raw.table.refresh().refs()) == ["main"]


def test_a_snapshot_that_has_compacted_is_held_while_attempts_look_for_it(
    lake: Catalog, tmp_path: Path
) -> None:
    raw = Raw(lake, tmp_path, snapshot={"protect": True})
    raw.append(range(720, 780))
    raw.compact()

    header = raw.extend()

    held = {ref.snapshot_id for name, ref in raw.table.refresh().refs().items() if name != "main"}
    assert header.inputs.sources[0].snapshot_id in held
    assert len(held) == 2, "and the one with the file that is read"
