"""Service accounts with exactly the permissions a test gives them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kubeconfigs import address_and_ca, write_kubeconfig
from rest import Rest

from waiting import eventually

RBAC = "apis/rbac.authorization.k8s.io/v1"
Rules = list[dict[str, list[str]]]
ServiceAccountMaker = Callable[..., Path]


def rule(group: str, resources: str, verbs: str) -> dict[str, list[str]]:
    """One rule of a role; resources and verbs are separated by spaces."""
    return {"apiGroups": [group], "resources": resources.split(), "verbs": verbs.split()}


def service_account(
    admin: Rest, namespace: str, name: str, rules: Rules, cluster_rules: Rules
) -> None:
    """A ServiceAccount that may do what the rules say: in its namespace, and everywhere."""
    admin.create(
        f"api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": name}}
    ).expect()
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    if rules:
        path = f"{RBAC}/namespaces/{namespace}"
        admin.create(f"{path}/roles", {"metadata": {"name": name}, "rules": rules}).expect()
        admin.create(f"{path}/rolebindings", _binding(name, "Role", name, subject)).expect()
    if cluster_rules:
        unique = f"{namespace}-{name}"
        admin.create(
            f"{RBAC}/clusterroles", {"metadata": {"name": unique}, "rules": cluster_rules}
        ).expect()
        admin.create(
            f"{RBAC}/clusterrolebindings", _binding(unique, "ClusterRole", unique, subject)
        ).expect()


def kubeconfig_of(
    admin: Rest,
    admin_kubeconfig: Path,
    namespace: str,
    name: str,
    path: Path,
    pod: dict[str, Any] | None = None,
) -> Path:
    """A kubeconfig with a token of the ServiceAccount; with ``pod`` the one that the kubelet mounts
    in it.
    """
    spec = {}
    if pod is not None:
        identity = {field: pod["metadata"][field] for field in ("name", "uid")}
        spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", **identity}
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    answer = admin.create(
        f"api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", request
    ).expect()
    server, ca = address_and_ca(admin_kubeconfig)
    return write_kubeconfig(path, server, ca, answer["status"]["token"], namespace)


def wait_until_allowed(kubeconfig: Path, namespace: str | None, rules: Rules) -> None:
    """Permissions take a moment to reach the server's authorizer."""
    if not rules:
        return
    first = rules[-1]
    resource, _, subresource = first["resources"][0].partition("/")
    wanted = {
        "group": first["apiGroups"][0],
        "resource": resource,
        "subresource": subresource,
        "verb": first["verbs"][0],
    }
    wanted |= {"namespace": namespace} if namespace else {}
    wanted |= {"name": first["resourceNames"][0]} if "resourceNames" in first else {}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": wanted},
    }
    user = Rest(kubeconfig)
    path = "apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    eventually(
        lambda: user.create(path, review).expect()["status"]["allowed"], f"{wanted} is allowed"
    )
    user.close()


def _binding(name: str, kind: str, role: str, subject: dict[str, str]) -> dict[str, Any]:
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role}
    return {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
