"""A controller is killed at each of its writes in turn, before and after the API server has done it. Whoever comes after
finds what it needs on the API server alone. The Spark operator, the driver and the jobs are played."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pytest
from made_plans import PRODUCTION, header
from played import PlayedRun
from rest import BACKFILLS, SPARK_APPLICATIONS, SPLIT_ASSIGNMENTS, Rest
from samples import BACKFILL, changed

from backfill.controller.backends.kubernetes import KubernetesBackend
from backfill.controller.interfaces import ConflictError
from backfill.controller.jobs import Job, JobState, PlanJob, PlanResult, SettleJob, SettleResult
from backfill.controller.kubernetes.cache import Cache, labelled_key, own_key, uid_of
from backfill.controller.kubernetes.channel import KubernetesChannel
from backfill.controller.kubernetes.client import Cluster
from backfill.controller.kubernetes.events import Recorder
from backfill.controller.kubernetes.names import BACKFILL_LABEL
from backfill.controller.kubernetes.plans import KubernetesPlans
from backfill.controller.kubernetes.resources import BACKFILL as BACKFILL_KIND
from backfill.controller.kubernetes.resources import POD, SPARK_APPLICATION, SPLIT_ASSIGNMENT
from backfill.controller.kubernetes.store import KubernetesStore
from backfill.controller.kubernetes.transport import Call
from backfill.controller.reconcile import Reconciler

STEPS = 3
PLAN = header(STEPS)
MOST_TURNS = 60
When = Literal["before", "after"]


class Killed(BaseException):
    """The controller's process is gone."""


class Death:
    """Comes at one write of a cluster's, before or after it is done."""

    def __init__(self, cluster: Cluster, number: int, when: When):
        self.writes = 0
        self._number, self._when = number, when
        self._send = cluster._transport.send
        cluster._transport.send = self.send  # type: ignore[method-assign]

    def send(self, call: Call) -> bytes:
        """As the transport does."""
        if call.verb not in ("create", "patch", "update", "delete") or ("dryRun", "All") in call.query:
            return self._send(call)
        self.writes += 1
        if self.writes == self._number and self._when == "before":
            raise Killed
        answer = self._send(call)
        if self.writes == self._number:
            raise Killed
        return answer


class FakeJobs:
    """Does every job at once."""

    state: JobState | None = None

    def start(self, job: Job) -> None:
        results: dict[type, Any] = {PlanJob: PlanResult(PLAN, ()), SettleJob: SettleResult({})}
        self.state = JobState(job, "Done", result=results.get(type(job)))

    def cancel(self) -> None:
        self.state = None

    def close(self) -> None:
        self.state = None


class Controller:
    """One process: its caches are filled before each turn, as a watch without delay would."""

    def __init__(self, cluster: Cluster, namespace: str, name: str):
        self.cluster, self.namespace = cluster, namespace
        self.backfills, self.assignments = Cache(own_key), Cache(own_key)
        self.children, self.pods = Cache(labelled_key), Cache(labelled_key)
        self.look()
        raw = self.backfills.get(namespace, name)
        assert raw is not None
        key, uid = (namespace, name), uid_of(raw)
        recorder = Recorder(cluster, "tests")
        store = KubernetesStore(cluster, self.backfills, key, uid, on_status=recorder.status_written)
        backend = KubernetesBackend(cluster, lambda: store.loaded, {SPARK_APPLICATION: self.children}, self.pods)
        channel = KubernetesChannel(cluster, self.assignments, key, uid)
        self.reconciler = Reconciler(store, KubernetesPlans(cluster), backend, channel, FakeJobs(), progress_every_seconds=0)

    def look(self) -> None:
        for resource, cache in ((BACKFILL_KIND, self.backfills), (SPLIT_ASSIGNMENT, self.assignments)):
            listing = self.cluster.list(resource, self.namespace)
            cache.replace(listing.items, listing.resource_version)
        for resource, cache in ((SPARK_APPLICATION, self.children), (POD, self.pods)):
            listing = self.cluster.list(resource, self.namespace, labels={BACKFILL_LABEL: None})
            cache.replace(listing.items, listing.resource_version)

    def turn(self) -> None:
        self.look()
        try:
            self.reconciler.turn()
        except ConflictError:
            return


class World(PlayedRun):
    """Everybody but the controller, and no table: the jobs are played as well."""

    def __init__(self, admin: Rest, namespace: str, name: str):
        self.admin, self.namespace, self.name = admin, namespace, name
        self.path = f"{BACKFILLS.format(namespace)}/{name}"
        self.released: list[int] = []
        manifest = changed(BACKFILL, {"metadata.name": name, "spec.workspace": "s3://lake", "spec.outputs": []})
        admin.create(BACKFILLS.format(namespace), manifest).expect()

    @property
    def succeeded(self) -> bool:
        assert self.condition("Succeeded")[0] != "False", self.status
        return self.condition("Succeeded")[0] == "True"

    def go_on(self) -> None:
        """The driver, once there is one, commits what is released, and ends after the last step."""
        if not self.children():
            return
        if not self.released:
            self.submit()
        assignment = self.assignment()
        self.released.append(assignment["released"])
        if assignment["released"] < STEPS:
            self.report(assignment["attempt"], assignment["released"])
        elif self.released.count(STEPS) == 1:
            self.report(assignment["attempt"], STEPS + 1, "Finished")
            self.end(assignment["attempt"])

    def report(self, attempt: int, committed: int, phase: str = "Running") -> None:
        sources = [{"name": source.name, "committed": committed, "rows": 0} for source in PLAN.sources]
        status = {"attempt": attempt, "phase": phase, "heartbeat": datetime.now(UTC).isoformat(timespec="seconds")}
        query = {"name": "summary", "sources": sources, "openAtEnd": 0}
        path = f"{SPLIT_ASSIGNMENTS.format(self.namespace)}/{self.name}/status"
        self.admin.patch(path, {"status": {**status, "queries": [query]}}).expect()


@pytest.fixture
def production(admin: Rest, crds: None, namespace: str) -> None:
    admin.create(SPARK_APPLICATIONS.format(namespace), PRODUCTION).expect()


@pytest.fixture
def kubeconfig(cluster_admin: Path) -> Iterator[Path]:
    yield cluster_admin


def run(world: World, kubeconfig: Path, number: int, when: When) -> int:
    """From the resource to its success, with one death on the way; how many writes the first controller did."""
    cluster = Cluster.from_kubeconfig(kubeconfig, requests_per_second=1000)
    death, writes = Death(cluster, number, when), 0
    controller = Controller(cluster, world.namespace, world.name)
    for _ in range(MOST_TURNS):
        try:
            controller.turn()
        except Killed:
            cluster.close()
            writes = death.writes
            cluster = Cluster.from_kubeconfig(kubeconfig, requests_per_second=1000)
            controller = Controller(cluster, world.namespace, world.name)
        if world.succeeded:
            break
        world.go_on()
    cluster.close()
    return writes or death.writes


def outcome(world: World) -> Any:
    status = world.status
    kinds = {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}
    attempts = [(each["number"], each["child"].removeprefix(world.name), each["outcome"]) for each in status["attempts"]]
    return kinds, attempts, status["planId"], status["progress"]["committed"]


def test_one_child_no_lost_step_and_the_same_end_wherever_it_is_killed(
    admin: Rest, production: None, namespace: str, kubeconfig: Path
) -> None:
    undisturbed = World(admin, namespace, "calm")
    writes = run(undisturbed, kubeconfig, number=0, when="before")
    expected = outcome(undisturbed)
    assert expected[1] == [(1, "-a1", "Succeeded")]
    assert writes > 8
    for number in range(1, writes + 1):
        for when in ("before", "after"):
            world = World(admin, namespace, f"killed-{when}-{number}")
            run(world, kubeconfig, number, when)
            assert outcome(world) == expected, (number, when)
            assert world.children() == [f"{world.name}-a1"]
            assert world.released == sorted(world.released), "what was released stays released"
