"""An object store and PostgreSQL as pods, with credentials that are made for one test and stand in
Secrets only.
"""

import secrets
from functools import cached_property

from images import STORES
from live_cluster import Cluster, listens_at, until
from pyiceberg.catalog import Catalog, load_catalog
from rest import Manifest
from storage import Storage

OBJECTS, DATABASE = "objects", "database"
_PORTS = {OBJECTS: 7070, DATABASE: 5432}
_SERVE = {
    OBJECTS: "mkdir /data/lake /data/lake-backfills /data/lake-checkpoints /data/lake-programs && exec versitygw --port :7070 --region us-east-1 posix /data",
    DATABASE: (
        "echo $PASSWORD | initdb -D /data/db --username=iceberg --pwfile=/dev/stdin"
        " --auth=scram-sha-256 --no-sync && echo host all all all scram-sha-256"
        " >>/data/db/pg_hba.conf && exec postgres -D /data/db -k /data -c listen_addresses='*' -c"
        " fsync=off"
    ),
}
_SECRET = "logins"


class Stores:
    """Both of them, in a namespace of their own."""

    def __init__(self, cluster: Cluster, namespace: str):
        self._cluster = cluster
        self.namespace = namespace
        self._access_key = f"AK{secrets.token_hex(9).upper()}"
        self._secret_key, self._password = secrets.token_hex(20), secrets.token_hex(12)

    @property
    def credentials(self) -> tuple[str, ...]:
        """What nobody may find anywhere but in a Secret."""
        return self._access_key, self._secret_key, self._password

    @cached_property
    def storage(self) -> Storage:
        """As pods of every namespace reach it."""
        addresses = {name: f"{name}.{self.namespace}.svc:{port}" for name, port in _PORTS.items()}
        return Storage(self._properties(addresses), workspace="s3://lake/backfills")

    def make(self) -> None:
        """Makes the namespace and begins to start both."""
        self._cluster.admin.create(
            "api/v1/namespaces", {"metadata": {"name": self.namespace}}
        ).expect()
        logins = {
            "ROOT_ACCESS_KEY": self._access_key,
            "ROOT_SECRET_KEY": self._secret_key,
            "PASSWORD": self._password,
        }
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": _SECRET},
            "stringData": logins,
        }
        servers = [manifest for name in _PORTS for manifest in (_pod(name), _service(name))]
        self._cluster.kubectl(self.namespace, "apply", "-f", "-", manifests=[secret, *servers])

    def catalog(self) -> Catalog:
        """The catalog ``lake`` with a namespace ``raw``, as this machine reaches it, when both are
        up.
        """
        for name in _PORTS:
            until(lambda name=name: self._ready(name), f"{name} is up")
        addresses = {name: self._cluster.outside(self.namespace, name) for name in _PORTS}
        for address in addresses.values():  # the node is told of a ready pod a moment later
            until(lambda address=address: listens_at(address), f"{address} answers")
        catalog = load_catalog("lake", **self._properties(addresses))
        catalog.create_namespace("raw")
        return catalog

    def files_with_credentials(self) -> list[str]:
        """Objects that one of the credentials can be read in, whoever wrote them."""
        sought = (
            'grep -rlF -e "$ROOT_ACCESS_KEY" -e "$ROOT_SECRET_KEY" -e "$PASSWORD" /data/lake ||'
            " test $? = 1"
        )
        return self._cluster.kubectl(
            self.namespace, "exec", OBJECTS, "--", "sh", "-c", sought
        ).splitlines()

    def written(self, pattern: str) -> dict[str, float]:
        """When objects were written whose bucket and name fit a pattern, in seconds since 1970."""
        sought = (
            "find",
            "/data",
            "-path",
            f"/data/{pattern}",
            "-type",
            "f",
            "-printf",
            "%T@ %P\\n",
        )
        found = self._cluster.kubectl(self.namespace, "exec", OBJECTS, "--", *sought)
        lines = (line.split(" ", 1) for line in found.splitlines())
        return {name: float(at) for at, name in lines}

    def story(self) -> str:
        """What happened, for a test that failed."""
        told = (
            ("get", "pods", "--output", "wide"),
            ("get", "events"),
            *(("logs", name, "--tail", "20") for name in _PORTS),
        )
        return "\n".join(self._cluster.tell(self.namespace, *words) for words in told)

    def remove(self) -> None:
        """Deletes the namespace."""
        self._cluster.admin.delete(f"api/v1/namespaces/{self.namespace}")

    def _properties(self, addresses: dict[str, str]) -> dict[str, str]:
        return {
            "type": "sql",
            "uri": f"postgresql+psycopg2://iceberg:{self._password}@{addresses[DATABASE]}/postgres",
            "warehouse": "s3://lake/warehouse",
            "s3.endpoint": f"http://{addresses[OBJECTS]}",
            "s3.region": "us-east-1",
            "s3.access-key-id": self._access_key,
            "s3.secret-access-key": self._secret_key,
        }

    def _ready(self, name: str) -> bool:
        status = self._cluster.admin.get(
            f"api/v1/namespaces/{self.namespace}/pods/{name}"
        ).expect()["status"]
        containers = status.get("containerStatuses", [])
        waiting = [each["state"].get("waiting", {}).get("reason", "") for each in containers]
        assert "ErrImageNeverPull" not in waiting, (
            f"the nodes have no image {STORES}: make it as tests/README.md says"
        )
        return bool(containers) and all(each["ready"] for each in containers)


def _pod(name: str) -> Manifest:
    container = {
        "name": "server",
        "image": STORES,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", _SERVE[name]],
        "envFrom": [{"secretRef": {"name": _SECRET}}],
        "readinessProbe": {"tcpSocket": {"port": _PORTS[name]}, "periodSeconds": 1},
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"server": name}},
        "spec": {
            "containers": [container],
            "volumes": [{"name": "data", "emptyDir": {}}],
            "terminationGracePeriodSeconds": 1,
        },
    }


def _service(name: str) -> Manifest:
    spec = {"type": "NodePort", "selector": {"server": name}, "ports": [{"port": _PORTS[name]}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}
