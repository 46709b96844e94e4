"""Real drivers on a small lake: a table of events, its plan, and a controller reduced to what a
test says.
"""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog

import backfill
from backfill.api.quantities import format_time, from_us
from backfill.api.spec import BackfillSpec
from backfill.planning.plan import PlanHeader, plan_directory
from backfill.planning.planner import make_plan
from backfill.planning.workspace import Workspace
from backfill.protocol.atomic_files import replace_file
from backfill.protocol.split_assignment import (
    ASSIGNMENT_FILE,
    LOCK_FILE,
    SplitAssignmentSpec,
    SplitAssignmentStatus,
)
from backfill.runtime.agent.channel import DirectoryChannel
from backfill.runtime.settings import RuntimeSettings
from small_java import ON_A_FEW_ROWS
from waiting import PATIENCE_SECONDS, eventually

START = datetime(2021, 7, 11, tzinfo=UTC)
ROWS_PER_STEP = 60
STEP = timedelta(minutes=10)
DEADLINE_SECONDS = 2 * PATIENCE_SECONDS
_LOOK_SECONDS = 0.0005
EVENTS = pa.schema([("id", pa.int64()), ("user", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))])
COUNTS = pa.schema(
    [("start", pa.timestamp("us", tz="UTC")), ("user", pa.int64()), ("n", pa.int64())]
)


class Lake:
    """Tables ``lake.default.events`` (one file for each step), ``copies`` and ``counts``, and the
    plan that reads the events. With ``users``, also ``lake.default.users``, in which every user is
    twice since its second snapshot: the plan reads the first one.
    """

    def __init__(self, directory: Path, catalog: Catalog, steps: int, *, users: bool = False):
        self.directory = directory
        self._catalog = catalog
        self._catalog.create_namespace("default")
        events = self._catalog.create_table("default.events", schema=EVENTS)
        for step in range(steps):
            events.append(_events(step))
        self._catalog.create_table("default.copies", schema=EVENTS)
        self._catalog.create_table("default.counts", schema=COUNTS)
        static = [{"table": "lake.default.users", "asOf": self._add_users()}] if users else []
        self.spec = BackfillSpec.model_validate(
            {
                "applicationRef": {"name": "app"},
                "window": {"start": START, "end": START + steps * STEP},
                "sources": [
                    {
                        "name": "events",
                        "table": "lake.default.events",
                        "timestampColumn": "at",
                        "live": {"kafka": {"topic": "raw-events"}},
                    }
                ],
                "staticTables": static,
                "ordering": {"policy": "Exact"},
                "maxMisalignment": "20m",
            }
        )
        self.workspace = Workspace(str(directory / "workspace"))
        self.header = make_plan(self.spec, self.workspace, parallelism=1)

    def _add_users(self) -> str:
        """When only the first snapshot was there."""
        rows = pa.table({"user": [0, 1, 2], "name": ["Ada", "Bo", "Cy"]})
        users = self._catalog.create_table("default.users", schema=rows.schema)
        users.append(rows)
        first = users.current_snapshot()
        assert first is not None
        eventually(lambda: time.time_ns() // 1_000_000 > first.timestamp_ms, "a later time")
        users.append(rows)
        return format_time(from_us(first.timestamp_ms * 1_000))

    def settings(
        self, name: str, main_file: Path, attempt: int = 1, outputs: tuple[str, ...] = ("copies",)
    ) -> RuntimeSettings:
        """The settings of an attempt to run a program as the backfill ``name``."""
        home = self.directory / name
        (home / "channel").mkdir(parents=True, exist_ok=True)
        columns = {"copies": "at", "counts": "start"}
        return RuntimeSettings.model_validate(
            {
                "backfill": name,
                "namespace": "default",
                "uid": "first",
                "attempt": attempt,
                "planId": self.header.plan_id,
                "plan": plan_directory(self.workspace, self.header.plan_id).uri,
                "checkpoints": str(home / "checkpoints"),
                "channel": str(home / "channel"),
                "window": self.spec.window.to_manifest(),
                "sources": [source.to_manifest() for source in self.spec.sources],
                "outputs": [
                    {
                        "name": output,
                        "table": f"lake.default.{output}",
                        "timestampColumn": columns.get(output, "at"),
                    }
                    for output in outputs
                ],
                "execution": "Streaming",
                "mainFile": str(main_file),
                "sparkConf": ON_A_FEW_ROWS
                | {"spark.master": "local[2,4]", "spark.sql.shuffle.partitions": "2"},
                "sparkDefaults": {"spark.sql.session.timeZone": "UTC"},
            }
        )

    def result(self, backfill: str, table: str) -> list[dict[str, object]]:
        """The rows in the backfill's branch of a table."""
        loaded = self._catalog.load_table(f"default.{table}")
        snapshot = loaded.snapshot_by_name(f"backfill/{backfill}")
        return (
            []
            if snapshot is None
            else loaded.scan(snapshot_id=snapshot.snapshot_id).to_arrow().to_pylist()
        )


def _events(step: int) -> pa.Table:
    rows = [
        {
            "id": step * ROWS_PER_STEP + row,
            "user": row % 3,
            "at": START + step * STEP + row * timedelta(seconds=10),
        }
        for row in range(ROWS_PER_STEP)
    ]
    return pa.Table.from_pylist(rows, schema=EVENTS)


def assign(
    settings: RuntimeSettings,
    header: PlanHeader,
    released: int,
    *,
    stop: bool = False,
    attempt: int | None = None,
) -> None:
    """Writes the assignment as a controller would."""
    spec = SplitAssignmentSpec(
        backfill=settings.backfill,
        plan_id=header.plan_id,
        attempt=attempt or settings.attempt,
        steps=header.steps,
        released=released,
        released_ahead=released,
        watermark=from_us(header.step_starts_us[0]),
        stop=stop,
    )
    replace_file(
        Path(settings.channel) / ASSIGNMENT_FILE,
        spec.model_dump_json(by_alias=True).encode(),
        durable=False,
    )


def status(settings: RuntimeSettings) -> SplitAssignmentStatus:
    """What the driver reported last."""
    found = DirectoryChannel(Path(settings.channel)).last_status()
    assert found is not None
    return found


def committed(settings: RuntimeSettings) -> int:
    """Steps that this attempt reports as committed by every query; -1 before it knows its
    queries.
    """
    found = DirectoryChannel(Path(settings.channel)).last_status()
    if found is None or found.attempt != settings.attempt or found.phase == "Starting":
        return -1
    return min(source.committed for query in found.queries for source in query.sources)


def environment(settings: RuntimeSettings) -> dict[str, str]:
    """What a controller sets in a driver's environment."""
    return {
        "BACKFILL_SETTINGS": settings.model_dump_json(by_alias=True),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(Path(backfill.__file__).parents[1]),
    }


@contextmanager
def controlled(settings: RuntimeSettings) -> Iterator[None]:
    """The controller's lock, held: a driver without a controller stops by itself after a while."""
    with (Path(settings.channel) / LOCK_FILE).open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def driver(
    settings: RuntimeSettings, python: Path = Path(sys.executable)
) -> Iterator["subprocess.Popen[bytes]"]:
    """A driver process with a controller, in a session of its own. It is killed at the end if it is
    still there. ``python`` is what Spark starts for its Python processes.
    """
    log = Path(settings.channel).parent / "driver.log"
    with log.open("ab") as output, controlled(settings):
        process = subprocess.Popen(
            [sys.executable, "-m", "backfill.runtime"],
            env=os.environ | environment(settings) | {"PYSPARK_PYTHON": str(python)},
            cwd=log.parent,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def kill_once(process: "subprocess.Popen[Any]", condition: Callable[[], bool]) -> None:
    """Kills a driver with all of its processes, the JVM among them, once a condition holds."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert process.poll() is None, f"the driver ended with {process.returncode}"
        assert time.monotonic() < deadline, "the driver does not get so far"
        time.sleep(_LOOK_SECONDS)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def wait_until(condition: Callable[[], bool], process: "subprocess.Popen[bytes]") -> None:
    """Polls until a condition holds; fails when the process ends before, or after the deadline."""

    def look() -> bool:
        assert process.poll() is None, f"the driver ended with status {process.returncode}"
        return condition()

    eventually(look, "what the test waits for", DEADLINE_SECONDS)


def run_applications(directory: Path, settings: list[RuntimeSettings]) -> list[list[str]]:
    """Runs applications one after the other in one driver; gives the phase, reason and message of
    each.
    """
    files = []
    for number, one in enumerate(settings):
        files.append(directory / f"settings_{number}.json")
        files[-1].write_text(one.model_dump_json(by_alias=True))
    program = Path(__file__).with_name("run_applications.py")
    with (directory / "driver.log").open("wb") as log, ExitStack() as controllers:
        for one in settings:
            controllers.enter_context(controlled(one))
        done = subprocess.run(
            [sys.executable, program, *files],
            env=os.environ | environment(settings[0]),
            cwd=directory,
            stdout=subprocess.PIPE,
            stderr=log,
            check=False,
        )
    lines = [line for line in done.stdout.decode().splitlines() if line.startswith('["')]
    assert len(lines) == len(settings), (directory / "driver.log").read_text()[-3000:]
    return [json.loads(line) for line in lines]
