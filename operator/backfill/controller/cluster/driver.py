"""Drivers on a cluster, run by a Spark operator as children of production's SparkApplication."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path

from backfill.api.backfill import Backfill
from backfill.api.errors import BadInput, ConflictError, InvalidManifest, Problem
from backfill.api.spark_application import Application, application_in_image
from backfill.controller.children.child_manifests import (
    application_digest,
    child_manifests,
    child_problems,
    dialect,
)
from backfill.controller.children.dialect import Dialect
from backfill.controller.children.driver_state import driver_state, has_ended
from backfill.controller.children.pod_template import container_name
from backfill.controller.cluster.plan_config_map import application_of
from backfill.controller.cluster.production import obstacles_of, read_production
from backfill.controller.decisions.observed import next_attempt_number
from backfill.controller.decisions.run.pending_driver import wait_of
from backfill.controller.driver import DriverState, Launch
from backfill.kube.cache import Cache, owner_uid, uid_of
from backfill.kube.client import Cluster
from backfill.kube.object_names import (
    APPLICATION_LABEL,
    ATTEMPT_LABEL,
    CONTROLLER_MANAGER,
    UID_LABEL,
    backfill_labels,
    child_name,
)
from backfill.kube.request_errors import (
    AlreadyExists,
    ClusterError,
    Forbidden,
    KindMissing,
    NamespaceEnding,
    Refused,
)
from backfill.kube.resources import CONFIG_MAP, POD, Manifest, Resource

_LOG = logging.getLogger(__name__)
_TAIL_LINES = 40
_MOST_LINE = 4_000
_NO_MATTER_HOW_OFTEN = (Forbidden, KindMissing, NamespaceEnding, Refused, BadInput)


class KubernetesBackend:
    """The drivers of one Backfill. May be used by one thread at a time."""

    def __init__(
        self,
        cluster: Cluster,
        backfill: Callable[[], Backfill | None],
        children: Mapping[Resource, Cache],
        pods: Cache,
        *,
        default_workspace: str | None = None,
    ):
        """Keeps what is needed; observations come from caches.

        Args:
            cluster: the API server.
            backfill: returns the Backfill as it is now; called often.
            children: caches of SparkApplications by kind, with at least those labelled as made for
                Backfills.
            pods: cache of the driver pods with such a label.
            default_workspace: location of Backfills whose spec names no workspace.
        """
        self._cluster = cluster
        self._find = backfill
        self._children = children
        self._pods = pods
        self._default_workspace = default_workspace
        self._unmade: dict[int, DriverState] = {}
        self._sized: tuple[int, int] | None = None
        self._unobstructed: tuple[int, int] | None = None

    @property
    def parallelism(self) -> int:
        """Number of tasks that run at once with ``maxExecutors``.

        Computed once for each generation of the spec.
        """
        backfill = self._backfill
        if self._sized is None or self._sized[0] != backfill.metadata.generation:
            if (
                backfill.status.plan_id is not None
                or backfill.metadata.deletion_timestamp is not None
            ):
                return 1  # no more files are split
            production = read_production(self._cluster, backfill)
            if isinstance(production, Problem):
                return 1  # there will be no plan
            sizing = self._dialect.sizing(production, backfill)
            self._sized = backfill.metadata.generation, sizing.parallelism
        return self._sized[1]

    @property
    def application(self) -> Application | None:
        """The application as its image has it."""
        backfill = self._backfill
        production = application_of(self._cluster, backfill)
        if isinstance(production, Problem):
            return None
        with suppress(InvalidManifest):  # of another Spark operator
            return application_in_image(production, Path("/"), backfill.metadata.namespace)
        return None

    def obstacles(self) -> Sequence[Problem]:
        """What prevents the next attempt, as far as that can be known without creating it; the API
        server is asked as well.

        Whether there is an application is checked each time, everything else until no problem is
        found.

        Raises:
            ClusterError: a request failed.
        """
        backfill = self._backfill
        if backfill.metadata.deletion_timestamp is not None:
            return ()
        production = application_of(self._cluster, backfill)
        attempt = backfill.metadata.generation, next_attempt_number(backfill.status.attempts)
        if self._unobstructed == attempt and not isinstance(production, Problem):
            return ()
        problems = obstacles_of(self._cluster, backfill, production, self._default_workspace)
        self._unobstructed = None if problems else attempt
        return tuple(problems)

    def child(self, attempt: int) -> str:
        """Name of the SparkApplication of an attempt."""
        return child_name(self._backfill.metadata.name, attempt)

    def start(self, launch: Launch) -> None:
        """Creates the launcher and the child of an attempt.

        Objects that exist from an earlier try are kept.

        A refusal does not raise: the attempt has then exited, and :meth:`observe` returns the
        reason.

        Raises:
            ClusterError: a request failed; try again. Until then :meth:`observe` returns the
                reason.
        """
        try:
            production = application_of(self._cluster, launch.backfill)
            if isinstance(production, Problem):
                raise BadInput(production)
            if problems := child_problems(launch.backfill, production, self._default_workspace):
                raise BadInput(problems)
            launcher, child = child_manifests(launch, production)
            self._make(CONFIG_MAP, launcher)
            made = self._make(self._dialect.resource, child)
            self._cache.put(made)
        except _NO_MATTER_HOW_OFTEN as error:
            _LOG.warning(
                "the SparkApplication of attempt %s could not be created: %s", launch.attempt, error
            )
            self._unmade[launch.attempt] = DriverState(
                "Exited", reason="Refused", message=str(error)
            )
        except ClusterError as error:
            self._unmade[launch.attempt] = DriverState(
                "Absent", message=f"its SparkApplication could not be created: {error}"
            )
            raise
        else:
            self._unmade.pop(launch.attempt, None)

    def observe(self, attempt: int) -> DriverState:
        """The state of an attempt's driver, by its pod, or else by what the Spark operator reports.

        Only the API server is trusted to say that there is none. The caches may be of another time
        than the Backfill, and than each other, and no other attempt may start beside a driver that
        they do not know yet.

        Raises:
            ClusterError: a request failed.
        """
        pod, child = self._pod(attempt), self._child(attempt)
        if pod is None and child is None:
            child = self._child_asked_for(attempt)
        state = self._dialect.state(child) if child is not None else None
        if pod is None and (state is None or state.phase != "Waiting"):
            pod = self._pod_asked_for(attempt)
        if pod is None and state is None:
            return self._unmade.get(attempt, DriverState("Absent"))
        seen = driver_state(state, pod)
        blocked = seen.phase == "Pending" and wait_of(seen.reason).needs_person
        return replace(seen, outdated=True) if blocked and self._is_outdated(attempt) else seen

    def _is_outdated(self, attempt: int) -> bool:
        """Whether an attempt that has read nothing would be made from something else now."""
        backfill, child = self._backfill, self._child(attempt)
        made_from = child and child["metadata"]["labels"].get(APPLICATION_LABEL)
        if not made_from or backfill.status.watermark is not None:
            return False
        production = application_of(self._cluster, backfill)
        return not isinstance(production, Problem) and application_digest(production) != made_from

    def kill(self, attempt: int) -> None:
        """Deletes the child and its driver's pod.

        The driver has ended only when :meth:`observe` says so.

        The pod is deleted explicitly, because a Spark operator may be unavailable and garbage
        collection may be late.
        """
        backfill, child = self._backfill, self._child(attempt)
        if child is not None and not child["metadata"].get("deletionTimestamp"):
            self._delete(self._dialect.resource, child)
            self._cache.forget(child)
        for pod in (self._pod(attempt), self._pod_asked_for(attempt)):
            if (
                pod is not None
                and not has_ended(pod)
                and not pod["metadata"].get("deletionTimestamp")
            ):
                self._delete(POD, pod)
                break
        _LOG.info("killed the driver of attempt %s of %s", attempt, backfill.metadata.name)

    def log_tail(self, attempt: int) -> tuple[str, ...]:
        """The last lines of the driver's log; none if
        there is no pod, or if the log cannot be read.
        """
        pod = self._pod(attempt)
        if pod is None:
            return ()
        names = [container["name"] for container in pod["spec"]["containers"]]
        container = container_name("driver") if container_name("driver") in names else names[0]
        metadata = pod["metadata"]
        try:
            lines = self._cluster.log(
                metadata["namespace"], metadata["name"], container=container, tail_lines=_TAIL_LINES
            )
            return tuple(line[:_MOST_LINE] for line in islice(lines, _TAIL_LINES))
        except ClusterError:
            return ()

    @property
    def _backfill(self) -> Backfill:
        backfill = self._find()
        if backfill is None:
            raise ConflictError("the Backfill is gone")
        return backfill

    @property
    def _dialect(self) -> Dialect:
        return dialect(self._backfill.spec.application_ref.api_version)

    @property
    def _cache(self) -> Cache:
        return self._children[self._dialect.resource]

    def _child(self, attempt: int) -> Manifest | None:
        """The child of an attempt; None if it belongs to an earlier Backfill of this name."""
        metadata = self._backfill.metadata
        child = self._cache.get(metadata.namespace, child_name(metadata.name, attempt))
        return child if child is not None and owner_uid(child) == metadata.uid else None

    def _child_asked_for(self, attempt: int) -> Manifest | None:
        metadata = self._backfill.metadata
        with suppress(KindMissing):
            found = self._cluster.get(
                self._dialect.resource, metadata.namespace, child_name(metadata.name, attempt)
            )
            if found is not None:
                self._cache.put(found)
        return self._child(attempt)

    def _pod(self, attempt: int) -> Manifest | None:
        """The newest driver pod of an attempt in the cache."""
        metadata = self._backfill.metadata
        return _newest(self._ours(self._pods.of((metadata.namespace, metadata.name)), attempt))

    def _pod_asked_for(self, attempt: int) -> Manifest | None:
        metadata = self._backfill.metadata
        labels = {
            **backfill_labels(metadata.name),
            ATTEMPT_LABEL: str(attempt),
            "spark-role": "driver",
        }
        for pod in self._cluster.list(POD, metadata.namespace, labels=labels).items:
            self._pods.put(pod)
        return self._pod(attempt)

    def _ours(self, pods: Sequence[Manifest], attempt: int) -> Iterator[Manifest]:
        uid = self._backfill.metadata.uid
        for pod in pods:
            labels = pod["metadata"].get("labels", {})
            driver = labels.get("spark-role", "driver") == "driver"
            if (
                driver
                and labels.get(ATTEMPT_LABEL) == str(attempt)
                and labels.get(UID_LABEL, uid) == uid
            ):
                yield pod

    def _make(self, resource: Resource, manifest: Manifest) -> Manifest:
        """Creates an object, or finds the one that was created by an earlier request.

        Raises:
            BadInput: an object of another owner has this name.
        """
        try:
            return self._cluster.create(resource, manifest, manager=CONTROLLER_MANAGER)
        except AlreadyExists:
            metadata = manifest["metadata"]
            there = self._cluster.get(resource, metadata["namespace"], metadata["name"])
            if there is not None and owner_uid(there) == self._backfill.metadata.uid:
                return there
            where = f"{resource.plural} {metadata['namespace']}/{metadata['name']}"
            raise BadInput(
                Problem(
                    "", f"{where} already exists and does not belong to this Backfill", "delete it"
                )
            ) from None

    def _delete(self, resource: Resource, manifest: Manifest) -> None:
        metadata = manifest["metadata"]
        try:
            self._cluster.delete(
                resource, metadata["namespace"], metadata["name"], uid=uid_of(manifest)
            )
        except ConflictError:
            return  # by now another object has its name


def _newest(pods: Iterator[Manifest]) -> Manifest | None:
    return max(
        pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp", "")), default=None
    )
