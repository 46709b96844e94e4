"""What the API server has stamped is compared with its own clock; and what it sends has a bound."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest
from kubernetes.client import Configuration

from backfill.kube.client import Cluster
from backfill.kube.resources import POD

MIB = 2**20


@contextmanager
def api_server(
    ahead: timedelta, body: bytes = b'{"kind": "Pod"}'
) -> Iterator[tuple[Cluster, list[str]]]:
    """One whose clock is ahead of ours."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response_only(200)
            self.send_header("Date", format_datetime(datetime.now(UTC) + ahead, usegmt=True))
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    cluster = Cluster(Configuration(host=f"http://127.0.0.1:{server.server_port}"))
    try:
        yield cluster, asked
    finally:
        cluster.close()
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("ahead", [timedelta(minutes=-6), timedelta(minutes=6), timedelta(0)])
def test_a_clock_that_is_minutes_off_does_not_end_a_removal_before_it_began(
    ahead: timedelta,
) -> None:
    with api_server(ahead) as (cluster, _):
        assert abs(cluster.now - datetime.now(UTC)) < timedelta(seconds=1), "nothing is known yet"
        cluster.get(POD, "default", "a")
        assert abs(cluster.now - ahead - datetime.now(UTC)) < timedelta(seconds=2)


@pytest.mark.hostile
def test_a_log_of_one_endless_line_comes_in_parts_and_is_cut_where_only_its_end_is_wanted() -> None:
    with api_server(timedelta(), b"x" * (5 * MIB) + b"\n") as (cluster, asked):
        lines = list(cluster.log("default", "a", tail_lines=30))
    assert max(map(len, lines)) < 2 * MIB
    assert sum(map(len, lines)) == 5 * MIB
    assert parse_qs(urlsplit(asked[0]).query) == {"tailLines": ["30"], "limitBytes": [str(MIB)]}
