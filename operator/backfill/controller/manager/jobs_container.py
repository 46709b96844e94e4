"""The operator's end of its container for jobs, see :mod:`backfill.controller.jobs.host`.

The container has one connection at a time. Whoever could hold a second one could pretend to be the
container and be handed other teams' credentials: so nobody can connect while there is one, and the
next one is taken only when all processes of the container that was lost have been ended by the
kernel with its first one.
"""

import logging
import os
import socket
import struct
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from backfill.api.errors import BackfillError
from backfill.controller.jobs.frames import Frames
from backfill.controller.jobs.host import NO_IDENTITY, OWN_IDENTITY
from backfill.controller.jobs.process import PRINTED_BYTES, Usage

_LOG = logging.getLogger(__name__)
_SETTLE_SECONDS = 2.0
"""Between the end of a connection and the next one."""
_LOOK_SECONDS = 0.5
_END_SECONDS = 5.0
_MOST_BYTES = 12 * PRINTED_BYTES
"""Of a message: JSON has up to six bytes for one that was printed."""
_CREDENTIALS = struct.Struct("=iII")
_LOST: Final = (
    "the operator's container for jobs has ended, possibly for lack of memory; it is started again"
)


class JobsContainer:
    """Has job processes started in the container."""

    def __init__(self, path: Path, user: int | None = None):
        """Listens for the container.

        Args:
            path: of the socket, in a directory that the container can read and only this process
                can write to.
            user: the number of the container's user; None: that of this process. No other one is
                listened to.

        Raises:
            BackfillError: nobody can listen there.
        """
        self._path = path
        self._user = os.getuid() if user is None else user
        self._connection: socket.socket | None = None
        self._changed = threading.Condition()
        self._closing = threading.Event()
        try:
            listener = self._listen()
        except OSError as error:
            raise BackfillError(f"--jobs-socket: nobody can listen on {path}: {error}") from error
        self._thread = threading.Thread(
            target=self._keep, args=(listener,), name="jobs container", daemon=True
        )
        self._thread.start()

    def ready(self, timeout_seconds: float) -> bool:
        """Whether a process can be started, within the time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._connection is not None, timeout_seconds)

    def start(self, connection: socket.socket, own_identity: bool) -> "RemoteProcess":
        """Has a process started.

        Args:
            connection: its end of the conversation.
            own_identity: whether it has the variables with which the operator's own catalogs and
                stores are opened.

        Raises:
            BackfillError: there is no container.
        """
        ours, control = socket.socketpair()
        with control, self._changed:
            try:
                if self._connection is None:
                    raise BrokenPipeError
                kind = OWN_IDENTITY if own_identity else NO_IDENTITY
                socket.send_fds(self._connection, [kind], [control.fileno(), connection.fileno()])
            except OSError:
                ours.close()
                raise BackfillError(_LOST) from None
        return RemoteProcess(ours)

    def close(self) -> None:
        """Ends the connection, and with it all processes."""
        self._closing.set()
        with self._changed:
            if self._connection is not None:
                with suppress(OSError):
                    self._connection.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def _keep(self, listener: socket.socket | None) -> None:
        """One connection after the other."""
        while not self._closing.is_set():
            try:
                connection = self._accept(listener or self._listen())
            except OSError as error:
                _LOG.error(
                    "nobody can listen for the container for jobs on %s: %s", self._path, error
                )
                connection = None
            listener = None
            if connection is not None:
                self._hold(connection)
            self._closing.wait(_SETTLE_SECONDS)

    def _hold(self, connection: socket.socket) -> None:
        """Until the connection is lost."""
        with connection:
            with self._changed:
                self._connection = connection
                self._changed.notify_all()
            _LOG.info("the container for jobs has connected")
            with suppress(OSError):
                connection.recv(1)  # it never says anything
            with self._changed:
                self._connection = None
        if not self._closing.is_set():
            _LOG.warning("%s; its jobs are tried again", _LOST)

    def _listen(self) -> socket.socket:
        self._path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        try:
            listener.bind(str(self._path))
            self._path.chmod(0o660)  # nobody can connect before it listens
            listener.listen(1)
        except OSError:
            listener.close()
            raise
        listener.settimeout(_LOOK_SECONDS)
        return listener

    def _accept(self, listener: socket.socket) -> socket.socket | None:
        """The connection of the container; None when this is closed first. Nobody can connect
        afterwards.
        """
        refused: set[int] = set()
        with listener:
            while not self._closing.is_set():
                with suppress(TimeoutError):
                    connection, _ = listener.accept()
                    user = _user_of(connection)
                    if user == self._user:
                        self._path.unlink(missing_ok=True)
                        return connection
                    connection.close()
                    if user not in refused:
                        _LOG.warning(
                            "user %d may not run jobs: --jobs-user is %d", user, self._user
                        )
                    refused.add(user)
        return None


class RemoteProcess:
    """A :class:`~backfill.controller.jobs.process.Process` in the container."""

    def __init__(self, control: socket.socket):
        """``control`` tells of it, and ends it when it is closed."""
        self.printed = ""
        """The end of what it printed, known once it is closed."""
        self._control = control
        self._frames = Frames(control, _MOST_BYTES)
        self._usage: Usage | None = None
        self._ended: str | None = None

    @property
    def usage(self) -> Usage | None:
        """What it has taken, as it was told last; None where that is unknown, as of one that has
        ended.
        """
        while self._ended is None and self._hear(0.0):
            pass
        return self._usage if self._ended is None else None

    def ended(self, timeout_seconds: float = 0.0) -> str | None:
        """How it has ended, in words; None if it has not within the time."""
        deadline = time.monotonic() + timeout_seconds
        while self._ended is None and self._hear(max(deadline - time.monotonic(), 0.0)):
            pass
        return self._ended

    def kill(self) -> None:
        """Ends it at once. May be called from any thread."""
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Ends it at once and releases everything."""
        self.kill()
        self.ended(_END_SECONDS)
        self._frames.close()

    def _hear(self, timeout_seconds: float) -> bool:
        """Takes one message; False if there is none within the time."""
        try:
            parts = self._frames.receive(timeout_seconds)
            if parts is not None:
                self._note(parts)
        except (EOFError, OSError, ValueError, LookupError, TypeError):
            self._ended = _LOST
            return False
        return parts is not None

    def _note(self, parts: dict[str, Any]) -> None:
        if "ended" in parts:
            self._ended, self.printed = str(parts["ended"]), str(parts["printed"])
        else:
            self._usage = Usage(
                int(parts["resident"]), int(parts["peak"]), float(parts["cpu_seconds"])
            )


def _user_of(connection: socket.socket) -> int:
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    user: int = _CREDENTIALS.unpack(credentials)[1]
    return user
