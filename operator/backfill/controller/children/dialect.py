"""What the child SparkApplications of all Spark operators have in common."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, Protocol

from backfill.api.backfill import Backfill
from backfill.api.errors import Problem
from backfill.controller.children.sizing import Sizing
from backfill.controller.driver import Launch
from backfill.kube.object_names import UID_LABEL, attempt_labels, child_name, owner_reference
from backfill.kube.resources import Manifest, Resource

NOT_INHERITED: Final = "backfill.dev/not-inherited"
"""Annotation of a child that lists what production has and the child leaves out."""
KEPT_SECONDS: Final = 86_400
"""Seconds for which a child that has ended is kept, with its driver pod and log."""

_FOREIGN = (
    "argocd.argoproj.io/",
    "helm.sh/",
    "helm.toolkit.fluxcd.io/",
    "kubectl.kubernetes.io/",
    "kustomize.toolkit.fluxcd.io/",
    "meta.helm.sh/",
    "sparkoperator.k8s.io/",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
)
"""Prefixes of labels and annotations by which tools find what they manage. With them, a child would
be pruned, or counted as theirs.
"""
_SCRAPED = "prometheus.io/"


@dataclass(frozen=True, slots=True)
class ChildState:
    """State of a child, as its Spark operator reports it."""

    phase: Literal["Waiting", "Running", "Over"]
    """``Waiting``: there is no driver yet. ``Over``: it has ended, or was never submitted."""
    reason: str
    message: str = ""
    since: datetime | None = None


class Dialect(Protocol):
    """The SparkApplication of one Spark operator."""

    @property
    def resource(self) -> Resource:
        """The kind of object."""

    def sizing(self, production: Manifest, backfill: Backfill) -> Sizing:
        """Sizes of the pods."""

    def problems(self, production: Manifest, backfill: Backfill) -> list[Problem]:
        """Reasons why there can be no child: every mistake that can be found without a cluster."""

    def child(self, production: Manifest, launch: Launch) -> Manifest:
        """The child of an attempt."""

    def live_problems(self, backfill: Backfill) -> list[Problem]:
        """Reasons why there can be no live application, beside those of a child."""

    def live(self, production: Manifest, backfill: Backfill) -> Manifest:
        """The live application."""

    def pods(self, child: Manifest) -> tuple[Manifest, Manifest]:
        """The pod templates of a child's driver and executors."""

    def state(self, child: Manifest) -> ChildState:
        """The state of a child, as its Spark operator reports it."""


def child_metadata(production: Manifest, launch: Launch, left_out: Iterable[str] = ()) -> Manifest:
    """Metadata of an attempt's child: labels and annotations of production,
    our own, and the owner.
    """
    backfill = launch.backfill.metadata
    old = production.get("metadata", {})
    annotations = kept_metadata(old.get("annotations"))
    if notes := ", ".join(left_out):
        annotations[NOT_INHERITED] = notes
    metadata = {
        "name": child_name(backfill.name, launch.attempt),
        "namespace": backfill.namespace,
        "labels": kept_metadata(old.get("labels")) | attempt_labels(backfill.name, launch.attempt),
        "annotations": annotations,
    }
    return metadata | owned(launch.backfill)


def pod_labels(launch: Launch) -> dict[str, str]:
    """Labels of an attempt's pods."""
    metadata = launch.backfill.metadata
    uid = {UID_LABEL: metadata.uid} if metadata.uid else {}
    return attempt_labels(metadata.name, launch.attempt) | uid


def owned(backfill: Backfill) -> Manifest:
    """The owner reference of objects that are deleted together with a Backfill;
    empty if it is not in a cluster.
    """
    if not backfill.metadata.uid:
        return {}
    return {"ownerReferences": [owner_reference(backfill.metadata.name, backfill.metadata.uid)]}


def not_scraped(annotations: Manifest | None) -> Manifest:
    """A pod's annotations without those that make Prometheus scrape it as production."""
    return {
        key: value for key, value in (annotations or {}).items() if not key.startswith(_SCRAPED)
    }


def default_conf(launch: Launch) -> dict[str, str]:
    """Properties that a backfill sets if neither production nor the overrides do."""
    executors = launch.backfill.spec.scaling.max_executors
    return {
        "spark.decommission.enabled": "true",
        # executors that are removed pass on their blocks,
        "spark.storage.decommission.enabled": "true",
        # check for new ones afterwards, and end;
        "spark.storage.decommission.replicationReattemptInterval": "5s",
        # they end in any case, even if there is nowhere to hand them
        "spark.executor.decommission.forceKillTimeout": "5m",
        # as Spark does when it scales by itself;
        "spark.executor.maxNumFailures": str(max(2 * executors, 3)),
        # nodes that go during a long run are no failure of it
        "spark.executor.failuresValidityInterval": "1h",
    }


def kept_metadata(labels: dict[str, str] | None) -> dict[str, str]:
    """Labels or annotations without those by which tools find what they manage."""
    return {key: value for key, value in (labels or {}).items() if not key.startswith(_FOREIGN)}
