"""Ports of servers that tests start on this machine."""

import socket


def free_port() -> int:
    """One that nothing listens on now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def listens(port: int) -> bool:
    """Whether a server accepts connections there."""
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0
