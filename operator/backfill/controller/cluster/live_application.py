"""The live SparkApplication, created once after the hand-off and then left alone."""

import logging
from collections.abc import Callable, Mapping
from typing import Final, Literal

from backfill.api.backfill import Backfill
from backfill.api.errors import ConflictError, Problem
from backfill.controller.children.child_manifests import dialect
from backfill.controller.children.dialect import ChildState
from backfill.controller.cluster.plan_config_map import application_of
from backfill.controller.cluster.production import name_taken
from backfill.controller.driver import DriverState
from backfill.kube.cache import Cache
from backfill.kube.client import Cluster
from backfill.kube.object_names import CONTROLLER_MANAGER, UID_LABEL
from backfill.kube.request_errors import (
    AlreadyExists,
    Forbidden,
    KindMissing,
    NamespaceEnding,
    Refused,
)
from backfill.kube.resources import Manifest, Resource

_LOG = logging.getLogger(__name__)
_REFUSALS = (Forbidden, KindMissing, NamespaceEnding, Refused)
_PHASES: Final[Mapping[str, Literal["Pending", "Running", "Exited"]]] = {
    "Waiting": "Pending",
    "Running": "Running",
    "Over": "Exited",
}


class KubernetesLiveApplication:
    """The live application of one Backfill. May be used by one thread at a time."""

    def __init__(
        self,
        cluster: Cluster,
        backfill: Callable[[], Backfill | None],
        children: Mapping[Resource, Cache],
    ):
        """``children`` are the caches of SparkApplications by kind."""
        self._cluster = cluster
        self._find = backfill
        self._children = children
        self._refused = ""

    def start(self, backfill: Backfill) -> None:
        """Creates it from production's SparkApplication. One from an earlier try is kept.

        A refusal does not raise: :meth:`observe` returns the reason.

        Raises:
            ClusterError: a request failed; try again.
        """
        production = application_of(self._cluster, backfill)
        if isinstance(production, Problem):
            self._refused = str(production)
            return
        kind = dialect(backfill.spec.application_ref.api_version)
        live = kind.live(production, backfill)
        try:
            made = self._cluster.create(kind.resource, live, manager=CONTROLLER_MANAGER)
        except AlreadyExists:
            name = live["metadata"]["name"]
            there = self._cluster.get(kind.resource, backfill.metadata.namespace, name)
            self._refused = (
                "" if there is None or _is_of(there, backfill) else str(name_taken(name))
            )
        except _REFUSALS as error:
            _LOG.warning(
                "the live application of %s could not be created: %s", backfill.metadata.name, error
            )
            self._refused = str(error)
        else:
            self._refused = ""
            self._children[kind.resource].put(made)

    def observe(self, name: str) -> DriverState:
        """Its state, as its Spark operator reports it. Only the API server is trusted to say that
        there is none.

        Raises:
            ClusterError: a request failed.
        """
        backfill = self._find()
        if backfill is None:
            raise ConflictError("the Backfill is gone")
        kind = dialect(backfill.spec.application_ref.api_version)
        namespace = backfill.metadata.namespace
        found = self._children[kind.resource].get(namespace, name)
        if found is None:
            found = self._cluster.get(kind.resource, namespace, name)
        if found is not None and _is_of(found, backfill):
            return _in_short(kind.state(found))
        if self._refused:
            return DriverState("Exited", reason="Refused", message=self._refused)
        return DriverState("Absent")


def _is_of(application: Manifest, backfill: Backfill) -> bool:
    labels = application["metadata"].get("labels") or {}
    return bool(labels.get(UID_LABEL) == backfill.metadata.uid)


def _in_short(state: ChildState) -> DriverState:
    return DriverState(
        _PHASES[state.phase], reason=state.reason, message=state.message, since=state.since
    )
