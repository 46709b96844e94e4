"""A plan whose files are damaged after they were written is never followed."""

import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from planned import DAY_US, hourly, source, spec
from pyiceberg.catalog import Catalog

from backfill.api.errors import BackfillError, PlanCorrupt
from backfill.planning.plan import (
    HEADER_FILE,
    SPLITS_FILE,
    PlanHeader,
    PlanSplits,
    plan_directory,
    read_header,
    read_splits,
)
from backfill.planning.planner import make_plan, verify_files
from backfill.planning.recorded_offsets import read_offsets, write_offsets
from backfill.planning.workspace import Workspace

FLIPS = 500
"""Bits of a file that are flipped, one at a time, or all if there are fewer."""


def with_one_bit_flipped(path: Path) -> Iterator[None]:
    """The file with a bit flipped, each time another one, and at the end as it was."""
    content = path.read_bytes()
    bits = range(8 * len(content))
    for bit in random.Random(34).sample(bits, min(FLIPS, len(bits))):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        yield
    path.write_bytes(content)


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    return Workspace(str(tmp_path / "w"))


@pytest.fixture
def header(lake: Catalog, place: Workspace) -> PlanHeader:
    """Of a plan that reads three files in several steps."""
    rows = pa.table({"ts": pa.array(hourly(), pa.timestamp("us", "UTC"))})
    table = lake.create_table("raw.events", schema=rows.schema)
    for hour in (6, 8, 10):
        table.append(rows.slice(hour * 6, 6))
    return make_plan(spec(source("events")), place, parallelism=1)


@pytest.mark.parametrize("name", [HEADER_FILE, SPLITS_FILE])
def test_no_flipped_bit_of_a_plan_loses_rows_or_reads_others(
    header: PlanHeader, place: Workspace, name: str
) -> None:
    directory = plan_directory(place, header.inputs.own_id())
    assert read_splits(directory, 0, "events")
    for _ in with_one_bit_flipped(Path(directory.uri, name)):
        with pytest.raises(PlanCorrupt, match=f"{name} cannot be used: .*; restore the file"):
            read_splits(directory, 0, "events")
    assert read_splits(directory, 0, "events")


@pytest.mark.parametrize("content", [None, b""], ids=["missing", "empty"])
def test_a_damaged_plan_is_found_before_a_driver_starts(
    header: PlanHeader, place: Workspace, content: bytes | None
) -> None:
    path = Path(plan_directory(place, header.inputs.own_id()).uri, SPLITS_FILE)
    verify_files(header, place)
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(PlanCorrupt, match=f"{path} cannot be used"):
        verify_files(header, place)


def test_the_splits_of_another_plan_are_not_taken_for_those_of_this_one(
    header: PlanHeader, place: Workspace
) -> None:
    narrow = {"start": "2026-03-01T06:00:00Z", "end": "2026-03-01T08:00:00Z"}
    other = make_plan(spec(source("events"), window=narrow), place, parallelism=1)
    mine, others = (plan_directory(place, each.inputs.own_id()) for each in (header, other))
    mine.write(SPLITS_FILE, others.read(SPLITS_FILE))
    with pytest.raises(PlanCorrupt, match="its content is not what was planned"):
        PlanSplits(mine, header)
    assert read_header(mine) == header


def test_no_flipped_bit_of_recorded_offsets_changes_where_live_traffic_goes_on(
    tmp_path: Path,
) -> None:
    kept = Workspace(str(tmp_path))
    write_offsets(kept, "offsets.json", {0: 720, 1: DAY_US})
    written = read_offsets(kept, "offsets.json")
    for _ in with_one_bit_flipped(tmp_path / "offsets.json"):
        with pytest.raises((ValueError, BackfillError), match="differs from what was written"):
            read_offsets(kept, "offsets.json")
    assert read_offsets(kept, "offsets.json") == written
