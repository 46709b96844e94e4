"""The operator's HTTP server."""

import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from backfill.controller.manager.probes import Answer, HttpServer, probe


@pytest.fixture
def server() -> Iterator[HttpServer]:
    routes = {"/healthz": lambda: probe(None), "/readyz": lambda: probe("no list yet"), "/metrics": lambda: Answer(b"a 1\n")}
    server = HttpServer(0, routes, "127.0.0.1")
    yield server
    server.close()


def get(server: HttpServer, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=5) as response:
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
