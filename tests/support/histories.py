"""Made histories: events with times and the moments they arrived, landed in tables in one file or
another; and an oracle.
"""

from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from pyiceberg.table import Table

UTC_TIME = pa.timestamp("us", "UTC")
HOUR_US = 3_600_000_000
MINUTE_US = 60_000_000
SECOND_US = 1_000_000
DAY_US = 1_709_251_200_000_000
"""The midnight at which all made histories begin: 2024-03-01 UTC."""


def events(
    count: int, column: str, empty_hours: set[int], seed: int
) -> tuple[pa.Table, np.ndarray]:
    """Eighteen hours of events, some hours empty, and when they arrived: seconds to four minutes
    later.
    """
    random = np.random.default_rng(seed)
    at = np.sort(random.integers(DAY_US, DAY_US + 18 * HOUR_US, count))
    at = at[~np.isin((at - DAY_US) // HOUR_US, list(empty_hours))]
    delay = (
        random.exponential(5, len(at)) * SECOND_US
        + (random.random(len(at)) < 0.05) * random.uniform(0, 4, len(at)) * MINUTE_US
    )
    arrived = at + np.minimum(delay, 4 * MINUTE_US).astype("int64")
    columns = {
        "title": pa.array(random.integers(0, 4, len(at))),
        "viewer": pa.array(random.integers(0, 12, len(at))),
        column: times(at),
        "ingested": times(arrived),
    }
    return pa.table(columns), arrived


def land(
    table: Table,
    rows: pa.Table,
    arrived_us: np.ndarray,
    *,
    files: int,
    seed: int,
    straggle_us: int = 0,
) -> None:
    """Appends rows as so many files of about equal length of arrival time, written in any order of
    each other.

    With ``straggle_us`` rows may be in a file later than their arrival says, by at most that.
    """
    random = np.random.default_rng(seed)
    written_us = arrived_us + random.integers(0, straggle_us + 1, len(arrived_us))
    edges = np.linspace(written_us.min(), written_us.max() + 1, files + 1)
    file_of = np.searchsorted(edges, written_us, side="right") - 1
    for number in random.permutation(files):
        if (chosen := np.flatnonzero(file_of == number)).size:
            table.append(rows.take(pa.array(random.permutation(chosen))))


def times(microseconds: "np.ndarray | list[int]") -> pa.Array:
    """Moments as a timestamptz column."""
    return pa.array(microseconds, pa.int64()).cast(UTC_TIME)


def query(sql: str, **tables: pa.Table) -> pa.Table:
    """What DuckDB answers, in UTC."""
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        for name, table in tables.items():
            database.register(name, table)
        return database.sql(sql).to_arrow_table()


def sorted_rows(*tables: pa.Table) -> list[tuple[Any, ...]]:
    """The rows of all tables, with the columns as the first one has them."""
    columns = tables[0].column_names
    return sorted((row for table in tables for row in _rows(table.select(columns))), key=repr)


def _rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))
