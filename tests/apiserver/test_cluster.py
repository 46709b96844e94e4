"""Requests to a real API server, also to one that is not to be relied on."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from identities import ServiceAccountMaker, rule
from proxy import CUT, Nth, Response, UnreliableProxy, refusal
from rest import Manifest, Rest

from backfill.api.errors import BackfillError, ConflictError
from backfill.kube.client import Cluster
from backfill.kube.request_errors import (
    AlreadyExists,
    Expired,
    Forbidden,
    KindMissing,
    NamespaceEnding,
    NotFound,
    Refused,
    Unreachable,
)
from backfill.kube.resources import BACKFILL, CONFIG_MAP, POD, Resource
from waiting import PATIENCE_SECONDS, eventually

NAMESPACE = Resource("", "v1", "namespaces", namespaced=False)


@pytest.fixture
def shaky(proxy: UnreliableProxy, cluster_admin: Path, tmp_path: Path) -> Iterator[Cluster]:
    """The same cluster through the proxy."""
    cluster = Cluster.from_kubeconfig(
        proxy.kubeconfig(cluster_admin, tmp_path / "config"), requests_per_second=1000
    )
    yield cluster
    cluster.close()


def config_map(namespace: str, name: str = "a", **data: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "data": data,
    }


def test_what_is_made_is_found_listed_changed_and_deleted(cluster: Cluster, namespace: str) -> None:
    made = cluster.create(CONFIG_MAP, config_map(namespace, key="1"))
    assert cluster.get(CONFIG_MAP, namespace, "a") == made
    assert [item["metadata"]["uid"] for item in cluster.list(CONFIG_MAP, namespace).items] == [
        made["metadata"]["uid"]
    ]
    changed = cluster.merge(CONFIG_MAP, namespace, "a", {"data": {"key": "2"}}, manager="tests")
    assert changed["data"] == {"key": "2"}
    assert cluster.apply(CONFIG_MAP, config_map(namespace, other="3"), manager="others")[
        "data"
    ] == {"key": "2", "other": "3"}
    replaced = cluster.replace(CONFIG_MAP, config_map(namespace, key="4"), manager="tests")
    assert replaced["data"] == {"key": "4"}
    assert cluster.delete(CONFIG_MAP, namespace, "a", uid=made["metadata"]["uid"])
    assert cluster.get(CONFIG_MAP, namespace, "a") is None
    assert not cluster.delete(CONFIG_MAP, namespace, "a")


def test_each_way_to_lose_has_its_error(cluster: Cluster, namespace: str) -> None:
    made = cluster.create(CONFIG_MAP, config_map(namespace))
    stale = {
        **config_map(namespace),
        "metadata": {**made["metadata"], "resourceVersion": "1", "managedFields": None},
    }
    with pytest.raises(AlreadyExists):
        cluster.create(CONFIG_MAP, config_map(namespace))
    with pytest.raises(ConflictError):
        cluster.apply(CONFIG_MAP, stale, manager="tests")
    with pytest.raises(ConflictError):
        cluster.replace(CONFIG_MAP, stale)
    with pytest.raises(ConflictError):
        cluster.delete(CONFIG_MAP, namespace, "a", uid="another")
    with pytest.raises(NotFound):
        cluster.merge(CONFIG_MAP, namespace, "b", {"data": {}}, manager="tests")
    with pytest.raises(Refused):
        cluster.edit(
            CONFIG_MAP,
            namespace,
            "a",
            [{"op": "test", "path": "/data/x", "value": "y"}],
            manager="tests",
        )
    with pytest.raises(KindMissing, match="install its definition"):
        cluster.list(Resource("example.com", "v1", "things"))


def test_nothing_is_made_in_a_namespace_that_is_being_deleted(
    cluster: Cluster, admin: Rest, namespace: str
) -> None:
    admin.delete(f"api/v1/namespaces/{namespace}").expect()
    with pytest.raises(NamespaceEnding):
        cluster.create(CONFIG_MAP, config_map(namespace))


def test_a_missing_permission_names_what_to_grant(
    namespace: str, service_account: ServiceAccountMaker
) -> None:
    reader = Cluster.from_kubeconfig(service_account("reader", [rule("", "configmaps", "get")]))
    assert reader.namespace == namespace
    with pytest.raises(
        Forbidden, match=r'grant it .* resources: \["configmaps"\], verbs: \["create"\]'
    ):
        reader.create(CONFIG_MAP, config_map(namespace))
    reader.close()


def test_a_dry_run_makes_nothing(cluster: Cluster, namespace: str) -> None:
    cluster.create(CONFIG_MAP, config_map(namespace), dry_run=True)
    assert cluster.get(CONFIG_MAP, namespace, "a") is None


def test_a_list_has_what_has_all_of_the_labels(cluster: Cluster, namespace: str) -> None:
    for number in range(4):
        manifest = config_map(namespace, f"c{number}")
        manifest["metadata"]["labels"] = {"half": str(number % 2), "same": "yes"}
        cluster.create(CONFIG_MAP, manifest)
    chosen = cluster.list(CONFIG_MAP, namespace, labels={"half": "1", "same": "yes"}).items
    assert [item["metadata"]["name"] for item in chosen] == ["c1", "c3"]


def test_a_list_of_many_pages_is_complete_also_when_it_expires_between_them(
    shaky: Cluster, proxy: UnreliableProxy, namespace: str
) -> None:
    expired: list[int] = []

    def expire_the_second_page(request: Any) -> Response | None:
        if "continue" not in request.query or expired:
            return None
        expired.append(1)
        return refusal(410, "Expired")

    for number in range(41):
        shaky.create(CONFIG_MAP, config_map(namespace, f"c{number}"))
    proxy.before = expire_the_second_page
    names = [item["metadata"]["name"] for item in shaky.list(CONFIG_MAP, namespace).items]
    assert len(names) == len(set(names)) == 41
    assert expired
    assert proxy.count("list", "configmaps") == 5, "each may be large"


def test_it_is_known_which_kinds_are_served(cluster: Cluster, crds: None) -> None:
    assert cluster.serves(BACKFILL)
    assert cluster.serves(POD)
    assert not cluster.serves(Resource("backfill.dev", "v1alpha1", "things"))
    assert not cluster.serves(Resource("example.com", "v1", "things"))


def test_a_watch_tells_what_happens_after_a_version(cluster: Cluster, namespace: str) -> None:
    version = cluster.list(CONFIG_MAP, namespace).resource_version
    cluster.create(CONFIG_MAP, config_map(namespace))
    cluster.merge(CONFIG_MAP, namespace, "a", {"data": {"key": "é"}}, manager="tests")
    cluster.delete(CONFIG_MAP, namespace, "a")
    events = list(cluster.watch(CONFIG_MAP, namespace, resource_version=version, seconds=1))
    told = [(kind, item.get("data")) for kind, item in events if kind != "BOOKMARK"]
    assert told == [("ADDED", None), ("MODIFIED", {"key": "é"}), ("DELETED", {"key": "é"})]


def test_a_watch_from_too_long_ago_says_so(
    shaky: Cluster, proxy: UnreliableProxy, namespace: str
) -> None:
    status = {
        "kind": "Status",
        "code": 410,
        "reason": "Expired",
        "message": "too old resource version",
    }
    proxy.on_event = lambda request, event: {"type": "ERROR", "object": status}
    shaky.create(CONFIG_MAP, config_map(namespace))
    with pytest.raises(Expired, match="too old"):
        list(shaky.watch(CONFIG_MAP, namespace, resource_version="1", seconds=5))


def test_a_watch_that_breaks_off_just_ends(
    shaky: Cluster, proxy: UnreliableProxy, namespace: str
) -> None:
    version = shaky.list(CONFIG_MAP, namespace).resource_version
    kinds: list[str] = []

    def follow() -> None:
        for kind, _ in shaky.watch(CONFIG_MAP, namespace, resource_version=version, seconds=60):
            kinds.append(kind)
        kinds.append("the end")

    thread = threading.Thread(target=follow)
    thread.start()
    shaky.create(CONFIG_MAP, config_map(namespace))
    # A connection that is closed before the answer begins is opened again by the transport.
    eventually(lambda: "ADDED" in kinds, "the watch has begun")
    assert proxy.kill_watches() == 1
    thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive()
    assert [kind for kind in kinds if kind != "BOOKMARK"] == ["ADDED", "the end"]


@pytest.mark.parametrize(
    "answer", [refusal(429, "TooManyRequests"), refusal(503, "ServiceUnavailable"), CUT]
)
def test_what_fails_once_is_asked_again(
    shaky: Cluster, proxy: UnreliableProxy, namespace: str, answer: Any
) -> None:
    proxy.before = Nth(1, lambda request: request.is_write, answer)
    assert shaky.create(CONFIG_MAP, config_map(namespace, key="1"))["data"] == {"key": "1"}
    assert proxy.count("create", "configmaps") == 2


def test_the_server_says_when_to_come_again(
    shaky: Cluster, proxy: UnreliableProxy, namespace: str
) -> None:
    proxy.before = Nth(1, lambda request: request.is_write, refusal(429, "TooManyRequests", 1))
    began = time.monotonic()
    shaky.create(CONFIG_MAP, config_map(namespace))
    assert time.monotonic() - began >= 1.0


def test_a_server_that_is_away_is_told_so_after_a_while(
    shaky: Cluster, proxy: UnreliableProxy, namespace: str
) -> None:
    with proxy.away(), pytest.raises(Unreachable, match="did not answer"):
        shaky.get(CONFIG_MAP, namespace, "a")
    assert shaky.get(CONFIG_MAP, namespace, "a") is None


def test_an_object_made_by_a_request_whose_answer_was_lost_is_there_already(
    shaky: Cluster, proxy: UnreliableProxy, namespace: str
) -> None:
    lost: list[int] = []

    def lose_the_first(request: Any, response: Any) -> Any:
        if not request.is_write or lost:
            return None
        lost.append(1)
        return CUT

    proxy.after = lose_the_first
    with pytest.raises(AlreadyExists):
        shaky.create(CONFIG_MAP, config_map(namespace))
    assert shaky.get(CONFIG_MAP, namespace, "a") is not None


def test_every_answer_is_counted(cluster_admin: Path, namespace: str) -> None:
    seen: list[tuple[str, str, int]] = []
    cluster = Cluster.from_kubeconfig(
        cluster_admin, on_request=lambda verb, kind, status, _: seen.append((verb, kind, status))
    )
    cluster.create(CONFIG_MAP, config_map(namespace))
    cluster.get(BACKFILL, namespace, "a", "status")
    cluster.close()
    assert seen == [("create", "configmaps", 201), ("get", "backfills/status", 404)]


def test_a_kubeconfig_that_is_not_there_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(BackfillError, match="no cluster to connect to"):
        Cluster.from_kubeconfig(tmp_path / "nothing")


def test_a_context_that_is_not_there_is_told_so(cluster_admin: Path) -> None:
    with pytest.raises(BackfillError, match=r"no cluster to connect to.*nowhere"):
        Cluster.from_kubeconfig(cluster_admin, "nowhere")


def test_outside_of_a_pod_there_is_no_service_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(BackfillError, match="not in a pod"):
        Cluster.in_cluster()
