"""Keeps a second controller of the same Backfill from running on this machine, and shows drivers
that their controller is alive.
"""

import fcntl
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from backfill.api.errors import ControllerRunning
from backfill.protocol.split_assignment import LOCK_FILE

_PATIENCE_SECONDS = 1.0
_RETRY_SECONDS = 0.02


class ControllerLock:
    """A file lock, held as long as its process lives.

    The kernel releases it if the process is killed.
    """

    def __init__(self, channel: Path):
        self._path = channel / LOCK_FILE

    def __enter__(self) -> Self:
        """Takes the lock.

        Raises:
            ControllerRunning: another process holds it.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._path.open("ab")
        # drivers hold it for a moment when they check it
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not self._try():
            if time.monotonic() > deadline:
                self._file.close()
                raise ControllerRunning("another process is working on this backfill")
            time.sleep(_RETRY_SECONDS)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Releases the lock."""
        self._file.close()

    def _try(self) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
