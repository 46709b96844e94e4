"""Servers that never come to an end, and servers whose answers should be seen by nobody.

A catalog that a team names may be a server that the operator can ask and the team cannot: what it
answers is not repeated. And it may be one that keeps a job waiting.
"""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import pytest
from pyiceberg.table import Table

from backfill.api.catalog_properties import GivenCatalog
from backfill.api.errors import BadInput
from backfill.controller.jobs.pool import JobPool
from hostile_catalog import hostile_catalog
from hostile_server import Behaviour, answering, hostile_server
from table_jobs import LOOPBACK, Clicks, ended
from waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.hostile

KEYS = {
    "s3.access-key-id": "AKIATEAM",
    "s3.secret-access-key": "of-the-team",
    "s3.region": "us-east-1",
}
BODY = "internal-answer-7351"
"""Of an answer that nobody should see."""


def said(clicks: Clicks, catalogs: Mapping[str, Mapping[str, str]]) -> str:
    given = {name: GivenCatalog(properties) for name, properties in catalogs.items()}
    pool = JobPool(lambda _key: given, directories=(clicks.directory,), addresses=LOOPBACK)
    sources = [
        {"name": f"s-{number}", "table": f"{name}.raw.clicks", "timestampColumn": "at"}
        for number, name in enumerate(catalogs)
    ]
    try:
        runner = pool.runner(("default", "january"), lambda: None)
        job = clicks.plan_job("workspace", sources=sources)
        runner.start(job)
        error = ended(runner, job).error
    finally:
        pool.close()
    assert isinstance(error, BadInput), error
    return str(error)


def deep(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


ICEBERG_ERROR = json.dumps({"error": {"message": BODY, "type": BODY, "code": 403}})
OAUTH_ERROR = json.dumps({"error": "invalid_client", "error_description": BODY, "error_uri": BODY})
ANSWERS: dict[str, Behaviour] = {
    "page": answering("200 OK", f"<html>{BODY}</html>", "Content-Type: text/html"),
    "json": answering("200 OK", json.dumps({"defaults": BODY, "overrides": [BODY]})),
    "keys": answering("200 OK", json.dumps({"AccessKeyId": BODY, "Token": BODY})),
    "error": answering("403 Forbidden", ICEBERG_ERROR),
    "missing": answering("404 Not Found", ICEBERG_ERROR),
    "odd-error": answering("400 Bad Request", BODY),
    "server-error": answering("500 Oh", f"Traceback {BODY}"),
    "oauth": answering("401 Unauthorized", OAUTH_ERROR),
    "reason": answering(f"499 {BODY}", ""),
    "status": answering(f"abc {BODY}"),
    "redirect": answering("302 Found", BODY, f"Location: http://127.0.0.1:9/{BODY}"),
    "redirect-scheme": answering("302 Found", BODY, f"Location: {BODY}://x"),
    "header": lambda connection, _: connection.sendall(
        f"HTTP/1.1 200 OK\r\n{BODY}\r\n\r\n{BODY}".encode()
    ),
    "no-http": lambda connection, _: connection.sendall(f"SSH-2.0 {BODY}\r\n".encode()),
    "encoding": answering("200 OK", BODY, "Content-Encoding: gzip"),
    "chunks": answering("200 OK", f"{BODY}\r\n", "Transfer-Encoding: chunked"),
    "deep": answering("200 OK", f'{{"defaults": {deep(500)}, "{BODY}": 1}}'),
    "deeper": answering("200 OK", f'{{"defaults": {deep(5_000)}, "{BODY}": 1}}'),
    "deepest": answering("200 OK", f'{{"defaults": {deep(100_000)}, "{BODY}": 1}}'),
    "deep-error": answering("403 Forbidden", f'{{"error": {deep(100_000)}, "{BODY}": 1}}'),
}


def test_no_answer_of_a_catalog_is_in_an_error_or_a_log(
    clicks: Clicks, caplog: pytest.LogCaptureFixture
) -> None:
    with ExitStack() as servers:
        made = {
            name: servers.enter_context(hostile_server(behaviour))
            for name, behaviour in ANSWERS.items()
        }
        catalogs = {
            name: {"type": "rest", "uri": f"{server.uri}/{name}"} for name, server in made.items()
        }
        catalogs["oauth"]["credential"] = "team:hunter22"
        found = said(clicks, catalogs)
    for name, server in made.items():
        assert server.requests, name
        where = (
            f"table {name}.raw.clicks cannot be loaded"
            if name == "keys"
            else f"catalog {name} cannot be opened at 127.0.0.1"
        )
        assert where in found, name
    assert BODY not in found
    assert BODY not in caplog.text
    for text in (
        "HTTP status 403",
        "HTTP status 500",
        "the server redirects",
        "the response was not the expected one",
    ):
        assert text in found


def test_no_answer_of_an_object_store_is_in_an_error_or_a_log(
    clicks: Clicks, table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither S3's XML, which names its code and message, nor a file that is none."""
    with ExitStack() as servers:
        xml = f"<Error><Code>{BODY}</Code><Message>{BODY}</Message></Error>"
        catalogs = {}
        for name, status, body in (
            ("denied", "403 Forbidden", xml),
            ("odd", "418 Teapot", xml),
            ("file", "200 OK", BODY),
        ):
            catalog = servers.enter_context(hostile_catalog(table))
            for snapshot in catalog.metadata["snapshots"]:
                snapshot["manifest-list"] = "s3://lake/list.avro"
            store = servers.enter_context(hostile_server(answering(status, body)))
            catalogs[name] = {**catalog.properties, **KEYS, "s3.endpoint": store.uri}
        found = said(clicks, catalogs)
    assert BODY not in found
    assert BODY not in caplog.text
    assert "AWS error ACCESS_DENIED" in found


def test_no_answer_of_a_database_is_in_an_error_or_a_log(
    clicks: Clicks, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(connection: socket.socket, request: bytes) -> None:
        if len(request) == 8:
            connection.sendall(b"N")  # no TLS
            connection.recv(1000)
        fields = f"SFATAL\0C28P01\0M{BODY}\0\0".encode()
        connection.sendall(b"E" + (len(fields) + 4).to_bytes(4, "big") + fields)

    with hostile_server(refuse) as server:
        uri = f"postgresql://a:b@127.0.0.1:{server.port}/lake"
        found = said(clicks, {"lake": {"type": "sql", "uri": uri}})
    assert server.requests
    assert BODY not in found
    assert BODY not in caplog.text
    assert "OperationalError" in found


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
from ipaddress import ip_network
from pathlib import Path
from backfill.api.catalog_properties import GivenCatalog
from backfill.iceberg import answer_limits
from backfill.iceberg.catalogs import open_catalog, work_for_others
answer_limits.CONNECT_SECONDS, answer_limits.SILENT_SECONDS = 1.0, 1.0
answer_limits.ANSWER_SECONDS, answer_limits.MOST_ANSWER_BYTES = 2.0, 16 * 2**20
order, said = json.load(sys.stdin), {}
given = {name: GivenCatalog(properties) for name, properties in order.items()}
work_for_others(given, (), (ip_network("127.0.0.0/8"),))
for name in given:
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
    """What opening these catalogs comes to, with times that a test has."""
    order = json.dumps(catalogs)
    ended = subprocess.run(
        [sys.executable, "-c", _IMPATIENT],
        input=order,
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
