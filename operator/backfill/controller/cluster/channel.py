"""The controller's side of a SplitAssignment on a cluster."""

from typing import Final, TypeVar

from pydantic import ValidationError

from backfill.api.backfill import API_VERSION
from backfill.api.base import Model
from backfill.api.errors import ConflictError
from backfill.api.manifests.problems import read_json
from backfill.kube.cache import Cache, owner_uid, uid_of, version_of
from backfill.kube.client import Cluster
from backfill.kube.object_names import CONTROLLER_MANAGER, Key, backfill_labels, owner_reference
from backfill.kube.request_errors import AlreadyExists, NotFound, Refused
from backfill.kube.resources import SPLIT_ASSIGNMENT, Manifest
from backfill.protocol.split_assignment import SplitAssignmentSpec, SplitAssignmentStatus

M = TypeVar("M", bound=Model)
_KIND: Final = "SplitAssignment"


class KubernetesChannel:
    """The SplitAssignment of one Backfill, identified by its uid: one of an earlier Backfill of the
    same name does not count.

    The assignment is changed by a single PATCH that is bound to the spec that was read, not to the
    whole object, so that reports of the driver never make it fail.
    """

    def __init__(self, cluster: Cluster, assignments: Cache, key: Key, uid: str):
        self._cluster = cluster
        self._assignments = assignments
        self._namespace, self._name = key
        self._uid = uid
        self._version = 0
        self._spec: SplitAssignmentSpec | None = None
        self._status: SplitAssignmentStatus | None = None

    def assignment(self) -> SplitAssignmentSpec | None:
        """The last assignment, whichever controller has written it; None if it cannot be read."""
        self._look()
        return self._spec

    def report(self, *, newest: bool = False) -> SplitAssignmentStatus | None:
        """The last report of a driver; None if it cannot be read.

        ``newest`` reads it from the API server: the end of a driver may be seen before its last
        report, which comes by another watch.
        """
        if newest:
            self._refresh()
        self._look()
        return self._status

    def write(self, assignment: SplitAssignmentSpec) -> None:
        """Replaces the assignment if it has changed.

        If the object was deleted, it is created again.

        Raises:
            ConflictError: it was changed since it was read, or no longer exists.
        """
        raw = self._ours()
        if raw is None:
            self._create(assignment)
        elif assignment != self.assignment():
            self._replace(raw, assignment)

    def remove(self) -> None:
        """Deletes the object if there is one."""
        raw = self._ours()
        if raw is not None:
            self._delete(raw)

    def _ours(self) -> Manifest | None:
        raw = self._assignments.get(self._namespace, self._name)
        return raw if raw is not None and owner_uid(raw) == self._uid else None

    def _look(self) -> None:
        """Parses both parts once for each version of the object."""
        raw = self._ours()
        version = version_of(raw) if raw is not None else 0
        if version == self._version:
            return
        self._version = version
        self._spec = _understood(SplitAssignmentSpec, (raw or {}).get("spec"))
        self._status = _understood(SplitAssignmentStatus, (raw or {}).get("status"))

    def _create(self, assignment: SplitAssignmentSpec) -> None:
        metadata = {
            "name": self._name,
            "namespace": self._namespace,
            "labels": backfill_labels(self._name),
            "ownerReferences": [owner_reference(self._name, self._uid)],
        }
        manifest = {
            "apiVersion": API_VERSION,
            "kind": _KIND,
            "metadata": metadata,
            "spec": assignment.to_manifest(),
        }
        try:
            self._assignments.put(
                self._cluster.create(SPLIT_ASSIGNMENT, manifest, manager=CONTROLLER_MANAGER)
            )
        except AlreadyExists as error:
            self._refresh()
            self._remove_foreign()
            raise ConflictError(str(error)) from error

    def _replace(self, raw: Manifest, assignment: SplitAssignmentSpec) -> None:
        metadata = raw["metadata"]
        operations = [
            {"op": "test", "path": "/metadata/uid", "value": metadata["uid"]},
            {"op": "test", "path": "/metadata/generation", "value": metadata["generation"]},
            {"op": "replace", "path": "/spec", "value": assignment.to_manifest()},
        ]
        try:
            written = self._cluster.edit(
                SPLIT_ASSIGNMENT,
                self._namespace,
                self._name,
                operations,
                manager=CONTROLLER_MANAGER,
            )
        except (ConflictError, NotFound, Refused) as error:
            self._refresh()
            if self._ours() == raw:
                raise  # nothing else uses this name
            raise ConflictError(
                f"the SplitAssignment has changed since it was read: {error}"
            ) from error
        self._assignments.put(written)

    def _remove_foreign(self) -> None:
        """Deletes the object of an earlier Backfill of this name. Its owner no longer exists, so it
        would be deleted anyway.
        """
        raw = self._assignments.get(self._namespace, self._name)
        if raw is not None and owner_uid(raw) != self._uid:
            self._delete(raw)

    def _delete(self, raw: Manifest) -> None:
        self._cluster.delete(SPLIT_ASSIGNMENT, self._namespace, self._name, uid=uid_of(raw))
        self._assignments.forget(raw)

    def _refresh(self) -> None:
        kept = self._assignments.get(self._namespace, self._name)
        found = self._cluster.get(SPLIT_ASSIGNMENT, self._namespace, self._name)
        if found is not None:
            self._assignments.put(found)
        elif kept is not None:
            self._assignments.forget(kept)


def _understood(model: type[M], part: Manifest | None) -> M | None:
    """A message in the format of another version counts as none: both sides repeat everything."""
    try:
        return None if part is None else read_json(model, part)
    except ValidationError:
        return None
