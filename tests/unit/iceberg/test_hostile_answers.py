"""Servers that keep a job waiting, or answer what nobody expects."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import pytest

from backfill.api.catalog_properties import catalog_variables
from backfill.api.errors import InvalidPlanInput
from backfill.iceberg import open_tables
from hostile_server import Behaviour, answering, hostile_server
from waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.hostile


def deep(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


OAUTH_ERROR = json.dumps({"error": "invalid_client", "error_uri": "http://127.0.0.1:9"})
ANSWERS: dict[str, Behaviour] = {
    "page": answering("200 OK", "<html></html>", "Content-Type: text/html"),
    "json": answering("200 OK", json.dumps({"defaults": "a", "overrides": ["b"]})),
    "keys": answering("200 OK", json.dumps({"AccessKeyId": "a", "Token": "b"})),
    "odd-error": answering("400 Bad Request", "why"),
    "server-error": answering("500 Oh", "Traceback"),
    "oauth": answering("401 Unauthorized", OAUTH_ERROR),
    "status": answering("abc"),
    "redirect-scheme": answering("302 Found", "", "Location: odd://x"),
    "header": lambda connection, _: connection.sendall(b"HTTP/1.1 200 OK\r\nodd\r\n\r\nodd"),
    "no-http": lambda connection, _: connection.sendall(b"SSH-2.0 odd\r\n"),
    "encoding": answering("200 OK", "odd", "Content-Encoding: gzip"),
    "chunks": answering("200 OK", "odd\r\n", "Transfer-Encoding: chunked"),
    "deep": answering("200 OK", f'{{"defaults": {deep(500)}}}'),
    "deepest": answering("200 OK", f'{{"defaults": {deep(100_000)}}}'),
    "deep-error": answering("403 Forbidden", f'{{"error": {deep(100_000)}}}'),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_no_answer_of_a_catalog_is_more_than_a_problem_of_that_catalog(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(open_tables, "_AWAY_SECONDS", 0.1)
    with hostile_server(ANSWERS[name]) as server:
        properties = {"type": "rest", "uri": server.uri}
        if name == "oauth":
            properties |= {"credential": "team:hunter22", "oauth2-server-uri": server.uri}
        for variable, value in catalog_variables(name, properties).items():
            monkeypatch.setenv(variable, value)
        with pytest.raises(InvalidPlanInput) as raised:
            open_tables.Catalogs().load_table(f"{name}.raw.clicks", "spec.sources[0].table")
    assert server.requests
    (problem,) = raised.value.problems
    assert problem.message.startswith((f"catalog {name} cannot be", f"table {name}.raw.clicks"))
    assert "hunter22" not in str(problem)


def drip(connection: socket.socket, content: bytes) -> None:
    for byte in content:
        connection.sendall(bytes([byte]))
        time.sleep(0.05)


def endless(connection: socket.socket, _request: bytes) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
    while True:
        connection.sendall(b" " * 65536)


def lines_without_end(connection: socket.socket, _request: bytes) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")


WAITING: dict[str, tuple[Behaviour, str]] = {
    "silent": (lambda _connection, _: time.sleep(PATIENCE_SECONDS), "has sent nothing for 1 s"),
    "half": (
        lambda c, _: (
            c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"),
            time.sleep(PATIENCE_SECONDS),
        )[0],
        "nothing for 1 s",
    ),
    "drip-head": (
        lambda c, _: drip(c, b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 999),
        "has not answered completely in 2 s",
    ),
    "drip-body": (
        lambda c, _: drip(c, b"HTTP/1.1 200 OK\r\n\r\n" + b" " * 9999),
        "has not answered completely in 2 s",
    ),
    "endless": (endless, "answers with more than 16 MiB"),
    "continue": (lines_without_end, ""),
}
_IMPATIENT = """
import json, re, sys, time
from pathlib import Path
from backfill.iceberg import answer_limits
from backfill.iceberg.answer_limits import bound_answers
from backfill.iceberg.catalogs import open_catalog
answer_limits.CONNECT_SECONDS, answer_limits.SILENT_SECONDS = 1.0, 1.0
answer_limits.ANSWER_SECONDS, answer_limits.MOST_ANSWER_BYTES = 2.0, 16 * 2**20
bound_answers()
said = {}
for name in sys.argv[1:]:
    began = time.monotonic()
    try:
        said[name] = [str(open_catalog(name)), 0]
    except Exception as error:
        said[name] = [f"{type(error).__name__}: {error}", time.monotonic() - began]
# Not ru_maxrss: that begins with the memory of the process which started this one.
said["peak"] = int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024
print(json.dumps(said))
"""


def impatient(catalogs: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """What opening these catalogs comes to in a process of jobs, with times that a test has."""
    variables = {
        name: value
        for catalog, properties in catalogs.items()
        for name, value in catalog_variables(catalog, properties).items()
    }
    ended = subprocess.run(
        [sys.executable, "-c", _IMPATIENT, *catalogs],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


@pytest.mark.parametrize("where", ["uri", "oauth2-server-uri"])
def test_a_server_that_never_comes_to_an_end_is_left_in_time_and_with_little_memory(
    where: str,
) -> None:
    with ExitStack() as servers:
        made = {
            name: servers.enter_context(hostile_server(behaviour))
            for name, (behaviour, _) in WAITING.items()
        }
        own = {name: {"type": "rest", "uri": server.uri} for name, server in made.items()}
        if where != "uri":
            for properties in own.values():
                properties |= {
                    "oauth2-server-uri": properties["uri"],
                    "uri": "http://192.0.2.1",
                    "credential": "a:b",
                }
        found = impatient(own)
    assert found.pop("peak") < 600
    for name, (text, seconds) in found.items():
        assert WAITING[name][1] in text, (name, text)
        assert 0 < seconds < PATIENCE_SECONDS / 4, (name, seconds)


def postgres(then: Callable[[socket.socket], None]) -> Behaviour:
    """Takes a login, and does something at the first statement."""

    def behave(connection: socket.socket, request: bytes) -> None:
        if len(request) == 8:
            connection.sendall(b"N")
            connection.recv(1000)
        settings = (
            b"client_encoding\0UTF8\0",
            b"DateStyle\0ISO\0",
            b"server_version\0" + b"15.0\0",
        )
        said = b"".join(b"S" + (len(each) + 4).to_bytes(4, "big") + each for each in settings)
        connection.sendall(b"R\0\0\0\x08\0\0\0\0" + said + b"Z\0\0\0\x05I")
        connection.recv(1000)
        then(connection)

    return behave


def test_a_database_that_never_answers_is_left_in_time() -> None:
    with ExitStack() as servers:
        behaviours: dict[str, Behaviour] = {
            "login": lambda _connection, _: time.sleep(PATIENCE_SECONDS),
            "statement": postgres(lambda _connection: time.sleep(PATIENCE_SECONDS)),
            "drip": postgres(lambda connection: drip(connection, b"D\x0f\0\0\0" + b"x" * 9999)),
        }
        made = {
            name: servers.enter_context(hostile_server(behaviour))
            for name, behaviour in behaviours.items()
        }
        uri = "postgresql://a:b@127.0.0.1:{}/lake?sslmode=disable"
        found = impatient(
            {name: {"type": "sql", "uri": uri.format(server.port)} for name, server in made.items()}
        )
    del found["peak"]
    for name, (text, seconds) in found.items():
        assert "the database has not answered in" in text, (name, text)
        assert 0 < seconds < PATIENCE_SECONDS / 4, (name, seconds)
