"""Limits how long a process that runs jobs waits for servers, and how much it accepts of an answer.

The time-out of a socket applies to each read, and a server that sends a byte now and then never
exceeds it. Therefore each answer to an HTTP request, and each statement in a database, also has a
time limit as a whole, and an answer has a size limit.
"""

import http.client
import io
import select
import socket
import time
from functools import cache
from typing import Any, Final

import requests.adapters
import requests.sessions

CONNECT_SECONDS: Final = 10.0
"""Limit for a connection, with its TLS handshake."""
SILENT_SECONDS: Final = 60.0
"""Limit between two parts of an answer."""
ANSWER_SECONDS: Final = 120.0
"""Limit for a whole answer, or for a statement in a database."""
MOST_ANSWER_BYTES: Final = 256 * 2**20
"""Size limit of an answer, as it is sent: several times the largest metadata of a table."""
_MOST_REDIRECTS: Final = 5


class BadAnswer(Exception):  # noqa: N818 - what came, or did not
    """A server does not answer as expected. ``str()`` says how."""


@cache
def bound_answers() -> None:
    """Limits all HTTP requests of this process from now on."""
    http.client.HTTPConnection.response_class = _Response
    requests.sessions.DEFAULT_REDIRECT_LIMIT = _MOST_REDIRECTS  # type: ignore[attr-defined]
    send = requests.adapters.HTTPAdapter.send

    def send_in_time(
        self: requests.adapters.HTTPAdapter,
        request: Any,
        stream: bool = False,
        timeout: Any = None,
        *rest: Any,
        **more: Any,
    ) -> Any:
        return send(
            self, request, stream, timeout or (CONNECT_SECONDS, SILENT_SECONDS), *rest, **more
        )

    requests.adapters.HTTPAdapter.send = send_in_time  # type: ignore[method-assign]


def bound_statements() -> None:
    """Limits PostgreSQL in psycopg2 in the same way, if HTTP requests are limited."""
    if http.client.HTTPConnection.response_class is _Response:
        from psycopg2.extensions import set_wait_callback

        set_wait_callback(_wait)


class _Response(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *arguments: Any, **options: Any):
        super().__init__(sock, *arguments, **options)
        self.fp = io.BufferedReader(_Piecewise(self.fp.detach(), sock))


class _Piecewise(io.RawIOBase):
    """Data of a socket, within the time and size limits of an answer."""

    def __init__(self, raw: io.RawIOBase, connection: socket.socket):
        super().__init__()
        self._raw = raw
        self._connection = connection
        self._deadline = time.monotonic() + ANSWER_SECONDS
        self._left = MOST_ANSWER_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        left = self._deadline - time.monotonic()
        try:
            if left <= 0:
                raise TimeoutError
            self._connection.settimeout(min(left, SILENT_SECONDS))
            count = self._raw.readinto(buffer)
        except TimeoutError:
            whole = f"{self._server} has not answered completely in {ANSWER_SECONDS:,.0f} s"
            silent = f"{self._server} has sent nothing for {SILENT_SECONDS:,.0f} s"
            raise BadAnswer(whole if left <= SILENT_SECONDS else silent) from None
        self._left -= count or 0
        if self._left < 0:
            raise BadAnswer(
                f"{self._server} answers with more than {MOST_ANSWER_BYTES // 2**20:,} MiB"
            )
        return int(count)

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()

    @property
    def _server(self) -> str:
        return _name_of(self._connection)


def _wait(connection: Any) -> None:
    """Waits for a database in psycopg2's way: for a connection, and for each statement."""
    from psycopg2.extensions import POLL_OK, POLL_READ, POLL_WRITE, STATUS_SETUP

    connects = connection.status == STATUS_SETUP
    seconds = CONNECT_SECONDS if connects else ANSWER_SECONDS
    deadline = time.monotonic() + ANSWER_SECONDS
    state = POLL_WRITE if connects else connection.poll()
    while state != POLL_OK:
        poll = select.poll()
        poll.register(connection.fileno(), select.POLLIN if state == POLL_READ else select.POLLOUT)
        left = min(deadline - time.monotonic(), seconds)
        if left <= 0 or not poll.poll(left * 1000):
            raise BadAnswer(f"the database has not answered in {seconds:,.0f} s")
        state = connection.poll()


def _name_of(connection: socket.socket) -> str:
    try:
        host, port = connection.getpeername()[:2]
    except OSError:
        return "the server"
    return f"the server at [{host}]:{port}" if ":" in host else f"the server at {host}:{port}"
