"""The kinds of objects that are used, and their paths at the API server."""

from dataclasses import dataclass
from typing import Any, Final

from backfill.kube import object_names

Manifest = dict[str, Any]
"""An object as the API server returns it."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of object."""

    group: str
    """API group; empty for the core group."""
    version: str
    plural: str
    namespaced: bool = True

    @property
    def root(self) -> str:
        """Path of the API group's version."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, namespace: str | None = None, name: str = "", subresource: str = "") -> str:
        """Path of one object, of all objects of a namespace,
        or without a namespace of all objects.
        """
        parts = [self.root]
        if self.namespaced and namespace is not None:
            parts += ["namespaces", namespace]
        return "/".join(part for part in (*parts, self.plural, name, subresource) if part)


BACKFILL: Final = Resource(object_names.GROUP, object_names.VERSION, object_names.BACKFILLS)
SPLIT_ASSIGNMENT: Final = Resource(
    object_names.GROUP, object_names.VERSION, object_names.SPLIT_ASSIGNMENTS
)
JOB_REPORT: Final = Resource(object_names.GROUP, object_names.VERSION, object_names.JOB_REPORTS)
DECISION: Final = Resource(object_names.GROUP, object_names.VERSION, object_names.DECISIONS)
SELF_REVIEW: Final = Resource("authentication.k8s.io", "v1", "selfsubjectreviews", namespaced=False)
SPARK_APPLICATION: Final = Resource("sparkoperator.k8s.io", "v1beta2", "sparkapplications")
CONFIG_MAP: Final = Resource("", "v1", "configmaps")
EVENT: Final = Resource("", "v1", "events")
LEASE: Final = Resource("coordination.k8s.io", "v1", "leases")
POD: Final = Resource("", "v1", "pods")
