"""An unreliable way to the API server: a proxy that tests put between a client and the real server.

It speaks plain HTTP on a loopback port and passes everything on, with the caller's own credentials,
so that permissions are those of the caller. What it can do to a client is said by three hooks,
which any test may replace at any time:

* ``before(request)`` is asked before a request is passed on: ``None`` passes it on, a ``Response``
  answers it without asking the server, ``CUT`` closes the connection without an answer, as if the
  client had died before its request arrived.
* ``after(request, response)`` is asked with the server's answer: ``None`` passes it on, a
  ``Response`` takes its place, ``CUT`` closes the connection: the server has done what was asked
  and the client does not know.
* ``on_event(request, event)`` is asked for every event of a watch: ``None`` passes it on, a
  dictionary takes its place, ``DROP`` loses it, ``CUT`` ends the watch.

Every connection has a thread of its own, so a hook may block: that is how requests are delayed or
hang. ``away()`` is a server that cannot be reached; ``kill_watches()`` closes watches as a
restarted server does. ``requests`` is what arrived, in order; ``count()`` counts it.

    with running_proxy(kubeconfig) as proxy:
        proxy.before = Nth(3, is_write, CUT)
        client = new_client_from_config(str(proxy.kubeconfig(kubeconfig, tmp_path / "config")))
"""

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

import urllib3
import yaml
from kubeconfigs import address_and_ca, token_of, write_kubeconfig
from rest import Manifest

_NOT_PASSED_ON = {
    "host",
    "connection",
    "transfer-encoding",
    "content-length",
    "accept-encoding",
    "keep-alive",
}


class Cut:
    """The connection is closed, and that is all the client learns."""


class Drop:
    """The event is lost."""


CUT: Final = Cut()
DROP: Final = Drop()


@dataclass(frozen=True)
class Request:
    """One request as the API server would name its parts."""

    method: str
    path: str
    query: dict[str, str]
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def resource(self) -> str:
        """The plural, with its subresource: ``splitassignments/status``; empty for what is not a
        resource.
        """
        _, _, resource, _, subresource = self._parts()
        return f"{resource}/{subresource}" if subresource else resource

    @property
    def group(self) -> str:
        """The API group, empty for the core one."""
        return self._parts()[0]

    @property
    def namespace(self) -> str:
        """The namespace, empty for requests over all of them."""
        return self._parts()[1]

    @property
    def name(self) -> str:
        """The object's name: in the path, in the field selector of a watch, or in what is
        created.
        """
        selected = dict(
            part.split("=", 1)
            for part in self.query.get("fieldSelector", "").split(",")
            if "=" in part
        )
        created = self.manifest.get("metadata", {}).get("name", "") if self.method == "POST" else ""
        return self._parts()[3] or selected.get("metadata.name", "") or created

    @property
    def verb(self) -> str:
        """As a rule of a Role says it: get, list, watch, create, update, patch, delete,
        deletecollection.
        """
        one = bool(self._parts()[3]) or not self.resource
        if self.method == "GET":
            watch = self.query.get("watch", "").lower() in ("1", "true")
            return "watch" if watch else "get" if one else "list"
        if self.method == "DELETE":
            return "delete" if one else "deletecollection"
        return {"POST": "create", "PUT": "update", "PATCH": "patch"}.get(
            self.method, self.method.lower()
        )

    @property
    def manifest(self) -> Manifest:
        """The body, where it is one object; a JSON patch is under the key ``operations``."""
        decoded = _read(self.body) if self.body else {}
        return decoded if isinstance(decoded, dict) else {"operations": decoded}

    @property
    def is_write(self) -> bool:
        """Whether it changes something."""
        return self.verb in ("create", "update", "patch", "delete", "deletecollection") and bool(
            self.resource
        )

    def __str__(self) -> str:
        return f"{self.verb} {self.resource or self.path} {self.namespace}/{self.name}"

    def _parts(self) -> tuple[str, str, str, str, str]:
        """Group, namespace, resource, name and subresource of a path."""
        parts = self.path.strip("/").split("/")
        if parts[:1] == ["api"]:
            group, rest = "", parts[2:]
        elif parts[:1] == ["apis"] and len(parts) > 2:
            group, rest = parts[1], parts[3:]
        else:
            return "", "", "", "", ""
        namespace = ""
        if rest[:1] == ["namespaces"] and len(rest) > 2 and rest[2] not in ("status", "finalize"):
            namespace, rest = rest[1], rest[2:]
        resource, name, subresource, *_ = [*rest, "", "", ""]
        return group, namespace, resource, name, subresource


def _read(body: bytes) -> Any:
    """Most bodies are JSON, which is YAML as well but read a hundred times as fast."""
    try:
        return json.loads(body)
    except ValueError:
        return yaml.safe_load(body)


@dataclass(frozen=True)
class Response:
    """An answer: the server's, or one that a hook gives in its place."""

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})

    @property
    def manifest(self) -> Manifest:
        """The object in it."""
        return dict(json.loads(self.body))


Before = Callable[[Request], Response | Cut | None]
After = Callable[[Request, Response], Response | Cut | None]
OnEvent = Callable[[Request, Manifest], Manifest | Drop | Cut | None]


def refusal(status: int, reason: str, retry_after_seconds: int | None = None) -> Response:
    """An error as the API server says it: ``refusal(429, "TooManyRequests", 1)``, ``refusal(409,
    "Conflict")``.
    """
    answer = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": reason,
        "message": reason,
        "code": status,
    }
    headers = {"Content-Type": "application/json"}
    if retry_after_seconds is not None:
        headers["Retry-After"] = str(retry_after_seconds)
    return Response(status, json.dumps(answer).encode(), headers)


def expired_event() -> Manifest:
    """What a watch says when its resourceVersion is too old."""
    return {"type": "ERROR", "object": json.loads(refusal(410, "Expired").body)}


class Nth:
    """A ``before`` hook that answers the nth (from 1) request that matches, and passes all others
    on.
    """

    def __init__(
        self, number: int, matches: Callable[[Request], bool], answer: Response | Cut
    ) -> None:
        self._number, self._matches, self._answer = number, matches, answer
        self._seen = 0
        self._lock = threading.Lock()

    @property
    def struck(self) -> bool:
        """Whether that request has come."""
        return self._seen >= self._number

    def __call__(self, request: Request) -> Response | Cut | None:
        if not self._matches(request):
            return None
        with self._lock:
            self._seen += 1
            return self._answer if self._seen == self._number else None


class UnreliableProxy:
    """See the module. ``running_proxy`` starts one and ends it."""

    def __init__(self, kubeconfig: Path) -> None:
        self.upstream, ca = address_and_ca(kubeconfig)
        self.before: Before = lambda request: None
        self.after: After = lambda request, response: None
        self.on_event: OnEvent = lambda request, event: None
        self.requests: list[Request] = []
        context = ssl.create_default_context(cadata=ca.decode())
        self.pool = urllib3.PoolManager(ssl_context=context, maxsize=64, retries=False)
        self._connections: dict[socket.socket, Request | None] = {}
        self._lock = threading.Lock()
        self._away = False
        self._server = _Server(("127.0.0.1", 0), _handler_of(self))

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def kubeconfig(self, of: Path, path: Path, namespace: str = "default") -> Path:
        """A kubeconfig of the same user that leads here."""
        return write_kubeconfig(path, self.url, address_and_ca(of)[1], token_of(of), namespace)

    def count(self, verb: str | None = None, resource: str | None = None) -> int:
        """How many such requests have arrived."""
        with self._lock:
            return sum(
                verb in (None, each.verb) and resource in (None, each.resource)
                for each in self.requests
            )

    def forget(self) -> None:
        """Counting begins anew."""
        with self._lock:
            self.requests.clear()

    def kill_watches(self, resource: str | None = None) -> int:
        """Closes the connections of watches under way; how many there were."""
        with self._lock:
            killed = [
                connection
                for connection, request in self._connections.items()
                if request is not None
                and request.verb == "watch"
                and resource in (None, request.resource)
            ]
        for connection in killed:
            _close(connection)
        return len(killed)

    @property
    def watches(self) -> int:
        """How many watches are under way."""
        with self._lock:
            return sum(
                request is not None and request.verb == "watch"
                for request in self._connections.values()
            )

    @contextmanager
    def away(self) -> Iterator[None]:
        """Every connection is closed at once while the block runs, and so are those there are."""
        with self._lock:
            self._away = True
            connections = list(self._connections)
        for connection in connections:
            _close(connection)
        try:
            yield
        finally:
            with self._lock:
                self._away = False

    def connected(self, connection: socket.socket) -> bool:
        """A client has connected. False while the proxy is away."""
        with self._lock:
            if not self._away:
                self._connections[connection] = None
            return not self._away

    def disconnected(self, connection: socket.socket) -> None:
        """A connection has ended."""
        with self._lock:
            self._connections.pop(connection, None)

    def arrived(self, connection: socket.socket, request: Request) -> None:
        """A request is under way on this connection."""
        with self._lock:
            self._connections[connection] = request
            self.requests.append(request)

    def pass_on(self, request: Request) -> Response:
        """Sends a request to the server, now: one that was held back arrives late."""
        url = f"{self.upstream}{request.path}?{urlencode(request.query)}"
        answer = self.pool.request(
            request.method, url, body=request.body or None, headers=_own_headers(request)
        )
        return Response(answer.status, answer.data, _passed_on(answer.headers))

    def start(self) -> None:
        """Begins to listen."""
        threading.Thread(
            target=self._server.serve_forever, name="unreliable-proxy", daemon=True
        ).start()

    def stop(self) -> None:
        """Ends, with all connections."""
        self._server.shutdown()
        self._server.server_close()
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            _close(connection)
        self.pool.clear()


@contextmanager
def running_proxy(kubeconfig: Path) -> Iterator[UnreliableProxy]:
    """A proxy in front of the server of a kubeconfig, until the block is left."""
    proxy = UnreliableProxy(kubeconfig)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.stop()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is nothing to tell of."""


class _CutError(Exception):
    """The connection is to be closed without another word."""


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    proxy: UnreliableProxy

    def handle(self) -> None:
        if not self.proxy.connected(self.connection):
            return
        try:
            with suppress(_CutError, OSError, urllib3.exceptions.HTTPError):
                super().handle()
        finally:
            self.proxy.disconnected(self.connection)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the base class's name
        """Says nothing."""

    def _pass_on(self) -> None:
        parts = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        request = Request(
            self.command, parts.path, dict(parse_qsl(parts.query)), body, dict(self.headers)
        )
        self.proxy.arrived(self.connection, request)
        answer = self.proxy.before(request)
        if answer is not None:
            return self._answer(answer)
        url, headers = self.proxy.upstream + self.path, _own_headers(request)
        upstream = self.proxy.pool.request(
            request.method, url, body=body or None, headers=headers, preload_content=False
        )
        try:
            if upstream.status == 200 and request.verb == "watch":
                return self._stream(request, upstream)
            response = Response(upstream.status, upstream.read(), _passed_on(upstream.headers))
        finally:
            upstream.release_conn()
        self._answer(self.proxy.after(request, response) or response)
        return None

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _pass_on  # noqa: N815 - the names the base class looks for

    def _answer(self, answer: Response | Cut) -> None:
        if isinstance(answer, Cut):
            raise _CutError
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    def _stream(self, request: Request, upstream: urllib3.BaseHTTPResponse) -> None:
        """Passes a watch on, line by line. What ends it for the client ends it for the server."""
        try:
            self.send_response(upstream.status)
            for name, value in _passed_on(upstream.headers).items():
                self.send_header(name, value)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            threading.Thread(
                target=_close_with, args=(self.connection, upstream), daemon=True
            ).start()
            for line in upstream:
                event = json.loads(line)
                answer = self.proxy.on_event(request, event)
                if isinstance(answer, Cut):
                    raise _CutError
                if not isinstance(answer, Drop):
                    self._chunk(json.dumps(answer or event).encode() + b"\n")
            self._chunk(b"")
        finally:
            # else the pool would give a connection on which the server still watches to another
            # request
            upstream.close()

    def _chunk(self, content: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(content), content))
        self.wfile.flush()


def _handler_of(owner: UnreliableProxy) -> type[_Handler]:
    class Handler(_Handler):
        proxy = owner

    return Handler


def _own_headers(request: Request) -> dict[str, str]:
    return {
        name: value for name, value in request.headers.items() if name.lower() not in _NOT_PASSED_ON
    }


def _passed_on(headers: urllib3.HTTPHeaderDict) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _NOT_PASSED_ON}


def _close_with(client: socket.socket, upstream: urllib3.BaseHTTPResponse) -> None:
    """Ends the server's side of a watch when the client is gone: a client says nothing while it
    watches.
    """
    with suppress(OSError, ValueError):
        client.recv(1, socket.MSG_PEEK)
    with suppress(Exception):
        upstream.shutdown()


def _close(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
