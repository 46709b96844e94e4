"""The client of an API server. Objects are plain mappings, as they are in JSON."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from kubernetes.client import Configuration
from kubernetes.config import (
    ConfigException,
    list_kube_config_contexts,
    load_kube_config,
)

from backfill.api.errors import BackfillError, ConflictError
from backfill.api.json_text import read_within_bounds
from backfill.kube.request_errors import Expired, KindMissing, NotFound, Unreachable, error_of
from backfill.kube.resources import POD, Manifest, Resource
from backfill.kube.service_account import pod_configuration, pod_namespace
from backfill.kube.throttle import Throttle
from backfill.kube.transport import Call, OnRequest, RequestOptions, Transport


@dataclass(frozen=True, slots=True)
class Not:
    """Selects objects whose label has another value or is missing."""

    value: str


Labels = Mapping[str, str | Not | None]
"""Labels that objects must have; None accepts any value."""

_PAGE = 20
"""Objects in a page of a list.
Each may have one and a half megabytes, and a page is in memory twice.
"""
_WATCH_SECONDS = 300
_WATCH_SILENCE_SECONDS = 30.0
_MOST_LOG_BYTES = _LOG_PART_BYTES = 2**20
_CREATIONS = 4
"""Attempts at a creation that is answered with a conflict. It cannot be about the object, which
does not exist yet.
"""
_DRY_RUN = ("dryRun", "All")
_STRICT = ("fieldValidation", "Strict")
_DIGITS = 12
_OPTIONS = RequestOptions()


@dataclass(frozen=True, slots=True)
class Listing:
    """The objects of a list, and the version as of which they were listed."""

    items: list[Manifest]
    resource_version: str


class Cluster:
    """An API server. May be used by several threads. Requests are limited in time and rate, and
    retried where that may help.

    Every method may raise a :class:`~backfill.kube.request_errors.ClusterError`; the docstrings
    name those that callers need to distinguish. A ``create`` that was retried because its answer
    was lost raises AlreadyExists, and a write with a lock ConflictError: read the object to see
    what happened.
    """

    def __init__(
        self,
        configuration: Configuration,
        *,
        namespace: str = "default",
        requests_per_second: float = 50.0,
        burst: int = 100,
        on_request: OnRequest = lambda verb, kind, status, seconds: None,
        options: RequestOptions = _OPTIONS,
    ):
        self.namespace = namespace
        """The default namespace."""
        self._configuration = configuration
        self._transport = Transport(
            configuration, Throttle(requests_per_second, burst), on_request, options
        )

    @classmethod
    def from_kubeconfig(
        cls, path: Path | str | None = None, context: str | None = None, **options: Any
    ) -> "Cluster":
        """The cluster that kubectl would use. ``path`` defaults to KUBECONFIG, ``context`` to the
        current context.

        Raises:
            BackfillError: there is no such file or context.
        """
        configuration, file = Configuration(), str(path) if path is not None else None
        try:
            load_kube_config(file, context, configuration)  # type: ignore[no-untyped-call]
            contexts, current = list_kube_config_contexts(file)  # type: ignore[no-untyped-call]
        except (ConfigException, OSError) as error:
            raise BackfillError(
                f"no cluster to connect to: {error}; set KUBECONFIG, or specify a kubeconfig and a"
                " context"
            ) from error
        chosen = next((entry for entry in contexts if entry["name"] == context), current)
        return cls(
            configuration, namespace=chosen["context"].get("namespace") or "default", **options
        )

    @classmethod
    def in_cluster(cls, **options: Any) -> "Cluster":
        """The cluster that this pod runs in, with the pod's service account.

        Raises:
            BackfillError: this process is not in a pod, or its pod lacks the service account's
                token or namespace.
        """
        return cls(pod_configuration(), namespace=pod_namespace(), **options)

    @cached_property
    def identity(self) -> str:
        """What distinguishes this cluster from others, in words, whichever address it has: its
        certificate authority. It needs no permission.
        """
        file = self._configuration.ssl_ca_cert
        try:
            authority = Path(file).read_bytes() if file else b""
        except OSError:
            authority = b""
        if not authority:
            return f"the cluster at {self._configuration.host}"
        digest = hashlib.sha256(authority.strip()).hexdigest()
        return f"the cluster with certificate authority {digest[:_DIGITS]}"

    @property
    def now(self) -> datetime:
        """The current time by the API server's clock, to be compared with its timestamps."""
        return self._transport.now

    def get(
        self, resource: Resource, namespace: str | None, name: str, subresource: str = ""
    ) -> Manifest | None:
        """One object; None if there is none."""
        try:
            return self._object(Call("get", resource, namespace, name, subresource))
        except NotFound:
            return None

    def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        labels: Labels | None = None,
        fields: str = "",
        essence: Callable[[Manifest], Manifest] = lambda manifest: manifest,
    ) -> Listing:
        """All objects of a namespace, or of all namespaces, that have all the labels, and match a
        field selector.

        ``essence`` reduces each object to what is kept; at most one page of whole objects is in
        memory.
        """
        items: list[Manifest] = []
        more = ""
        while True:
            query = (
                *_selector(labels),
                *((("fieldSelector", fields),) if fields else ()),
                ("limit", str(_PAGE)),
                *((("continue", more),) if more else ()),
            )
            try:
                page = self._object(Call("list", resource, namespace, query=query))
            except Expired:
                if not more:
                    raise
                items, more = [], ""  # the list took too long: start again
                continue
            items += map(essence, page["items"])
            more = page["metadata"].get("continue", "")
            if not more:
                return Listing(items, page["metadata"]["resourceVersion"])

    def create(
        self,
        resource: Resource,
        manifest: Manifest,
        *,
        manager: str = "",
        dry_run: bool = False,
        strict: bool = True,
    ) -> Manifest:
        """Creates an object in the namespace of the manifest. A dry run creates nothing and, if
        ``strict``, refuses unknown fields.

        Raises:
            AlreadyExists: an object of this name exists, perhaps from an earlier request whose
                answer was lost.
            Denied: refused by admission.
            NamespaceEnding: the namespace is being deleted.
        """
        trial = ((_DRY_RUN, _STRICT) if strict else (_DRY_RUN,)) if dry_run else ()
        query = (*((("fieldManager", manager),) if manager else ()), *trial)
        call = Call(
            "create", resource, manifest["metadata"].get("namespace"), query=query, body=manifest
        )
        for _ in range(_CREATIONS - 1):
            # in conflict with another request for the same quota; nothing was created
            with suppress(ConflictError):
                return self._object(call)
        return self._object(call)

    def apply(
        self,
        resource: Resource,
        manifest: Manifest,
        *,
        manager: str,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Manifest:
        """Server-side apply: the manager takes over the fields of the manifest from other managers.
        A dry run changes nothing, and refuses unknown fields.

        With ``metadata.resourceVersion`` (and ``uid``), only that version is changed.

        Raises:
            ConflictError: the object has another version.
            NotFound: the object of a subresource does not exist. Without a subresource it is
                created.
        """
        metadata = manifest["metadata"]
        return self._object(
            Call(
                "patch",
                resource,
                metadata.get("namespace"),
                metadata["name"],
                subresource,
                query=(
                    ("fieldManager", manager),
                    ("force", "true"),
                    *((_DRY_RUN, _STRICT) if dry_run else ()),
                ),
                body=manifest,
                content_type="application/apply-patch+yaml",
            )
        )

    def merge(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        change: Manifest,
        *,
        manager: str,
        subresource: str = "",
    ) -> Manifest:
        """JSON merge patch. With ``metadata.resourceVersion``, only that version is changed.

        Raises:
            ConflictError: the object has another version.
            NotFound: the object does not exist.
        """
        query = (("fieldManager", manager),)
        kind = "application/merge-patch+json"
        return self._object(
            Call("patch", resource, namespace, name, subresource, query, change, kind)
        )

    def edit(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        operations: Sequence[Manifest],
        *,
        manager: str,
        subresource: str = "",
    ) -> Manifest:
        """JSON patch, which is applied completely or not at all.

        Raises:
            NotFound: the object does not exist.
            Invalid: the object would not be valid.
            Refused: an operation, such as a ``test``, does not fit the object.
        """
        query = (("fieldManager", manager),)
        kind = "application/json-patch+json"
        return self._object(
            Call("patch", resource, namespace, name, subresource, query, list(operations), kind)
        )

    def replace(self, resource: Resource, manifest: Manifest, *, manager: str = "") -> Manifest:
        """Replaces an object. With ``metadata.resourceVersion``, only that version is replaced.

        Raises:
            ConflictError: the object has another version.
            NotFound: the object does not exist.
        """
        metadata = manifest["metadata"]
        query = (("fieldManager", manager),) if manager else ()
        return self._object(
            Call(
                "update",
                resource,
                metadata.get("namespace"),
                metadata["name"],
                query=query,
                body=manifest,
            )
        )

    def delete(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        *,
        uid: str = "",
        grace_seconds: int | None = None,
    ) -> bool:
        """Deletes an object and, in the background, the objects that it owns.

        Returns False if it does not exist.

        With ``uid``, only that object is deleted, and not another one of the same name.

        Raises:
            ConflictError: the object has another uid.
        """
        options: Manifest = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "propagationPolicy": "Background",
        }
        options |= {"preconditions": {"uid": uid}} if uid else {}
        options |= {"gracePeriodSeconds": grace_seconds} if grace_seconds is not None else {}
        try:
            self._transport.send(Call("delete", resource, namespace, name, body=options))
        except NotFound:
            return False
        return True

    def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        name: str = "",
        resource_version: str,
        labels: Labels | None = None,
        seconds: int = _WATCH_SECONDS,
        silence_seconds: float | None = None,
    ) -> Iterator[tuple[str, Manifest]]:
        """Yields each change after a version: ``ADDED``, ``MODIFIED``,
        ``DELETED`` or ``BOOKMARK``, and the object. A bookmark has nothing
        but the version. With ``name``, only that object is watched.

        The watch ends after ``seconds``, after ``silence_seconds`` without an event, or when the
        connection breaks. Continue from the version of the last object.

        Raises:
            Expired: that version is too old; list again.
        """
        query = (
            *_selector(labels),
            *((("fieldSelector", f"metadata.name={name}"),) if name else ()),
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", resource_version),
            ("timeoutSeconds", str(seconds)),
        )
        silence = silence_seconds or seconds + _WATCH_SILENCE_SECONDS
        call = Call("watch", resource, namespace, query=query, read_seconds=silence)
        for line in self._transport.lines(call):
            event = _parsed(line, call, "object")
            if event["type"] == "ERROR":
                status = event["object"]
                raise error_of(
                    status.get("code", 500),
                    json.dumps(status).encode(),
                    "watch",
                    resource,
                    call.where,
                )
            yield event["type"], event["object"]

    def log(
        self,
        namespace: str,
        pod: str,
        *,
        container: str = "",
        tail_lines: int | None = None,
        follow: bool = False,
    ) -> Iterator[str]:
        """Yields the lines of a pod's log as they arrive; very long lines come in parts. With
        ``tail_lines``, at most the first megabyte of those lines is returned.

        Raises:
            NotFound: the pod does not exist.
            Refused: the container has not started.
        """
        query = (
            *((("container", container),) if container else ()),
            *(
                (("tailLines", str(tail_lines)), ("limitBytes", str(_MOST_LOG_BYTES)))
                if tail_lines is not None
                else ()
            ),
            *((("follow", "true"),) if follow else ()),
        )
        for line in self._transport.lines(
            Call("get", POD, namespace, pod, "log", query, accept="*/*"), _LOG_PART_BYTES
        ):
            yield line.decode(errors="replace")

    def serves(self, resource: Resource) -> bool:
        """Whether the API server knows this kind of object."""
        group = Resource(resource.group, resource.version, plural="", namespaced=False)
        try:
            kinds = self._object(Call("get", group))["resources"]
        except KindMissing:
            return False
        return any(kind["name"] == resource.plural for kind in kinds)

    def close(self) -> None:
        """Closes all connections."""
        self._transport.close()

    def _object(self, call: Call) -> Manifest:
        return _parsed(self._transport.send(call), call, "kind")


def _parsed(text: bytes, call: Call, field: str) -> Manifest:
    """The answer, a JSON object with this field.

    Raises:
        Unreachable: something between this client and the API server answered in its place.
    """
    with suppress(ValueError):
        answer = read_within_bounds(text)
        if isinstance(answer, dict) and field in answer:
            return answer
    raise Unreachable(f"cannot {call.verb} {call.where}: the response is not from an API server")


def label_selector(labels: Labels) -> str:
    """The labels in the syntax of a query."""
    return ",".join(_requirement(name, value) for name, value in labels.items())


def _requirement(name: str, value: str | Not | None) -> str:
    match value:
        case None:
            return name
        case Not(other):
            return f"{name}!={other}"
        case _:
            return f"{name}={value}"


def _selector(labels: Labels | None) -> tuple[tuple[str, str], ...]:
    return (("labelSelector", label_selector(labels)),) if labels else ()
