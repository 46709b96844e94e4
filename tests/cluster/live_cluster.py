"""The cluster, as somebody who may do everything sees it."""

import json
import socket
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rest import Manifest, Rest
from urllib3.exceptions import HTTPError

LOOK_SECONDS = 0.1
PATIENCE_SECONDS = 900.0
"""Many times what anything here takes on an idle machine of two cores: on a busy one it comes late,
and only what never comes waits so long.
"""
_POD_SECURITY = ("enforce", "warn")


@dataclass(frozen=True)
class Cluster:
    """Plain requests and kubectl."""

    admin: Rest
    kubeconfig: Path

    def kubectl(self, namespace: str, *words: str, manifests: Iterable[Manifest] = ()) -> str:
        """What kubectl says of a namespace; fails where it fails. ``manifests`` go to its standard
        input.
        """
        done = self._kubectl(namespace, *words, manifests=manifests)
        assert done.returncode == 0, f"kubectl {' '.join(words)}: {done.stderr}"
        return done.stdout

    def tell(self, namespace: str, *words: str) -> str:
        """A command and what kubectl answered, whatever it is, for a test that failed."""
        done = self._kubectl(namespace, *words)
        return f"$ kubectl --namespace {namespace} {' '.join(words)}\n{done.stdout}{done.stderr}"

    def items(self, path: str, **query: str) -> list[Manifest]:
        """The objects of a collection."""
        found: list[Manifest] = self.admin.get(path, **query).expect()["items"]
        return found

    def make_namespace(self, name: str, volumes: Iterable[Manifest] = ()) -> None:
        """A namespace in which Pod Security admits only what is ``restricted``, and volumes for its
        pods.
        """
        labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in _POD_SECURITY}
        self.admin.create(
            "api/v1/namespaces", {"metadata": {"name": name, "labels": labels}}
        ).expect()
        if made := list(volumes):
            self.kubectl(name, "apply", "-f", "-", manifests=made)
            claims = f"api/v1/namespaces/{name}/persistentvolumeclaims"
            until(lambda: all(map(_bound, self.items(claims))), "claims are bound")

    def remove_namespace(self, name: str) -> None:
        """Deletes a namespace, and the volume of its name."""
        self.admin.delete(f"api/v1/namespaces/{name}")
        self.admin.delete(f"api/v1/persistentvolumes/{name}")

    def outside(self, namespace: str, service: str) -> str:
        """The address of a service on the node, which this machine and all pods reach."""
        node, *_ = self.items("api/v1/nodes")
        address = next(
            each["address"] for each in node["status"]["addresses"] if each["type"] == "InternalIP"
        )
        found = self.admin.get(f"api/v1/namespaces/{namespace}/services/{service}").expect()
        return f"{address}:{found['spec']['ports'][0]['nodePort']}"

    def kill_pod(self, pod: Manifest) -> None:
        """Ends a pod at once, as a node that is switched off would."""
        metadata = pod["metadata"]
        path = f"api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        self.admin.delete(path, gracePeriodSeconds="0").expect()

    def _kubectl(
        self, namespace: str, *words: str, manifests: Iterable[Manifest] = ()
    ) -> "subprocess.CompletedProcess[str]":
        command = [
            "kubectl",
            "--kubeconfig",
            str(self.kubeconfig),
            "--namespace",
            namespace,
            *words,
        ]
        given = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(manifests)})
        return subprocess.run(
            command,
            input=given,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_SECONDS,
        )


def until(look: Callable[[], Any], what: str, seconds: float = PATIENCE_SECONDS) -> Any:
    """The first true answer; fails when there is none in time. An API server that is away is asked
    again.
    """
    deadline, trouble = time.monotonic() + seconds, ""
    while True:
        try:
            if answer := look():
                return answer
            trouble = ""
        except HTTPError as error:
            trouble = f" ({error})"
        assert time.monotonic() < deadline, f"{what}: not within {seconds:g} s{trouble}"
        time.sleep(LOOK_SECONDS)


def listens_at(address: str) -> bool:
    """Whether a server accepts connections there."""
    host, port = address.rsplit(":", 1)
    with socket.socket() as connection:
        connection.settimeout(1)
        return connection.connect_ex((host, int(port))) == 0


def _bound(claim: Manifest) -> bool:
    return bool(claim["status"].get("phase") == "Bound")
