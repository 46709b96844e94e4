"""One controller for each Backfill on a machine, and a sign of life that drivers watch."""

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
    """Held as long as the process that took it lives; the kernel releases it when the process is
    killed.
    """

    def __init__(self, channel: Path):
        self._path = channel / LOCK_FILE

    def __enter__(self) -> Self:
        """Takes the lock.

        Raises:
            ControllerRunning: somebody else has it.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._path.open("ab")
        # others hold it for an instant when they look
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
