"""The cluster and namespace of a command, and the Backfills there."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from backfill import __version__
from backfill.api.backfill import Backfill, ObjectMeta, unread
from backfill.api.errors import BackfillError, BadInput, Problem
from backfill.api.manifests.backfill_manifest import load_for_cluster
from backfill.api.manifests.problems import did_you_mean
from backfill.api.status import BackfillStatus
from backfill.kube.client import Cluster
from backfill.kube.object_names import CLI_MANAGER
from backfill.kube.request_errors import ClusterError, KindMissing, NotFound, Refused
from backfill.kube.resources import BACKFILL, Manifest

OPERATORS_WORKSPACE: Final = "s3://default-workspace-of-the-operator"
"""Stands for a default that only the operator knows."""
_NAMES_SHOWN = 5
_OUTLINE = ("conditions", "progress", "watermark")
_HOW_TO_INSTALL = (
    "Backfill is not installed in this cluster; install it with: kubectl apply -k deploy/kustomize"
)


@dataclass(frozen=True, slots=True)
class Place:
    """A namespace of a cluster, and how to name it in commands."""

    cluster: Cluster
    namespace: str
    program: str = "kubectl backfill"
    """Name by which this program was called."""
    options: str = ""
    """Options that a next command needs for the same cluster and namespace."""

    def command(self, verb: str, name: str, more: str = "") -> str:
        """A command for people to run."""
        return f"{self.program} {verb} {name}{self.options}{more}"

    def here(self, backfill: Backfill) -> Backfill:
        """A Backfill from a file, with this namespace."""
        return backfill.model_copy(
            update={"metadata": backfill.metadata.model_copy(update={"namespace": self.namespace})}
        )

    def backfills(self, *, everywhere: bool = False) -> list[Manifest]:
        """All Backfills of the namespace, or of all namespaces."""
        try:
            return self.cluster.list(BACKFILL, None if everywhere else self.namespace).items
        except KindMissing as error:
            raise BackfillError(_HOW_TO_INSTALL) from error

    def find(self, name: str) -> Backfill:
        """The Backfill of that name.

        Raises:
            BadInput: there is none.
        """
        found = self.look(name)
        if found is None:
            message = f'there is no backfill "{name}" in namespace {self.namespace}'
            raise BadInput(Problem("", message, self._advice(name)))
        return read(found)

    def look(self, name: str) -> Manifest | None:
        """The Backfill as the API server returns it; None if there is none."""
        try:
            return self.cluster.get(BACKFILL, self.namespace, name)
        except KindMissing as error:
            raise BackfillError(_HOW_TO_INSTALL) from error

    def change(self, backfill: Backfill, operations: Iterable[Manifest]) -> Backfill:
        """Changes this object by JSON patch.

        Raises:
            BadInput: the object was replaced by another one, or the API server refuses the change.
        """
        name, uid = backfill.metadata.name, backfill.metadata.uid
        same = {"op": "test", "path": "/metadata/uid", "value": uid}
        try:
            return read(
                self.cluster.edit(
                    BACKFILL, self.namespace, name, [same, *operations], manager=CLI_MANAGER
                )
            )
        except (NotFound, Refused) as error:
            raise BadInput(Problem("", str(error))) from error

    def _advice(self, name: str) -> str:
        try:
            names = [found["metadata"]["name"] for found in self.backfills()]
        except ClusterError:
            return ""
        if not names:
            return (
                "the namespace has none; choose another one with -n, or list all with:"
                f" {self.program} list -A"
            )
        more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
        return (
            did_you_mean(name, names)
            or f"the namespace has {', '.join(names[:_NAMES_SHOWN])}{more}"
        )


def read(found: Manifest) -> Backfill:
    """A Backfill from the API server's representation.

    Raises:
        BackfillError: an operator of another version has written it.
    """
    with _readable(found):
        return Backfill.model_validate(found)


def read_outline(found: Manifest) -> Backfill:
    """As much of a Backfill as its line in a list needs, in a fraction of the time: name and stage.

    Raises:
        BackfillError: as for :func:`read`.
    """
    metadata, status = found["metadata"], found.get("status", {})
    with _readable(found):
        outline = BackfillStatus.model_validate(
            {part: status[part] for part in _OUTLINE if part in status}
        )
    return unread(
        ObjectMeta.model_construct(name=metadata["name"], namespace=metadata["namespace"]), outline
    )


@contextmanager
def _readable(found: Manifest) -> Iterator[None]:
    try:
        yield
    except ValidationError as error:
        where = f"{found['metadata']['namespace']}/{found['metadata']['name']}"
        detail = error.errors()[0]
        field = ".".join(str(part) for part in detail["loc"])
        raise BackfillError(
            f"{where} cannot be read by version {__version__} of this program ({field}:"
            f" {detail['msg']}); use the same version as the operator"
        ) from error


def is_file(target: str) -> bool:
    """Whether an argument is a file: names have neither dots nor slashes."""
    return "." in target or "/" in target


def name_of(target: str) -> tuple[str, str | None]:
    """The name of a Backfill from a name or a file, and the namespace in the file, if any."""
    if not is_file(target):
        return target, None
    file = load_for_cluster(Path(target))
    return file.backfill.metadata.name, namespace_of(file.document)


def namespace_of(document: Manifest) -> str | None:
    """The namespace in a manifest, if any."""
    namespace = (document.get("metadata") or {}).get("namespace")
    return str(namespace) if namespace else None
