"""The operator's side of the container for jobs; see
:mod:`backfill.controller.jobs.jobs_container_main`.

The container has one connection at a time. A process that could open a second one might pretend to
be the container and receive the credentials of other teams. So while there is a connection nobody
else can connect, and after it is lost the next one is accepted only when the kernel has ended all
processes of that container together with its first one.
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
from backfill.controller.jobs.framing import Frames
from backfill.controller.jobs.jobs_container_main import NO_IDENTITY, OWN_IDENTITY
from backfill.controller.jobs.process import PRINTED_BYTES, Usage

_LOG = logging.getLogger(__name__)
_SETTLE_SECONDS = 2.0
"""Pause between the end of a connection and the next one."""
_LOOK_SECONDS = 0.5
_END_SECONDS = 5.0
_MOST_BYTES = 12 * PRINTED_BYTES
"""Most bytes of a message: JSON takes up to six bytes for one that was printed."""
_CREDENTIALS = struct.Struct("=iII")
_LOST: Final = (
    "the operator's container for jobs has ended, possibly for lack of memory; it is started again"
)


class JobsContainer:
    """Starts job processes in the container."""

    def __init__(self, path: Path, user: int | None = None):
        """Listens for the container.

        Args:
            path: the socket, in a directory that the container can read and only this process can
                write to.
            user: user ID of the container; None for that of this process. Connections of other
                users are refused.

        Raises:
            BackfillError: the socket cannot be made.
        """
        self._path = path
        self._user = os.getuid() if user is None else user
        self._connection: socket.socket | None = None
        self._changed = threading.Condition()
        self._closing = threading.Event()
        try:
            listener = self._listen()
        except OSError as error:
            raise BackfillError(f"--jobs-socket: cannot listen on {path}: {error}") from error
        self._thread = threading.Thread(
            target=self._keep, args=(listener,), name="jobs container", daemon=True
        )
        self._thread.start()

    def ready(self, timeout_seconds: float) -> bool:
        """Whether a process can be started within this time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._connection is not None, timeout_seconds)

    def start(self, connection: socket.socket, own_identity: bool) -> "RemoteProcess":
        """Starts a process.

        Args:
            connection: the process's end of its connection to the operator.
            own_identity: whether it gets the environment variables that open the operator's own
                catalogs and stores.

        Raises:
            BackfillError: the container is not connected.
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
        """Closes the connection, which ends all processes."""
        self._closing.set()
        with self._changed:
            if self._connection is not None:
                with suppress(OSError):
                    self._connection.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def _keep(self, listener: socket.socket | None) -> None:
        """Accepts one connection after the other."""
        while not self._closing.is_set():
            try:
                connection = self._accept(listener or self._listen())
            except OSError as error:
                _LOG.error("cannot listen for the container for jobs on %s: %s", self._path, error)
                connection = None
            listener = None
            if connection is not None:
                self._hold(connection)
            self._closing.wait(_SETTLE_SECONDS)

    def _hold(self, connection: socket.socket) -> None:
        """Returns when the connection is lost."""
        with connection:
            with self._changed:
                self._connection = connection
                self._changed.notify_all()
            _LOG.info("the container for jobs has connected")
            with suppress(OSError):
                connection.recv(1)  # the container sends nothing
            with self._changed:
                self._connection = None
        if not self._closing.is_set():
            _LOG.warning("%s; retrying its jobs", _LOST)

    def _listen(self) -> socket.socket:
        self._path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        try:
            listener.bind(str(self._path))
            self._path.chmod(0o660)  # only now, so that nobody connects before it listens
            listener.listen(1)
        except OSError:
            listener.close()
            raise
        listener.settimeout(_LOOK_SECONDS)
        return listener

    def _accept(self, listener: socket.socket) -> socket.socket | None:
        """The connection of the container; None if this is closed first.

        Afterwards nobody else can connect.
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
        """``control`` reports on the process, and ends it when it is closed."""
        self.printed = ""
        """The end of what the process printed; complete once it is closed."""
        self._control = control
        self._frames = Frames(control, _MOST_BYTES)
        self._usage: Usage | None = None
        self._ended: str | None = None

    @property
    def usage(self) -> Usage | None:
        """What the process used by its last report; None if that is unknown, as after its end."""
        while self._ended is None and self._hear(0.0):
            pass
        return self._usage if self._ended is None else None

    def ended(self, timeout_seconds: float = 0.0) -> str | None:
        """How the process ended, in words; None if it has not ended within this time."""
        deadline = time.monotonic() + timeout_seconds
        while self._ended is None and self._hear(max(deadline - time.monotonic(), 0.0)):
            pass
        return self._ended

    def kill(self) -> None:
        """Kills the process. May be called from any thread."""
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Kills the process and releases everything."""
        self.kill()
        self.ended(_END_SECONDS)
        self._frames.close()

    def _hear(self, timeout_seconds: float) -> bool:
        """Takes one message; False if none arrives within this time."""
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
