"""The cluster, as somebody who may do everything sees it."""

import json
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rest import Manifest, Rest
from urllib3.exceptions import HTTPError

LOOK_SECONDS = 0.1


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
            command, input=given, capture_output=True, text=True, check=False, timeout=60
        )


def until(look: Callable[[], Any], what: str, seconds: float) -> Any:
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
