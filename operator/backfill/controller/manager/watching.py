"""Keeps the caches up to date: Kopf watches,
and a list at intervals finds what watches have missed.

Kopf is used for its watches only. A handler of its kind ``on.event`` writes nothing: no finalizer,
no annotation, no Event.
"""

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import kopf
from kubernetes.client import Configuration
from kubernetes.config import load_kube_config

from backfill.controller.manager.watch_connection import watching_session
from backfill.kube.cache import Cache
from backfill.kube.client import Cluster, Labels, label_selector
from backfill.kube.object_names import GROUP
from backfill.kube.request_errors import ClusterError, KindMissing
from backfill.kube.resources import Resource
from backfill.kube.service_account import pod_configuration

_LOG = logging.getLogger(__name__)
RELIST_SECONDS: Final = 180.0
"""Interval of lists. A watch that has to start again (410) does not report what was deleted in the
meantime, which may go unnoticed for this time.
"""
_PAGE: Final = 50
"""Objects in a page of Kopf's first list. By default it requests all at once, and reports of jobs
can have a megabyte each.
"""
_RETRY_SECONDS = 2.0
_STOP_SECONDS = 2.0
_IDENTITY: Final[Any] = "backfill-operator"
"""Not shown anywhere. Without it, Kopf uses the user's name, which a container's user may not have.
"""


@dataclass(frozen=True, slots=True)
class Watched:
    """A kind of objects to watch, and the cache that they are kept in."""

    resource: Resource
    cache: Cache
    labels: Labels = field(default_factory=dict)
    """Labels that objects must have."""


@dataclass(frozen=True, slots=True)
class Login:
    """Source of credentials.

    They are read each time they are needed, because they change while the operator runs.
    """

    kubeconfig: Path | None = None
    context: str | None = None

    @property
    def is_pod(self) -> bool:
        """Whether to use the service account of this pod."""
        return (
            self.kubeconfig is None
            and self.context is None
            and "KUBERNETES_SERVICE_HOST" in os.environ
        )

    def cluster(self, **options: Any) -> Cluster:
        """A new client.

        Raises:
            BackfillError: there are no credentials.
        """
        return (
            Cluster.in_cluster(**options)
            if self.is_pod
            else Cluster.from_kubeconfig(self.kubeconfig, self.context, **options)
        )

    def connection(self) -> kopf.ConnectionInfo:
        """The credentials for Kopf."""
        read = pod_configuration() if self.is_pod else Configuration()
        if not self.is_pod:
            load_kube_config(
                None if self.kubeconfig is None else str(self.kubeconfig), self.context, read
            )  # type: ignore[no-untyped-call]
        scheme, _, token = (read.get_api_key_with_prefix("BearerToken") or "").rpartition(" ")
        return kopf.ConnectionInfo(
            server=read.host,
            ca_path=read.ssl_ca_cert,
            insecure=not read.verify_ssl,
            username=read.username or None,
            password=read.password or None,
            scheme=scheme or None,
            token=token or None,
            certificate_path=read.cert_file,
            private_key_path=read.key_file,
        )


class Watching:
    """Runs Kopf in a thread with its own event loop, and starts it again if it fails."""

    def __init__(
        self,
        watched: Sequence[Watched],
        namespaces: Sequence[str],
        connection: Callable[[], kopf.ConnectionInfo],
    ):
        """``namespaces`` is empty for all of them."""
        self._watched = watched
        self._namespaces = namespaces
        self._connection = connection
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watches", daemon=True)
        self._lock = threading.Lock()
        self._end: Callable[[], object] | None = None

    @property
    def alive(self) -> bool:
        """Whether it is running."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Starts watching. Kinds that the API server does not know are left out until
        :meth:`restart`.
        """
        self._thread.start()

    def restart(self) -> None:
        """Checks again which kinds the API server knows."""
        with self._lock:
            if self._end is not None:
                self._end()

    def close(self) -> None:
        """Ends the watches, and waits a moment for their end."""
        self._closed.set()
        self.restart()
        self._thread.join(_STOP_SECONDS)

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                asyncio.run(self._operator())
            except Exception as error:
                _LOG.warning("the watches failed; restarting them: %s", error)
                self._closed.wait(_RETRY_SECONDS)

    async def _operator(self) -> None:
        # Not a threading event: Kopf would leave a thread waiting for it after a failure, and the
        # loop would wait for that thread.
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        with self._lock:
            self._end = partial(loop.call_soon_threadsafe, stop.set)
        try:
            if not self._closed.is_set():
                await self._watch(stop)
        finally:
            with self._lock:
                self._end = None

    async def _watch(self, stop: asyncio.Event) -> None:
        await kopf.operator(
            registry=self._registry(),
            settings=_settings(self._watched),
            identity=_IDENTITY,
            standalone=True,
            clusterwide=not self._namespaces,
            namespaces=self._namespaces,
            stop_flag=stop,
        )

    async def _login(self, **_: Any) -> kopf.AiohttpSession:
        return watching_session(await asyncio.to_thread(self._connection))

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry)(self._login)
        for watched in self._watched:
            resource = watched.resource
            handler = _handler(watched.cache)
            kopf.on.event(
                resource.group,
                resource.version,
                resource.plural,
                id=resource.plural,
                registry=registry,
            )(handler)
        return registry


class Relisting:
    """Lists all objects at the start and at intervals."""

    def __init__(self, cluster: Cluster, watched: Sequence[Watched], namespaces: Sequence[str]):
        self._cluster = cluster
        self._watched = watched
        self._namespaces = namespaces
        self.served: frozenset[Resource] = frozenset()
        """The kinds that the API server knew at the last list."""

    def list_once(self) -> None:
        """Puts all objects into the caches, and removes those that no longer exist.

        Raises:
            ClusterError: a list failed.
        """
        served = frozenset(watched.resource for watched in self._watched if self._list(watched))
        if served != self.served:
            missing = {watched.resource for watched in self._watched} - served
            names = ", ".join(sorted(f"{kind.plural} of {kind.group}" for kind in missing))
            _LOG.info("not installed here: %s", names or "nothing that is needed")
        self.served = served

    def keep_on(self, stop: threading.Event, on_new_kinds: Callable[[], None]) -> None:
        """Lists at intervals until ``stop`` is set.

        Calls ``on_new_kinds`` when a kind was added or removed.
        """
        while not stop.wait(RELIST_SECONDS):
            before = self.served
            try:
                self.list_once()
            except ClusterError as error:
                _LOG.warning("could not list all resources; retrying: %s", error)
            if self.served != before:
                on_new_kinds()

    def _list(self, watched: Watched) -> bool:
        try:
            places: Sequence[str | None] = self._namespaces or (None,)
            essence = watched.cache.essence
            listings = [
                self._cluster.list(watched.resource, place, labels=watched.labels, essence=essence)
                for place in places
            ]
        except KindMissing:
            return False
        oldest = min((listing.resource_version for listing in listings), key=int)
        watched.cache.replace((item for listing in listings for item in listing.items), oldest)
        return True


def _handler(cache: Cache) -> Callable[..., Any]:
    # runs in the event loop, so it must not wait
    async def seen(event: kopf.RawEvent, **_: Any) -> None:
        manifest: Any = event["object"]
        if event["type"] == "DELETED":
            cache.forget(manifest)
        else:
            cache.put(manifest)

    return seen


def _settings(watched: Sequence[Watched]) -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    # otherwise it requires permissions for namespaces and definitions
    settings.scanning.disabled = True
    settings.posting.enabled = False
    settings.process.ultimate_exiting_timeout = None
    settings.watching.chunk_size = _PAGE
    # Kopf removes its own finalizer from objects that are being deleted, and by default uses the
    # same name for it in every operator.
    settings.persistence.finalizer = f"{GROUP}/unused"
    for kind in watched:
        if kind.labels:
            resource = kind.resource
            settings.watching.label_selectors[resource.group, resource.version, resource.plural] = (
                label_selector(kind.labels)
            )
    return settings
