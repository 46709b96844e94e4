"""A small production: tables, an application and its manifests in a directory, and the real command
line run on them.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml
from pyiceberg.catalog import Catalog

import backfill
from backfill.api.backfill import Backfill
from backfill.controller.local.store import LocalStore
from backfill.planning.plan import read_header
from backfill.planning.workspace import Workspace
from local_runs import Ended
from manifests import spark_application
from waiting import PATIENCE_SECONDS

DEADLINE_SECONDS = 3 * PATIENCE_SECONDS
_SMALL_SPARK = {
    "spark.master": "local[2,4]",
    "spark.driver.memory": "1g",
    "spark.buffer.pageSize": "1m",
    "spark.sql.shuffle.partitions": "2",
}


class Production:
    """One application with its Backfill ``again``; every command runs in a process of its own."""

    def __init__(self, directory: Path, catalog: Catalog):
        self.directory = directory
        self.catalog = catalog
        self.state = directory / "state"
        self.file = directory / "backfill.yaml"
        self.store = LocalStore(self.state, "default", "again")

    @property
    def resource(self) -> Backfill:
        """The Backfill as it is recorded now."""
        found = self.store.load()
        assert found is not None
        return found

    def describe(self, application: str, **spec: Any) -> None:
        """Writes the application's program and the manifests; ``spec`` is the Backfill's, over
        small defaults.
        """
        (self.directory / "app.py").write_text(application)
        sized = {
            "applicationRef": {"name": "app"},
            "failurePolicy": {"maxAttempts": 3, "backoff": "0s"},
            "overrides": {"sparkConf": _SMALL_SPARK},
        }
        self.write_manifests({"metadata": {"name": "again"}, "spec": {**sized, **spec}})

    def write_manifests(self, backfill_fields: dict[str, Any]) -> None:
        """Writes the manifests of a Backfill and of the application ``app``."""
        application = spark_application(mainApplicationFile="app.py")
        resource = {"apiVersion": "backfill.dev/v1alpha1", "kind": "Backfill", **backfill_fields}
        self.file.write_text(yaml.safe_dump_all([application, resource]))

    def start(self, *arguments: str, **environment: str) -> "subprocess.Popen[str]":
        """Starts ``backfill`` with these arguments."""
        package = str(Path(backfill.__file__).parents[1])
        return subprocess.Popen(
            [sys.executable, "-m", "backfill", *arguments],
            env={**os.environ, "PYTHONPATH": package, **environment},
            cwd=self.directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def start_run(self, **environment: str) -> "subprocess.Popen[str]":
        """Starts ``backfill run`` of the manifests."""
        return self.start(
            "run", str(self.file), "--state-dir", str(self.state), "--output", "json", **environment
        )

    def run(self, **environment: str) -> Ended:
        """``backfill run`` of the manifests, to its end."""
        return ended(self.start_run(**environment))

    def succeed(self) -> dict[str, Any]:
        """A run that succeeds; its result."""
        end = self.run()
        assert end.status == 0, f"{end.err}\n{self.driver_log()}"
        return end.document

    def driver_log(self) -> str:
        """The end of the last attempt's log."""
        logs = sorted(
            self.store.attempts.glob("*/driver.log"), key=lambda path: int(path.parent.name)
        )
        return logs[-1].read_text()[-6_000:] if logs else "no driver was started"

    def driver(self) -> int:
        """The process of the last attempt's driver."""
        attempt = self.resource.status.attempts[-1].number
        file = self.store.attempts / str(attempt) / "driver.json"
        return int(json.loads(file.read_bytes())["pid"])

    def output(self, table: str) -> pa.Table:
        """What readers of a table see."""
        return self.catalog.load_table(table).scan().to_arrow()

    def published_snapshots(self, table: str) -> int:
        """Snapshots on a table's main branch whose data changed."""
        loaded, count = self.catalog.load_table(table), 0
        snapshot = loaded.current_snapshot()
        while snapshot is not None:
            count += 1
            snapshot = (
                loaded.snapshot_by_id(snapshot.parent_snapshot_id)
                if snapshot.parent_snapshot_id
                else None
            )
        return count

    def assert_aligned(self, misalignment_us: int) -> None:
        """No query has read a step while another had yet to commit one so far behind, by the times
        of the files in the checkpoints' commit logs.
        """
        [plan] = self.store.directory.glob("plans/*")
        header = read_header(Workspace(str(plan)))
        committed_at = [
            _written_at(query / "commits") for query in self.store.directory.glob("checkpoints/*/*")
        ]
        for moments in committed_at:
            assert len(moments) == header.steps + 1, "every step, and the flush"
            for end_us, read in zip(header.step_ends_us, moments, strict=False):
                behind = min(sum(each < read for each in others) for others in committed_at)
                assert end_us - header.step_starts_us[behind] <= misalignment_us


def _written_at(directory: Path) -> list[int]:
    """When each batch of a checkpoint's log was written, in nanoseconds."""
    batches = sorted(
        (path for path in directory.iterdir() if path.name.isdigit()),
        key=lambda path: int(path.name),
    )
    return [path.stat().st_mtime_ns for path in batches]


def ended(process: "subprocess.Popen[str]") -> Ended:
    """Waits for a command."""
    out, err = process.communicate(timeout=DEADLINE_SECONDS)
    return Ended(process.returncode, out, err)
