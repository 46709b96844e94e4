"""Strict order: the rows of a Kafka partition in offset order, whatever files they are in."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from planned import DAY_US, HOUR_US, Planned, plan, source
from pyiceberg.catalog import Catalog

from backfill.api.errors import InvalidPlanInput

START, END = DAY_US + 6 * HOUR_US, DAY_US + 12 * HOUR_US
MINUTE_US = 60_000_000
KAFKA = {"partitionColumn": "partition", "offsetColumn": "offset"}
Row = tuple[int, int, int]
"""Partition, offset, timestamp."""


def write(lake: Catalog, files: list[list[Row]]) -> None:
    schema = pa.schema(
        [("partition", pa.int32()), ("offset", pa.int64()), ("ts", pa.timestamp("us", "UTC"))]
    )
    if lake.table_exists("raw.events"):
        lake.drop_table("raw.events")
    table = lake.create_table("raw.events", schema=schema)
    for rows in files:
        columns = [
            pa.array(column).cast(kind)
            for column, kind in zip(zip(*rows, strict=True), schema.types, strict=True)
        ]
        table.append(pa.table(columns, schema=schema))


def plan_strictly(
    workspace: Path, lateness: str = "1h", *, drop_duplicates: bool = False, **fields: Any
) -> Planned:
    return plan(
        workspace,
        source("events", kafka={**KAFKA, "dropDuplicates": drop_duplicates}),
        ordering={"policy": "Strict", "allowedLateness": lateness},
        **fields,
    )


def rows_read(planned: Planned) -> list[tuple[int, Row]]:
    """Step and row of all that the splits read, by Parquet alone."""
    read = []
    for split in planned.splits:
        file = pq.ParquetFile(split.path)
        table = file.read_row_groups(list(split.row_groups or range(file.num_row_groups)))
        ranges = {each.partition: (each.start, each.end) for each in split.offsets}
        for row in table.to_pylist():
            moment, (start, end) = (
                int(row["ts"].timestamp() * 1_000_000),
                ranges.get(row["partition"], (0, 0)),
            )
            in_slice = split.slice_start_us is None or split.slice_start_us <= moment < (
                split.slice_end_us or 0
            )
            if start <= row["offset"] < end and in_slice:
                assert split.lower_us <= moment <= split.upper_us
                read.append((split.step, (row["partition"], row["offset"], moment)))
    return read


@st.composite
def histories(draw: st.DrawFn) -> list[list[Row]]:
    """Two partitions of rows that arrive up to forty minutes out of order, spread over files as
    they come.
    """
    count = draw(st.integers(2, 30))
    rows = []
    for offset in range(count):
        expected = START - HOUR_US // 2 + offset * 8 * HOUR_US // count
        jitter = draw(st.integers(-20, 20)) * MINUTE_US
        rows.append((draw(st.integers(0, 1)), offset, expected + jitter))
    files = draw(st.integers(1, 4))
    chosen = draw(st.lists(st.integers(0, files - 1), min_size=count, max_size=count))
    made = [
        [row for row, file in zip(rows, chosen, strict=True) if file == number]
        for number in range(files)
    ]
    return [rows for rows in made if rows]


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(histories())
def test_offsets_never_go_back_and_every_row_is_read_once(
    lake: Catalog, tmp_path: Path, files: list[list[Row]]
) -> None:
    write(lake, files)
    planned = plan_strictly(tmp_path / "w", maxMisalignment="40m")
    read = rows_read(planned)
    assert Counter(row for _, row in read) == Counter(
        row for rows in files for row in rows if START <= row[2] < END
    )
    for partition in (0, 1):
        steps = [
            step for step, row in sorted(read, key=lambda each: each[1][1]) if row[0] == partition
        ]
        assert steps == sorted(steps)
    assert sum(split.rows for split in planned.splits) == len(read)
    ends = planned.header.step_ends_us
    assert all(row[2] < ends[step] for step, row in read)


def test_an_order_of_offsets_far_from_the_order_of_arrival_is_refused_with_the_numbers(
    lake: Catalog, tmp_path: Path
) -> None:
    write(lake, [[(0, 0, START + 2 * HOUR_US), (0, 1, START), (1, 0, START + HOUR_US)]])
    with pytest.raises(
        InvalidPlanInput, match="rows up to 1h out of order, but allowedLateness is only 5m"
    ):
        plan_strictly(tmp_path / "w", lateness="5m")


def test_copies_that_arrived_late_are_named_as_a_cause_where_duplicates_are_dropped(
    lake: Catalog, tmp_path: Path
) -> None:
    rows = [(0, 0, START), (0, 1, START), (1, 0, START + HOUR_US)]
    write(lake, [rows, [(0, 0, START + 2 * HOUR_US)]])
    with pytest.raises(InvalidPlanInput) as raised:
        plan_strictly(tmp_path / "w", lateness="5m", drop_duplicates=True)
    (problem,) = raised.value.problems
    assert "puts rows up to 1h out of order" in problem.message
    assert "copies that dropDuplicates leaves out count as well" in problem.message
    assert problem.fix == (
        "increase allowedLateness, choose ordering.policy WithinLateness, or remove late copies"
        " from the table"
    )


def test_the_columns_of_partition_and_offset_are_needed(lake: Catalog, tmp_path: Path) -> None:
    write(lake, [[(0, 0, START)]])
    with pytest.raises(InvalidPlanInput) as raised:
        plan(tmp_path / "w", source("events"), ordering={"policy": "Strict"})
    assert [problem.field for problem in raised.value.problems] == [
        "spec.sources[0].kafka.partitionColumn",
        "spec.sources[0].kafka.offsetColumn",
    ]


def test_rows_without_an_offset_are_refused(lake: Catalog, tmp_path: Path) -> None:
    schema = pa.schema(
        [("partition", pa.int32()), ("offset", pa.int64()), ("ts", pa.timestamp("us", "UTC"))]
    )
    table = lake.create_table("raw.events", schema=schema)
    table.append(
        pa.table(
            [
                pa.array([0], pa.int32()),
                pa.array([None], pa.int64()),
                pa.array([START], schema.types[2]),
            ],
            schema=schema,
        )
    )
    with pytest.raises(InvalidPlanInput, match="without a Kafka partition or offset"):
        plan_strictly(tmp_path / "w")
