"""The operator's HTTP server."""

import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from backfill.controller.manager.probes import Answer, HttpServer, probe
from waiting import PATIENCE_SECONDS


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpServer]:
    """It closes no connection for its silence while a test lasts."""
    monkeypatch.setattr("backfill.controller.manager.probes._TIMEOUT_SECONDS", PATIENCE_SECONDS)
    routes = {
        "/healthz": lambda: probe(None),
        "/readyz": lambda: probe("no list yet"),
        "/metrics": lambda: Answer(b"a 1\n"),
    }
    server = HttpServer(0, routes, "127.0.0.1")
    yield server
    server.close()


def get(server: HttpServer, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{server.port}{path}", timeout=PATIENCE_SECONDS
        ) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_probe_is_fine_or_says_why_not(server: HttpServer) -> None:
    assert get(server, "/healthz") == (200, "ok\n")
    assert get(server, "/readyz?verbose=true") == (503, "no list yet\n")


def test_other_paths_are_not_found(server: HttpServer) -> None:
    assert get(server, "/")[0] == 404


def test_a_port_in_use_is_an_error_at_once(server: HttpServer) -> None:
    with pytest.raises(OSError, match="in use"):
        HttpServer(server.port, {}, "127.0.0.1")


@pytest.mark.hostile
def test_connections_that_say_nothing_take_few_threads_and_keep_no_probe_from_its_answer(
    server: HttpServer,
) -> None:
    before = threading.active_count()
    with ExitStack() as theirs:
        connections = [
            theirs.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            for _ in range(300)
        ]
        for connection in connections[200:]:
            connection.sendall(b"GET /heal")
        assert get(server, "/healthz") == (200, "ok\n")
        connections[0].settimeout(PATIENCE_SECONDS / 2)
        assert connections[0].recv(1) == b"", "the oldest have been closed"
        assert threading.active_count() - before < 150
