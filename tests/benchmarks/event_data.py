"""Generated history to measure on: days of impressions and a quarter as many playbacks, in 96
files each a day.

Users have sessions of about twenty impressions a minute apart; a quarter of the impressions is
played, nearly always within half an hour. Rows arrive seconds after they happened, a few up to five
minutes. Each table exists twice with the same files: as Iceberg (what a backfill reads) and as
plain Parquet (what Spark's own readers are given).
"""

import os
import shutil
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table

DAY_US = 86_400_000_000
START_US = 1_772_323_200_000_000  # 2026-03-01T00:00:00Z
FILES = 96
SCHEMA = pa.schema(
    [
        ("user_id", pa.int64()),
        ("item_id", pa.int64()),
        ("event_ts", pa.timestamp("us")),
        ("kafka_partition", pa.int32()),
        ("kafka_offset", pa.int64()),
        ("ingestion_ts", pa.timestamp("us")),
    ]
)


@dataclass(frozen=True)
class Events:
    """Columns of one table and day, unordered; times in microseconds after the day began."""

    user: np.ndarray
    item: np.ndarray
    happened_us: np.ndarray


def impressions(random: np.random.Generator, rows: int) -> Events:
    """Sessions of impressions, spread over the day."""
    sessions = rows // 17
    length = random.geometric(1 / 19, sessions)
    session = np.repeat(np.arange(sessions), length)
    gaps = random.exponential(60e6, session.size)
    elapsed = np.cumsum(gaps)
    first = np.concatenate(([0], np.cumsum(length)[:-1]))
    happened = np.repeat(random.integers(0, DAY_US, sessions), length) + (
        elapsed - elapsed[first][session]
    ).astype("int64")
    user = random.integers(1, max(rows // 60, 2), sessions)[session]
    inside = np.flatnonzero(happened < DAY_US - 1_000_000)
    chosen = np.sort(random.choice(inside, min(rows, inside.size), replace=False))
    item = (20_000 * random.power(0.35, chosen.size)).astype("int64") + 1
    return Events(user[chosen], item, happened[chosen])


def playbacks(random: np.random.Generator, shown: Events, rows: int) -> Events:
    """Plays of some of what was shown; three in a hundred later than half an hour."""
    chosen = random.choice(shown.user.size, min(rows, shown.user.size), replace=False)
    after = np.minimum(random.exponential(300e6, chosen.size), 1_795e6)
    late = random.random(chosen.size) < 0.03
    after[late] = 1_801e6 + random.random(int(late.sum())) * 1_790e6
    happened = shown.happened_us[chosen] + 1_000_000 + after.astype("int64")
    inside = happened < DAY_US - 1_000_000
    return Events(shown.user[chosen][inside], shown.item[chosen][inside], happened[inside])


def as_arrived(random: np.random.Generator, events: Events, start_us: int) -> pa.Table:
    """The rows of the day that starts then, in the order they arrived, with what Kafka adds."""
    delay = random.exponential(2.8e6, events.user.size)
    tail = random.random(delay.size) < 0.04
    delay[tail] = 10e6 * np.exp(random.random(int(tail.sum())) * np.log(30))
    arrived = events.happened_us + np.minimum(delay, 300e6).astype("int64") + 1_000
    order = np.argsort(arrived, kind="stable")
    partition = (events.user[order] % 8).astype("int32")
    offset = np.empty(order.size, "int64")
    for each in range(8):
        mine = partition == each
        offset[mine] = np.arange(int(mine.sum()))
    happened = events.happened_us[order] + start_us
    columns = [
        events.user[order],
        events.item[order],
        happened,
        partition,
        offset,
        arrived[order] + start_us,
    ]
    return pa.table(
        [pa.array(column).cast(kind) for column, kind in zip(columns, SCHEMA.types, strict=True)],
        schema=SCHEMA,
    )


def write_both_ways(table: Table, plain: Path, day: int, rows: pa.Table) -> None:
    """One Iceberg and one plain file for each quarter of an hour of a day, with file times in the
    order of arrival.
    """
    arrived = rows["ingestion_ts"].cast(pa.int64()).to_numpy() - START_US - day * DAY_US
    cuts = np.searchsorted(arrived, np.arange(FILES + 1) * (DAY_US // FILES))
    cuts[-1] = rows.num_rows
    for number, (start, end) in enumerate(pairwise(cuts), start=day * FILES):
        part = rows.slice(start, end - start)
        table.append(part)
        path = plain / f"part-{number:04d}.parquet"
        pq.write_table(part, path, compression="zstd")
        os.utime(path, (1_700_000_000 + number * 60,) * 2)


def days_in(directory: Path) -> int:
    """How many days there are below a directory."""
    return len(list((directory / "plain" / "impressions").glob("*.parquet"))) // FILES


def generate(directory: Path, days: int = 1, impression_rows: int = 12_000_000) -> None:
    """Makes the data below a directory, if it is not there already: so many rows a day."""
    done = directory / f"rows-{impression_rows}"
    if done.exists():
        return
    catalog = new_catalog(directory, "events")
    tables = {}
    for name in ("impressions", "playbacks"):
        tables[name] = catalog.create_table(f"events.{name}", schema=SCHEMA)
        (directory / "plain" / name).mkdir(parents=True)
    for day in range(days):
        random = np.random.default_rng(7 + day)
        shown = impressions(random, impression_rows)
        played = playbacks(random, shown, impression_rows // 4)
        for name, events in (("impressions", shown), ("playbacks", played)):
            rows = as_arrived(random, events, START_US + day * DAY_US)
            write_both_ways(tables[name], directory / "plain" / name, day, rows)
    done.touch()


def new_catalog(directory: Path, namespace: str) -> Catalog:
    """An empty catalog ``bench`` in place of what the directory has."""
    shutil.rmtree(directory, ignore_errors=True)
    (directory / "warehouse").mkdir(parents=True)
    catalog = load_catalog("bench", **catalog_properties(directory))
    catalog.create_namespace(namespace)
    return catalog


def catalog_properties(directory: Path) -> dict[str, str]:
    """The PyIceberg catalog of the generated tables."""
    return {
        "type": "sql",
        "uri": f"sqlite:///{directory}/catalog.db",
        "warehouse": f"{directory}/warehouse",
    }
