"""Rows are put into cells that tell when they arrived, whatever their times are kept in."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill.runtime.batch.arrival_cells import TimeColumn, cells_in_tasks

WIDTH = 1_000
PLAIN = (TimeColumn(("event",)), TimeColumn(("arrival",)))
_TIMES = st.one_of(st.none(), st.integers(-10_000, 10_000), st.integers(-(2**63), 2**63 - 1))

Row = tuple[int | None, int | None]


def cells_of(
    batches: list[pa.RecordBatch], event: TimeColumn, arrival: TimeColumn
) -> list[dict[str, Any]]:
    """What a task gives for its rows."""
    given: Iterator[pa.RecordBatch] = iter(batches)
    return [
        row for batch in cells_in_tasks(event, arrival, WIDTH)(given) for row in batch.to_pylist()
    ]


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    event, arrival = ([row[n] for row in rows] for n in (0, 1))
    return pa.record_batch(
        {
            "event": pa.array(event, pa.int64()).cast(pa.timestamp("us")),
            "arrival": pa.array(arrival, pa.int64()).cast(pa.timestamp("us", "UTC")),
        }
    )


@given(st.lists(st.lists(st.tuples(_TIMES, _TIMES), max_size=12), max_size=4))
def test_every_row_is_in_a_cell_with_its_times(batches: list[list[Row]]) -> None:
    cells = cells_of([batch_of(rows) for rows in batches], *PLAIN)
    limit = 2**62
    timed = [
        tuple(int(np.clip(each, -limit, limit - 1)) for each in row)
        for rows in batches
        for row in rows
        if None not in row
    ]
    assert sum(cell["rows"] for cell in cells) == len(timed)
    for event, arrival in timed:
        assert any(
            cell["first_event"] <= event <= cell["last_event"]
            and cell["first_arrival"] <= arrival <= cell["last_arrival"]
            and cell["greatest_lag"] >= arrival - event
            for cell in cells
        )
    assert all(cell["last_arrival"] - cell["first_arrival"] < WIDTH for cell in cells)


def test_rows_of_about_the_same_lag_share_a_cell() -> None:
    """The cells of many batches are no more than those of one."""
    rows: list[Row] = [(0, 500_000 + n) for n in range(100)] + [
        (500_000 + n, 500_500) for n in range(9)
    ]
    shuffled = [rows[n::7] for n in range(7)]
    cells = cells_of([batch_of(each) for each in shuffled], *PLAIN)
    assert sorted(cell["rows"] for cell in cells) == [9, 100]


@pytest.mark.parametrize(("unit", "ticks"), [("s", 1), ("ms", 1_000), ("ns", 1_000_000_000)])
def test_arrivals_may_be_numbers_in_a_struct(unit: str, ticks: int) -> None:
    arrived = datetime(2026, 3, 1, 12, tzinfo=UTC)
    kafka = [{"at": int(arrived.timestamp()) * ticks}, {"at": None}, None]
    event = [arrived - timedelta(seconds=7)] * 3
    rows = pa.record_batch(
        {
            "event": pa.array(event, pa.timestamp("us", "UTC")),
            "kafka": pa.array(kafka, pa.struct([("at", pa.int64())])),
        }
    )
    (cell,) = cells_of([rows], TimeColumn(("event",)), TimeColumn(("kafka", "at"), unit))
    assert cell["rows"] == 1
    assert cell["first_arrival"] == cell["last_arrival"] == int(arrived.timestamp()) * 1_000_000
    assert cell["greatest_lag"] == 7_000_000
