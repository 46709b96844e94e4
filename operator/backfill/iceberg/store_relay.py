"""A proxy inside a job's process through which PyArrow's S3 client connects.

That client resolves names, follows redirects and waits by itself. With a proxy it does not: each
connection is one of Python's, which :mod:`backfill.iceberg.connection_checks` checks, and
connections to servers that answer too slowly are closed.
"""

import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from io import BufferedReader
from typing import Final
from urllib.parse import urlsplit

from backfill.iceberg.allowed_local_files import OutOfReach
from backfill.iceberg.answer_limits import ANSWER_SECONDS, CONNECT_SECONDS, SILENT_SECONDS

_LOG = logging.getLogger(__name__)
_PIECE: Final = 256 * 1024
_LONGEST_LINE: Final = 64 * 1024
_MOST_LINES: Final = 200
_LEAST_RATE: Final = 1024
"""Least bytes per second. An answer that is slower for the time limit of a whole answer is cut off.
"""


class _Listener:
    """The socket that the proxy listens on; None if it creates one itself."""

    made: socket.socket | None = None


def listen_on(listener: socket.socket) -> None:
    """Makes the proxy of this process listen on a socket that was created before the process lost
    the right to do so.
    """
    _Listener.made = listener


@cache
def relay_uri() -> str:
    """URI of the proxy of this process, for ``s3.proxy-uri``. The first call starts the proxy."""
    listener = _Listener.made or socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=_accept, args=(listener,), name="store-relay", daemon=True).start()
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


@dataclass(slots=True)
class _Pace:
    """How fast a server answers."""

    since: float = field(default_factory=time.monotonic)
    received: int = 0

    def begin(self) -> None:
        self.since, self.received = time.monotonic(), 0

    @property
    def too_slow(self) -> bool:
        elapsed = time.monotonic() - self.since
        return elapsed > ANSWER_SECONDS and self.received < elapsed * _LEAST_RATE


def _accept(listener: socket.socket) -> None:
    while True:
        client, _ = listener.accept()
        threading.Thread(target=_serve, args=(client,), name="store-relay", daemon=True).start()


def _serve(client: socket.socket) -> None:
    with client, client.makefile("rb") as requests, suppress(OSError, EOFError, ValueError):
        head = _head(requests)
        if not head:
            return
        method, target, _ = head[0].decode("ascii").split()
        tunnel = method == "CONNECT"
        place = urlsplit(f"//{target}" if tunnel else target)
        try:
            server = socket.create_connection(
                (place.hostname or "", place.port or 80), CONNECT_SECONDS
            )
        except (OSError, OutOfReach) as error:
            if isinstance(error, OutOfReach):
                _LOG.warning("a client was not connected to its object store: %s", error)
            status = "403 Forbidden" if isinstance(error, OutOfReach) else "502 Bad Gateway"
            client.sendall(
                f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()
            )
            return
        with server:
            server.settimeout(SILENT_SECONDS)
            pace = _Pace()
            if tunnel:
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            threading.Thread(
                target=_answers, args=(server, client, pace), name="store-relay", daemon=True
            ).start()
            try:
                for piece in (
                    _tunneled(client) if tunnel else _requests(head, requests, place.netloc)
                ):
                    pace.begin()
                    server.sendall(piece)
            finally:
                _hang_up(server)


def _tunneled(client: socket.socket) -> Iterator[bytes]:
    while piece := client.recv(_PIECE):
        yield piece


def _requests(head: list[bytes], requests: BufferedReader, server: str) -> Iterator[bytes]:
    """Requests to one server in the form for servers:
    a proxy receives the whole URL, a server only the path.
    """
    while head:
        method, target, version = head[0].split()
        place = urlsplit(target.decode("ascii"))
        if place.netloc != server:
            return  # the client connects again
        path = f"{place.path or '/'}{'?' + place.query if place.query else ''}".encode("ascii")
        lines = [line for line in head[1:] if not line.lower().startswith(b"proxy-")]
        yield b"\r\n".join((b" ".join((method, path, version)), *lines, b"", b""))
        fields = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(b":") for line in lines)
        }
        if b"chunked" in fields.get(b"transfer-encoding", b"").lower():
            yield from _chunks(requests)
        else:
            yield from _bytes(requests, int(fields.get(b"content-length", 0)))
        head = _head(requests)


def _chunks(requests: BufferedReader) -> Iterator[bytes]:
    while True:
        line = requests.readline(_LONGEST_LINE)
        yield line
        size = int(line.partition(b";")[0], 16)
        if size == 0:
            break
        yield from _bytes(requests, size + 2)
    yield b"".join(line + b"\r\n" for line in (*_head(requests), b""))


def _bytes(requests: BufferedReader, count: int) -> Iterator[bytes]:
    while count:
        piece = requests.read1(min(count, _PIECE))
        if not piece:
            raise EOFError
        count -= len(piece)
        yield piece


def _head(requests: BufferedReader) -> list[bytes]:
    """The lines up to an empty one; none if there is no further request."""
    lines = []
    while line := requests.readline(_LONGEST_LINE).rstrip(b"\r\n"):
        lines.append(line)
        if len(lines) > _MOST_LINES:
            raise ValueError("a request of too many lines")
    return lines


def _answers(server: socket.socket, client: socket.socket, pace: _Pace) -> None:
    with suppress(OSError):
        while not pace.too_slow:
            try:
                piece = server.recv(_PIECE)
            except TimeoutError:
                if time.monotonic() - pace.since > SILENT_SECONDS:
                    break
                continue  # it is still receiving a request
            if not piece:
                break
            pace.received += len(piece)
            client.sendall(piece)
    _hang_up(server)
    _hang_up(client)


def _hang_up(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
