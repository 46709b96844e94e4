"""The servers that the other tests stand on."""

import os
from pathlib import Path

import pytest
from identities import ServiceAccountMaker, rule
from kubeconfigs import why_refused, write_kubeconfig
from rest import SPARK_APPLICATIONS, Rest
from servers import running_servers
from urllib3.exceptions import HTTPError


def test_the_spark_operators_resources_are_validated_as_on_a_cluster(
    admin: Rest, crds: None, namespace: str
) -> None:
    incomplete = {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "SparkApplication",
        "metadata": {"name": "a"},
        "spec": {},
    }
    answer = admin.create(SPARK_APPLICATIONS.format(namespace), incomplete)
    assert answer.status == 422
    assert "spec.sparkVersion: Required value" in answer.message


def test_a_service_account_may_do_what_its_rules_say_and_nothing_else(
    admin: Rest, namespace: str, service_account: ServiceAccountMaker
) -> None:
    reader = Rest(service_account("reader", [rule("", "configmaps", "get list")]))
    path = f"api/v1/namespaces/{namespace}/configmaps"
    assert reader.get(path).ok
    assert reader.create(path, {"metadata": {"name": "a"}}).status == 403
    assert reader.get("api/v1/namespaces/default/configmaps").status == 403


def test_an_api_server_that_was_away_comes_back_with_what_was_stored(
    cluster_admin: Path, tmp_path: Path
) -> None:
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if not assets:
        pytest.skip("a given cluster is not stopped")
    path, marker = "api/v1/namespaces/default/configmaps", {"metadata": {"name": "marker"}}
    with running_servers(Path(assets), tmp_path / "with a space") as servers:
        rest = Rest(servers.admin_kubeconfig)
        rest.create(path, marker).expect()
        servers.stop_api_server()
        with pytest.raises(HTTPError):
            rest.get(path)
        servers.start_api_server()
        rest.get(f"{path}/marker").expect()
        rest.close()


@pytest.mark.parametrize(
    ("server", "accepted"),
    [
        ("https://127.0.0.1:6443", True),
        ("https://localhost:6443", True),
        ("https://prod.example.com", False),
    ],
)
def test_only_a_cluster_that_is_clearly_disposable_is_accepted(
    tmp_path: Path, server: str, accepted: bool
) -> None:
    refused = why_refused(write_kubeconfig(tmp_path / "config", server, b"", "token"))
    assert (refused is None) is accepted
    assert accepted or "may be in use" in str(refused)
