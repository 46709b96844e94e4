"""How a source's process waits for steps to be released, and plans them."""

import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from files_of_a_table import v3_table
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, TimestampType
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from backfill.api.errors import PlanCorrupt
from backfill.planning.plan import PlanHeader, PlanInputs, Proof, splits_schema, write_plan
from backfill.planning.rows.pinned_table import SourceTable
from backfill.planning.workspace import Workspace
from backfill.runtime.source.data_source import StepPartition, StepReader
from backfill.runtime.source.release_file import Release, write_release
from repository import ROOT
from waiting import eventually

STEPS = 3
SPLIT = {
    **{"step": 0, "source": "events", "path": "/events.parquet", "format": "parquet"},
    **dict.fromkeys(("file_bytes", "lower_us", "upper_us", "rows", "bytes", "spec_id"), 1),
    "partition": "{}",
}
PLAN_A_STEP = """
import pickle, sys
from pyspark.sql.streaming import python_streaming_source_runner
reader = pickle.load(sys.stdin.buffer)
offsets = [{"source": "events", "step": step} for step in (0, 1)]
assert reader.latestOffset(offsets[0], None) == offsets[1]
(task,) = reader.partitions(*offsets)
assert [split.path for split in task.splits] == ["/events.parquet"]
print(*sys.modules)
"""


def described() -> SourceTable:
    return v3_table(Schema(NestedField(1, "at", TimestampType())))


def reader_of(directory: Path) -> StepReader:
    table = described()
    inputs = PlanInputs(
        start_us=0, end_us=STEPS, policy="Exact", allowed_lateness_us=0, max_misalignment_us=2,
        target_step_bytes=1, parallelism=1, sources=(table.source,),
    )  # fmt: skip
    starts, ends = tuple(range(STEPS)), tuple(range(1, STEPS + 1))
    proof = Proof(greatest_disorder_us=0, greatest_misalignment_us=0)
    header = PlanHeader(
        plan_id=inputs.plan_id(),
        inputs=inputs,
        step_starts_us=starts,
        step_ends_us=ends,
        sources=(),
        proof=proof,
    )
    plan = write_plan(
        Workspace(str(directory)), header, [pa.Table.from_pylist([SPLIT], splits_schema())]
    )
    return StepReader(table, plan, str(directory), StructType(), None)


@pytest.fixture
def reader(tmp_path: Path) -> StepReader:
    return reader_of(tmp_path)


@pytest.mark.parametrize(
    ("start", "release", "answer"),
    [
        (0, Release(1), 1),
        (0, Release(3), 1),
        (1, Release(2, stop=True), 2),
        (1, Release(1, stop=True), 1),
        (2, Release(3), 3),
        (3, Release(3), 4),
        (3, Release(3, stop=True), 4),
        (3, Release(2, stop=True), 3),
        (4, Release(3), 4),
        (4, Release(3, stop=True), 4),
    ],
)
def test_the_next_offset_is_one_step_or_the_flush_or_where_it_was(
    reader: StepReader, tmp_path: Path, start: int, release: Release, answer: int
) -> None:
    write_release(tmp_path / "release.json", release)
    offset = reader.latestOffset({"source": "events", "step": start}, ReadAllAvailable())
    assert offset == {"source": "events", "step": answer}


def test_a_checkpoint_in_which_another_source_stands_is_refused(reader: StepReader) -> None:
    with pytest.raises(PlanCorrupt, match="source plays, but the application now reads events"):
        reader.latestOffset({"source": "plays", "step": 0}, ReadAllAvailable())


def test_a_batch_of_more_than_one_step_is_refused(reader: StepReader) -> None:
    with pytest.raises(PlanCorrupt, match="never more"):
        reader.partitions({"source": "events", "step": 0}, {"source": "events", "step": 2})


def test_a_source_is_planned_without_libraries_that_take_long_to_load(
    reader: StepReader, tmp_path: Path
) -> None:
    write_release(tmp_path / "release.json", Release(1))
    done = subprocess.run(
        [sys.executable, "-c", PLAN_A_STEP],
        input=pickle.dumps(reader),
        stdout=subprocess.PIPE,
        check=True,
    )
    assert {"pandas", "pyarrow.dataset", "pyiceberg"}.isdisjoint(done.stdout.decode().split())


def test_how_files_are_opened_is_never_printed() -> None:
    table = replace(described(), io_properties=(("s3.secret-access-key", "hush"),))
    assert "hush" not in f"{table!r} {StepPartition(table, (), pa.schema([]), by_offset=False)!r}"


def test_the_process_ends_when_the_driver_that_waits_for_it_is_killed(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    wait_forever = f"""
import os, pathlib, sys
sys.path[:0] = {[str(Path(__file__).parent), str(ROOT / "tests" / "support")]!r}
from test_waiting_for_a_release import reader_of, ReadAllAvailable
reader = reader_of(pathlib.Path({str(tmp_path)!r}))
pathlib.Path({str(pid_file)!r}).write_text(str(os.getpid()))
reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
"""
    start_child = (
        f"import subprocess, sys; subprocess.run([sys.executable, '-c', {wait_forever!r}])"
    )
    driver = subprocess.Popen([sys.executable, "-c", start_child])
    eventually(lambda: pid_file.exists() and pid_file.read_text(), "the process waits")
    child = Path("/proc") / pid_file.read_text()
    assert _running(child)
    driver.kill()
    driver.wait()
    eventually(lambda: not _running(child), "the end of the process")


def _running(process: Path) -> bool:
    try:
        return ") Z " not in (process / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
