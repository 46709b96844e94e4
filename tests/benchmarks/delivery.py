"""Measures a delivery: ``python tests/benchmarks/delivery.py --rows N`` prints one line of JSON.

A function that upserts its rows into PostgreSQL is given the batches that a backfill has staged, by
the backfill and by a loop over the same files that Spark reads as Parquet. Both call the function
in the same way, and the time is that from the first call to the end of the last one.
"""

import argparse
import json
import os
import runpy
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).parents[1] / "end_to_end"))

import numpy as np
import psycopg2
import pyarrow as pa
from production import Production, ended
from spark_session import bench_session
from store_servers import find_programs, postgresql

from iceberg_tables import catalog_properties, sqlite_catalog

BATCHES = 96
APPLICATION = """
import time
import psycopg2
from psycopg2.extras import execute_values


def store(batch, number):
    began = time.time()
    rows = [tuple(row) for row in batch.select("id", "person", "amount").collect()]
    with psycopg2.connect("DATABASE") as connection, connection.cursor() as cursor:
        execute_values(cursor, "INSERT INTO payments VALUES %s ON CONFLICT (id)"
            " DO UPDATE SET amount = EXCLUDED.amount", rows, page_size=1000)
        cursor.execute("INSERT INTO calls VALUES (%s, %s)", (began, time.time()))


if __name__ == "__main__":
    from pyspark.sql import SparkSession, functions as F

    spark = SparkSession.builder.getOrCreate()
    records = spark.readStream.format("kafka").option("subscribe", "payments").load()
    schema = "id long, person long, amount double"
    parsed = F.from_json(F.col("value").cast("string"), schema).alias("e")
    records.select(parsed).select("e.*").writeStream.foreachBatch(store).start().awaitTermination()
"""
SMALL = {"spark.driver.memory": "2g", "spark.master": "local[2]"}


def land(lake: object, rows: int) -> None:
    """A day of payments, in a file for each quarter of an hour."""
    day = 1_709_251_200_000_000
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("person", pa.int64()),
            ("amount", pa.float64()),
            ("arrived", pa.timestamp("us", "UTC")),
        ]
    )
    table = lake.create_table("raw.payments", schema)  # type: ignore[attr-defined]
    each, rng = rows // BATCHES, np.random.default_rng(1)
    for number in range(BATCHES):
        columns = {
            "id": np.arange(number * each, (number + 1) * each),
            "person": rng.integers(0, 1_000, each),
            "amount": rng.random(each),
            "arrived": day + number * 900_000_000 + np.sort(rng.integers(0, 900_000_000, each)),
        }
        table.append(pa.table(columns).cast(schema))


def called(url: str) -> tuple[float, int]:
    """Seconds from the first call to the end of the last one, and the number of rows. Forgets
    both.
    """
    with psycopg2.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT max(ended) - min(began) FROM calls")
        seconds = float(cursor.fetchone()[0])
        cursor.execute("SELECT count(*) FROM payments")
        rows = int(cursor.fetchone()[0])
        cursor.execute("TRUNCATE calls, payments")
    return round(seconds, 2), rows


def measure(rows: int) -> dict[str, float]:
    """Seconds of both."""
    with (
        tempfile.TemporaryDirectory() as place,
        postgresql(find_programs(), "writer", "password") as database,
    ):
        directory = Path(place)
        for name, value in catalog_properties(directory).items():
            os.environ[f"PYICEBERG_CATALOG__LAKE__{name.upper()}"] = value
        lake = sqlite_catalog(directory)
        lake.create_namespace("raw")
        land(lake, rows)
        url = f"postgresql://writer:password@{database}/postgres"
        with psycopg2.connect(url) as connection, connection.cursor() as cursor:
            cursor.execute(
                "CREATE TABLE payments (id bigint PRIMARY KEY, person bigint, amount float8)"
            )
            cursor.execute("CREATE TABLE calls (began float8, ended float8)")
        production = Production(directory, lake)
        source = {
            "name": "payments",
            "table": "lake.raw.payments",
            "timestampColumn": "arrived",
            "live": {"kafka": {"topic": "payments"}},
        }
        output = {"name": "store", "table": "lake.staged.store", "publish": {"mode": "Deliver"}}
        production.describe(
            APPLICATION.replace("DATABASE", url),
            window={"start": "2024-03-01T00:00:00Z", "end": "2024-03-02T00:00:00Z"},
            maxMisalignment="30m",
            sources=[source],
            outputs=[output],
            overrides={"sparkConf": SMALL},
        )
        began = time.monotonic()
        assert production.run().status == 3, production.driver_log()
        staging = round(time.monotonic() - began, 2)
        files = defaultdict(list)
        for file in (directory / "warehouse").rglob("staged/store/data/**/*.parquet"):
            files[file.parent].append(str(file))
        began = time.monotonic()
        state = ("--state-dir", str(production.state))
        assert ended(production.start("approve", "again", *state)).status == 0
        whole = round(time.monotonic() - began, 2)
        seconds, delivered = called(url)
        assert delivered == rows // BATCHES * BATCHES, delivered
        store = runpy.run_path(str(directory / "app.py"), run_name="application")["store"]
        spark = bench_session(SMALL)
        for number, batch in enumerate(sorted(files)):
            store(spark.read.parquet(*files[batch]), number)
        plain, same = called(url)
        assert same == delivered
        spark.stop()
        return {
            "rows": delivered,
            "batches": len(files),
            "stage_s": staging,
            "approve_to_end_s": whole,
            "delivery_s": seconds,
            "loop_s": plain,
            "ratio": round(seconds / plain, 3),
        }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    print(json.dumps(measure(parser.parse_args().rows)))
