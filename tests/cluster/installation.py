"""The operator as ``helm install`` makes it, for the namespaces of some teams."""

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from images import JOBS, OPERATOR
from live_cluster import Cluster, until
from rest import DEFINITIONS, Manifest, Rest
from teams import Team

from helm_chart import CHART, helm

RELEASE = "backfill-operator"
WAITING = ("--wait", "--timeout", "15m")
"""Options of helm: until all is ready, however busy the machine is."""


class Installation:
    """One release in a namespace of its own."""

    def __init__(self, cluster: Cluster, namespace: str, teams: Sequence[Team] = ()):
        self.cluster = cluster
        self.namespace = namespace
        self.teams = teams

    def install(self) -> None:
        """Makes the namespaces, and returns when the operator leads."""
        self.cluster.make_namespace(self.namespace)
        for team in self.teams:
            team.make()
        self.change("install", *WAITING)
        until(lambda: self.leader, "the operator leads")

    def change(self, command: str, *options: str, **values: Any) -> None:
        """``helm install`` or ``upgrade`` of this operator; ``values`` go over those of
        :attr:`values`.
        """
        self.helm(command, str(CHART), "--values", "-", *options, values=self.values | values)

    def helm(self, command: str, *options: str, values: dict[str, Any] | None = None) -> str:
        """What helm says of this release; fails where it fails."""
        arguments = [command, RELEASE, *options, "--namespace", self.namespace]
        environment = os.environ | {"KUBECONFIG": str(self.cluster.kubeconfig)}
        done: subprocess.CompletedProcess[str] = helm(
            *arguments, input=json.dumps(values or {}), env=environment
        )
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"
        return done.stdout

    @property
    def values(self) -> dict[str, Any]:
        """The chart's values."""
        operator, jobs = (
            dict(zip(("repository", "tag"), image.rsplit(":", 1), strict=True))
            for image in (OPERATOR, JOBS)
        )
        return {
            "image": operator,
            "jobs": {"image": jobs},
            "scope": "Namespaces",
            "namespaces": [team.served for team in self.teams] or [{"name": self.namespace}],
            "replicas": 1,
            "crds": {"install": False},
            "rbac": {"users": False},
            "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}},
        }

    @property
    def replicas(self) -> list[Manifest]:
        """The operator's pods."""
        path = f"api/v1/namespaces/{self.namespace}/pods"
        return self.cluster.items(path, labelSelector="app.kubernetes.io/component=operator")

    @property
    def leader(self) -> str:
        """The name of the pod that leads; empty while none of those that are there does."""
        lease = self.cluster.admin.get(
            f"apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases/{RELEASE}"
        ).body
        holder = str((lease.get("spec") or {}).get("holderIdentity") or "")
        return holder if holder in {each["metadata"]["name"] for each in self.replicas} else ""

    def story(self) -> str:
        """What happened, for a test that failed."""
        told = (
            ("get", "pods", "--output", "wide"),
            (
                "logs",
                "--selector",
                "app.kubernetes.io/component=operator",
                "--tail",
                "80",
                "--prefix",
            ),
        )
        own = [self.cluster.tell(self.namespace, *words) for words in told]
        return "\n".join((*own, *(team.story() for team in self.teams)))

    def remove(self) -> None:
        """Deletes all Backfills while there is an operator that cleans up, and then the
        namespaces.
        """
        admin = self.cluster.admin
        for team in self.teams:
            admin.delete(f"apis/backfill.dev/v1alpha1/namespaces/{team.namespace}/backfills")
        try:
            until(
                lambda: all(team.backfills_gone() for team in self.teams),
                "Backfills are gone",
            )
        finally:
            for namespace in (*(team.namespace for team in self.teams), self.namespace):
                self.cluster.remove_namespace(namespace)


def definitions_installed(admin: Rest, directory: Path) -> None:
    """Installs the definitions as this version has them, and returns when they are served."""
    for file in sorted(directory.glob("*.yaml")):
        definition = yaml.safe_load(file.read_text())
        path = f"{DEFINITIONS}/{definition['metadata']['name']}"
        admin.apply(path, definition).expect()
        until(lambda path=path: _established(admin.get(path).body), f"{file.name} is served")


def _established(definition: Manifest) -> bool:
    found = definition.get("status", {}).get("conditions") or []  # null in the first moment
    return any(each["type"] == "Established" and each["status"] == "True" for each in found)
