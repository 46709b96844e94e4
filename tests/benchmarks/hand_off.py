"""Measures the pause of a hand-off: from the commit of history's last step to that of the first
micro-batch of live traffic.

Usage: ``hand_off.py --rows N [--partitions P]``; prints one JSON line of seconds. Each of the rows is
a row of state in the end. The broker, the driver of history and that of the live application are
processes of their own, and the latter begins when the former has ended. What both commit is
recognized by the times of the files in their checkpoints.

Then the live application is stopped and started again, with as many new rows, to tell what any
restart of it takes: a hand-off cannot take less.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).parents[1] / "spark"))

import numpy as np
import pyarrow as pa
from drivers import assign, driver, status
from spark_session import FILE_MANAGER

from backfill.api.spec import BackfillSpec
from backfill.planning.plan import PlanHeader, plan_directory
from backfill.planning.planner import make_plan
from backfill.planning.workspace import Workspace
from backfill.protocol.hand_off_messages import HandOffSettings
from backfill.runtime.settings import RuntimeSettings
from iceberg_tables import catalog_properties, sqlite_catalog
from kafka_broker import find_jars, kafka_broker

START = datetime(2026, 3, 1, tzinfo=UTC)
STEPS, LIVE_ROWS = 4, 1_000
LENGTH = timedelta(minutes=10)
"""Of a step."""
HISTORY_PARTITIONS = 2
COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("kafka_partition", pa.int32()),
        ("kafka_offset", pa.int64()),
    ]
)
RESULT = pa.schema([("start", pa.timestamp("us", tz="UTC")), ("id", pa.int64()), ("n", pa.int64())])
PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PROGRAM = """
import sys
from pyspark.sql import SparkSession, functions as F

servers, home = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
options = {"kafka.bootstrap.servers": servers, "subscribe": "events", "startingOffsets": "earliest"}
records = spark.readStream.format("kafka").options(**options).load()
rows = records.select(F.from_json(F.col("value").cast("string"), "id long, at timestamp").alias("e")).select("e.*")
counts = rows.withWatermark("at", "1 minute").groupBy(F.window("at", "1 day"), "id").agg(F.count("*").alias("n"))
writer = counts.select("window.start", "id", "n").writeStream.queryName("counts").format("noop")
writer.option("checkpointLocation", f"{home}/counts").trigger(availableNow=True).start().awaitTermination()
"""
PRODUCE = """
import sys
from pyspark.sql import SparkSession

servers, first, rows, start, step_us, per_step = sys.argv[1], *map(int, sys.argv[2:])
jvm = SparkSession.builder.getOrCreate()._jvm
if first == 0:
    settings = jvm.java.util.Properties()
    settings.put("bootstrap.servers", servers)
    admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(settings)
    one = jvm.java.util.Optional
    wanted = jvm.java.util.ArrayList()
    wanted.add(jvm.org.apache.kafka.clients.admin.NewTopic("events", one.of(1), one.empty()))
    admin.createTopics(wanted).all().get()
    admin.close()
at = f"timestamp_micros({start} + id div {per_step} * {step_us} + id % {per_step})"
records = SparkSession.builder.getOrCreate().range(first, rows, 1, 1)
records = records.selectExpr(f"to_json(struct(id, {at} as at)) as value", "'events' as topic")
records.write.format("kafka").option("kafka.bootstrap.servers", servers).save()
"""


def make_history(directory: Path, rows: int) -> tuple[BackfillSpec, PlanHeader]:
    """A table with the rows, a file for each step, and its plan."""
    for name, value in catalog_properties(directory).items():
        os.environ[f"PYICEBERG_CATALOG__LAKE__{name.upper()}"] = value
    (directory / "warehouse").mkdir()
    lake = sqlite_catalog(directory)
    lake.create_namespace("default")
    table = lake.create_table("default.events", schema=COLUMNS)
    lake.create_table("default.counts", schema=RESULT)
    per_step, first = rows // STEPS, int(START.timestamp() * 1e6)
    for step in range(STEPS):
        ids = np.arange(step * per_step, (step + 1) * per_step)
        times = first + step * (LENGTH // timedelta(microseconds=1)) + ids % per_step
        columns = [ids, times, np.zeros(per_step, "int32"), ids]
        arrays = [
            pa.array(values).cast(field.type)
            for values, field in zip(columns, COLUMNS, strict=True)
        ]
        table.append(pa.Table.from_arrays(arrays, schema=COLUMNS))
    spec = BackfillSpec.model_validate(
        {
            "applicationRef": {"name": "bench"},
            "window": {"start": START, "end": "Live"},
            "sources": [
                {
                    "name": "events",
                    "table": "lake.default.events",
                    "timestampColumn": "at",
                    "kafka": {"partitionColumn": "kafka_partition", "offsetColumn": "kafka_offset"},
                    "live": {"kafka": {"topic": "events"}},
                }
            ],
            "handOff": {"to": "Live"},
            "ordering": {"policy": "Exact"},
            "maxMisalignment": "20m",
        }
    )
    return spec, make_plan(spec, Workspace(str(directory / "workspace")), parallelism=1)


def run_live(program: str, conf: dict[str, str], directory: Path, *arguments: str) -> None:
    """Runs a program as production does: in a new process with a session of its own."""
    file = directory / "live.py"
    session = f"""
from pyspark.sql import SparkSession
SparkSession.builder.config(map={conf!r}).getOrCreate()
"""
    file.write_text(session + program)
    with (directory / "live.log").open("ab") as log:
        subprocess.run(
            [sys.executable, file, *arguments], check=True, cwd=directory, stdout=log, stderr=log
        )


def measure(directory: Path, rows: int, partitions: int | None) -> dict[str, float]:
    """The pause, and its parts, in seconds."""
    jars = find_jars()
    conf = {
        "spark.master": "local[2]",
        "spark.driver.memory": "2g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.jars": jars.for_spark,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(HISTORY_PARTITIONS),
        "spark.sql.streaming.checkpointFileManagerClass": FILE_MANAGER,
        "spark.sql.streaming.stateStore.providerClass": PROVIDER,
    }
    spec, header = make_history(directory, rows)
    home = directory / "history"
    (home / "channel").mkdir(parents=True)
    main_file, live = home / "app.py", directory / "checkpoints"
    main_file.write_text(PROGRAM)
    with kafka_broker(jars, directory) as broker:
        start, length = int(START.timestamp() * 1e6), LENGTH // timedelta(microseconds=1)
        times = (start, length, rows // STEPS)
        produce = partial(run_live, PRODUCE, conf, directory, broker)
        produce(*map(str, (0, rows + LIVE_ROWS, *times)))
        settings = RuntimeSettings(
            backfill="bench",
            namespace="default",
            uid="bench",
            attempt=1,
            plan_id=header.plan_id,
            plan=plan_directory(Workspace(str(directory / "workspace")), header.plan_id).uri,
            checkpoints=str(home / "checkpoints"),
            channel=str(home / "channel"),
            window=spec.window,
            sources=spec.sources,
            outputs=[
                {"name": "counts", "table": "lake.default.counts", "timestampColumn": "start"}
            ],
            hand_off=HandOffSettings(state_partitions=partitions),
            main_file=str(main_file),
            arguments=(broker, str(live)),
            spark_conf={**conf, "spark.master": "local[2,4]"},
        )
        assign(settings, header, header.steps)
        with driver(settings) as process:
            code = process.wait()
        ended = time.time()
        report = status(settings).hand_off
        if code != 0 or report is None:
            sys.exit((home / "driver.log").read_text()[-3000:])
        run_live(PROGRAM, conf, directory, broker, str(live))
        produce(*map(str, (rows + LIVE_ROWS, rows + 2 * LIVE_ROWS, *times)))
        commits = live / "counts" / "commits"
        again = 1 + max(int(each.name) for each in commits.iterdir() if each.name.isdigit())
        restarted = time.time()
        run_live(PROGRAM, conf, directory, broker, str(live))
    (history,) = (home / "checkpoints").rglob("commits")
    (query,) = report.queries
    last_step, flush = (_committed(history, header.steps + more) for more in (-1, 0))
    first_live, first_again = (_committed(commits, batch) for batch in (query.batch + 1, again))
    placed = (live / "counts" / "_backfill_hand_off.json").stat().st_mtime
    return {
        "pause_s": first_live - last_step,
        "flush_s": flush - last_step,
        "close_s": placed - report.seconds - flush,
        "place_s": report.seconds,
        "driver_end_s": ended - placed,
        "live_s": first_live - ended,
        "restart_s": first_again - restarted,
        "load": os.getloadavg()[0],
    }


def _committed(commits: Path, batch: int) -> float:
    """When a micro-batch was committed, in seconds since the epoch."""
    return (commits / str(batch)).stat().st_mtime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, help="repartition the state to so many")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        print(json.dumps(measure(Path(place), arguments.rows, arguments.partitions)))


if __name__ == "__main__":
    main()
