"""One Backfill under operators that die: run after run, each with others of the operators' writes
cut.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from mortal_operator import MortalOperators
from played import PlayedRun
from proxy import UnreliableProxy
from rest import JOB_REPORTS, SPARK_APPLICATIONS, SPLIT_ASSIGNMENTS, Manifest, Rest
from written import CutWrites, Write

from backfill.kube.object_names import child_name
from table_jobs import Clicks

_CONFIG_MAPS, _PODS = "api/v1/namespaces/{}/configmaps", "api/v1/namespaces/{}/pods"
_OWNED = (_CONFIG_MAPS, SPLIT_ASSIGNMENTS, JOB_REPORTS, SPARK_APPLICATIONS, _PODS)
_PROGRESS = ("steps", "committed", "summary", "rowsRead", "openAtEnd")


class MortalRun:
    """One Backfill, with whoever plays the Spark operator and the driver."""

    def __init__(self, admin: Rest, operators: MortalOperators, run: PlayedRun, cut: CutWrites):
        self.admin, self.operators, self.run, self._cut = admin, operators, run, cut
        self.written = cut.written
        self.meanwhile: Callable[[], None] = lambda: None
        """What others do between two turns."""

    @contextmanager
    def spared(self) -> Iterator[None]:
        """No write of the block is cut: ``test_operator_chaos`` has a life with the same writes,
        and cuts each of them.
        """
        self._cut.spares = True
        yield
        self._cut.spares = False

    def work_until(self, condition: Callable[[], Any], what: str) -> None:
        """Turns are taken until the condition is true."""

        def looked() -> Any:
            self.meanwhile()
            return condition()

        self.operators.work_until(looked, what)

    def start(self, attempt: int) -> None:
        """The attempt's child is made, and its driver runs."""
        child = (
            f"{SPARK_APPLICATIONS.format(self.run.namespace)}/{child_name(self.run.name, attempt)}"
        )
        self.work_until(lambda: self.admin.get(child).ok, f"attempt {attempt} has a child")
        self.run.submit(attempt)

    def commit(self, attempt: int, step: int) -> None:
        """The driver commits a step once it is released."""
        self.work_until(
            lambda: self.released(attempt) >= step, f"step {step} is released to attempt {attempt}"
        )
        self.run.report(attempt, step)

    def finish(self, attempt: int, **at_the_end: Any) -> None:
        """The driver has committed every step, reports what else there is to report, and ends."""
        self.run.report(attempt, self.run.assignment()["steps"] + 1, "Finished", **at_the_end)
        self.run.end(attempt)

    def succeed(self) -> Manifest:
        """The status of a Backfill that has succeeded."""
        self.work_until(lambda: self.run.condition("Succeeded")[0] == "True", "it succeeds")
        return self.run.status

    def released(self, attempt: int) -> int:
        """How many steps are released to an attempt."""
        spec = self.run.assignment()
        return int(spec["released"]) if spec["attempt"] == attempt else 0

    def change(self, spec: Manifest) -> None:
        """A person changes the Backfill."""
        self.admin.patch(self.run.path, {"spec": spec}).expect()

    def delete(self) -> None:
        """And then what it owned: nothing else may be left, neither in the cluster nor in its
        workspace.
        """
        uid = self.admin.get(self.run.path).expect()["metadata"]["uid"]
        self.admin.delete(self.run.path)
        self.work_until(lambda: self.admin.get(self.run.path).status == 404, "it is let go of")
        workspace = self.run.workspace
        assert [path for path in workspace.rglob("*") if path.is_file()] == [], (
            "plan and checkpoints are removed"
        )
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


@dataclass
class Life:
    """What is known of runs in which the same happens, from the one of which nothing was cut."""

    undisturbed: set[Write] | None = None
    """The writes that can be cut; None before there was such a run."""
    commits: int = 0
    """How many there are to catalogs; 0 before there was such a run that counts them."""
    ends: dict[str, Any] | None = None
    """How all of them are to end; None before the first one has."""

    def assert_ends(self, so: dict[str, Any], cut: object) -> None:
        """It ends like all runs. ``cut`` says what is special about it."""
        if self.ends is None:
            self.ends = so
        assert so == self.ends, cut


@dataclass(frozen=True)
class MortalRuns:
    """Runs of one kind, by operators that reach the API server through a proxy only."""

    admin: Rest
    cluster_admin: Path
    proxy: UnreliableProxy
    namespace: str
    clicks: Clicks
    folder: Path
    lives: dict[str, Life]
    """By name; tests of a file share them."""
    in_pods: bool = False
    """Whether jobs are in pods."""

    def one(self, number: int, cut: CutWrites) -> MortalRun:
        """A run of which some writes are cut."""
        kubeconfig = self.proxy.kubeconfig(self.cluster_admin, self.folder / "kubeconfig")
        self.proxy.before, self.proxy.after = cut.before, cut.after
        run = PlayedRun(self.admin, self.namespace, self.folder, f"killed-{number}", self.clicks)
        operators = MortalOperators(kubeconfig, self.namespace, in_pods=self.in_pods)
        return MortalRun(self.admin, operators, run, cut)

    def undisturbed(self, number: int = 0) -> MortalRun:
        """A run of which nothing is cut."""
        return self.one(number, CutWrites("never", self.proxy, set()))

    def life(self, name: str) -> Life:
        """What is known of it."""
        return self.lives.setdefault(name, Life())

    def each_cut(
        self, life: Life, moment: str, least_writes: int
    ) -> Iterator[tuple[list[Write], MortalRun]]:
        """Runs until each write has been cut in one of them, and what is cut in each. In the first
        one nothing is, unless there was such a run of this life before.

        Fewer writes would mean that something is not cut.
        """
        known: set[Write] = set()
        for number in count(0 if life.undisturbed is None else 1):
            cut = CutWrites(moment if number else "never", self.proxy, known)
            mortal = self.one(number, cut)
            yield cut.struck, mortal
            mortal.written.assert_sound()
            assert mortal.operators.deaths == len(cut.struck), (mortal.operators.deaths, cut.struck)
            if life.undisturbed is None:
                life.undisturbed = cut.left
            elif not cut.struck or (not cut.left and life.undisturbed <= known):
                break
        assert len(known) >= least_writes, sorted(known)


def essence(status: Manifest) -> dict[str, Any]:
    """A status without names and times, and without what is measured."""
    return {
        "conditions": [
            (each["type"], each["status"], each["reason"]) for each in status["conditions"]
        ],
        "attempts": [
            (each["number"], each["outcome"], each["stepsAtStart"]) for each in status["attempts"]
        ],
        "progress": {key: status["progress"].get(key) for key in _PROGRESS},
        "outputs": [
            (each["name"], each.get("rows"), "snapshotId" in each)
            for each in status.get("outputs", ())
        ],
        "sources": status["sources"],
        "watermark": status["watermark"],
        "planId": status["planId"],
        "retry": status.get("retry"),
        "observedGeneration": status["observedGeneration"],
    }
