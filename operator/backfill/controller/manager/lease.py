"""The Lease by which one of several operators leads, at the API server."""

from backfill.api.errors import ConflictError
from backfill.kube.client import Cluster
from backfill.kube.errors import AlreadyExists
from backfill.kube.resources import LEASE, Manifest


class ClusterLease:
    """One Lease by its name."""

    def __init__(self, cluster: Cluster, namespace: str, name: str):
        """``cluster`` should be used for nothing else: renewing must not wait for other
        requests.
        """
        self._cluster = cluster
        self._namespace = namespace
        self._name = name

    def get(self) -> Manifest | None:
        """The Lease, if there is one."""
        return self._cluster.get(LEASE, self._namespace, self._name)

    def create(self, spec: Manifest) -> None:
        """Makes it.

        Raises:
            ConflictError: somebody else was faster.
        """
        metadata = {"name": self._name, "namespace": self._namespace}
        kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
        try:
            self._cluster.create(LEASE, {**kind, "metadata": metadata, "spec": spec})
        except AlreadyExists as error:
            raise ConflictError(str(error)) from error

    def replace(self, lease: Manifest, spec: Manifest) -> None:
        """Replaces the spec of a Lease that was got.

        Raises:
            ConflictError: it has changed since.
        """
        self._cluster.replace(LEASE, {**lease, "spec": spec})
