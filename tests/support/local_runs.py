"""Runs of the real command line as a child process, with a driver that plays the protocol in the
place of Spark.
"""

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from pyiceberg.catalog import Catalog

from backfill.api.backfill import Backfill
from backfill.api.conditions import ConditionType, Reason, find_condition
from backfill.controller.local.store import LocalStore
from fake_cli import Command as FakeCommand
from manifests import spark_application
from waiting import eventually

START = datetime(2024, 1, 1, tzinfo=UTC)
HOURS = 6
STEPS = 2 * HOURS
EVENTS = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])


@dataclass
class Ended:
    """What a command left."""

    status: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The JSON document on the last line of standard output."""
        return json.loads(self.out.splitlines()[-1])  # type: ignore[no-any-return]


Command = Callable[..., Ended]
"""The program with its arguments."""


def run_here(
    main: Callable[[], object],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    *words: str,
) -> Ended:
    """Runs a program in this process. It never ends with a stack trace."""
    monkeypatch.setattr(sys, "argv", list(words))
    with pytest.raises(SystemExit) as end:
        main()
    out, err = capfd.readouterr()
    assert "Traceback" not in out + err
    return Ended(int(end.value.code or 0), out, err)


class LocalRuns:
    """A directory with a manifest and its state, and commands run in it."""

    def __init__(self, directory: Path, catalog: Catalog):
        self.directory = directory
        self.state = directory / "state"
        self._started: list[FakeCommand] = []
        for name in ("clicks", "views"):
            table = catalog.create_table(f"raw.{name}", schema=EVENTS)
            for hour in range(HOURS):
                times = [START + timedelta(hours=hour, minutes=minute) for minute in range(60)]
                table.append(pa.table({"id": range(60), "at": times}, schema=EVENTS))
        (directory / "app.py").write_text("raise SystemExit('never run here')\n")
        self.write()

    @property
    def file(self) -> Path:
        return self.directory / "backfill.yaml"

    @property
    def store(self) -> LocalStore:
        return LocalStore(self.state, "default", "january")

    @property
    def backfill(self) -> Backfill:
        found = self.store.load()
        assert found is not None
        return found

    def write(self, arguments: Sequence[str] = (), **spec: Any) -> None:
        """Writes the manifest; ``arguments`` are the application's."""
        sources = [
            {"name": name, "table": f"lake.raw.{name}", "timestampColumn": "at"}
            for name in ("clicks", "views")
        ]
        backfill = {
            "apiVersion": "backfill.dev/v1alpha1",
            "kind": "Backfill",
            "metadata": {"name": "january"},
            "spec": {
                "applicationRef": {"name": "app"},
                "window": {"start": "2024-01-01T00:00:00Z", "end": f"2024-01-01T{HOURS:02}:00:00Z"},
                "maxMisalignment": "1h",
                "failurePolicy": {"maxAttempts": 3, "backoff": "0s"},
                "sources": sources,
                **spec,
            },
        }
        application = spark_application(mainApplicationFile="app.py", arguments=list(arguments))
        self.file.write_text(yaml.safe_dump_all([application, backfill]))

    def start(self, *arguments: str, **wishes: Any) -> FakeCommand:
        """Starts a command; ``wishes`` are the fake driver's."""
        environment = {**os.environ, "FAKE_DRIVER": json.dumps(wishes)}
        words = [*arguments, "--state-dir", str(self.state)]
        self._started.append(FakeCommand(words, self.directory, environment))
        return self._started[-1]

    def close(self) -> None:
        """Kills what is left."""
        for process in self._started:
            self.kill(process)

    def command(self, *arguments: str, **wishes: Any) -> Ended:
        """Runs a command to its end."""
        return self.end(self.start(*arguments, **wishes))

    def run(self, *arguments: str, **wishes: Any) -> Ended:
        """``backfill run`` of the manifest."""
        return self.command("run", str(self.file), *arguments, **wishes)

    def end(self, process: FakeCommand) -> Ended:
        """Waits for a command."""
        return Ended(*process.end())

    def kill(self, process: FakeCommand) -> None:
        """kill -9."""
        process.send_signal(signal.SIGKILL)
        process.end()

    def events(self, kind: str | None = None) -> list[dict[str, Any]]:
        """What drivers did, of all attempts."""
        logs = self.state.glob("default/january/checkpoints/*/events.jsonl")
        events = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
        return [event for event in events if kind in (None, event["event"])]

    def stage(self) -> Reason | None:
        """The reason of the condition Running, as it is recorded."""
        running = find_condition(self.backfill.status.conditions, ConditionType.RUNNING)
        return running.reason if running else None

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Until it holds, or the test fails."""
        eventually(condition, lambda: f"{what}: {self.events()}")

    def wait_for_steps(self, count: int) -> None:
        """Until so many steps have been committed."""
        self.wait_for(lambda: len(self.events("step")) >= count, f"{count} steps")

    def assert_every_step_was_committed_once_and_in_order(self) -> None:
        assert [event["step"] for event in self.events("step")] == list(range(STEPS + 1))
        assert Counter(event["event"] for event in self.events())["two drivers"] == 0
