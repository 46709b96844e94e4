"""One Backfill in a cluster, from ``kubectl apply`` to its end, as its owner sees it."""

import subprocess
import sys
from pathlib import Path
from typing import Any

from live_cluster import until
from plays import Summary, mending
from rest import BACKFILLS, SPARK_APPLICATIONS, SPLIT_ASSIGNMENTS, Manifest
from teams import Team

from backfill.runtime.spark_versions import NO_STATE_READER

_LABEL = "backfill.dev/backfill"
_OWNED = (
    SPLIT_ASSIGNMENTS,
    SPARK_APPLICATIONS,
    "api/v1/namespaces/{}/configmaps",
    "api/v1/namespaces/{}/pods",
)


class Applied:
    """A Backfill in the namespace of a team."""

    def __init__(self, team: Team, name: str):
        """Nothing is applied yet."""
        self.team = team
        self.name = name

    def change(self, **spec: Any) -> None:
        """Replaces fields of its spec."""
        self._admin.patch(self._path, {"spec": spec}).expect()

    def delete(self) -> None:
        """Asks for its deletion, as ``kubectl delete --wait=false``."""
        self._admin.delete(self._path)

    @property
    def state(self) -> Manifest:
        """The resource as it is now."""
        return self._admin.get(self._path).expect()

    @property
    def gone(self) -> bool:
        """Whether there is no such resource any more."""
        return self._admin.get(self._path).status == 404

    @property
    def committed(self) -> int:
        """Steps that its driver has reported as committed by every query of every source."""
        answer = self._admin.get(f"{SPLIT_ASSIGNMENTS.format(self.team.namespace)}/{self.name}")
        # what says that there is none yet has a status too
        report = (answer.body.get("status") if answer.ok else None) or {}
        sources = [
            source.get("committed", 0)
            for query in report.get("queries", ())
            for source in query["sources"]
        ]
        return min(sources, default=0)

    @property
    def released(self) -> Manifest:
        """What the controller has told the driver."""
        spec: Manifest = self._admin.get(
            f"{SPLIT_ASSIGNMENTS.format(self.team.namespace)}/{self.name}"
        ).expect()["spec"]
        return spec

    @property
    def attempts(self) -> list[Manifest]:
        """What it says of its attempts."""
        found: list[Manifest] = self.state.get("status", {}).get("attempts", [])
        return found

    @property
    def events(self) -> list[Manifest]:
        """Its Events."""
        selector = f"involvedObject.kind=Backfill,involvedObject.name={self.name}"
        return self.team.items("api/v1/namespaces/{}/events", fieldSelector=selector)

    def condition(self, kind: str) -> Manifest:
        """One of its conditions; empty where it was never set."""
        found = self.state.get("status", {}).get("conditions", [])
        return next((each for each in found if each["type"] == kind), {})

    @property
    def drivers(self) -> list[Manifest]:
        """The pods of its driver that have not ended."""
        return self.pods(**{"spark-role": "driver"})

    @property
    def executors(self) -> list[Manifest]:
        """The pods of its executors that have not ended."""
        return self.pods(**{"spark-role": "executor"})

    def pods(self, **labels: str) -> list[Manifest]:
        """Pods that are made for it, have these labels too, and have not ended."""
        selector = ",".join(
            f"{key}={value}" for key, value in {_LABEL: self.name, **labels}.items()
        )
        found = self.team.items("api/v1/namespaces/{}/pods", labelSelector=selector)
        return [pod for pod in found if pod["status"].get("phase") in ("Pending", "Running")]

    @property
    def belongings(self) -> set[str]:
        """Objects of the namespace that are made for it."""
        found = set()
        for path in _OWNED:
            for each in self.team.items(path, labelSelector=f"{_LABEL}={self.name}"):
                found.add(f"{path.rsplit('/', 1)[1]}/{each['metadata']['name']}")
        return found

    def until(self, what: str, reason: str, kind: str = "Running") -> Manifest:
        """Waits for a condition to have a reason, and returns it."""

        def found() -> Manifest:
            condition = self.condition(kind)
            return condition if condition.get("reason") == reason else {}

        condition: Manifest = until(found, f"{self.name} {what}")
        return condition

    def until_ended(self, *, attempts: int = 1) -> Manifest:
        """Waits for its success, in exactly so many attempts, and returns it. Where Spark cannot count
        results that are open at the end, a person approves.
        """

        def ended() -> bool:
            waits = self.condition("Published").get("reason") == "WaitingForApproval"
            if NO_STATE_READER and waits:
                self.approve()
            return self._assert_not_failed().get("status") == "True"

        until(ended, f"{self.name} succeeds")
        assert [each["outcome"] for each in self.attempts][-1] == "Succeeded"
        assert len(self.attempts) == attempts
        return self.state

    def approve(self) -> None:
        """As a person does; nothing happens if it was done before."""
        place = ("--namespace", self.team.namespace, "--kubeconfig", self.team.cluster.kubeconfig)
        command = [sys.executable, "-m", "backfill", "approve", self.name, *place]
        subprocess.run(command, capture_output=True, check=False)

    def _assert_not_failed(self) -> Manifest:
        """What it says of its end: nobody waits for what has failed for good."""
        outcome = self.condition("Succeeded")
        assert outcome.get("status") != "False", f"{self.name} failed: {outcome['message']}"
        return outcome

    @property
    def _admin(self) -> Any:
        return self.team.cluster.admin

    @property
    def _path(self) -> str:
        return f"{BACKFILLS.format(self.team.namespace)}/{self.name}"


class Replay(Applied):
    """A Backfill that repairs a summary."""

    def __init__(self, team: Team, summary: Summary):
        """It has the summary's name; nothing is applied yet."""
        super().__init__(team, summary.name)
        self.summary = summary

    def begin(self, **spec: Any) -> "Replay":
        """Applies it; ``spec`` replaces fields."""
        self.team.apply(mending(self.summary, self.team.storage.workspace, **spec))
        return self

    @property
    def remains(self) -> set[str]:
        """Files of its workspace, and of its branch."""
        workspace = Path(self.team.storage.workspace) / self.team.namespace / self.name
        return {str(file) for file in workspace.rglob("*") if file.is_file()}

    def until_midway(self) -> int:
        """Waits until something is committed and much is not; how many steps are."""

        def begun() -> int:
            self._assert_not_failed()
            return self.committed

        committed: int = until(begun, f"{self.name} has committed a step")
        assert committed <= self.released["steps"] - 4, "it is too fast to be caught midway"
        return committed

    def until_further(self, *, attempts: int) -> int:
        """Waits until steps are committed that were read only now, without another attempt, and
        looks whether much is left; how many steps are committed.
        """
        # of those that are read ahead, one may have been computed before
        goal = self.committed + 3

        def reached() -> bool:
            self._assert_not_failed()
            return self.committed >= goal

        until(reached, f"{self.name} has committed {goal} steps")
        assert len(self.attempts) == attempts
        return self.until_midway()

    def until_succeeded(self, *, attempts: int = 1) -> Manifest:
        """Waits for its end, in exactly so many attempts, and compares what it published with the
        oracle, row by row.
        """
        ended = self.until_ended(attempts=attempts)
        assert self.summary.rows == self.summary.fixed
        return ended

    def until_nothing_is_left(self) -> None:
        """Waits for the end of its deletion, and looks for what it should have taken along."""
        until(lambda: self.gone, f"{self.name} is gone")
        until(lambda: not self.belongings, "its objects are gone")
        assert self.remains == set()
        assert self.summary.branches == set()
        assert self.summary.stray_files == set()
