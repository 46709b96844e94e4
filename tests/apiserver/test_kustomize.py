"""``kubectl apply -k deploy/kustomize``: all that a cluster needs, accepted by an API server."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from rest import Manifest, Rest

import missing
from backfill.controller.manager.options import parse
from repository import ROOT

KUSTOMIZE = ROOT / "deploy" / "kustomize"
CORE = {"Namespace": "namespaces", "Service": "services", "ServiceAccount": "serviceaccounts"}
GROUPED = {
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "CustomResourceDefinition": "customresourcedefinitions",
    "Deployment": "deployments",
    "NetworkPolicy": "networkpolicies",
    "PodDisruptionBudget": "poddisruptionbudgets",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}


def manifests_of(folder: Path) -> Iterator[Manifest]:
    """What a kustomization lists, in its order, as the files have it."""
    listed = next(
        path for name in ("kustomization.yaml", "Kustomization") if (path := folder / name).exists()
    )
    for resource in yaml.safe_load(listed.read_text())["resources"]:
        path = folder / resource
        yield from manifests_of(path) if path.is_dir() else yaml.safe_load_all(path.read_text())


MANIFESTS = list(manifests_of(KUSTOMIZE))


def path_of(manifest: Manifest) -> str:
    """Where the API server has it."""
    metadata, kind = manifest["metadata"], manifest["kind"]
    root = f"apis/{manifest['apiVersion']}" if kind in GROUPED else "api/v1"
    place = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
    return f"{root}{place}/{(GROUPED | CORE)[kind]}/{metadata['name']}"


@pytest.fixture
def operator_namespace(admin: Rest) -> str:
    namespace = next(manifest for manifest in MANIFESTS if manifest["kind"] == "Namespace")
    admin.apply(path_of(namespace), namespace).expect()
    return str(namespace["metadata"]["name"])


@pytest.mark.usefixtures("operator_namespace")
@pytest.mark.parametrize(
    "manifest", MANIFESTS, ids=lambda each: f"{each['kind']} {each['metadata']['name']}"
)
def test_a_manifest_is_accepted_without_a_warning(admin: Rest, manifest: Manifest) -> None:
    answer = admin.patch(
        path_of(manifest),
        manifest,
        "apply",
        fieldManager="t",
        force="true",
        fieldValidation="Strict",
        dryRun="All",
    )
    answer.expect()
    assert answer.warnings == []


def test_the_operators_pods_are_as_restricted_as_the_namespace_wants_them(
    admin: Rest, operator_namespace: str
) -> None:
    deployment = next(manifest for manifest in MANIFESTS if manifest["kind"] == "Deployment")
    template = deployment["spec"]["template"]
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": template["spec"]["serviceAccountName"]},
    }
    admin.apply(
        f"api/v1/namespaces/{operator_namespace}/serviceaccounts/{account['metadata']['name']}",
        account,
    ).expect()
    pods = f"api/v1/namespaces/{operator_namespace}/pods"
    pod = {"metadata": {"name": "operator"}, "spec": template["spec"]}
    assert admin.create(pods, pod, dryRun="All").expect()
    loose = [{**container, "securityContext": {}} for container in template["spec"]["containers"]]
    refused = admin.create(
        pods, pod | {"spec": template["spec"] | {"containers": loose}}, dryRun="All"
    )
    assert (refused.status, "PodSecurity" in refused.message) == (403, True)


def test_a_replica_is_named_after_its_pod_so_that_a_container_that_starts_again_goes_on_with_its_lease() -> (
    None
):
    deployment = next(manifest for manifest in MANIFESTS if manifest["kind"] == "Deployment")
    variables = {
        variable["name"]: variable
        for variable in deployment["spec"]["template"]["spec"]["containers"][0]["env"]
    }
    assert variables["POD_NAME"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"


def test_kubectl_makes_the_same_of_it() -> None:
    if shutil.which("kubectl") is None:
        missing.skip("there is no kubectl")
    built = subprocess.run(
        ["kubectl", "kustomize", str(KUSTOMIZE)], capture_output=True, text=True, check=True
    ).stdout
    named = {(each["kind"], each["metadata"]["name"]) for each in yaml.safe_load_all(built)}
    assert named == {(each["kind"], each["metadata"]["name"]) for each in MANIFESTS}
    assert "image: registry.example.com/backfill-operator" in built


def test_the_overlay_of_the_documentation_chooses_the_operators_options(tmp_path: Path) -> None:
    if shutil.which("kubectl") is None:
        missing.skip("there is no kubectl")
    page = (ROOT / "docs" / "operating.md").read_text()
    overlay = next(
        block for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "patches:" in block
    )
    base = re.sub(r"https://\S+", os.path.relpath(KUSTOMIZE, tmp_path.resolve()), overlay)
    (tmp_path / "kustomization.yaml").write_text(base)
    built = subprocess.run(
        ["kubectl", "kustomize", str(tmp_path)], capture_output=True, text=True, check=True
    ).stdout
    deployment = next(each for each in yaml.safe_load_all(built) if each["kind"] == "Deployment")
    operator = deployment["spec"]["template"]["spec"]["containers"][0]
    settings = parse(operator["args"], {})
    assert settings.job_image == "your.registry/backfill-jobs:1.0.0"
    assert settings.default_workspace == "s3://lake/backfills/{namespace}"
    assert settings.job_pods == 10, "what the manifests say stays"
    assert operator["image"] == "your.registry/backfill-operator:1.0.0"
