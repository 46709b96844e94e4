"""Jobs on a real table, and a catalog that never answers, so that a job is under way for as long as
a test wants.
"""

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from backfill.api.catalog_properties import catalog_variables
from backfill.api.spec import BackfillSpec
from backfill.controller.jobs.any_job import Job, JobState
from backfill.controller.jobs.kinds.make_plan import PlanJob
from backfill.planning.plan import PlanHeader
from backfill.planning.planner import make_plan
from backfill.planning.workspace import Workspace
from iceberg_tables import catalog_properties, sqlite_catalog
from waiting import eventually

START = datetime(2024, 1, 1, tzinfo=UTC)
HOURS = 3
PARALLELISM = 2
CLICKS = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])


class Clicks:
    """A table of three hours in a catalog of its own, which only who is given its properties can
    open.
    """

    def __init__(self, directory: Path):
        self.directory = directory
        (directory / "warehouse").mkdir(parents=True)
        catalog = sqlite_catalog(directory)
        catalog.create_namespace("raw")
        table = catalog.create_table("raw.clicks", schema=CLICKS)
        for hour in range(HOURS):
            times = [START + timedelta(hours=hour, minutes=minute) for minute in range(60)]
            table.append(pa.table({"id": range(60), "at": times}, schema=CLICKS))
        self.properties = catalog_properties(directory)
        self.variables = catalog_variables("lake", self.properties)
        self.spec = clicks_spec()

    def plan_job(self, workspace: str = "workspace", **spec: Any) -> PlanJob:
        """A job that plans all of it."""
        place = Workspace(
            workspace if "://" in workspace else str(self.directory / workspace), "lake"
        )
        return PlanJob("default", "january", "uid-1", clicks_spec(**spec), place, PARALLELISM)

    def plan_here(self) -> PlanHeader:
        """The plan as this process makes it; the catalog must be known to it."""
        return make_plan(
            self.spec, Workspace(str(self.directory / "here")), parallelism=PARALLELISM
        )


def clicks_spec(**fields: Any) -> BackfillSpec:
    """All of the table."""
    return BackfillSpec.model_validate(
        {
            "applicationRef": {"name": "app"},
            "window": {"start": START, "end": START + timedelta(hours=HOURS)},
            "maxMisalignment": "1h",
            "sources": [{"name": "clicks", "table": "lake.raw.clicks", "timestampColumn": "at"}],
            **fields,
        }
    )


@contextmanager
def silent_catalog() -> Iterator[Mapping[str, str]]:
    """The properties of a REST catalog that takes requests and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        uri = f"http://127.0.0.1:{server.getsockname()[1]}"
        yield {"type": "rest", "uri": uri, "token": "secret-token"}


def ended(runner: Any, job: Job) -> JobState:
    """A runner's job once it has ended."""
    state: JobState = eventually(
        lambda: (found := runner.state) and found.phase != "Running" and found,
        f"the end of {job}",
    )
    assert state.job == job
    return state


def job_processes() -> set[int]:
    """The processes of this test's jobs."""
    return _children("backfill.controller.local.job_process", {os.getpid()})


def _children(module: str, parents: set[int]) -> set[int]:
    found = set()
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = (status.parent / "cmdline").read_bytes().split(b"\0")
            if (
                module.encode() in words
                and int(status.read_text().rpartition(")")[2].split()[1]) in parents
            ):
                found.add(int(status.parent.name))
        except OSError:
            continue
    return found
