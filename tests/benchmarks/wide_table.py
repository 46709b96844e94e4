"""Measures ``backfill run`` of a Kafka program over a table of many columns:
``python tests/benchmarks/wide_table.py --columns N --execution Streaming`` prints one line of JSON.

The table has few rows, so that what is measured is what each column costs before anything is read.
With ``--every-column`` the program decodes and uses all columns, by names in another case; otherwise
three.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import yaml
from event_data import START_US, catalog_properties, new_catalog

ROWS = 2_000
HOUR_US = 3_600_000_000
PROGRAM = """
from pyspark.sql import SparkSession, functions as F

spark = SparkSession.builder.appName("wide").getOrCreate()
records = spark.readStream.format("kafka").options(subscribe="events").load()
events = records.select(
    F.from_json(F.col("value").cast("string"), "{schema}").alias("e"),
    "timestamp",
).select("e.*", "timestamp")
counts = (
    events.withWatermark("timestamp", "1 minute")
    .groupBy(F.window("timestamp", "10 minutes"))
    .agg(F.count("id").alias("rows"), F.sum({total}).alias("total"), F.max("text_8").alias("text"))
    .select(F.col("window.start").alias("start"), "rows", "total", "text")
)
query = counts.writeStream.queryName("counts").format("iceberg").outputMode("append")
query.option("checkpointLocation", "s3://production/wide").toTable("bench.events.counts").awaitTermination()
"""
COUNTS = pa.schema(
    [
        ("start", pa.timestamp("us", "UTC")),
        ("rows", pa.int64()),
        ("total", pa.int64()),
        ("text", pa.string()),
    ]
)


def generate(directory: Path, columns: int) -> None:
    """A table of two hours, and one for the result."""
    catalog = new_catalog(directory, "events")
    texts = pa.array([f"text {row}" for row in range(ROWS)])
    numbers = pa.array(range(ROWS), pa.int64())
    times = pa.array(
        range(START_US, START_US + 2 * HOUR_US, 2 * HOUR_US // ROWS), pa.timestamp("us", "UTC")
    )
    rows = pa.table(
        {"id": numbers, "ingested_at": times}
        | {
            (f"text_{column}" if column % 2 == 0 else f"number_{column}"): (
                texts if column % 2 == 0 else numbers
            )
            for column in range(2, columns)
        }
    )
    catalog.create_table("events.wide", schema=rows.schema).append(rows)
    catalog.create_table("events.counts", schema=COUNTS)


def program_of(columns: int, *, every: bool) -> str:
    """A program that decodes three of the columns, or every one."""
    used = range(2, columns) if every else (7, 8)
    texts, numbers = ([column for column in used if column % 2 == half] for half in (0, 1))
    names = {f"text_{each}": "string" for each in texts}
    names |= {f"number_{each}": "bigint" for each in numbers}
    schema = ", ".join(
        f"{name.capitalize() if every else name} {kind}" for name, kind in names.items()
    )
    total = f"F.hash({', '.join(map(repr, names))})" if every else "'number_7'"
    return PROGRAM.format(schema=f"id bigint, {schema}", total=total)


def manifests(directory: Path, text: str, execution: str) -> list[dict[str, object]]:
    """The Backfill, and the SparkApplication that is run again."""
    program = directory / "program.py"
    program.write_text(text)
    application = {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "SparkApplication",
        "metadata": {"name": "wide"},
        "spec": {"type": "Python", "mode": "cluster", "mainApplicationFile": str(program)},
    }
    source = {
        "name": "wide",
        "table": "bench.events.wide",
        "timestampColumn": "ingested_at",
        "live": {"kafka": {"topic": "events"}},
    }
    output = {"name": "counts", "table": "bench.events.counts", "timestampColumn": "start"}
    spec = {
        "applicationRef": {"name": "wide"},
        "window": {"start": "2026-03-01T00:00:00Z", "end": "2026-03-01T02:00:00Z"},
        "sources": [source],
        "outputs": [{**output, "publish": {"mode": "Append"}}],
        "execution": execution,
        "maxMisalignment": "2h",
        "overrides": {"sparkConf": {"spark.master": "local[2]"}},
    }
    backfill = {
        "apiVersion": "backfill.dev/v1alpha1",
        "kind": "Backfill",
        "metadata": {"name": f"wide-{execution.lower()}"},
        "spec": spec,
    }
    return [application, backfill]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--columns", type=int, default=1_500)
    parser.add_argument("--execution", choices=["Streaming", "Batch"], default="Streaming")
    parser.add_argument("--every-column", action="store_true")
    parser.add_argument("--most-seconds", type=float, default=900)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        directory = Path(made) / "data"
        generate(directory, arguments.columns)
        for key, value in catalog_properties(directory).items():
            os.environ[f"PYICEBERG_CATALOG__BENCH__{key.upper()}"] = value
        manifest = directory / "backfill.yaml"
        text = program_of(arguments.columns, every=arguments.every_column)
        manifest.write_text(yaml.safe_dump_all(manifests(directory, text, arguments.execution)))
        command = [sys.executable, "-m", "backfill", "run", str(manifest)]
        began = time.monotonic()
        done = subprocess.run(
            [*command, "--state-dir", str(directory / "state"), "--output", "json"],
            capture_output=True,
            text=True,
            check=False,
            timeout=arguments.most_seconds,
        )
        seconds = time.monotonic() - began
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}")
    result = json.loads(done.stdout.splitlines()[-1])
    print(
        json.dumps(
            {
                "columns": arguments.columns,
                "seconds": round(seconds, 1),
                "rows": result["rowsRead"],
                "results": result["outputs"][0]["rows"],
            }
        )
    )


if __name__ == "__main__":
    main()
