"""A replica of the operator: everything of it is real, apart from the watches, the threads and the
clock.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

from simulated_api_server import (
    NAMESPACE,
    Killed,
    SimulatedApiServer,
    SimulatedCluster,
    SimulatedTransport,
    Written,
    is_selected,
)
from virtual_time import Violation, VirtualTimeModule, World, virtual_datetime

from backfill.controller.cluster import store
from backfill.controller.cluster.job_pods import pod_limit, runner
from backfill.controller.cluster.job_pods.pod_limit import PodPlaces
from backfill.controller.cluster.job_pods.pod_manifests import JobImage
from backfill.controller.cluster.job_pods.runner import JobPods
from backfill.controller.jobs.any_job import Job
from backfill.controller.manager import leader_election, wiring
from backfill.controller.manager.leader_election import ClusterLeaseStore, Elector, LeaseTimes
from backfill.controller.manager.listing import RELIST_SECONDS, Relisting, Watched
from backfill.controller.manager.reconciles import Reconciles
from backfill.controller.manager.wiring import Caches, Cases
from backfill.controller.manager.workqueue import WorkQueue
from backfill.controller.reconcile import Reconciler
from backfill.kube.client import label_selector
from backfill.kube.object_names import Key
from backfill.kube.request_errors import ClusterError
from backfill.kube.resources import Manifest
from backfill.kube.transport import Call

LEASE_TIMES = LeaseTimes(duration=120.0, renew_deadline=80.0, retry=30.0)
_EXIT_SECONDS = 0.25
"""How long a leader takes to notice that it no longer leads."""


@contextmanager
def virtual_time(world: World) -> Iterator[None]:
    """Lets all code that runs in here have the world's time."""
    clock, time = virtual_datetime(world), VirtualTimeModule(world)
    with ExitStack() as patches:
        for module, name, value in (
            (wiring, "Reconciler", partial(Reconciler, monotonic=world.monotonic)),
            (runner, "time", time),
            (runner, "datetime", clock),
            (pod_limit, "datetime", clock),
            (store, "datetime", clock),
            (leader_election, "datetime", clock),
        ):
            patches.enter_context(patch.object(module, name, value))
        # the starts of jobs in pods are asked for when the class is made
        field = runner._Run.__init__
        patches.enter_context(patch.object(runner._Run, "__init__", _asked_at(field, world)))
        yield


def _asked_at(make: Callable[..., None], world: World) -> Callable[..., None]:
    def made(run: Any, job: Job, **fields: Any) -> None:
        make(run, job, asked_at=world.monotonic(), **fields)

    return made


class _NoMetrics:
    """Measures nothing."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


class _Queue(WorkQueue[Key]):
    """A queue whose only worker is called when a key is due."""

    def __init__(self, world: World, actor: str, work: Callable[[], None]):
        super().__init__(group_of=lambda key: key[0], monotonic=world.monotonic)
        self._world = world
        self._actor = actor
        self._work = work

    def mark(self, key: Key, after_seconds: float = 0.0) -> None:
        super().mark(key, after_seconds)
        self._world.after(after_seconds, self._work, self._actor)

    def done(self, key: Key) -> None:
        super().done(key)
        self._world.after(0.0, self._work, self._actor)

    def failed(self, key: Key) -> float:
        wait = super().failed(key)
        self._world.after(wait, self._work, self._actor)
        return wait


class SimulatedOperator:
    """One replica, from its start to its end."""

    def __init__(
        self,
        world: World,
        server: SimulatedApiServer,
        name: str,
        *,
        chance: float,
        watch_chance: float,
        on_exit: Callable[[], None],
    ):
        self.name = name
        self.alive = True
        self._world = world
        self._server = server
        self._watch_chance = watch_chance
        self._on_exit = on_exit
        self._caches = Caches()
        self._watched = self._caches.watched()
        self._seen: dict[str, int] = {}
        self._due: dict[str, float] = {}
        """When a watch brings what it has to bring."""
        self._led = False

        def cluster(thread: str) -> SimulatedCluster:
            transport = SimulatedTransport(
                world,
                server,
                name,
                chance,
                thread=thread,
                alive=lambda: self.alive,
                kill=self.exit,
            )
            return SimulatedCluster(transport)

        self._relisting = Relisting(cluster("watch"), self._watched, ())
        lease = ClusterLeaseStore(cluster("lease"), NAMESPACE, "backfill-operator")
        self._elector = Elector(lease, name, LEASE_TIMES, world.monotonic)
        self._queue = _Queue(world, f"{name}/work", lambda: self._guarded(self._take))
        working = cluster("work")
        places = PodPlaces(self._caches.pods, 4, self._caches.backfills, self._caches.namespaces)
        pods = JobPods(
            working,
            self._caches.pods,
            self._caches.reports,
            places,
            JobImage("jobs:1"),
            leads=lambda: self.leads,
        )
        metrics: Any = _NoMetrics()
        cases = Cases(
            working,
            self._caches,
            pods,
            self._queue.mark,
            lambda before, after: None,
            default_workspace="s3://lake/backfills",
            leads=lambda: self.leads,
        )
        self._reconciles = Reconciles(
            self._queue,
            lambda key: self._caches.backfills.get(*key),
            cases.open,
            metrics,
            leads=lambda: self.alive and self._elector.leads,
            on_trouble=self._trouble,
            monotonic=world.monotonic,
        )
        self._caches.listen(self._changed)
        server.listeners.append(self._written)
        world.after(1.0, lambda: self._guarded(self._start), f"{name}/watch")

    @property
    def leads(self) -> bool:
        return self.alive and self._elector.leads

    def exit(self) -> None:
        """Ends the process: nothing of it goes on, apart from what it has asked others for."""
        if self.alive:
            self.alive = False
            self._world.note(f"{self.name} has ended")
            self._server.listeners.remove(self._written)
            self._on_exit()

    def poke(self) -> None:
        """Has everything reconciled once more."""
        for key in self._caches.backfills.keys():  # noqa: SIM118 - no mapping
            self._queue.mark(key)

    def _guarded(self, act: Callable[[], None]) -> None:
        if self.alive:
            try:
                act()
            except Killed:
                self.exit()

    def _start(self) -> None:
        """Lists everything, then watches, and becomes a candidate."""
        self._seen = {
            each.resource.plural: len(self._server.events(each.resource)) for each in self._watched
        }
        try:
            self._relisting.list_once()
        except ClusterError:
            self._world.after(2.0, lambda: self._guarded(self._start), f"{self.name}/watch")
            return
        self._world.after(RELIST_SECONDS, lambda: self._guarded(self._relist), f"{self.name}/watch")
        self._deliver_all()
        self._elect()

    def _relist(self) -> None:
        try:
            self._relisting.list_once()
        except ClusterError:
            self._world.note(f"{self.name} cannot list")
        self._world.after(RELIST_SECONDS, lambda: self._guarded(self._relist), f"{self.name}/watch")

    def _elect(self) -> None:
        if self._elector.attempt() and not self._led:
            self._led = True
            self._world.note(f"{self.name} leads")
            self.poke()
        if self._led and not self._elector.leads:
            self._world.after(_EXIT_SECONDS, lambda: self._guarded(self.exit), f"{self.name}/lease")
        self._world.after(
            LEASE_TIMES.retry, lambda: self._guarded(self._elect), f"{self.name}/lease"
        )
        if self._led:
            self._world.after(
                LEASE_TIMES.renew_deadline + _EXIT_SECONDS,
                lambda: self._guarded(self._check_lease),
                f"{self.name}/lease",
            )

    def _check_lease(self) -> None:
        if not self._elector.leads:
            self.exit()

    def _changed(self, key: Key) -> None:
        if self.leads:
            self._queue.mark(key)

    def _take(self) -> None:
        key = self._queue.take(timeout_seconds=0)
        if key is not None:
            self._reconciles.take(key)

    def _trouble(self, backfill: Manifest, why: str) -> None:
        if why.endswith("(details in the operator's log)"):
            raise Violation(f"a reconcile raised {why}")

    def _written(self, written: Written) -> None:
        """A watch will bring what was written."""
        for watched in self._watched:
            if watched.resource == written.resource and not written.changes_nothing:
                seconds = self._world.later(
                    f"{self.name} watch of {watched.resource.plural}",
                    (0.1, 3.0, 30.0, 200.0),
                    self._watch_chance,
                )
                end = len(self._server.events(watched.resource))
                # nothing overtakes what was before it
                due = max(self._world.seconds + seconds, self._due.get(watched.resource.plural, 0))
                self._due[watched.resource.plural] = due
                self._world.after(
                    due - self._world.seconds,
                    partial(self._guarded, partial(self._deliver, watched, end)),
                    f"{self.name}/watch",
                )

    def _deliver_all(self) -> None:
        for watched in self._watched:
            self._deliver(watched, len(self._server.events(watched.resource)))

    def _deliver(self, watched: Watched, end: int) -> None:
        """Brings all events up to one, in their order."""
        plural = watched.resource.plural
        if plural not in self._seen or self._seen[plural] >= end:
            return
        fate = self._world.pick(
            f"{self.name} watch of {plural}",
            ("goes on", "repeats the last events", "starts again after a 410"),
            self._watch_chance / 4,
        )
        begin = self._seen[plural]
        if fate == "repeats the last events":
            begin = max(begin - 3, 0)
        events = self._server.events(watched.resource)[begin:end]
        if fate.endswith("410"):
            end = len(self._server.events(watched.resource))
            events = [("ADDED", each) for each in self._server.all(watched.resource)]
        self._seen[plural] = end
        selector = Call(
            "watch", watched.resource, query=(("labelSelector", label_selector(watched.labels)),)
        )
        for kind, manifest in events:
            if not is_selected(selector, manifest):
                continue
            if kind == "DELETED":
                watched.cache.forget(manifest)
            else:
                watched.cache.put(manifest)
