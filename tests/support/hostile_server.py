"""A server that does what its owner likes with whoever connects."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from waiting import PATIENCE_SECONDS

Behaviour = Callable[[socket.socket, bytes], None]
"""What is done with a connection whose first bytes have come; it ends afterwards."""


@dataclass
class HostileServer:
    """What came to it."""

    port: int
    requests: list[str] = field(default_factory=list)
    """The beginning of each request, with its headers."""

    @property
    def uri(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"


def answering(status: str, body: str = "", *headers: str) -> Behaviour:
    """Always the same answer."""

    def answer(connection: socket.socket, _request: bytes) -> None:
        content = body.encode()
        head = "\r\n".join(
            (f"HTTP/1.1 {status}", f"Content-Length: {len(content)}", "Connection: close", *headers)
        )
        connection.sendall(f"{head}\r\n\r\n".encode() + content)

    return answer


@contextmanager
def hostile_server(behave: Behaviour) -> Iterator[HostileServer]:
    """Serves each connection in a thread of its own."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = HostileServer(listener.getsockname()[1])
    open_connections: set[socket.socket] = set()

    def serve(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            request = connection.recv(65536)
            server.requests.append(request.decode("latin-1"))
            behave(connection, request)
        open_connections.discard(connection)

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                open_connections.add(connection)
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for connection in list(open_connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        thread.join(PATIENCE_SECONDS)
