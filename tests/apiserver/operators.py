"""Operator processes, as the command starts them."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from local_ports import free_port
from waiting import PATIENCE_SECONDS, eventually


class OperatorProcess:
    """One replica."""

    def __init__(
        self,
        kubeconfig: Path,
        namespace: str,
        folder: Path,
        name: str = "one",
        *options: str,
        life: int = 0,
        code: Path | None = None,
    ):
        """``life`` tells the log from those of earlier ones of its name. ``code``: where Python
        finds another operator's.
        """
        self.log_file = folder / (f"{name}-{life}.log" if life else f"{name}.log")
        self.metrics_port, self.health_port = free_port(), free_port()
        command = [sys.executable, "-m", "backfill.controller.manager", "--identity", name]
        command += [
            "--kubeconfig",
            str(kubeconfig),
            "--namespaces",
            namespace,
            "--leader-election-namespace",
            namespace,
        ]
        command += ["--metrics-port", str(self.metrics_port)]
        command += ["--health-port", str(self.health_port)]
        command += ["--log-format", "json", *options]
        environment = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("PYICEBERG", "KUBE"))
        }
        environment["BACKFILL_OPERATOR_JOB_IMAGE"] = "jobs:1"
        if code is not None:
            environment["PYTHONPATH"] = str(code)
        with self.log_file.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> int | None:
        """Its exit status, once it has one."""
        return self._process.poll()

    def ready(self) -> str | None:
        """Whether it leads, once it is ready."""
        try:
            _get(self.health_port, "/healthz")
        except OSError:
            assert self.ended is None, self.log_file.read_text()
            return None
        return "leader" if self.measured("backfill_leader") else "standby"

    def health(self) -> dict[str, Any]:
        """What it answers to a probe."""
        return dict(json.loads(_get(self.health_port, "/healthz")))

    def metrics(self) -> str:
        return _get(self.metrics_port, "/metrics")

    def measured(self, series: str) -> float:
        """The value of a series such as ``backfill_leader``; zero where there is none."""
        found = re.search(rf"^{re.escape(series)} (\S+)$", self.metrics(), flags=re.MULTILINE)
        return float(found[1]) if found else 0.0

    def requested(self) -> dict[str, float]:
        """How many requests it has made, by verb; its Lease's are not counted."""
        series = r'^backfill_api_requests_total\{code="\d+",verb="(\w+)"\} (\S+)$'
        counts: Counter[str] = Counter()
        for verb, count in re.findall(series, self.metrics(), re.MULTILINE):
            counts[verb] += float(count)
        return dict(counts)

    def lines(self) -> list[dict[str, Any]]:
        """Its log."""
        return [json.loads(line) for line in self.log_file.read_text().splitlines()]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def terminate(self, seconds: float = PATIENCE_SECONDS) -> int:
        """Asks it to end, and gives its exit status."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(seconds)


def _get(port: int, path: str) -> str:
    with urllib.request.urlopen(
        f"http://127.0.0.1:{port}{path}", timeout=PATIENCE_SECONDS
    ) as response:
        return str(response.read().decode())


class KeptRunning:
    """An operator that is started again whenever it ends, as in a pod: under the same name, with a
    new log.
    """

    def __init__(self, start: Callable[[int], OperatorProcess]):
        """``start`` is told how many there were before."""
        self._start = start
        self._stop = threading.Event()
        self._lives = [start(0)]
        self._thread = threading.Thread(target=self._keep, name="kubelet", daemon=True)
        self._thread.start()

    @property
    def lives(self) -> int:
        """How many there were."""
        return len(self._lives)

    def kill(self) -> None:
        """Kills the one there is."""
        self._lives[-1].kill()

    def close(self) -> None:
        """Ends it for good."""
        self._stop.set()
        self._thread.join()
        self.kill()

    def log(self) -> str:
        """What all of them said."""
        return "".join(life.log_file.read_text() for life in self._lives)

    def _keep(self) -> None:
        while not self._stop.wait(0.02):
            if self._lives[-1].ended is not None:
                self._lives.append(self._start(len(self._lives)))


@contextmanager
def running(*operators: OperatorProcess) -> Iterator[None]:
    """Whatever is left of them at the end is killed."""
    try:
        yield
    finally:
        for operator in operators:
            operator.kill()


def wait_until_ready(operator: OperatorProcess, words: str = "leader") -> None:
    eventually(
        lambda: operator.ready() == words,
        f"{operator.log_file.stem} is {words}",
    )
