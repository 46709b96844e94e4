"""The operator is killed at every write, before and after it reaches the API server: nothing is lost, nothing is doubled.

Nor where the write was held up on its way and arrives when the next operator has written, too.
The operators are in the test's process (see ``mortal_operator``), so that every single write can be cut in turn.
``test_operator_chaos_process`` does the same to real processes at every kind of write.
"""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from mortal_operator import MortalOperators
from played import PlayedRun
from proxy import UnreliableProxy
from rest import SPARK_APPLICATIONS, SPLIT_ASSIGNMENTS, Manifest, Rest
from written import CutWrite, Written

from backfill.controller.kubernetes.names import child_name
from table_jobs import Clicks

_OWNED = ("api/v1/namespaces/{}/configmaps", SPLIT_ASSIGNMENTS, SPARK_APPLICATIONS, "api/v1/namespaces/{}/pods")
_PROGRESS = ("steps", "committed", "summary", "rowsRead", "openAtEnd")
_LEAST_WRITES = 25
"""A run has more; fewer would mean that something is not cut."""


class MortalRun:
    """One Backfill, with whoever plays the Spark operator and the driver."""

    def __init__(self, admin: Rest, operators: MortalOperators, run: PlayedRun):
        self.admin, self.operators, self.run = admin, operators, run
        self.work_until = operators.work_until

    def fail_once_and_succeed(self) -> Manifest:
        """The first attempt fails after a step, the second one finishes. The status before the deletion."""
        self.run.create(failurePolicy={"maxAttempts": 3, "backoff": "10ms"})
        self._start(1)
        first = self._released(1)
        self._commit(1, 1)
        self.work_until(lambda: self._released(1) > first, "more is released than the next attempt may read at first")
        self.run.end(1, exit_code=1)
        self._start(2)
        self.run.report(2, committed=1)
        steps = self.run.assignment()["steps"]
        for step in range(2, steps + 1):
            self._commit(2, step)
        self.run.report(2, steps + 1, "Finished")
        self.run.end(2)
        self.work_until(lambda: self.run.condition("Succeeded")[0] == "True", "it succeeds")
        return self.run.status

    def suspend_and_resume(self) -> Manifest:
        """It is suspended after a step and resumed; the second attempt is at work when the Backfill is deleted."""
        self.run.create()
        self._start(1)
        self._commit(1, 1)
        self._change({"suspend": True})
        self.work_until(lambda: self.run.assignment().get("stop"), "the driver is told to stop")
        self.run.report(1, 2, "Stopped")
        self.run.end(1)
        self.work_until(lambda: self.run.condition("Running") == ("False", "Suspended"), "it is suspended")
        self._change({"suspend": False})
        self._start(2)
        self.run.report(2, committed=2)
        self._commit(2, 3)
        self.work_until(lambda: self.run.status["progress"]["committed"] == 3, "three steps are committed")
        self.work_until(lambda: self.run.assignment()["released"] > 3, "the next step is released")
        return self.run.status

    def delete(self) -> None:
        """And then what it owned: nothing else may be left, neither in the cluster nor in its workspace."""
        uid = self.admin.get(self.run.path).expect()["metadata"]["uid"]
        self.admin.delete(self.run.path)
        self.work_until(lambda: self.admin.get(self.run.path).status == 404, "it is let go of")
        workspace = self.run.workspace
        assert [path for path in workspace.rglob("*") if path.is_file()] == [], "plan and checkpoints are removed"
        for collection in _OWNED:
            path = collection.format(self.run.namespace)
            for left in self.admin.get(path).expect()["items"]:
                if left["metadata"]["name"].startswith(self.run.name):
                    self._collect(path, left, uid)

    def _collect(self, path: str, left: Manifest, uid: str) -> None:
        """What garbage collection does. A pod is owned by what the Spark operator made it for."""
        owners = [owner["uid"] for owner in left["metadata"].get("ownerReferences", ())]
        assert owners == [uid] or path.endswith("/pods"), left["metadata"]
        self.admin.delete(f"{path}/{left['metadata']['name']}", gracePeriodSeconds="0")

    def _start(self, attempt: int) -> None:
        child = f"{SPARK_APPLICATIONS.format(self.run.namespace)}/{child_name(self.run.name, attempt)}"
        self.work_until(lambda: self.admin.get(child).ok, f"attempt {attempt} has a child")
        self.run.submit(attempt)

    def _commit(self, attempt: int, step: int) -> None:
        self.work_until(lambda: self._released(attempt) >= step, f"step {step} is released to attempt {attempt}")
        self.run.report(attempt, step)

    def _released(self, attempt: int) -> int:
        spec = self.run.assignment()
        return int(spec["released"]) if spec["attempt"] == attempt else 0

    def _change(self, spec: Manifest) -> None:
        self.admin.patch(self.run.path, {"spec": spec}).expect()


@pytest.fixture(scope="module")
def clicks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clicks]:
    """One table for all runs; its catalog is known to this process."""
    made = Clicks(tmp_path_factory.mktemp("lake"))
    with pytest.MonkeyPatch.context() as patch:
        from pyiceberg.utils.config import Config

        for name, value in made.variables.items():
            patch.setenv(name, value)
        patch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
        yield made


@pytest.mark.usefixtures("crds")
@pytest.mark.parametrize(
    ("life", "moment"),
    [
        (MortalRun.fail_once_and_succeed, "before"),
        (MortalRun.fail_once_and_succeed, "after"),
        (MortalRun.fail_once_and_succeed, "late"),
        (MortalRun.suspend_and_resume, "before"),
        (MortalRun.suspend_and_resume, "after"),
    ],
)
def test_an_operator_killed_at_any_write_is_followed_by_one_that_ends_in_the_same_state(
    life: Callable[[MortalRun], Manifest],
    moment: str,
    admin: Rest,
    cluster_admin: Path,
    proxy: UnreliableProxy,
    namespace: str,
    clicks: Clicks,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("backfill.controller.kubernetes.cases.PROGRESS_SECONDS", 0.0)  # every write comes at once
    kubeconfig = proxy.kubeconfig(cluster_admin, tmp_path / "kubeconfig")
    expected: dict[str, Any] = {}
    struck: list[str] = []
    for number in count():  # the first one is not killed at all
        written = Written()
        cut = CutWrite(number, moment, written, proxy)
        proxy.before, proxy.after = cut.before, cut.after
        run = PlayedRun(admin, namespace, tmp_path, f"killed-{number}", clicks)
        mortal = MortalRun(admin, MortalOperators(kubeconfig, namespace), run)
        status = essence(life(mortal))
        expected = expected or status
        assert status == expected, f"killed {moment} write {number}: {cut.struck}"
        mortal.delete()
        written.assert_sound()
        assert written.children(run.name) == [child_name(run.name, 1), child_name(run.name, 2)]
        assert mortal.operators.deaths == bool(cut.struck)
        if number and not cut.struck:
            break
        struck.append(cut.struck)
    assert len(struck) > _LEAST_WRITES, struck


def essence(status: Manifest) -> dict[str, Any]:
    """A status without names and times, and without what is measured."""
    return {
        "conditions": [(each["type"], each["status"], each["reason"]) for each in status["conditions"]],
        "attempts": [(each["number"], each["outcome"], each["stepsAtStart"]) for each in status["attempts"]],
        "progress": {key: status["progress"].get(key) for key in _PROGRESS},
        "sources": status["sources"],
        "watermark": status["watermark"],
        "planId": status["planId"],
        "retry": status.get("retry"),
        "observedGeneration": status["observedGeneration"],
    }
