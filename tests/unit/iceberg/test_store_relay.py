"""The proxy of a job's process: what PyArrow's client of S3 sends through it, and what comes
back.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import pytest
from pyarrow.fs import S3FileSystem

from backfill.iceberg.store_relay import relay_uri
from hostile_server import hostile_server

CONTENT = bytes(range(256)) * 20_000


@contextmanager
def store_of(files: dict[str, bytes]) -> Iterator[str]:
    """A store that keeps connections open, as S3 does."""

    class Store(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer(200 if self.path in files else 404, b"", len(files.get(self.path, b"")))

        def do_GET(self) -> None:
            first, last = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
            content = files[self.path][first : last + 1]
            self._answer(206, content, len(content))

        def do_PUT(self) -> None:
            content = b""
            while size := int(self.rfile.readline(), 16):
                content += self.rfile.read(size + 2)
            while self.rfile.readline().strip():
                pass
            files[self.path] = content
            self._answer(200, b"", 0)

        def _answer(self, status: int, content: bytes, length: int) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_arguments: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Store)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_files_are_read_and_written_through_it() -> None:
    files = {"/lake/a%20b%2Bc.avro": CONTENT}
    with store_of(files) as uri:
        login = {"access_key": "a", "secret_key": "b", "region": "us-east-1"}
        s3 = S3FileSystem(
            **login, endpoint_override=uri, proxy_options=relay_uri(), allow_delayed_open=True
        )
        with s3.open_input_file("lake/a b+c.avro") as file:
            assert file.read() == CONTENT
            file.seek(1000)
            assert file.read(7) == CONTENT[1000:1007]
        for number in range(3):
            with s3.open_output_stream(f"lake/written-{number}") as stream:
                stream.write(CONTENT[:5000])
    assert all(CONTENT[:5000] in files[f"/lake/written-{number}"] for number in range(3))


def test_a_tunnel_carries_what_is_sent_both_ways() -> None:
    def shout(connection: socket.socket, request: bytes) -> None:
        connection.sendall(request.upper())

    place = urlsplit(relay_uri())
    with (
        hostile_server(shout) as server,
        socket.create_connection((place.hostname or "", place.port or 0), 10) as client,
    ):
        client.sendall(f"CONNECT 127.0.0.1:{server.port} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert client.recv(100).startswith(b"HTTP/1.1 200")
        client.sendall(b"hello")
        assert client.recv(100) == b"HELLO"


@pytest.mark.parametrize(
    "request_",
    [b"", b"GET\r\n\r\n", b"CONNECT x\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"\xff\xff\r\n\r\n"],
)
def test_what_is_no_request_ends_the_connection(request_: bytes) -> None:
    place = urlsplit(relay_uri())
    with socket.create_connection((place.hostname or "", place.port or 0), 10) as client:
        client.sendall(request_)
        client.shutdown(socket.SHUT_WR)
        assert not client.recv(100).startswith(b"HTTP/1.1 200")
