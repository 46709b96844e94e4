"""The servers that the other tests stand on."""

from pathlib import Path

import pytest
from identities import ServiceAccountMaker, rule
from kubeconfigs import why_refused, write_kubeconfig
from rest import SPARK_APPLICATIONS, Rest


def test_the_spark_operators_resources_are_validated_as_on_a_cluster(admin: Rest, crds: None, namespace: str) -> None:
    incomplete = {"apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": "SparkApplication", "metadata": {"name": "a"}, "spec": {}}
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


@pytest.mark.parametrize(
    ("server", "accepted"),
    [("https://127.0.0.1:6443", True), ("https://localhost:6443", True), ("https://prod.example.com", False)],
)
def test_only_a_cluster_that_is_clearly_disposable_is_accepted(tmp_path: Path, server: str, accepted: bool) -> None:
    refused = why_refused(write_kubeconfig(tmp_path / "config", server, b"", "token"))
    assert (refused is None) is accepted
    assert accepted or "may be in use" in str(refused)
