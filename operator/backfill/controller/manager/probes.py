"""What the operator answers over HTTP: probes and metrics."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer to a GET."""

    body: bytes
    status: int = 200
    content_type: str = "text/plain; charset=utf-8"


Routes = Mapping[str, Callable[[], Answer]]


def probe(problem: str | None, fine: str = "ok") -> Answer:
    """The answer of a probe: 503 with the reason where there is a problem."""
    return Answer((problem or fine).encode() + b"\n", 503 if problem else 200)


class HttpServer:
    """Answers GET requests in threads, until it is closed."""

    def __init__(self, port: int, routes: Routes, host: str = ""):
        """Binds at once. Port 0 takes a free one."""
        self._server = ThreadingHTTPServer((host, port), _handler(routes))
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, name=f"http-{self.port}", daemon=True).start()

    def close(self) -> None:
        """Stops answering."""
        self._server.shutdown()
        self._server.server_close()


def _handler(routes: Routes) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = _TIMEOUT_SECONDS  # of a client that says nothing

        def do_GET(self) -> None:
            route = routes.get(self.path.partition("?")[0])
            answer = route() if route else Answer(b"not found\n", 404)
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
            """Probes come every few seconds and are no news."""

    return Handler
