"""What is made of a request that was not answered, or not by an API server."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from kubernetes.client import Configuration

from backfill.kube.client import Cluster
from backfill.kube.request_errors import Unreachable
from backfill.kube.resources import POD
from backfill.kube.transport import RequestOptions


class Answering(ThreadingHTTPServer):
    """Gives one answer to every request, and remembers who asked."""

    def __init__(self, status: int, body: bytes, retry_after: str = "7") -> None:
        self.agents: list[str] = []
        agents = self.agents

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                agents.append(self.headers["User-Agent"])
                self.send_response_only(status)
                self.send_header("Retry-After", retry_after)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)

    def cluster(self, options: RequestOptions) -> Cluster:
        return Cluster(Configuration(host=f"http://127.0.0.1:{self.server_port}"), options=options)


@pytest.fixture
def answering(request: pytest.FixtureRequest) -> Iterator[Answering]:
    with Answering(*request.param) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_clusters_differ_by_their_certificate_authority_and_not_by_their_address(
    tmp_path: Path,
) -> None:
    def identity(authority: bytes, host: str) -> str:
        configuration = Configuration(host=host)
        if authority:
            configuration.ssl_ca_cert = str(tmp_path / "ca.crt")
            (tmp_path / "ca.crt").write_bytes(authority)
        return Cluster(configuration).identity

    inside = identity(b"one", "https://10.0.0.1")
    assert inside == identity(b"one\n", "https://api.example")
    assert inside != identity(b"another", "https://10.0.0.1")
    assert identity(b"", "http://localhost:8001") == "the cluster at http://localhost:8001"


@pytest.mark.parametrize(
    "answering",
    [
        pytest.param((200, b"<html>sign in</html>"), id="a page"),
        pytest.param((200, b'{"status": "ok"}'), id="JSON of something else"),
        pytest.param((200, b"[]"), id="a list"),
    ],
    indirect=True,
)
def test_what_something_in_between_says_is_not_taken_for_an_object(answering: Answering) -> None:
    with pytest.raises(Unreachable, match="the response is not from an API server"):
        answering.cluster(RequestOptions()).get(POD, "default", "a")


@pytest.mark.parametrize(
    "answering", [(429, json.dumps({"kind": "Status"}).encode())], indirect=True
)
def test_without_retries_the_caller_learns_how_long_to_wait(answering: Answering) -> None:
    options = RequestOptions(user_agent="backfill-driver", retries=0)
    with pytest.raises(Unreachable) as failure:
        answering.cluster(options).get(POD, "default", "a")
    assert failure.value.retry_after_seconds == 7
    assert answering.agents == ["backfill-driver"]


@pytest.mark.parametrize(
    "answering",
    [
        pytest.param((503, b"later", said), id=said)
        for said in ("nan", "inf", "1e999", "-7", "Sun, 22 Nov 2026 14:00:00 GMT")
    ],
    indirect=True,
)
def test_a_wait_that_is_not_a_number_of_seconds_is_not_waited(answering: Answering) -> None:
    with pytest.raises(Unreachable) as failure:
        answering.cluster(RequestOptions(retries=0)).get(POD, "default", "a")
    assert failure.value.retry_after_seconds == 0.0


def _event(text: str) -> bytes:
    pod = {"kind": "Pod", "metadata": {"name": "a", "annotations": {"text": text}}}
    return json.dumps({"type": "MODIFIED", "object": pod}).encode() + b"\n"


LONG = "<" * 2**21  # six bytes each as the API server writes them
LONG_EVENT = _event(LONG).replace(b"<", b"\\u003c")


@pytest.mark.parametrize("answering", [(200, LONG_EVENT + _event("short"))], indirect=True)
def test_a_change_of_a_large_object_is_seen_as_a_whole(answering: Answering) -> None:
    """In part it would not be JSON, and the watch would meet it again forever."""
    events = list(answering.cluster(RequestOptions()).watch(POD, "default", resource_version="1"))
    assert [pod["metadata"]["annotations"]["text"] for _, pod in events] == [LONG, "short"]
