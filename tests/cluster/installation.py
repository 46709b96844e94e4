"""The operator in a namespace of its own, as ``helm install`` makes it, with all that an application needs there."""

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from rest import BACKFILLS, DEFINITIONS, Manifest, Rest, eventually

from helm_chart import CHART, helm
from iceberg_tables import catalog_properties

OPERATOR_IMAGE = "localhost/backfill-operator:dev"
SPARK_IMAGE = "localhost/backfill-spark:dev"
SPARK_USER = 185
"""The user of the Spark image. The operator is given the same one, for they share a directory and no object store."""
SUCCESS_SECONDS = 300
_RELEASE = "backfill-operator"
_SPARK_MAY: list[Manifest] = [
    {
        "apiGroups": [""],
        "resources": ["pods", "services", "configmaps", "persistentvolumeclaims"],
        "verbs": ["create", "get", "list", "watch", "update", "patch", "delete", "deletecollection"],
    }
]
"""What Spark itself asks for its drivers."""


class Installation:
    """One namespace."""

    def __init__(self, admin: Rest, kubeconfig: Path, namespace: str, directory: Path):
        self.admin = admin
        self.namespace = namespace
        self.directory = directory
        self._kubeconfig = kubeconfig
        self.lake_volume: Manifest = {"name": "lake", "hostPath": {"path": str(directory)}}
        self.lake_mount: Manifest = {"name": "lake", "mountPath": str(directory)}

    def install(self) -> None:
        """Makes the namespace, and returns when the operator leads."""
        self.admin.create("api/v1/namespaces", {"metadata": {"name": self.namespace}}).expect()
        self._make("api/v1/namespaces/{}/serviceaccounts", {"metadata": {"name": "spark"}})
        rbac = "apis/rbac.authorization.k8s.io/v1/namespaces/{}"
        self._make(f"{rbac}/roles", {"metadata": {"name": "spark"}, "rules": _SPARK_MAY})
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "spark"}
        subjects = [{"kind": "ServiceAccount", "name": "spark"}]
        self._make(f"{rbac}/rolebindings", {"metadata": {"name": "spark"}, "roleRef": role, "subjects": subjects})
        properties = catalog_properties(self.directory)
        self._make("api/v1/namespaces/{}/secrets", {"metadata": {"name": "lake-catalog"}, "stringData": properties})
        self.helm("install", "--wait", "--timeout", "2m")

    def helm(self, command: str, *options: str, **values: Any) -> None:
        """``helm install`` or ``upgrade`` of this operator; ``values`` go over those of :attr:`values`."""
        arguments = [command, _RELEASE, str(CHART), "--namespace", self.namespace, "--values", "-", *options]
        environment = os.environ | {"KUBECONFIG": str(self._kubeconfig)}
        done = helm(*arguments, input=json.dumps(self.values | values), env=environment)
        assert done.returncode == 0, f"{done.stderr}\n{self.story()}"

    @property
    def values(self) -> dict[str, Any]:
        """The chart's values."""
        repository, tag = OPERATOR_IMAGE.rsplit(":", 1)
        served = {"name": self.namespace, "drivers": ["spark"], "planInPods": True, "secrets": ["lake-catalog"]}
        return {
            "image": {"repository": repository, "tag": tag},
            "scope": "Namespaces",
            "namespaces": [served],
            "replicas": 1,
            "crds": {"install": False},
            "rbac": {"users": False},
            "podSecurityContext": {"runAsUser": SPARK_USER, "runAsGroup": 0, "fsGroup": 0},
            "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}},
            "volumes": [self.lake_volume],
            "volumeMounts": [self.lake_mount],
        }

    def program(self, name: str, file: Path) -> None:
        """Makes a ConfigMap with a main program."""
        self._make("api/v1/namespaces/{}/configmaps", {"metadata": {"name": name}, "data": {"main.py": file.read_text()}})

    def apply(self, *manifests: Manifest) -> None:
        """``kubectl apply``."""
        arguments = ["kubectl", "--kubeconfig", str(self._kubeconfig), "--namespace", self.namespace, "apply", "-f", "-"]
        done = subprocess.run(arguments, input=yaml.safe_dump_all(manifests), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def backfill(self, name: str) -> Manifest:
        """A Backfill as it is now."""
        return self.admin.get(f"{BACKFILLS.format(self.namespace)}/{name}").expect()

    def pods(self, **labels: str) -> list[Manifest]:
        """Pods with these labels; underscores are written for hyphens."""
        selector = ",".join(f"{key.replace('_', '-')}={value}" for key, value in labels.items())
        answer = self.admin.get(f"api/v1/namespaces/{self.namespace}/pods", labelSelector=selector)
        found: list[Manifest] = answer.expect()["items"]
        return found

    def events(self, name: str) -> list[Manifest]:
        """The Events of a Backfill."""
        selector = f"involvedObject.kind=Backfill,involvedObject.name={name}"
        found: list[Manifest] = self.admin.get(f"api/v1/namespaces/{self.namespace}/events", fieldSelector=selector).expect()[
            "items"
        ]
        return found

    def until_succeeded(self, name: str, look: Callable[[Manifest], None] = lambda _: None, *, attempts: int = 1) -> Manifest:
        """Waits for the end of a Backfill within so many attempts; ``look`` is shown its states on the way."""
        deadline = time.monotonic() + SUCCESS_SECONDS
        while True:
            found = self.backfill(name)
            look(found)
            ended = conditions(found).get("Succeeded")
            if ended == "True":
                return found
            made = found.get("status", {}).get("attempts", [])
            assert ended != "False" and len(made) <= attempts, f"{name} did not succeed\n{self.story()}"
            assert time.monotonic() < deadline, f"{name} has not ended within {SUCCESS_SECONDS} s\n{self.story()}"
            time.sleep(0.1)

    def story(self) -> str:
        """What happened, for a test that failed."""
        return "\n".join(
            self._kubectl(*words)
            for words in (
                ("get", "backfills,sparkapplications,pods", "--output", "wide"),
                ("get", "backfills", "--output", "yaml"),
                ("get", "events", "--sort-by=.metadata.creationTimestamp"),
                ("logs", "--selector", "app.kubernetes.io/component=operator", "--tail", "60"),
                ("logs", "--selector", "spark-role=driver", "--tail", "60"),
            )
        )

    def remove(self) -> None:
        """Deletes all Backfills while there is an operator that cleans up, and then the namespace."""
        self.admin.delete(BACKFILLS.format(self.namespace))
        backfills = BACKFILLS.format(self.namespace)
        eventually(lambda: not self.admin.get(backfills).body.get("items"), "Backfills are gone", seconds=60)
        self.admin.delete(f"api/v1/namespaces/{self.namespace}")

    def _make(self, collection: str, manifest: Manifest) -> None:
        self.admin.create(collection.format(self.namespace), manifest).expect()

    def _kubectl(self, *words: str) -> str:
        arguments = ["kubectl", "--kubeconfig", str(self._kubeconfig), "--namespace", self.namespace, *words]
        done = subprocess.run(arguments, capture_output=True, text=True, check=False)
        return f"$ kubectl {' '.join(words)}\n{done.stdout}{done.stderr}"


def definitions_installed(admin: Rest, directory: Path) -> None:
    """Installs the definitions as this version has them, and returns when they are served."""
    for file in sorted(directory.glob("*.yaml")):
        definition = yaml.safe_load(file.read_text())
        path = f"{DEFINITIONS}/{definition['metadata']['name']}"
        admin.apply(path, definition).expect()
        eventually(lambda path=path: _established(admin.get(path).body), f"{file.name} is served")


def conditions(backfill: Manifest) -> dict[str, str]:
    """The status of each condition."""
    return {each["type"]: each["status"] for each in backfill.get("status", {}).get("conditions", [])}


def _established(definition: Manifest) -> bool:
    found = definition.get("status", {}).get("conditions", [])
    return any(each["type"] == "Established" and each["status"] == "True" for each in found)
