"""The Helm chart, and what helm makes of it."""

import functools
import json
import subprocess
from collections.abc import Mapping
from typing import Any

import yaml

import missing
from repository import ROOT
from waiting import PATIENCE_SECONDS

Manifest = dict[str, Any]
Values = Mapping[str, Any]

CHART = ROOT / "charts" / "backfill-operator"
NAMESPACE = "backfill-operator"
RELEASE = "backfill-operator"

STREAMING: Values = {"name": "streaming", "drivers": ["spark", "spark-batch"]}
MONITORED: Values = {
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "prometheusRule": {"enabled": True},
    "dashboard": {"enabled": True},
}
VARIANTS: Mapping[str, Values] = {
    "default": {},
    "four values": {
        "image": {"repository": "registry.example.com/team/backfill-operator"},
        "jobs": {"image": {"repository": "registry.example.com/team/backfill-jobs"}},
        "workspace": {"uri": "s3://lake/backfills"},
        "namespaces": [{"name": "streaming", "drivers": ["spark"]}],
    },
    "one namespace": {"scope": "Namespaces", "namespaces": [STREAMING]},
    "two namespaces": {"scope": "Namespaces", "namespaces": [STREAMING, {"name": "ads"}]},
    "everything": {
        "scope": "Cluster",
        "namespaces": [STREAMING],
        "hostUsers": False,
        "image": {"digest": f"sha256:{'0' * 64}"},
        "imagePullSecrets": ["registry"],
        "jobs": {"image": {"digest": f"sha256:{'1' * 64}"}},
        "workspace": {"uri": "s3://lake/{namespace}/backfills"},
        "env": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
        "serviceAccount": {"annotations": {"example.com/note": "yes"}},
        "resources": {"limits": {"cpu": "2"}},
        "podLabels": {"team": "streaming", "app.kubernetes.io/name": "another"},
        "podAnnotations": {"example.com/note": "yes"},
        "priorityClassName": "system-cluster-critical",
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": "spot", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}]}]}}},
        "podSecurityContext": {"runAsUser": None, "runAsGroup": None},
        "networkPolicy": {
            "metricsFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
            "egress": [{"ports": [{"port": 443, "protocol": "TCP"}]}],
        },
        "metrics": MONITORED,
    },
    "nothing that can be left out": {
        "serviceAccount": {"create": False, "name": "given"},
        "rbac": {"create": False},
        "podDisruptionBudget": {"enabled": False},
        "networkPolicy": {"enabled": False},
        "crds": {"install": False},
    },
    "no metadata service": {"scope": "Cluster", "networkPolicy": {"denyLinkLocal": True}},
    "a long name": {"fullnameOverride": "backfills-of-the-recommendations-team-in-the-first-region-of-all"[:60]},
}  # fmt: skip


@functools.cache
def find_helm() -> str | None:
    """Where helm is, if it is anywhere; ``make test-chart`` builds it."""
    found = subprocess.run(
        ["sh", str(ROOT / "scripts" / "helm.sh"), "--no-build"],
        capture_output=True,
        text=True,
        check=False,
    )
    return found.stdout.strip() or None


def helm(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs it; whether it succeeds is for the caller to judge."""
    program = find_helm()
    if program is None:
        missing.skip("helm is missing: make test-chart")
    return subprocess.run(
        [program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=4 * PATIENCE_SECONDS,
        **options,
    )


def template(
    values: Values, *, release: str = RELEASE, namespace: str = NAMESPACE
) -> subprocess.CompletedProcess[str]:
    """What ``helm template`` answers. Values that name neither namespaces nor a scope are for the
    whole cluster.
    """
    values = values if values.keys() & {"scope", "namespaces"} else {**values, "scope": "Cluster"}
    return helm(
        "template",
        release,
        str(CHART),
        "--namespace",
        namespace,
        "--values",
        "-",
        input=json.dumps(values),
    )


def rendered(
    values: Values, *, release: str = RELEASE, namespace: str = NAMESPACE
) -> list[Manifest]:
    """The objects that are installed, with those of ``helm test``."""
    answer = template(values, release=release, namespace=namespace)
    assert answer.returncode == 0, answer.stderr
    return [manifest for manifest in yaml.safe_load_all(answer.stdout) if manifest]


def refusal(values: Values) -> str:
    """Why values are not taken."""
    answer = template(values)
    assert answer.returncode != 0, "the values are taken"
    return answer.stderr


def one(
    manifests: list[Manifest], kind: str, name: str | None = None, namespace: str | None = None
) -> Manifest:
    """The only object of a kind, or of a kind and a name."""
    found = [
        each
        for each in manifests
        if each["kind"] == kind
        and name in (None, each["metadata"]["name"])
        and namespace in (None, each["metadata"].get("namespace"))
    ]
    assert len(found) == 1, f"{len(found)} of {kind} {name or ''}"
    return found[0]


def container(manifests: list[Manifest]) -> Manifest:
    """The operator's only container."""
    (operator,) = one(manifests, "Deployment")["spec"]["template"]["spec"]["containers"]
    return dict(operator)


def operator_arguments(manifests: list[Manifest]) -> list[str]:
    """What the operator is started with."""
    operator = container(manifests)
    assert operator["command"] == ["backfill-operator"]
    return list(operator["args"])
