"""The operator's HTTP server for probes and metrics."""

import socket
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_TIMEOUT_SECONDS = 10.0
_MOST_CONNECTIONS = 50
"""Connections at the same time. Each has a thread, and any pod of the cluster may connect."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer to a GET."""

    body: bytes
    status: int = 200
    content_type: str = "text/plain; charset=utf-8"


Routes = Mapping[str, Callable[[], Answer]]


def probe(problem: str | None, fine: str = "ok") -> Answer:
    """The answer to a probe: 503 with the problem, or 200 if there is none."""
    return Answer((problem or fine).encode() + b"\n", 503 if problem else 200)


class HttpServer:
    """Answers GET requests in threads until it is closed."""

    def __init__(self, port: int, routes: Routes, host: str = ""):
        """Binds the port at once. Port 0 chooses a free one."""
        self._server = _Server((host, port), _handler(routes))
        self.port: int = self._server.server_address[1]
        threading.Thread(
            target=self._server.serve_forever, name=f"http-{self.port}", daemon=True
        ).start()

    def close(self) -> None:
        """Stops answering."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    """Closes the oldest connection if there are too many.

    A well-behaved client has its answer by then.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, *arguments: Any):
        self._connections: deque[socket.socket] = deque()
        self._lock = threading.Lock()
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Starts a thread for a connection."""
        with self._lock:
            self._connections.append(request)
            if len(self._connections) > _MOST_CONNECTIONS:
                with suppress(OSError):
                    self._connections.popleft().shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Closes a connection in its thread."""
        with self._lock, suppress(ValueError):
            self._connections.remove(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Logs an error, unless it is that the client has disconnected."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


def _handler(routes: Routes) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = _TIMEOUT_SECONDS  # for a client that sends nothing

        def do_GET(self) -> None:
            route = routes.get(self.path.partition("?")[0])
            answer = route() if route else Answer(b"not found\n", 404)
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
            """Logs nothing, since probes come every few seconds."""

    return Handler
