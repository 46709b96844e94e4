"""The Lease of the leading operator, at the API server."""

from backfill.api.errors import ConflictError
from backfill.kube.client import Cluster
from backfill.kube.errors import AlreadyExists
from backfill.kube.resources import LEASE, Manifest


class ClusterLease:
    """A Lease by its name."""

    def __init__(self, cluster: Cluster, namespace: str, name: str):
        """``cluster`` should serve nothing else,
        so that renewing never waits for other requests.
        """
        self._cluster = cluster
        self._namespace = namespace
        self._name = name

    def get(self) -> Manifest | None:
        """The Lease; None if it does not exist."""
        return self._cluster.get(LEASE, self._namespace, self._name)

    def create(self, spec: Manifest) -> None:
        """Creates the Lease.

        Raises:
            ConflictError: another replica has created it.
        """
        metadata = {"name": self._name, "namespace": self._namespace}
        kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
        try:
            self._cluster.create(LEASE, {**kind, "metadata": metadata, "spec": spec})
        except AlreadyExists as error:
            raise ConflictError(str(error)) from error

    def replace(self, lease: Manifest, spec: Manifest) -> None:
        """Replaces the spec of a Lease that was read.

        Raises:
            ConflictError: it has changed since it was read.
        """
        self._cluster.replace(LEASE, {**lease, "spec": spec})
