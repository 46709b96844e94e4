"""What an API server says of the Helm chart."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from identities import RBAC, kubeconfig_of
from kubeconfigs import address_and_ca, token_of
from operators import OperatorProcess, running, wait_until_ready
from resources import DATA, install
from rest import DEFINITIONS, Answer, Manifest, Rest
from roles import may

from helm_chart import CHART, STREAMING, VARIANTS, Values, helm, one, operator_arguments, rendered
from waiting import PATIENCE_SECONDS, eventually

_MONITORING = [
    json.loads((DATA / f"{kind}.monitoring.coreos.com.json").read_text())
    for kind in ("servicemonitors", "prometheusrules")
]
_RESTRICTED = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}


class Installed:
    """A namespace for the release and one with Backfills, and how the chart's objects get into
    them.
    """

    def __init__(self, admin: Rest, namespace: str):
        self.admin, self.namespace, self.streaming = admin, namespace, f"{namespace}-streaming"
        self._plurals: dict[tuple[str, str], tuple[str, bool]] = {}

    def values(self, values: Values) -> Values:
        """The same values with the namespaces of this test."""
        names = {"streaming": self.streaming, "ads": self.streaming + "-2"}
        given = [entry | {"name": names[entry["name"]]} for entry in values.get("namespaces", [])]
        return values | ({"namespaces": given} if given else {})

    def manifests(self, values: Values) -> list[Manifest]:
        return rendered(self.values(values), release=self.namespace, namespace=self.namespace)

    def apply(self, manifest: Manifest, **query: str) -> Answer:
        path = f"{self._collection(manifest)}/{manifest['metadata']['name']}"
        return self.admin.patch(
            path,
            manifest,
            "apply",
            fieldManager="helm",
            force="true",
            fieldValidation="Strict",
            **query,
        )

    def _collection(self, manifest: Manifest) -> str:
        version, kind = manifest["apiVersion"], manifest["kind"]
        if (version, kind) not in self._plurals:
            base = f"apis/{version}" if "/" in version else f"api/{version}"
            for each in self.admin.get(base).expect()["resources"]:
                if "/" not in each["name"]:
                    self._plurals[version, each["kind"]] = (each["name"], each["namespaced"])
        plural, namespaced = self._plurals[version, kind]
        place = f"namespaces/{manifest['metadata']['namespace']}/" if namespaced else ""
        return f"{'apis' if '/' in version else 'api'}/{version}/{place}{plural}"


@pytest.fixture
def installed(admin: Rest, crds: None, namespace: str) -> Installed:
    install(admin, _MONITORING)
    admin.patch(f"api/v1/namespaces/{namespace}", {"metadata": {"labels": _RESTRICTED}}).expect()
    made = Installed(admin, namespace)
    for name in (made.streaming, f"{made.streaming}-2"):
        admin.create("api/v1/namespaces", {"metadata": {"name": name}}).expect()
    return made


@pytest.mark.parametrize("variant", VARIANTS, ids=[name.replace(" ", "-") for name in VARIANTS])
def test_the_api_server_takes_every_object_without_a_warning(
    installed: Installed, variant: str
) -> None:
    manifests = installed.manifests(VARIANTS[variant])
    account = one(manifests, "Deployment")["spec"]["template"]["spec"]["serviceAccountName"]
    installed.apply(_account(installed.namespace, account)).expect()
    for manifest in manifests:
        answer = installed.apply(manifest, dryRun="All")
        answer.expect()
        assert answer.warnings == [], manifest["kind"]


@pytest.mark.parametrize("variant", ["default", "everything"])
def test_the_operators_pod_starts_where_pod_security_is_restricted(
    installed: Installed, variant: str
) -> None:
    manifests = installed.manifests(VARIANTS[variant])
    template = one(manifests, "Deployment")["spec"]["template"]
    installed.apply(_account(installed.namespace, template["spec"]["serviceAccountName"])).expect()
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "operator"},
        "spec": template["spec"],
    }
    installed.admin.create(
        f"api/v1/namespaces/{installed.namespace}/pods", pod, dryRun="All"
    ).expect()
    pod["spec"]["containers"][0].pop("securityContext")
    refused = installed.admin.create(
        f"api/v1/namespaces/{installed.namespace}/pods", pod, dryRun="All"
    )
    assert "violates PodSecurity" in refused.message


@pytest.fixture
def scope(request: pytest.FixtureRequest, installed: Installed) -> Iterator[list[Manifest]]:
    """The chart's permissions are there while the test runs, for the whole cluster or for one
    namespace.
    """
    manifests = installed.manifests({"scope": request.param, "namespaces": [STREAMING]})
    granting = [
        each
        for each in manifests
        if each["kind"] == "ServiceAccount" or "rbac" in each["apiVersion"]
    ]
    for manifest in granting:
        installed.apply(manifest).expect()
    yield manifests
    for manifest in granting:
        if manifest["kind"].startswith("Cluster"):
            installed.admin.delete(
                f"{RBAC}/{manifest['kind'].lower()}s/{manifest['metadata']['name']}"
            )


@pytest.fixture
def operator_kubeconfig(
    installed: Installed, cluster_admin: Path, scope: list[Manifest], tmp_path: Path
) -> Path:
    name = one(scope, "ServiceAccount")["metadata"]["name"]
    path = kubeconfig_of(
        installed.admin, cluster_admin, installed.namespace, name, tmp_path / "operator.kubeconfig"
    )
    user = Rest(path)
    eventually(
        lambda: may(user, "create", "events", installed.streaming), "the permissions are known"
    )
    user.close()
    return path


@pytest.mark.parametrize("scope", ["Cluster", "Namespaces"], indirect=True)
def test_an_operator_that_is_started_as_the_chart_says_leads_and_passes_its_test(
    installed: Installed, scope: list[Manifest], operator_kubeconfig: Path, tmp_path: Path
) -> None:
    arguments = [each for each in operator_arguments(scope) if "-port=" not in each]
    watched = (
        [] if any(each.startswith("--namespaces=") for each in arguments) else ["--namespaces="]
    )
    with running(
        operator := OperatorProcess(
            operator_kubeconfig, installed.namespace, tmp_path, "one", *watched, *arguments
        )
    ):
        wait_until_ready(operator)
        passed = _installation_test(scope, operator_kubeconfig, operator.health_port, tmp_path)
        assert passed.returncode == 0, passed.stdout + passed.stderr
        assert passed.stdout.startswith('the operator is ready: {"leader": ')
        _take_permissions_away(installed, scope, operator_kubeconfig)
        refused = _installation_test(scope, operator_kubeconfig, operator.health_port, tmp_path)
    assert refused.returncode == 1
    assert "missing permission: create events" in refused.stdout


@pytest.mark.parametrize("scope", ["Cluster", "Namespaces"], indirect=True)
def test_the_operator_reads_no_secret(
    installed: Installed, scope: list[Manifest], operator_kubeconfig: Path
) -> None:
    operator = Rest(operator_kubeconfig)
    for namespace in (installed.streaming, installed.namespace):
        assert not any(may(operator, verb, "secrets", namespace) for verb in ("get", "list"))
    operator.close()


def test_a_release_is_installed_upgraded_rolled_back_and_uninstalled(
    installed: Installed, cluster_admin: Path
) -> None:
    deployment = f"apis/apps/v1/namespaces/{installed.namespace}/deployments/{installed.namespace}-backfill-operator"

    def release(command: str, *arguments: str, values: Values = {}) -> str:  # noqa: B006 - never changed
        options = ["--kubeconfig", str(cluster_admin), "--namespace", installed.namespace]
        given = json.dumps(installed.values(values)) if "--values" in arguments else None
        answer = helm(command, installed.namespace, *arguments, *options, input=given)
        assert answer.returncode == 0, answer.stderr
        return answer.stdout

    def argument(word: str) -> list[str]:
        arguments = installed.admin.get(deployment).expect()["spec"]["template"]["spec"][
            "containers"
        ][0]["args"]
        return [each for each in arguments if each.startswith(word)]

    notes = release(
        "install", str(CHART), "--take-ownership", "--values", "-", values={"scope": "Cluster"}
    )
    assert "No namespaces are listed yet" in notes
    assert argument("--namespaces") == []
    notes = release(
        "upgrade", str(CHART), "--values", "-", values=VARIANTS["one namespace"] | {"metrics": {}}
    )
    assert f"kubectl -n {installed.streaming} apply -f backfill.yaml" in notes
    assert argument("--namespaces") == [f"--namespaces={installed.streaming}"]
    release("rollback", "1")
    assert argument("--namespaces") == []
    assert (
        installed.admin.get(f"{RBAC}/namespaces/{installed.streaming}/roles").expect()["items"]
        == []
    )
    release("uninstall")
    assert installed.admin.get(deployment).status == 404
    assert installed.admin.get(f"{DEFINITIONS}/backfills.backfill.dev").ok


def test_where_permissions_are_left_to_others_nobody_is_told_to_name_drivers(
    installed: Installed, cluster_admin: Path
) -> None:
    options = [
        "--dry-run=server",
        "--kubeconfig",
        str(cluster_admin),
        "--namespace",
        installed.namespace,
        "--values",
        "-",
    ]
    values = {
        "rbac": {"create": False},
        "namespaces": [{"name": installed.streaming}],
        "crds": {"install": False},
    }
    answer = helm("install", installed.namespace, str(CHART), *options, input=json.dumps(values))
    _, _, notes = answer.stdout.partition("NOTES:")
    assert "rbac.create is false" in notes, answer.stderr
    assert "drivers: [spark]" not in notes
    assert f"kubectl -n {installed.streaming} apply -f backfill.yaml" in notes


def _account(namespace: str, name: str) -> Manifest:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}


def _take_permissions_away(installed: Installed, scope: list[Manifest], kubeconfig: Path) -> None:
    for role in scope:
        if role["kind"] in ("ClusterRole", "Role") and "events" in str(role["rules"]):
            installed.apply(role | {"rules": []}).expect()
    user = Rest(kubeconfig)
    eventually(
        lambda: not may(user, "create", "events", installed.streaming), "the permission is gone"
    )
    user.close()


def _installation_test(
    manifests: list[Manifest], kubeconfig: Path, port: int, folder: Path
) -> subprocess.CompletedProcess[str]:
    """What the pod of ``helm test`` does, with an account's token where a pod has it."""
    server, ca = address_and_ca(kubeconfig)
    account = folder / "account"
    account.mkdir(exist_ok=True)
    (account / "token").write_text(token_of(kubeconfig))
    (account / "ca.crt").write_bytes(ca)
    container = one(manifests, "Pod")["spec"]["containers"][0]
    _, option, program = container["command"]
    address = urlsplit(server)
    environment: dict[str, Any] = os.environ | {
        "KUBERNETES_SERVICE_HOST": address.hostname,
        "KUBERNETES_SERVICE_PORT": str(address.port),
        "SERVICE_ACCOUNT": str(account),
    }
    command = [
        sys.executable,
        option,
        program,
        f"http://127.0.0.1:{port}/healthz",
        container["args"][1],
    ]
    return subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
