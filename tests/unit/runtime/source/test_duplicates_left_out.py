"""Rows that ingestion has written twice, by their Kafka partition and offset, are read once."""

import threading
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from planned_rows import rows_of_plan, rows_of_run
from pydantic import ValidationError
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from backfill.api.errors import InvalidPlanInput
from backfill.api.source import KafkaColumns
from backfill.api.spec import BackfillSpec
from backfill.planning import duplicate_records
from backfill.planning.duplicate_records import SeenOffsets
from backfill.planning.plan import PlanHeader, plan_directory, read_splits_of_steps
from backfill.planning.planner import make_plan
from backfill.planning.workspace import Workspace

START = datetime(2021, 7, 11, tzinfo=UTC)
RECORDS = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("ts", pa.timestamp("us", tz="UTC")),
    ]
)
Record = tuple[str, int | None, int | None, float]
"""Topic, partition, offset, and the minute in which it was written to the table."""


def written(lake: Catalog, *files: list[Record]) -> Table:
    """A table with these files."""
    table = lake.create_table("raw.events", RECORDS)
    for records in files:
        topics, partitions, offsets, minutes = zip(*records, strict=True)
        times = [START + timedelta(minutes=minute) for minute in minutes]
        columns = (topics, partitions, offsets, times)
        arrays = [pa.array(each, kind.type) for each, kind in zip(columns, RECORDS, strict=True)]
        table.append(pa.table(arrays, schema=RECORDS))
    return table


def planned(
    workspace: Workspace, policy: str = "WithinLateness", *, drop: bool = True, **source: Any
) -> PlanHeader:
    """The plan of an hour, in steps of at most five minutes."""
    kafka = {"partitionColumn": "partition", "offsetColumn": "offset", "dropDuplicates": drop}
    described = {"name": "events", "table": "lake.raw.events", "timestampColumn": "ts"}
    spec = {
        "applicationRef": {"name": "app"},
        "window": {"start": START, "end": START + timedelta(hours=1)},
        "sources": [{**described, "kafka": kafka, **source}],
        "ordering": {"policy": policy, "allowedLateness": "1h" if policy == "Strict" else "0s"},
        "maxMisalignment": "10m",
    }
    return make_plan(BackfillSpec.model_validate(spec), workspace, parallelism=2)


def records_of(header: PlanHeader, workspace: Workspace) -> list[tuple[Any, ...]]:
    """Partition, offset and minute of every row that is read, the same by steps and by a run."""
    rows = [row.values for row in rows_of_plan(header, workspace)]
    run = rows_of_run(header, workspace, "events", range(header.steps), 2**40)
    found, by_run = (
        [(row["partition"], row["offset"], _minute(row["ts"])) for row in each]
        for each in (rows, run)
    )
    assert Counter(found) == Counter(by_run)
    return found


def _minute(moment_us: int) -> float:
    return (moment_us / 1e6 - START.timestamp()) / 60


def batch(partition: int, first: int, count: int, minute: float) -> list[Record]:
    return [("a", partition, first + place, minute) for place in range(count)]


@pytest.mark.parametrize("policy", ["Exact", "WithinLateness", "Unordered", "Strict"])
def test_of_records_that_were_written_twice_the_one_that_is_read_first_is_read(
    lake: Catalog, tmp_path: Path, policy: str
) -> None:
    written(
        lake,
        batch(0, 0, 10, 1) + batch(1, 0, 5, 1),
        batch(0, 5, 10, 20),  # its first half again, in a later step
        batch(0, 20, 5, 30) + batch(0, 22, 5, 30),  # also within a file, as compaction leaves it
        batch(1, 5, 5, 40) + batch(0, 26, 2, 59),
    )
    workspace = Workspace(str(tmp_path))
    header = planned(workspace, policy)
    wanted = [(0, offset, 1) for offset in range(10)] + [(1, offset, 1) for offset in range(5)]
    wanted += [(0, offset, 20) for offset in range(10, 15)]
    wanted += [(0, offset, 30) for offset in range(20, 27)] + [(0, 27, 59)]
    wanted += [(1, offset, 40) for offset in range(5, 10)]
    found = records_of(header, workspace)
    if policy == "Strict":  # both are in the later step, and which comes first is by their paths
        assert Counter(row[:2] for row in found) == Counter(row[:2] for row in wanted)
    else:
        assert Counter(found) == Counter(wanted)
    (note,) = (each for each in header.sources[0].input.notes if "dropDuplicates" in each)
    assert note == (
        "9 of 42 rows have the same Kafka offset as another row and are left out (dropDuplicates)"
    )


def test_rows_held_have_a_bound_where_slices_have_more_than_is_estimated(
    lake: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once, group = 20_000, 1_000
    monkeypatch.setattr(duplicate_records, "_ROWS_AT_ONCE", at_once)
    rows = 60 * group
    # by their bounds, row groups are spread over the hour; nearly all rows are of its last minute
    minutes = [0.0 if number % group == 0 else 59.0 for number in range(rows)]
    table = lake.create_table(
        "raw.events", RECORDS, properties={"write.parquet.row-group-limit": str(group)}
    )
    records = [("a", 0, number, minute) for number, minute in enumerate(minutes)]
    times = [START + timedelta(minutes=minute) for *_, minute in records]
    columns = (*list(zip(*records, strict=True))[:3], times)
    arrays = [pa.array(each, kind.type) for each, kind in zip(columns, RECORDS, strict=True)]
    table.append(pa.table(arrays, schema=RECORDS))
    read, first = duplicate_records._rows, SeenOffsets.first
    held = most = found = 0
    lock = threading.Lock()

    def counted(*arguments: Any) -> Iterator[Any]:
        nonlocal held, most
        for each in read(*arguments):
            with lock:
                held += len(each.positions)
                most = max(most, held)
            yield each

    def compared(self: SeenOffsets, partitions: Any, offsets: Any) -> Any:
        nonlocal held, found
        with lock:
            held -= len(offsets)
            found += len(offsets)
        return first(self, partitions, offsets)

    monkeypatch.setattr(duplicate_records, "_rows", counted)
    monkeypatch.setattr(SeenOffsets, "first", compared)
    planned(Workspace(str(tmp_path)))
    assert (found, held) == (rows, 0)
    assert group < most <= at_once + 16 * group


def test_a_plan_that_is_made_again_leaves_out_the_same_rows(lake: Catalog, tmp_path: Path) -> None:
    written(lake, batch(0, 0, 50, 1), batch(0, 0, 50, 1), batch(0, 25, 50, 9))
    splits = []
    for name in "ab":
        workspace = Workspace(str(tmp_path / name))
        header = planned(workspace)
        directory = plan_directory(workspace, header.plan_id)
        splits.append(read_splits_of_steps(directory, range(header.steps), "events"))
    assert splits[0] == splits[1]
    assert [len(split.duplicates) for split in splits[0]] == [0, 1, 1]


def test_offsets_that_files_of_several_partitions_lack_are_found(
    lake: Catalog, tmp_path: Path
) -> None:
    """Not those of compacted topics, which leave out many, nor markers of transactions."""
    compacted: list[Record] = [("a", 2, 10 * offset, 1) for offset in range(8)]
    written(
        lake,
        batch(0, 90_000, 10, 1) + batch(1, 0, 5, 1) + compacted,
        batch(0, 90_015, 10, 20) + batch(1, 7, 5, 20) + batch(0, 200_000, 1, 59),
    )
    workspace = Workspace(str(tmp_path))
    check = planned(workspace).sources[0].input
    (note,) = (each for each in check.notes if "lacks" in each)
    assert note == (
        "in the rows of the input, Kafka partition 0 lacks 109,980 offsets: 90010 to 90014, 90025"
        " to 199999; these rows are missing from the table, were deleted, or arrived outside the"
        " input range"
    )
    filtered = planned(workspace, filter="topic == 'a'").sources[0].input
    assert not any("lacks" in each for each in filtered.notes)


def test_without_the_wish_every_row_is_read_and_the_plan_is_what_it_was(
    lake: Catalog, tmp_path: Path
) -> None:
    written(lake, batch(0, 0, 5, 1), batch(0, 0, 5, 2))
    workspace = Workspace(str(tmp_path))
    header = planned(workspace, drop=False)
    assert len(records_of(header, workspace)) == 10
    assert "dropDuplicates" not in header.to_json().decode()
    assert header.sources[0].input.notes == (
        "at least 5 rows have the same Kafka offset as another row",
    )


def test_rows_that_are_not_read_are_no_duplicates(lake: Catalog, tmp_path: Path) -> None:
    """Rows of another topic with the same offsets, and those from before and after the window."""
    other: list[Record] = [("b", 0, offset, 0.5) for offset in range(10)]
    written(lake, batch(0, 0, 3, -5), other + batch(0, 0, 10, 1), batch(0, 5, 3, 61))
    workspace = Workspace(str(tmp_path))
    header = planned(workspace, filter="topic == 'a'")
    assert sorted(records_of(header, workspace)) == [(0, offset, 1) for offset in range(10)]
    assert not any("dropDuplicates" in note for note in header.sources[0].input.notes)


def test_rows_without_an_offset_are_read(lake: Catalog, tmp_path: Path) -> None:
    written(lake, [("a", None, 1, 1), ("a", None, 1, 1), ("a", 1, None, 1), *batch(1, 1, 1, 1)])
    workspace = Workspace(str(tmp_path))
    header = planned(workspace)
    assert len(records_of(header, workspace)) == 4
    assert header.sources[0].input.notes[-1] == (
        "3 rows without a Kafka partition or offset are read, whether or not they are duplicates"
    )


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("MOST_CHUNKS", "column offset are too far apart to find duplicates"),
        ("MOST_RANGES", "has duplicates in more than 1 places"),
    ],
)
def test_more_than_planning_can_remember_is_refused_with_what_to_do(
    lake: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, words: str
) -> None:
    monkeypatch.setattr(duplicate_records, limit, 1)
    apart: list[Record] = [("a", 0, offset * 10**9, 1) for offset in (1, 2, 2, 3, 3)]
    written(lake, apart)
    with pytest.raises(InvalidPlanInput, match="dropDuplicates") as refused:
        planned(Workspace(str(tmp_path)))
    assert words in str(refused.value)
    assert "the table itself" in str(refused.value)


def test_columns_to_compare_are_asked_for() -> None:
    with pytest.raises(ValidationError, match="set partitionColumn and offsetColumn"):
        KafkaColumns(drop_duplicates=True, partition_column="partition")


@given(
    st.lists(
        st.lists(
            st.tuples(
                st.sampled_from([0, 1, 7]),
                st.one_of(st.integers(0, 9), st.integers(65_530, 65_545), st.just(2**62)),
            ),
            max_size=20,
        )
    )
)
def test_a_row_is_the_first_with_its_offset_once(batches: list[list[tuple[int, int]]]) -> None:
    seen, known = SeenOffsets(), set()
    for rows in batches:
        partitions, offsets = (np.array([row[each] for row in rows], np.int64) for each in (0, 1))
        wanted = []
        for row in rows:
            wanted.append(row not in known)
            known.add(row)
        assert seen.first(partitions, offsets).tolist() == wanted
    for partition in (0, 1, 7):
        offsets_seen = sorted(offset for of, offset in known if of == partition)
        between = pairwise([-1, *offsets_seen])
        gaps = [[before + 1, after] for before, after in between if after - before > 3]
        assert list(seen.gaps(partition, start=0, most=2)) == gaps


def test_offsets_without_gaps_take_no_memory() -> None:
    seen = SeenOffsets()
    for first in range(0, 10 * 65_536, 4_096):
        offsets = np.arange(first, first + 4_096)
        assert seen.first(np.zeros(4_096, np.int64), offsets).all()
        assert seen.partial <= 1
    assert seen.partial == 0
    assert not seen.first(np.zeros(3, np.int64), np.array([0, 65_536, 10 * 65_536 - 1])).any()


def test_offsets_that_are_far_apart_take_no_more_memory_than_is_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(duplicate_records, "MOST_CHUNKS", 10)
    seen = SeenOffsets()
    seen.first(np.zeros(1_000, np.int64), np.arange(1_000) << 20)
    assert seen.partial == 11, "one too many, which is refused"
