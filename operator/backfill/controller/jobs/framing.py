"""Messages over a socket: JSON, each preceded by its length.

What arrives is data only, and limited in size.
"""

import json
import select
import socket
import struct
import time
from typing import Any, Final

from backfill.api.json_text import read_json_text

MOST_BYTES: Final = 16 * 2**20
"""Most bytes of a message. The header of a large plan takes two million."""
_MOST_COLLECTIONS: Final = 500_000
"""Most lists and objects in a message.
An empty one takes two characters, and fifty bytes of memory.
"""
_MOST_VALUES: Final = 2_000_000
"""Most values in a message. A number takes two characters, and forty bytes of memory."""
_LENGTH = struct.Struct("!I")
_PIECE = 2**18
_SEND_SECONDS = 60.0


class FrameError(OSError):
    """The other end has sent something that is not a message."""


class Frames:
    """One end of a socket. May be used by one thread that sends and one that receives."""

    def __init__(self, connection: socket.socket, most_bytes: int = MOST_BYTES):
        """Takes over the socket. ``most_bytes`` limits each message that arrives."""
        self._socket = connection
        self._socket.settimeout(_SEND_SECONDS)
        self._most_bytes = most_bytes
        self._arrived = bytearray()

    def send(self, message: object) -> None:
        """Sends a message.

        Raises:
            OSError: the other end is closed, or does not read.
        """
        content = json.dumps(message, separators=(",", ":")).encode()
        self._socket.sendall(_LENGTH.pack(len(content)) + content)

    def receive(self, timeout_seconds: float | None = None) -> Any:
        """The next message; None if it is not complete within this time.

        Without a time, it waits forever.

        Raises:
            EOFError: the other end is closed.
            OSError: reading failed, or the other end has sent something that is not a message.
        """
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while (message := self._complete()) is None:
            left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            if not select.select([self._socket], [], [], left)[0]:
                return None
            piece = self._socket.recv(_PIECE)
            if not piece:
                raise EOFError
            self._arrived += piece
        return message

    def close(self) -> None:
        """Closes the socket."""
        self._socket.close()

    def _complete(self) -> Any:
        if len(self._arrived) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._arrived)
        if length > self._most_bytes:
            raise FrameError(f"a message of {length:,} bytes, more than {self._most_bytes:,}")
        end = _LENGTH.size + length
        if len(self._arrived) < end:
            return None
        content = bytes(self._arrived[_LENGTH.size : end])
        del self._arrived[:end]
        if content.count(b"[") + content.count(b"{") > _MOST_COLLECTIONS:
            raise FrameError(f"a message of more than {_MOST_COLLECTIONS:,} lists and objects")
        if content.count(b",") > _MOST_VALUES:
            raise FrameError(f"a message of more than {_MOST_VALUES:,} values")
        try:
            message = read_json_text(content)
        except ValueError as error:
            raise FrameError(f"a message that is not JSON: {error}") from None
        if not isinstance(message, dict):
            raise FrameError("a message that is not an object")
        return message
