"""Assembles what reconciles use: the caches for all Backfills;
store, channel, backend and jobs for each.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from backfill.api.backfill import Backfill
from backfill.api.json_text import CUT
from backfill.api.pods import override_is_readable
from backfill.controller.children.child_manifests import CHILD_RESOURCES
from backfill.controller.cluster.channel import KubernetesChannel
from backfill.controller.cluster.driver import KubernetesBackend
from backfill.controller.cluster.job_pods.pod_manifests import JOB_LABEL, report_essence
from backfill.controller.cluster.job_pods.runner import JobPods
from backfill.controller.cluster.live_application import KubernetesLiveApplication
from backfill.controller.cluster.plan_config_map import KubernetesPlans
from backfill.controller.cluster.store import KubernetesStore, OnStatus
from backfill.controller.manager.listing import Watched
from backfill.controller.manager.options import NAMESPACE
from backfill.controller.manager.reconciles import Case
from backfill.controller.reconcile import Reconciler
from backfill.kube.cache import Cache, Listener, identity, labelled_key, named_key, own_key, uid_of
from backfill.kube.client import Cluster, Not
from backfill.kube.object_names import BACKFILL_LABEL, Key
from backfill.kube.resources import (
    BACKFILL,
    DECISION,
    JOB_REPORT,
    POD,
    SPLIT_ASSIGNMENT,
    Manifest,
    Resource,
)

_ROLES = ("driver", "executor")
PROGRESS_SECONDS = 5.0
"""Minimum seconds between two writes of a status in which only progress has changed."""


def _backfill(backfill: Manifest) -> Manifest:
    """Cuts overrides that are refused for their size, so that they take no memory."""
    spec = backfill.get("spec") or {}
    cut = _with_readable_overrides(spec)
    hand_off = spec.get("handOff") or {}
    if (live := _with_readable_overrides(hand_off)) is not hand_off:
        cut = cut | {"handOff": live}
    return backfill if cut is spec else backfill | {"spec": cut}


def _with_readable_overrides(part: Manifest) -> Manifest:
    overrides = part.get("overrides") or {}
    kept = {
        role: {
            field: value if override_is_readable(value) else CUT for field, value in fields.items()
        }
        for role, fields in overrides.items()
        if role in _ROLES and isinstance(fields, dict)
    }
    if all(overrides[role] == fields for role, fields in kept.items()):
        return part
    return part | {"overrides": overrides | kept}


def _children() -> dict[Resource, Cache]:
    return {resource: Cache(labelled_key, _child) for resource in CHILD_RESOURCES}


def _child(child: Manifest) -> Manifest:
    """Reduces a child SparkApplication to its state. Its spec is never read again."""
    status = {
        name: value
        for name, value in (child.get("status") or {}).items()
        if name != "executorState"
    }
    return {"metadata": identity(child), "status": status}


def _assignment(assignment: Manifest) -> Manifest:
    return {
        "metadata": identity(assignment),
        "spec": assignment.get("spec"),
        "status": assignment.get("status"),
    }


def _decision(decision: Manifest) -> Manifest:
    kept = {name: decision[name] for name in ("apiVersion", "kind") if name in decision}
    return kept | {"metadata": identity(decision), "spec": decision.get("spec")}


def pod_essence(pod: Manifest) -> Manifest:
    """Reduces a pod to its state, and the names, images and memory of its containers."""
    containers = [
        {"name": each["name"], "image": each.get("image"), "resources": each.get("resources")}
        for each in (pod.get("spec") or {}).get("containers") or ()
    ]
    return {
        "metadata": identity(pod),
        "spec": {"containers": containers},
        "status": pod.get("status"),
    }


@dataclass(frozen=True, slots=True)
class Caches:
    """The caches of all kinds."""

    backfills: Cache = field(default_factory=lambda: Cache(own_key, _backfill))
    assignments: Cache = field(default_factory=lambda: Cache(own_key, _assignment))
    decisions: Cache = field(default_factory=lambda: Cache(named_key, _decision))
    children: Mapping[Resource, Cache] = field(default_factory=_children)
    pods: Cache = field(default_factory=lambda: Cache(labelled_key, pod_essence))
    """Pods of drivers and of jobs."""
    reports: Cache = field(default_factory=lambda: Cache(labelled_key, report_essence))
    """JobReports of jobs."""

    def namespaces(self) -> int:
        """Number of namespaces that have Backfills."""
        return self.backfills.namespaces

    def watched(self) -> list[Watched]:
        """The kinds to watch, and their labels."""
        made_for_us = {BACKFILL_LABEL: None}
        return [
            Watched(BACKFILL, self.backfills),
            Watched(SPLIT_ASSIGNMENT, self.assignments),
            Watched(DECISION, self.decisions),
            *(Watched(resource, cache, made_for_us) for resource, cache in self.children.items()),
            Watched(POD, self.pods, made_for_us | {"spark-role": Not("executor")}),
            Watched(JOB_REPORT, self.reports, made_for_us | {JOB_LABEL: None}),
        ]

    def listen(self, listener: Listener) -> None:
        """Registers a function that is called with the key of
        a Backfill after each change of one of its objects.
        """
        for watched in self.watched():
            watched.cache.listen(listener)


@dataclass(frozen=True, slots=True)
class Cases:
    """Makes what the reconciles of a Backfill use."""

    cluster: Cluster
    caches: Caches
    pods: JobPods
    mark: Callable[[Key, float], None]
    """Requests a reconcile after this many seconds."""
    on_status: OnStatus
    default_workspace: str | None = None
    names_are_verified: bool = False
    """Whether the API server checks the names of those who decide."""
    leads: Callable[[], bool] = lambda: True
    """Whether this process may still act."""

    def open(self, key: Key, backfill: Manifest) -> Case:
        """Makes a case for a Backfill, without a request to the API server."""
        uid, caches = uid_of(backfill), self.caches
        store = self._store(key, uid)

        def find() -> Backfill | None:
            return store.loaded

        backend = KubernetesBackend(
            self.cluster,
            find,
            caches.children,
            caches.pods,
            default_workspace=self._default_workspace(key[0]),
        )
        channel = KubernetesChannel(self.cluster, caches.assignments, key, uid)
        jobs = self.pods.runner(find, lambda seconds: self.mark(key, seconds))
        plans = KubernetesPlans(self.cluster)
        reconciler = Reconciler(
            store,
            plans,
            backend,
            channel,
            jobs,
            live=KubernetesLiveApplication(self.cluster, find, caches.children),
            progress_every_seconds=PROGRESS_SECONDS,
            leads=self.leads,
            clock=lambda: self.cluster.now,
        )
        return Case(uid, store, jobs, reconciler)

    def _store(self, key: Key, uid: str) -> KubernetesStore:
        return KubernetesStore(
            self.cluster,
            self.caches.backfills,
            key,
            uid,
            decisions=self.caches.decisions,
            names_are_verified=self.names_are_verified,
            default_workspace=self._default_workspace(key[0]),
            kept_in=self.cluster.identity,
            on_status=self.on_status,
        )

    def _default_workspace(self, namespace: str) -> str | None:
        given = self.default_workspace
        return given and given.replace(NAMESPACE, namespace)
