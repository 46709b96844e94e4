"""Where a pod finds its API server and its token."""

from pathlib import Path

import pytest

from backfill.api.errors import BackfillError
from backfill.kube import service_account
from backfill.kube.client import Cluster
from backfill.kube.service_account import pod_configuration


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory in the place of a service account's."""
    monkeypatch.setattr(service_account, "ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    return tmp_path


@pytest.mark.parametrize(
    ("host", "url"), [("10.0.0.1", "https://10.0.0.1:443"), ("fd00::1", "https://[fd00::1]:443")]
)
def test_it_is_what_kubernetes_tells_every_pod(
    account: Path, monkeypatch: pytest.MonkeyPatch, host: str, url: str
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    (account / "token").write_text("t")
    assert pod_configuration().host == url


def test_the_api_server_is_reached_without_the_proxy_for_other_destinations(
    account: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    (account / "token").write_text("t")
    assert pod_configuration().proxy is None


def test_a_pod_without_a_token_is_told_what_it_lacks(account: Path) -> None:
    with pytest.raises(BackfillError, match="automountServiceAccountToken must be true"):
        pod_configuration()


def test_a_pod_whose_volume_lacks_the_namespace_is_told_so(account: Path) -> None:
    (account / "token").write_text("t")
    (account / "ca.crt").touch()
    with pytest.raises(BackfillError, match="must have the item namespace") as error:
        Cluster.in_cluster()
    assert f"{account / 'namespace'} cannot be read (No such file" in str(error.value)
    (account / "namespace").write_text("streaming\n")
    assert Cluster.in_cluster().namespace == "streaming"


def test_a_process_that_is_in_no_pod_is_told_so(
    account: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (account / "token").write_text("t")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    with pytest.raises(BackfillError, match="not in a pod"):
        pod_configuration()
