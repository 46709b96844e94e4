"""How late rows arrived, measured on a sample of a table."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from backfill.api.spec import Window
from backfill.planning import lateness_sample
from backfill.planning.lateness_sample import ArrivalLags, measure_lags
from histories import DAY_US, HOUR_US, SECOND_US, UTC_TIME, times

START = datetime(2024, 3, 1, tzinfo=UTC)
WINDOW = Window(start=START + timedelta(hours=1), end=START + timedelta(hours=3))


def rows(at: np.ndarray, lag: np.ndarray) -> pa.Table:
    return pa.table({"at": times(at), "ingested": times(at + lag), "other": at})


def test_the_lags_are_those_of_rows_that_arrived_in_the_window(lake: Catalog) -> None:
    at = np.arange(DAY_US, DAY_US + 4 * HOUR_US, SECOND_US)
    lag = np.full(len(at), 3 * SECOND_US)
    lag[at < DAY_US + HOUR_US // 2] = HOUR_US // 4  # all of them arrived before the window
    lag[5_000], lag[6_000] = 90 * SECOND_US, -7 * SECOND_US
    table = lake.create_table("raw.clicks", rows(at, lag).schema)
    for half in (slice(0, 7_200), slice(7_200, None)):
        table.append(rows(at[half], lag[half]))
    found = measure_lags(table, "at", "ingested", WINDOW)
    assert found == ArrivalLags(
        7_200 - 1 + 1,
        2,
        2,
        -7 * SECOND_US,
        3 * SECOND_US,
        3 * SECOND_US,
        3 * SECOND_US,
        90 * SECOND_US,
    )


def test_only_a_sample_of_files_and_rows_is_read(
    lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lateness_sample, "MOST_FILES", 3)
    monkeypatch.setattr(lateness_sample, "MOST_ROWS", 30)
    at = np.arange(DAY_US + HOUR_US, DAY_US + 2 * HOUR_US, 10 * SECOND_US)
    table = lake.create_table("raw.clicks", rows(at, at * 0).schema)
    for part in np.array_split(at, 6):
        table.append(rows(part, part * 0))
    found = measure_lags(table, "at", "ingested", WINDOW)
    assert found is not None
    assert (found.rows, found.files, found.of_files) == (30, 3, 6)


def test_nested_columns_times_without_a_zone_and_nulls_are_read(lake: Catalog) -> None:
    plain = pa.timestamp("us")
    at = pa.array([DAY_US + HOUR_US, None, DAY_US + HOUR_US], pa.int64()).cast(plain)
    arrived = pa.array([DAY_US + HOUR_US + SECOND_US] * 3, pa.int64()).cast(plain)
    metadata = pa.StructArray.from_arrays([arrived], ["arrived"])
    given = pa.table({"at": at, "metadata": metadata})
    table = lake.create_table("raw.clicks", given.schema)
    table.append(given)
    found = measure_lags(table, "at", "metadata.arrived", WINDOW)
    assert found is not None
    assert (found.rows, found.least_us, found.greatest_us) == (2, SECOND_US, SECOND_US)


def test_without_rows_of_the_window_there_is_nothing_to_measure(lake: Catalog) -> None:
    schema = pa.schema([("at", UTC_TIME), ("ingested", UTC_TIME)])
    assert measure_lags(lake.create_table("raw.clicks", schema), "at", "ingested", WINDOW) is None
