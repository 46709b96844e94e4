"""The life of a release of the Helm chart."""

from installation import WAITING, Installation
from live_cluster import until
from rest import DEFINITIONS

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
_OTHER_USER = {"runAsUser": 10005, "runAsGroup": 10005}


def test_a_release_is_tested_upgraded_rolled_back_and_uninstalled(
    installation_apart: Installation,
) -> None:
    installation, admin = installation_apart, installation_apart.cluster.admin
    assert "Phase:          Succeeded" in installation.helm("test")

    changed = {
        "replicas": 2,
        "podSecurityContext": _OTHER_USER,
        "crds": {"install": True},
    }
    installation.change("upgrade", *WAITING, "--take-ownership", **changed)
    until(lambda: len(installation.replicas) == 2, "the old replica is gone")
    assert {each["spec"]["securityContext"]["runAsUser"] for each in installation.replicas} == {
        10005
    }
    assert "Phase:          Succeeded" in installation.helm("test")

    leader = until(lambda: installation.leader, "a replica leads")
    admin.delete(f"api/v1/namespaces/{installation.namespace}/pods/{leader}").expect()
    until(lambda: installation.leader not in ("", leader), "another replica leads")

    installation.helm("rollback", "1", *WAITING)
    until(lambda: len(installation.replicas) == 1, "one replica is left")

    installation.helm("uninstall", *WAITING)
    until(lambda: not _left(installation), "nothing is left")
    for definition in ("backfills", "splitassignments"):
        nobodys = {
            "labels": {"app.kubernetes.io/managed-by": None},
            "annotations": dict.fromkeys(_OWNERSHIP),
        }
        admin.patch(f"{DEFINITIONS}/{definition}.backfill.dev", {"metadata": nobodys}).expect()


def _left(installation: Installation) -> set[str]:
    found = set()
    for collection in _MADE:
        items = installation.cluster.items(collection.format(installation.namespace))
        made = [each for each in items if each["metadata"].get("labels", {}).get("helm.sh/chart")]
        found |= {f"{collection.rsplit('/', 1)[1]}/{each['metadata']['name']}" for each in made}
    return found
