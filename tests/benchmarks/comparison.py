"""Compares a staged result with production as a driver does, or by a hand-written full outer join
of the same files in plain Spark.

Usage: ``comparison.py DIRECTORY generate|backfill|by-hand [--rows N]``; prints one JSON line with the
job's seconds and the numbers of rows. A thousandth of the rows each is missing, extra and different,
and all of them have a key. ``generate`` makes the tables, unless they are there; for the others the
catalog ``bench`` must be in PyIceberg's configuration, as ``run.py`` sees to.
"""

import argparse
import json
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from event_data import DAY_US, START_US, new_catalog
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from spark_session import bench_session

from backfill.api.output import Output
from backfill.api.quantities import from_us
from backfill.outputs.result_names import Result
from backfill.planning.workspace import Workspace
from backfill.protocol.split_assignment import OutputComparison
from backfill.runtime.comparison.compare_outputs import compare_outputs
from backfill.runtime.settings import RuntimeSettings
from backfill.runtime.source.warm_up import warm_up

FILES = 16
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("name", pa.string()),
        ("ratio", pa.float64()),
        ("amount", pa.decimal128(18, 2)),
    ]
)
RESULT = Result("default", "bench", "uid", "plan", "orders")
COUNTS = ("matching", "different", "missing", "extra")


def generate(directory: Path, rows: int) -> None:
    """A table of a day of orders with a result in the branch of a Backfill."""
    done = directory / f"rows-{rows}"
    if done.exists():
        return
    table = new_catalog(directory, "shop").create_table("shop.orders", schema=SCHEMA)
    for part in parts(rows, "result"):
        table.append(part, snapshot_properties=RESULT.summary)
    head = table.current_snapshot()
    assert head is not None
    table.manage_snapshots().create_branch(head.snapshot_id, RESULT.branch).commit()
    table.delete()
    for part in parts(rows, "production"):
        table.append(part)
    done.touch()


def parts(rows: int, side: str) -> Iterator[pa.Table]:
    """One side's rows in the order of their times, in parts for one file each."""
    for numbers in np.array_split(np.arange(rows, dtype="uint64"), FILES):
        part = numbers.astype("int64")
        random = np.random.default_rng(int(part[0]))
        # an odd factor gives each number a key of its own, in no order
        key = (numbers * np.uint64(0x9E3779B97F4A7C15)).view("int64")
        amount = random.integers(0, 10_000_000, part.size)
        amount[(part % 1_000 == 2) & (side == "result")] += 1
        columns = [
            pa.array(key),
            pa.array(START_US + part * (DAY_US // rows)).cast(SCHEMA.field("at").type),
            pc.binary_join_element_wise(
                "customer", pc.cast(pa.array(random.integers(0, 200_000, part.size)), "string"), "-"
            ),
            pa.array(random.random(part.size)),
            pa.array(amount).cast(pa.decimal128(21, 2)).cast(SCHEMA.field("amount").type),
        ]
        lacking = 0 if side == "result" else 1
        yield pa.table(columns, schema=SCHEMA).filter(pa.array(part % 1_000 != lacking))


def backfill(spark: SparkSession, table: Table, scratch: Path) -> dict[str, Any]:
    """The driver's job, with its report."""
    warm_up(spark)  # as a driver has done long before
    day = {"start": from_us(START_US), "end": from_us(START_US) + timedelta(days=1)}
    settings = RuntimeSettings.model_validate(
        {
            "backfill": RESULT.backfill,
            "namespace": RESULT.namespace,
            "uid": RESULT.uid,
            "attempt": 1,
            "plan_id": RESULT.plan_id,
            "plan": Workspace(str(scratch)).child("plan").uri,
            "checkpoints": str(scratch),
            "channel": str(scratch),
            "window": day,
            "sources": (),
            "outputs": (
                Output.model_validate(
                    {
                        "name": RESULT.output,
                        "table": "bench.shop.orders",
                        "timestampColumn": "at",
                        "validate": {"keys": ["id"]},
                    }
                ),
            ),
            "main_file": "",
        }
    )
    found: list[OutputComparison] = []
    run: Any = SimpleNamespace(
        settings=settings,
        queries=[SimpleNamespace(frame=SimpleNamespace(sparkSession=spark))],
        stopping=threading.Event(),
        tracker=SimpleNamespace(header=SimpleNamespace(sources=()), queries=()),
        compares=lambda output: None,
        compared=found.append,
    )
    started = time.monotonic()
    compare_outputs(run)
    seconds = time.monotonic() - started
    return {"seconds": seconds, **{name: getattr(found[0], name) for name in COUNTS}}


def by_hand(spark: SparkSession, table: Table, scratch: Path) -> dict[str, Any]:
    """A full outer join of the same files."""

    def rows(snapshot_id: int) -> DataFrame:
        tasks = table.scan(snapshot_id=snapshot_id).plan_files()
        return spark.read.parquet(*(task.file.file_path for task in tasks))

    started = time.monotonic()
    ours, theirs = (
        rows(table.refs()[branch].snapshot_id).select("id", F.struct(*SCHEMA.names[1:]).alias(side))
        for branch, side in ((RESULT.branch, "ours"), ("main", "theirs"))
    )
    row = (
        ours.join(theirs, "id", "full_outer")
        .select(
            F.count_if(F.col("ours") == F.col("theirs")).alias("matching"),
            F.count_if(F.col("ours") != F.col("theirs")).alias("different"),
            F.count_if(F.col("ours").isNull()).alias("missing"),
            F.count_if(F.col("theirs").isNull()).alias("extra"),
        )
        .collect()[0]
    )
    return {"seconds": time.monotonic() - started, **row.asDict()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("side", choices=["generate", "backfill", "by-hand"])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument(
        "--set", action="append", default=[], help="a property of Spark, NAME=VALUE"
    )
    arguments = parser.parse_args()
    if arguments.side == "generate":
        generate(arguments.directory, arguments.rows)
        print(json.dumps({"rows": arguments.rows}))
        return
    spark = bench_session(dict(each.split("=", 1) for each in arguments.set))
    spark.range(1).count()  # the first job pays for starting up, on both sides
    side = {"backfill": backfill, "by-hand": by_hand}[arguments.side]
    scratch = arguments.directory / "scratch"
    scratch.mkdir(exist_ok=True)
    table = load_catalog("bench").load_table("shop.orders")
    print(json.dumps(side(spark, table, scratch)))
    spark.stop()


if __name__ == "__main__":
    main()
