"""The permissions as they are shipped, so that tests run under exactly these."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from identities import RBAC, Rules
from rest import Rest

from repository import ROOT

_RBAC = ROOT / "deploy" / "rbac"


def shipped(file: str) -> list[dict[str, Any]]:
    """The manifests of one file."""
    return [manifest for manifest in yaml.safe_load_all((_RBAC / file).read_text()) if manifest]


def rules_of(file: str, kind: str, name: str) -> Rules:
    """The rules of one Role or ClusterRole in it."""
    return next(
        each["rules"]
        for each in shipped(file)
        if (each["kind"], each["metadata"]["name"]) == (kind, name)
    )


def shipped_files() -> list[Path]:
    """Every file of permissions."""
    return sorted(_RBAC.glob("*.yaml"))


OPERATOR_NAMESPACE = "backfill-operator"
_COLLECTIONS = {
    "ServiceAccount": "api/v1/namespaces/{}/serviceaccounts",
    "Role": f"{RBAC}/namespaces/{{}}/roles",
    "RoleBinding": f"{RBAC}/namespaces/{{}}/rolebindings",
    "ClusterRole": f"{RBAC}/clusterroles",
    "ClusterRoleBinding": f"{RBAC}/clusterrolebindings",
    "ValidatingAdmissionPolicy": "apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": (
        "apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
    ),
}


@contextmanager
def granted(admin: Rest, namespace: str, *files: str) -> Iterator[None]:
    """Has the manifests of these files applied, as ``kubectl apply -n`` does, while the block
    runs.
    """
    paths = []
    for manifest in (manifest for file in files for manifest in shipped(file)):
        place = manifest["metadata"].get("namespace", namespace)
        paths.append(
            f"{_COLLECTIONS[manifest['kind']].format(place)}/{manifest['metadata']['name']}"
        )
        admin.apply(paths[-1], manifest).expect()
    try:
        yield
    finally:
        for path in reversed(paths):
            admin.delete(path)


def may(user: Rest, verb: str, resource: str, namespace: str | None = None, name: str = "") -> bool:
    """Whether the API server lets a user do this. A resource is written ``plural.group`` or
    ``plural/subresource.group``.
    """
    plural, _, group = resource.partition(".")
    plural, _, subresource = plural.partition("/")
    wanted = {
        "verb": verb,
        "group": group,
        "resource": plural,
        "subresource": subresource,
        "name": name,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": wanted | ({"namespace": namespace} if namespace else {})},
    }
    answer = user.create("apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review).expect()
    return bool(answer["status"]["allowed"])
