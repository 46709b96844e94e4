"""The life of a release of the Helm chart."""

import os
from pathlib import Path

from installation import Installation
from rest import DEFINITIONS, Manifest, eventually

from helm_chart import helm

_LABEL = "pod-security.kubernetes.io/enforce"
_MADE = {
    "api/v1/namespaces/{}/pods",
    "api/v1/namespaces/{}/services",
    "apis/apps/v1/namespaces/{}/deployments",
    "apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
}
_OWNERSHIP = ("meta.helm.sh/release-name", "meta.helm.sh/release-namespace")
_OWN_USER = {"runAsUser": 10001, "runAsGroup": 10001, "fsGroup": 10001}


def test_a_release_is_tested_upgraded_rolled_back_and_uninstalled(installation: Installation, kubeconfig: Path) -> None:
    def release(command: str, *options: str) -> str:
        arguments = [command, "backfill-operator", *options, "--namespace", installation.namespace]
        done = helm(*arguments, env=os.environ | {"KUBECONFIG": str(kubeconfig)})
        assert done.returncode == 0, f"{done.stdout}{done.stderr}\n{installation.story()}"
        return done.stdout

    assert "Phase:          Succeeded" in release("test")

    _restrict(installation, "restricted")
    changed = {"replicas": 2, "volumes": [], "volumeMounts": [], "podSecurityContext": _OWN_USER, "crds": {"install": True}}
    installation.helm("upgrade", "--wait", "--take-ownership", **changed)
    eventually(lambda: len(_replicas(installation)) == 2, "the old replica is gone", seconds=60)
    assert {each["spec"]["securityContext"]["runAsUser"] for each in _replicas(installation)} == {10001}
    eventually(lambda: _holder(installation) in _names(installation), "a replica leads")
    assert "Phase:          Succeeded" in release("test")

    leader = _holder(installation)
    installation.admin.delete(f"api/v1/namespaces/{installation.namespace}/pods/{leader}").expect()
    eventually(lambda: _holder(installation) not in ("", leader), "another replica leads", seconds=20)

    _restrict(installation, None)  # the first revision has a volume of the node
    release("rollback", "1", "--wait")
    eventually(lambda: len(_replicas(installation)) == 1, "one replica is left", seconds=60)

    release("uninstall", "--wait")
    eventually(lambda: not _left(installation), "nothing is left", seconds=60)
    for definition in ("backfills", "splitassignments"):
        nobodys = {"labels": {"app.kubernetes.io/managed-by": None}, "annotations": dict.fromkeys(_OWNERSHIP)}
        installation.admin.patch(f"{DEFINITIONS}/{definition}.backfill.dev", {"metadata": nobodys}).expect()


def _restrict(installation: Installation, level: str | None) -> None:
    installation.admin.patch(f"api/v1/namespaces/{installation.namespace}", {"metadata": {"labels": {_LABEL: level}}}).expect()


def _replicas(installation: Installation) -> list[Manifest]:
    return installation.pods(**{"app.kubernetes.io/component": "operator"})


def _names(installation: Installation) -> set[str]:
    return {each["metadata"]["name"] for each in _replicas(installation)}


def _holder(installation: Installation) -> str:
    lease = f"apis/coordination.k8s.io/v1/namespaces/{installation.namespace}/leases/backfill-operator"
    return str(installation.admin.get(lease).expect()["spec"].get("holderIdentity") or "")


def _left(installation: Installation) -> set[str]:
    found = set()
    for collection in _MADE:
        items = installation.admin.get(collection.format(installation.namespace)).expect()["items"]
        made = [each for each in items if each["metadata"].get("labels", {}).get("helm.sh/chart")]
        found |= {f"{collection.rsplit('/', 1)[1]}/{each['metadata']['name']}" for each in made}
    return found
