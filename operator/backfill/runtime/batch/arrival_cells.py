"""Puts the rows at a watermark into cells of about the same arrival and about the same lag."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from backfill.iceberg.timestamp_units import GREATEST_US, LEAST_US, Ticks
from backfill.planning.plan import PlanHeader
from backfill.planning.rows.row_selection import column_at
from backfill.runtime.batch.arrival_lags import Cells, Ints
from backfill.runtime.batch.rebind_plan import ARRIVAL
from backfill.runtime.batch.split_frames import ArrowFunction
from backfill.runtime.spark_versions import to_arrow

_LEAST_CELLS, _MOST_CELLS = 2_048, 16_384
"""Into how many parts the time that is read is cut: few enough for the driver."""
_CELLS_OF_STEP = 8
"""Into how many parts a step is cut, where there are not too many: a span is ten times longer than
what it shares with its neighbours, of which cells are a part.
"""
_PER_OCTAVE = 4
"""Cells of lags, from one to twice as long: the longer rows lag, the less it matters how long."""

_KEYS = ["arrival_cell", "lag_cell"]
_MERGED = [
    ("first_arrival", "min"),
    ("last_arrival", "max"),
    ("first_event", "min"),
    ("last_event", "max"),
    ("greatest_lag", "max"),
    ("rows", "sum"),
]
_NAMES = [*_KEYS, *(name for name, _ in _MERGED)]
RESULT = ", ".join(f"{name} bigint" for name in _NAMES)
"""The columns of the cells that tasks make, as a DDL string."""
_ROWS_AT_ONCE = 1_000_000
"""This many rows wait to be put into cells: at about 64 bytes each, little memory."""


def width_us(header: PlanHeader) -> int:
    """How long the arrivals of a cell are apart at most."""
    inputs = header.inputs
    number = min(max(_CELLS_OF_STEP * header.steps, _LEAST_CELLS), _MOST_CELLS)
    return max((inputs.read_end_us - inputs.read_start_us) // number, 1)


def cells_of_frame(rows: DataFrame, event_us: Column, width: int) -> Cells:
    """The cells of a DataFrame with the column ``ARRIVAL``, by Spark's own aggregation.

    Raises:
        Exception: Spark's own, with what failed in a task.
    """
    event, lag = F.col("event_us"), F.col("lag_us")
    lags = F.floor(_PER_OCTAVE * F.log2(1 + F.abs(lag / width))) * F.sign(lag)
    timed = rows.select(F.col(ARRIVAL).alias("arrival_us"), event_us.alias("event_us"))
    grouped = (
        timed.withColumn("lag_us", F.try_subtract("arrival_us", event))
        .where(lag.isNotNull())  # without a time, a row has no part in any result
        .groupBy(F.floor(F.col("arrival_us") / width), lags)
        .agg(
            F.min("arrival_us"),
            F.max("arrival_us"),
            F.min(event),
            F.max(event),
            F.max(lag),
            F.count("*"),
        )
    )
    return _cells(to_arrow(grouped))


@dataclass(frozen=True, slots=True)
class TimeColumn:
    """Where the times of rows are that a task reads."""

    path: tuple[str, ...]
    unit: str | None = None
    """Of a number: ``s``, ``ms``, ``us`` or ``ns``."""

    def of(self, rows: pa.RecordBatch) -> tuple[Ints, Ints]:
        """In microseconds; and which ones there are."""
        found = column_at(rows, list(self.path))
        there = found.is_valid().to_numpy(zero_copy_only=False)
        if pa.types.is_timestamp(found.type):
            found = found.cast(pa.timestamp("us", found.type.tz)).cast(pa.int64())
        moments = found.fill_null(0).to_numpy().astype(np.int64)
        return Ticks(self.unit or "us").floor_all_us(moments), there


def cells_in_tasks(
    event: TimeColumn, arrival: TimeColumn, width: int, present: Sequence[str] = ()
) -> ArrowFunction:
    """Gives the cells of a task's rows, in the columns :data:`RESULT`: of those in which none of
    the columns ``present`` is null. It is for rows that need not pass through the JVM.
    """

    def cells(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        waiting: list[pa.Table] = []
        for batch in batches:
            rows = batch
            for name in present:
                rows = rows.filter(rows[name].is_valid())
            waiting.append(_keyed(rows, event, arrival, width))
            if sum(each.num_rows for each in waiting) > _ROWS_AT_ONCE:
                waiting = [_merged(waiting)]
        if waiting:
            yield from _merged(waiting).to_batches()

    return cells


def cells_of_tasks(tasks: DataFrame) -> Cells:
    """The cells that tasks have made. Those of several tasks are put together before the driver is
    given them: in a long history, it has no room for each task's own ones.

    Raises:
        Exception: Spark's own, with what failed in a task.
    """
    how = {"min": F.min, "max": F.max, "sum": F.sum}
    merged = [how[function](name).alias(name) for name, function in _MERGED]
    return _cells(to_arrow(tasks.groupBy(*_KEYS).agg(*merged)))


def _keyed(batch: pa.RecordBatch, event: TimeColumn, arrival: TimeColumn, width: int) -> pa.Table:
    """Each row in a cell of its own."""
    (event_us, happened), (arrival_us, arrived) = event.of(batch), arrival.of(batch)
    there = happened & arrived  # without a time, a row has no part in any result
    event_us = np.clip(event_us[there], LEAST_US, GREATEST_US - 1)  # lags fit into 64 bits
    arrival_us = np.clip(arrival_us[there], LEAST_US, GREATEST_US - 1)
    lag = arrival_us - event_us
    octaves = np.floor(_PER_OCTAVE * np.log2(1 + np.abs(lag / width)))
    lag_cell = (octaves * np.sign(lag)).astype(np.int64)
    rows = np.ones(len(lag), np.int64)
    columns = [arrival_us // width, lag_cell, arrival_us, arrival_us, event_us, event_us, lag, rows]
    return pa.table(columns, names=_NAMES)


def _merged(cells: Sequence[pa.Table]) -> pa.Table:
    """Each cell once."""
    merged = pa.concat_tables(cells).group_by(_KEYS, use_threads=False).aggregate(_MERGED)
    return merged.rename_columns(_NAMES)


def _cells(table: pa.Table) -> Cells:
    return Cells(*(column.to_numpy().astype(np.int64) for column in table.columns[len(_KEYS) :]))
