"""Catalogs and stores that cannot answer for a moment while a plan is made, with real servers."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from iceberg_tables import catalog_properties
from local_runs import EVENTS, START, LocalRuns
from object_files import ObjectFiles, create_objects, object_files

MANY = 1_000
"""More requests than the client of a store repeats by itself."""


@pytest.fixture
def store(
    tmp_path: Path, lake: Catalog, runs: LocalRuns, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ObjectFiles]:
    """The object store of the table ``lake.raw.plays``, from which the Backfill reads."""
    times = [START + timedelta(minutes=minute) for minute in range(60)]
    rows = pa.table({"id": range(60), "at": times}, schema=EVENTS)
    properties = catalog_properties(tmp_path)
    create_objects(tmp_path / "objects", monkeypatch, "raw.plays", rows, properties)
    source = {"name": "plays", "table": "lake.raw.plays", "timestampColumn": "at"}
    runs.write(sources=[source])
    with object_files(tmp_path / "objects") as served:
        given = {"ENDPOINT": served.endpoint, "REGION": "us-east-1"}
        given |= {"ACCESS_KEY_ID": "key", "SECRET_ACCESS_KEY": "secret"}
        for name, value in given.items():
            monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__S3__{name}", value)
        yield served


def test_a_store_that_is_busy_while_the_plan_is_made_costs_an_attempt_and_not_the_run(
    runs: LocalRuns, store: ObjectFiles
) -> None:
    store.unavailable += ["-m0.avro"] * MANY
    running = runs.start("run", str(runs.file))
    runs.wait_for(lambda: "attempt 1 of 3 failed" in running.printed, "a second attempt")
    store.unavailable[:] = [".parquet"] * MANY
    runs.wait_for(lambda: "attempt 2 of 3 failed" in running.printed, "a third attempt")
    store.unavailable.clear()
    ended = runs.end(running)
    assert ended.status == 0, ended.err
    assert ("metadata file" in ended.out, "a data file of" in ended.out) == (True, True)
    assert runs.backfill.status.retry is None


def test_a_store_that_stays_busy_ends_the_run_as_failed_and_not_as_bad_input(
    runs: LocalRuns, store: ObjectFiles
) -> None:
    store.unavailable += ["-m0.avro"] * MANY
    ended = runs.run()
    assert (ended.status, "attempt 2 of 3 failed" in ended.out) == (1, True), ended
    assert "-m0.avro" in ended.err and "try again with: backfill resume january" in ended.err
