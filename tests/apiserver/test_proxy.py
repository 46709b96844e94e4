"""The unreliable proxy does to a client what it is told to, and nothing else."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import urllib3
from kubeconfigs import token_of
from proxy import CUT, Nth, Request, Response, UnreliableProxy, expired_event, refusal
from rest import Rest

from waiting import PATIENCE_SECONDS, eventually

CONFIG_MAPS = "api/v1/namespaces/{}/configmaps"


@pytest.fixture
def through(proxy: UnreliableProxy, cluster_admin: Path, tmp_path: Path) -> Iterator[Rest]:
    rest = Rest(proxy.kubeconfig(cluster_admin, tmp_path / "proxied"))
    yield rest
    rest.close()


class Watch:
    """A watch on ConfigMaps as a client has it."""

    def __init__(self, proxy: UnreliableProxy, cluster_admin: Path, namespace: str) -> None:
        url = f"{proxy.url}/{CONFIG_MAPS.format(namespace)}?watch=1"
        headers = {"Authorization": f"Bearer {token_of(cluster_admin)}"}
        self._response = urllib3.request(
            "GET",
            url,
            headers=headers,
            preload_content=False,
            retries=False,
            timeout=PATIENCE_SECONDS,
        )
        self._lines = iter(self._response)

    def next(self) -> dict[str, object]:
        return dict(json.loads(next(self._lines)))


@pytest.mark.parametrize(
    ("method", "path", "query", "said"),
    [
        ("GET", "/api/v1/namespaces/n/pods", {}, "list pods n/"),
        ("GET", "/api/v1/namespaces/n/pods/p/log", {}, "get pods/log n/p"),
        (
            "GET",
            "/apis/g/v1/things",
            {"watch": "true", "fieldSelector": "metadata.name=a"},
            "watch things /a",
        ),
        ("PATCH", "/apis/g/v1/namespaces/n/things/a/status", {}, "patch things/status n/a"),
        ("DELETE", "/apis/g/v1/namespaces/n/things", {}, "deletecollection things n/"),
        ("PUT", "/api/v1/namespaces/n/status", {}, "update namespaces/status /n"),
        ("GET", "/api/v1/namespaces/n", {}, "get namespaces /n"),
        ("GET", "/version", {}, "get /version /"),
    ],
)
def test_a_request_is_named_as_a_role_would_name_it(
    method: str, path: str, query: dict[str, str], said: str
) -> None:
    assert str(Request(method, path, query)) == said


def test_what_is_asked_and_answered_passes_unchanged_and_is_counted(
    through: Rest, proxy: UnreliableProxy, admin: Rest, namespace: str
) -> None:
    path = CONFIG_MAPS.format(namespace)
    created = through.create(path, {"metadata": {"name": "a"}, "data": {"k": "ü"}}).expect()
    assert created == admin.get(f"{path}/a").body
    assert through.get(f"{path}/none").status == 404
    assert (proxy.count("create", "configmaps"), proxy.count("get"), proxy.count()) == (1, 1, 2)


def test_a_request_cut_before_it_is_passed_on_changes_nothing(
    through: Rest, proxy: UnreliableProxy, admin: Rest, namespace: str
) -> None:
    path = CONFIG_MAPS.format(namespace)
    second = proxy.before = Nth(2, lambda request: request.is_write, CUT)
    through.create(path, {"metadata": {"name": "first"}}).expect()
    with pytest.raises(urllib3.exceptions.HTTPError):
        through.create(path, {"metadata": {"name": "second"}})
    assert second.struck
    assert admin.get(f"{path}/second").status == 404


def test_a_request_cut_after_it_was_passed_on_is_done_without_the_clients_knowing(
    through: Rest, proxy: UnreliableProxy, admin: Rest, namespace: str
) -> None:
    path = CONFIG_MAPS.format(namespace)
    proxy.after = lambda request, response: CUT
    with pytest.raises(urllib3.exceptions.HTTPError):
        through.create(path, {"metadata": {"name": "a"}})
    assert admin.get(f"{path}/a").ok


def test_an_answer_can_be_given_in_the_servers_place(
    through: Rest, proxy: UnreliableProxy, namespace: str
) -> None:
    proxy.before = lambda request: refusal(429, "TooManyRequests", retry_after_seconds=1)
    assert through.get(CONFIG_MAPS.format(namespace)).status == 429
    proxy.before = lambda request: None
    proxy.after = lambda request, response: Response(200, b'{"old": true}')
    assert through.get(CONFIG_MAPS.format(namespace)).body == {"old": True}


def test_events_of_a_watch_pass_and_can_be_replaced(
    proxy: UnreliableProxy, cluster_admin: Path, admin: Rest, namespace: str
) -> None:
    watch = Watch(proxy, cluster_admin, namespace)
    admin.create(CONFIG_MAPS.format(namespace), {"metadata": {"name": "a"}}).expect()
    assert watch.next()["type"] == "ADDED"
    proxy.on_event = lambda request, event: expired_event()
    admin.create(CONFIG_MAPS.format(namespace), {"metadata": {"name": "b"}}).expect()
    assert watch.next()["type"] == "ERROR"


def test_killed_watches_end_and_others_are_left_alone(
    through: Rest, proxy: UnreliableProxy, cluster_admin: Path, namespace: str
) -> None:
    watch = Watch(proxy, cluster_admin, namespace)
    assert proxy.kill_watches("pods") == 0
    assert proxy.kill_watches("configmaps") == 1
    with pytest.raises((urllib3.exceptions.HTTPError, StopIteration)):
        watch.next()
    eventually(lambda: proxy.watches == 0, "the watch is gone")
    assert through.get(CONFIG_MAPS.format(namespace)).ok


def test_while_it_is_away_nobody_is_answered(
    through: Rest, proxy: UnreliableProxy, cluster_admin: Path, namespace: str
) -> None:
    watch = Watch(proxy, cluster_admin, namespace)
    with proxy.away():
        with pytest.raises((urllib3.exceptions.HTTPError, StopIteration)):
            watch.next()
        with pytest.raises(urllib3.exceptions.HTTPError):
            through.get(CONFIG_MAPS.format(namespace))
    assert through.get(CONFIG_MAPS.format(namespace)).ok
