"""The operator's process with a thousand Backfills on a real API server and etcd: how long turns
take, what is written.

A hundred of the Backfills are being read by drivers that only talk (``operator_drivers``), one
committed step a second in all. Needs ``KUBEBUILDER_ASSETS``, the folder of etcd and kube-apiserver.
Nothing else runs: no kubelet, no Spark operator.
"""

# ruff: noqa: E402 - the API server's tests have what is needed, in folders of their own

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "support"), str(TESTS / "apiserver")]

from fake_kubelet import FakeKubelet
from operator_drivers import Drivers, account_of, drivers_of
from operator_world import World
from operators import OperatorProcess, running
from played import PlayedRun
from resources import definitions, install
from rest import Rest
from servers import running_servers

from waiting import eventually

NAMESPACE = "operator"
_OPTIONS = ("--namespaces", "", "--log-level", "warning")
_LISTS = 5
_QUIET_SECONDS = 6.0
"""Longer than progress may be kept back."""
Figures = dict[str, float]


class Measured:
    """What an operator and its API server have counted, from one moment to the next."""

    def __init__(self, operator: OperatorProcess, admin: Rest):
        self._operator, self._admin = operator, admin
        self._before = self._look()

    def quantile(self, histogram: str, share: float) -> float:
        """The upper end of the bucket that a share of the observations is within, in seconds."""
        now, _, _ = self._look()
        buckets = {
            bound: count - self._before[0].get(name, 0.0)
            for name, count in now.items()
            if (bound := _bound(name, histogram))
        }
        total = max(buckets.values())
        return min(bound for bound, count in buckets.items() if count >= share * total)

    def turns(self) -> float:
        """Reconciles taken."""
        return self._difference(0, lambda name: name.startswith("backfill_reconciles_total"))

    def writes(self, resource: str, subresource: str = "") -> float:
        """Requests that changed objects of a kind, by whomever."""
        labels = (f'resource="{resource}"', f'subresource="{subresource}"')
        return self._difference(
            1, lambda name: _WRITE.search(name) is not None and all(each in name for each in labels)
        )

    def cpu_seconds(self) -> float:
        """The operator's."""
        return self._look()[2] - self._before[2]

    def _difference(self, part: int, chosen: Callable[[str], bool]) -> float:
        now, before = self._look()[part], self._before[part]
        return sum(value - before.get(name, 0.0) for name, value in now.items() if chosen(name))

    def _look(self) -> tuple[dict[str, float], dict[str, float], float]:
        own = _series(self._operator.metrics())
        server = {
            name: value
            for name, value in _series(self._admin.get("metrics").message).items()
            if "apiserver_request_total" in name
        }
        return own, server, _cpu_seconds(self._operator.pid)


_WRITE = re.compile(r'verb="(POST|PUT|PATCH|APPLY|DELETE)"')


def measure(backfills: int, active: int, seconds: float) -> Figures:
    """Everything, on servers of its own."""
    with (
        tempfile.TemporaryDirectory() as directory,
        running_servers(Path(os.environ["KUBEBUILDER_ASSETS"]), Path(directory)) as servers,
    ):
        folder, admin = Path(directory), Rest(servers.admin_kubeconfig)
        install(admin, definitions())
        world = World(admin)
        placed = world.fill(backfills, active)
        admin.create("api/v1/namespaces", {"metadata": {"name": NAMESPACE}}).expect()
        account = {"metadata": {"name": "default"}}
        admin.create(f"api/v1/namespaces/{NAMESPACE}/serviceaccounts", account).expect()
        jobs = account_of(admin, servers.admin_kubeconfig, NAMESPACE, folder)
        drivers = drivers_of(admin, servers.admin_kubeconfig, placed, folder)
        drivers.begin()
        operator, first_seconds = started(servers.admin_kubeconfig, folder, "first", backfills)
        with running(operator):
            # what the first turns of the active ones have changed is settled before it is measured
            time.sleep(_QUIET_SECONDS)
            figures = under_load(operator, admin, drivers, seconds)
            drivers.close()
            kubelet = FakeKubelet(admin, NAMESPACE, jobs, folder / "pods")
            with kubelet.at_work():
                figures["events_per_finished_backfill"] = events_of_finished(admin, folder)
            figures["rss_mib"], figures["peak_rss_mib"] = _memory(operator.pid)
            time.sleep(_QUIET_SECONDS)
            before = world.versions()
            operator.kill()
        again, figures["restart_seconds"] = started(
            servers.admin_kubeconfig, folder, "again", backfills
        )
        with running(again):
            changed = [
                uid for uid, version in world.versions().items() if before.get(uid) != version
            ]
            figures["objects_written_at_restart"] = len(changed)
            figures["writes_at_restart"] = sum(
                number for verb, number in again.requested().items() if verb not in ("get", "list")
            )
            figures["list_seconds"] = list_seconds(servers.admin_kubeconfig, backfills)
        return figures | {"first_start_seconds": first_seconds}


def started(
    kubeconfig: Path, folder: Path, life: str, backfills: int
) -> tuple[OperatorProcess, float]:
    """An operator that has taken a turn for everything, and how long that took from the start of
    its process.
    """
    began = time.monotonic()
    operator = OperatorProcess(kubeconfig, NAMESPACE, folder, "operator", *_OPTIONS)
    eventually(lambda: operator.ready() == "leader", f"the {life} operator leads", 120)
    turns = 'backfill_reconciles_total{result="done"}'
    eventually(lambda: operator.measured(turns) >= backfills, "a turn for each", 120)
    eventually(lambda: operator.measured("backfill_queue_depth") == 0, "nothing is due", 120)
    return operator, time.monotonic() - began


def under_load(operator: OperatorProcess, admin: Rest, drivers: Drivers, seconds: float) -> Figures:
    """Steps are committed for so long."""
    measured = Measured(operator, admin)
    drivers.talk(seconds)
    time.sleep(_QUIET_SECONDS)
    steps = drivers.commits
    by_operator = sum(
        measured.writes(*kind)
        for kind in (("backfills", "status"), ("splitassignments", ""), ("events", ""))
    )
    heartbeats = drivers.reports - drivers.commits
    return {
        "steps": steps,
        "steps_held_up": drivers.held_up,
        "turns": measured.turns(),
        "reconcile_p50_at_most_seconds": measured.quantile(
            "backfill_reconcile_duration_seconds", 0.50
        ),
        "reconcile_p99_at_most_seconds": measured.quantile(
            "backfill_reconcile_duration_seconds", 0.99
        ),
        "queue_p99_at_most_seconds": measured.quantile("backfill_queue_latency_seconds", 0.99),
        "release_median_seconds": statistics.median(drivers.release_seconds),
        "release_p99_seconds": statistics.quantiles(drivers.release_seconds, n=100)[-1],
        "status_writes_per_step": measured.writes("backfills", "status") / steps,
        "release_writes_per_step": measured.writes("splitassignments") / steps,
        "driver_writes_per_step": (
            (measured.writes("splitassignments", "status") - heartbeats) / steps
        ),
        "writes_per_step": (
            (by_operator + measured.writes("splitassignments", "status") - heartbeats) / steps
        ),
        "heartbeats_per_second": heartbeats / seconds,
        "operator_cores": measured.cpu_seconds() / seconds,
    }


def events_of_finished(admin: Rest, folder: Path) -> float:
    """The most Events of runs from the first to the last: one with and one
    without a failed attempt.
    """
    for name, failures in (("smooth", 0), ("retried", 1)):
        run = PlayedRun(admin, NAMESPACE, folder, name)
        run.create(failurePolicy={"maxAttempts": 3, "backoff": "100ms"})
        for attempt in range(1, failures + 1):
            run.submit(attempt)
            run.report(attempt, committed=attempt)
            run.end(attempt, exit_code=1)
        run.submit(failures + 1)
        run.replay(failures + 1, committed=failures)
        run.wait_for("Succeeded", "True")
        time.sleep(1.0)  # the last Event follows the status
    counts: Counter[str] = Counter()
    for event in admin.get(f"api/v1/namespaces/{NAMESPACE}/events").expect()["items"]:
        counts[event["involvedObject"]["name"]] += 1
    return max(counts.values())


def list_seconds(kubeconfig: Path, backfills: int) -> float:
    """How long ``kubectl backfill list`` takes to show them all, from the start of its process; the
    median.
    """
    program = Path(sys.executable).with_name("kubectl-backfill")
    taken = []
    for _ in range(_LISTS):
        began = time.monotonic()
        done = subprocess.run(
            (program, "list", "-A", "--kubeconfig", kubeconfig), capture_output=True, check=True
        )
        taken.append(time.monotonic() - began)
        assert len(done.stdout.splitlines()) > backfills
    return statistics.median(taken)


def _series(text: str) -> dict[str, float]:
    pairs = (
        line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#")
    )
    return {name: float(value) for name, _, value in pairs}


def _bound(series: str, histogram: str) -> float | None:
    found = re.fullmatch(rf'{histogram}_bucket\{{le="(\S+)"\}}', series)
    return float(found[1]) if found else None


def _memory(pid: int) -> tuple[float, float]:
    """What the process holds, and held at most, in MiB."""
    kibibytes = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    resident, peak = (int(kibibytes[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM"))
    return resident, peak


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backfills", type=int, default=1000)
    parser.add_argument("--active", type=int, default=100, help="how many of them are being read")
    parser.add_argument("--seconds", type=float, default=150.0, help="of load")
    arguments = parser.parse_args()
    print(json.dumps(measure(arguments.backfills, arguments.active, arguments.seconds)))


if __name__ == "__main__":
    main()
