"""Today's operator takes over what an earlier one has really left behind, with Backfills in every
phase of their lives.

The earlier one is that of the last commit which had other definitions.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from fake_kubelet import FakeKubelet
from history import definitions_at, operator_at, previous_commit
from mortal_run import essence
from operators import OperatorProcess, running, wait_until_ready
from played import PlayedRun
from resources import OWN, definitions, install
from rest import Rest
from servers import Servers

from table_jobs import Clicks
from waiting import eventually

_NAMESPACE = "default"


class Phases:
    """One Backfill for each phase."""

    def __init__(self, admin: Rest, folder: Path):
        clicks = Clicks(folder / "lake")
        names = ("planned", "running", "suspended", "succeeded", "failed")
        runs = [PlayedRun(admin, _NAMESPACE, folder, name, clicks) for name in names]
        self.all = runs
        self.planned, self.running, self.suspended, self.succeeded, self.failed = runs

    def reach(self) -> None:
        """Under the earlier operator."""
        for run in self.all:
            run.create(failurePolicy={"maxAttempts": 1, "backoff": "10ms"})
        eventually(self.planned.children, "its child waits for the Spark operator")
        for run in self.all[1:]:
            run.submit()
        self.running.report(1, committed=2)
        eventually(lambda: self.running.assignment()["released"] > 2, "more is released to it")
        self.suspended.report(1, committed=1)
        self.suspended.admin.patch(self.suspended.path, {"spec": {"suspend": True}}).expect()
        eventually(lambda: self.suspended.assignment().get("stop"), "its driver is told to stop")
        self.suspended.report(1, 2, "Stopped")
        self.suspended.end(1)
        assert self.suspended.wait_for("Running", "False") == "Suspended"
        self.succeeded.replay()
        self.succeeded.wait_for("Succeeded", "True")
        self.failed.end(1, exit_code=1)
        self.failed.wait_for("Succeeded", "False")

    def go_on(self) -> None:
        """Under today's."""
        self.planned.submit()
        self.planned.replay()
        self.running.replay(committed=2)
        self._change(self.suspended, suspend=False)
        self._change(self.failed, retryNonce="again")
        for run, committed in ((self.suspended, 2), (self.failed, 0)):
            run.submit(2)
            run.replay(2, committed)

    def _change(self, run: PlayedRun, **spec: object) -> None:
        run.admin.patch(run.path, {"spec": spec}).expect()


@pytest.fixture
def phases(own_server: Rest, tmp_path: Path) -> Iterator[Phases]:
    for name in ("default", "spark"):
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
        own_server.apply(f"api/v1/namespaces/{_NAMESPACE}/serviceaccounts/{name}", account).expect()
    install(own_server, definitions())
    yield Phases(own_server, tmp_path)


def test_backfills_in_every_phase_go_on_under_the_next_operator(
    own_servers: Servers,
    own_server: Rest,
    phases: Phases,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commit = previous_commit()
    install(own_server, definitions_at(commit))
    kubeconfig, code = own_servers.admin_kubeconfig, operator_at(commit, tmp_path / "earlier")
    monkeypatch.setenv("BACKFILL_OPERATOR_PLAN_IN_OPERATOR_FOR", "nowhere")
    earlier = OperatorProcess(kubeconfig, _NAMESPACE, tmp_path, code=code)
    kubelet = FakeKubelet(own_server, _NAMESPACE, kubeconfig, tmp_path / "pods", code)
    with running(earlier), kubelet.at_work():
        wait_until_ready(earlier)
        phases.reach()
    before = essence(phases.succeeded.status)

    install(own_server, [yaml.safe_load(path.read_text()) for path in OWN])
    today = OperatorProcess(kubeconfig, _NAMESPACE, tmp_path, life=1)
    with running(today), replace(kubelet, code=None).at_work():
        wait_until_ready(today)
        phases.go_on()
        for run in phases.all:
            run.wait_for("Succeeded", "True")
            attempts = run.status["attempts"]
            assert [each["number"] for each in attempts] == list(range(1, len(attempts) + 1)), (
                run.name
            )
            assert run.children() == [each["child"] for each in attempts], run.name
        assert {run.name: len(run.children()) for run in phases.all} == {
            "planned": 1,
            "running": 1,
            "suspended": 2,
            "succeeded": 1,
            "failed": 2,
        }
        assert essence(phases.succeeded.status) == before
        for run in phases.all:
            own_server.delete(run.path).expect()
            eventually(
                lambda path=run.path: own_server.get(path).status == 404, f"{run.name} is let go of"
            )
        assert [path for path in run.workspace.rglob("*") if path.is_file()] == []
