"""Measures planning: ``python tests/benchmarks/planning.py --files N`` prints one line of JSON.

The table has a week of history partitioned by hour, twenty columns with bounds and manifests of
2,500 entries, as a streaming writer leaves them after its manifests were rewritten. Its data files
do not exist: planning must not open them.

With ``--strays`` the table has a day of history in files that exist, each with a row of 1970 and
one of 2099: planning has to open them, since by their bounds every step would read all of them.
"""

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from multiprocessing import Pool
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import pyarrow as pa
from pyiceberg.manifest import DataFile, ManifestFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import HourTransform
from pyiceberg.types import LongType, NestedField, StringType, TimestamptzType

from iceberg_tables import (
    catalog_properties,
    commit_manifests,
    data_file,
    long_bytes,
    partition_of,
    sqlite_catalog,
    write_manifest,
)

START_US = 1_772_323_200_000_000  # 2026-03-01T00:00:00Z
HOUR_US = 3_600_000_000
DAYS = 7
ENTRIES_PER_MANIFEST = 2_500
COLUMNS = 20
SNAPSHOT = 1
ROWS = 400_000
STRAY_ROWS = 1_000
YEAR_2099_US = 4_070_908_800_000_000
FILE_BYTES = 32 * 2**20

SCHEMA = Schema(
    NestedField(1, "ingested_at", TimestamptzType(), required=False),
    *(NestedField(i, f"number_{i}", LongType(), required=False) for i in range(2, COLUMNS - 3)),
    *(
        NestedField(i, f"text_{i}", StringType(), required=False)
        for i in range(COLUMNS - 3, COLUMNS + 1)
    ),
)
SPEC = PartitionSpec(PartitionField(1, 1000, HourTransform(), "ingested_hour"))


def entry(number: int, files: int, rng: random.Random, location: str) -> DataFile:
    """One file of two minutes of arrival."""
    lower = START_US + number * DAYS * 24 * HOUR_US // files
    hour_end = (lower // HOUR_US + 1) * HOUR_US
    upper = min(lower + 120_000_000, hour_end - 1)
    low = {1: long_bytes(lower)} | {
        i: long_bytes(rng.randrange(2**40)) for i in range(2, COLUMNS - 3)
    }
    high = {1: long_bytes(upper)} | {i: long_bytes(2**41) for i in range(2, COLUMNS - 3)}
    for i in range(COLUMNS - 3, COLUMNS + 1):
        low[i], high[i] = b"aaaaaaaaaaaaaaaa", b"zzzzzzzzzzzzzzzz"
    name = f"{rng.getrandbits(32):08x}/ingested_hour={lower // HOUR_US}/{number:05d}-{rng.getrandbits(128):032x}-00001.parquet"
    return data_file(
        2,
        file_path=f"{location}/data/{name}",
        partition=partition_of(lower // HOUR_US),
        record_count=ROWS,
        file_size_in_bytes=FILE_BYTES,
        column_sizes=dict.fromkeys(range(1, COLUMNS + 1), FILE_BYTES // COLUMNS),
        value_counts=dict.fromkeys(range(1, COLUMNS + 1), ROWS),
        null_value_counts=dict.fromkeys(range(1, COLUMNS + 1), 0),
        nan_value_counts={},
        lower_bounds=low,
        upper_bounds=high,
        split_offsets=[4],
        sort_order_id=0,
    )


def make_manifest(task: tuple[str, int, int, int]) -> ManifestFile:
    """Writes one manifest of the table in a directory."""
    directory, number, start, files = task
    rng = random.Random(number)
    table = sqlite_catalog(Path(directory)).load_table("bench.events")
    entries = [
        entry(i, files, rng, table.location())
        for i in range(start, min(start + ENTRIES_PER_MANIFEST, files))
    ]
    return write_manifest(table, f"{table.location()}/metadata/{number}-m0.avro", entries, SNAPSHOT)


def generate(directory: Path, files: int) -> None:
    """Makes the table, unless it is there."""
    if (directory / "done").exists():
        return
    (directory / "warehouse").mkdir(parents=True, exist_ok=True)
    catalog = sqlite_catalog(directory)
    catalog.create_namespace("bench")
    table = catalog.create_table("bench.events", SCHEMA, partition_spec=SPEC)
    tasks = [
        (str(directory), number, start, files)
        for number, start in enumerate(range(0, files, ENTRIES_PER_MANIFEST))
    ]
    with Pool(2) as pool:
        manifests = pool.map(make_manifest, tasks)
    commit_manifests(catalog, table, manifests, SNAPSHOT)
    (directory / "done").touch()


def generate_with_strays(directory: Path, files: int) -> None:
    """Makes the table with rows far from all others, unless it is there."""
    if (directory / "done").exists():
        return
    (directory / "warehouse").mkdir(parents=True, exist_ok=True)
    catalog = sqlite_catalog(directory)
    catalog.create_namespace("bench")
    times = pa.timestamp("us", "UTC")
    schema = pa.schema([("ingested_at", times), ("id", pa.int64())])
    table = catalog.create_table("bench.events", schema)
    length = 24 * HOUR_US // files
    for number in range(files):
        first = START_US + number * length
        moments = [0, *range(first, first + length, length // STRAY_ROWS), YEAR_2099_US]
        columns = [pa.array(moments, times), pa.array(range(len(moments)), pa.int64())]
        table.append(pa.table(columns, schema=schema))
    (directory / "done").touch()


def measure(directory: Path) -> None:
    """Plans the whole table and prints what it took. Runs in a process of its own, so that its
    memory is its own.
    """
    from backfill.api.spec import BackfillSpec
    from backfill.planning.planner import make_plan
    from backfill.planning.workspace import Workspace

    spec = BackfillSpec.model_validate(
        {
            "applicationRef": {"name": "bench"},
            "window": {"start": "2026-03-01T00:00:00Z", "end": "2026-03-08T00:00:00Z"},
            "sources": [
                {"name": "events", "table": "lake.bench.events", "timestampColumn": "ingested_at"}
            ],
        }
    )
    with tempfile.TemporaryDirectory(dir=directory) as workspace:
        began = time.monotonic()
        header = make_plan(spec, Workspace(workspace), parallelism=8)
        seconds = time.monotonic() - began
    own, children = (
        resource.getrusage(who).ru_maxrss
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    print(
        json.dumps(
            {
                "files": sum(source.files for source in header.sources),
                "seconds": round(seconds, 2),
                "peak_mib": round((own + children) / 1024),
                "steps": header.steps,
                "splits": sum(source.splits for source in header.sources),
                "rows": header.rows,
            }
        )
    )


def main() -> None:
    """Generates, then measures in a child process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument(
        "--directory",
        type=Path,
        default=Path(tempfile.gettempdir()) / "backfill-planning-benchmark",
    )
    parser.add_argument("--strays", action="store_true", help="rows of 1970 and 2099 in each file")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    kind = "-with-strays" if arguments.strays else ""
    directory = arguments.directory / f"{arguments.files}{kind}"
    if arguments.measure:
        measure(directory)
        return
    (generate_with_strays if arguments.strays else generate)(directory, arguments.files)
    properties = {
        f"PYICEBERG_CATALOG__LAKE__{key.upper()}": value
        for key, value in catalog_properties(directory).items()
    }
    command = [
        sys.executable,
        __file__,
        "--files",
        str(arguments.files),
        "--directory",
        str(arguments.directory),
        "--measure",
        *(["--strays"] if arguments.strays else []),
    ]
    raise SystemExit(subprocess.run(command, env=os.environ | properties, check=False).returncode)


if __name__ == "__main__":
    main()
