"""Measures publishing and undoing: ``python tests/benchmarks/publishing.py --files N`` prints one
line of JSON.

The table is partitioned by day, with as many files in the window as the result has, and as many
outside of it. All files exist, as links to one of a thousand rows, and no publication reads them.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from copy import copy
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from backfill.api.output import PublishMode
from backfill.outputs.publication import publish
from backfill.outputs.staging import StagedBatch, stage_batch
from backfill.outputs.undo_publication import Undo
from iceberg_tables import catalog_properties, commit_files, sqlite_catalog
from staged import DAY_US, RESULT, WINDOW, make_table, output, rows_of, write_files

ROWS = 1_000


def many(table: Table, day: int, files: int) -> list[DataFile]:
    """As many files of a day as asked for, each of them a link to one."""
    times = [(number, day * DAY_US + number * 1_000_000) for number in range(ROWS)]
    (first,) = write_files(table, rows_of(times, "benchmark"))
    path = Path(first.file_path.removeprefix("file://"))
    made = []
    for number in range(files):
        link = path.with_name(f"{path.stem}-{number}{path.suffix}")
        link.hardlink_to(path)
        entry = copy(first)
        entry._data = list(first._data)
        entry._data[1] = str(link)
        made.append(entry)
    path.unlink()
    return made


def timed(work: Callable[[], object]) -> float:
    """How long it takes, in seconds."""
    began = time.monotonic()
    work()
    return round(time.monotonic() - began, 2)


def measure(mode: PublishMode, files: int) -> dict[str, float]:
    """Seconds to publish a result of that many files, and to undo that."""
    with tempfile.TemporaryDirectory() as place:
        for name, value in catalog_properties(Path(place)).items():
            os.environ[f"PYICEBERG_CATALOG__LAKE__{name.upper()}"] = value
        lake = sqlite_catalog(Path(place))
        lake.create_namespace("raw")
        table = make_table(lake, "day")
        days = (0, 5) if mode is PublishMode.REPLACE else (5,)
        table = commit_files(
            lake, table, 1, [each for day in days for each in many(table, day, files)]
        )
        batch = StagedBatch("query", 0, many(table, 0, files), table.spec().spec_id, 0)
        stage_batch(table, RESULT, batch)
        published: list[int] = []
        seconds = timed(
            lambda: published.append(publish(output(mode), RESULT, WINDOW, 1).snapshot_id)
        )
        undone = timed(Undo(output(mode), RESULT, WINDOW, published[0]).run)
        kept = list(Path(place).rglob("**/kept/**/*.parquet"))
    name = mode.lower()
    return {f"{name}_s": seconds, f"undo_{name}_s": undone, f"{name}_rewritten": len(kept)}


def main() -> None:
    """Prints the figures of both modes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=10_000)
    files = parser.parse_args().files
    modes = (PublishMode.APPEND, PublishMode.REPLACE)
    print(json.dumps({k: v for mode in modes for k, v in measure(mode, files).items()}))


if __name__ == "__main__":
    main()
