"""Threads and tasks that a function of ``foreachBatch`` starts, and what they write after it has
returned.

The function's batch is committed when it has returned, so its threads and tasks are waited for
before. Some never end, such as the thread of a client. If one of them writes later, the result
lacks these rows: that is recorded beside the checkpoints, for all attempts that follow.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from backfill.api.errors import ResultLost
from backfill.planning.workspace import Workspace

PATIENCE_SECONDS = 10.0
"""How long threads and tasks are waited for. Each time that some have not ended by then, later
batches of the query wait half as long: functions may start such a thread in every batch.
"""
_LOOK_SECONDS = 0.2
_FILE = "lacks-rows.txt"
_MOST_BYTES = 64 * 1024


class Parts:
    """The threads and tasks of a batch, and what they write."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running = 0
        self._writing = 0
        self._over = False

    def begin(self) -> Callable[[], None]:
        """Counts a thread or task. Call what this returns when it has ended."""
        with self._changed:
            self._running += 1

        def end() -> None:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

        return end

    def wait(self, seconds: float, stop: threading.Event) -> bool:
        """Waits until all have ended. Returns False if some have not when the time is up, or when
        ``stop`` is set.
        """
        with self._changed:
            until = time.monotonic() + seconds
            while self._running and not stop.is_set():
                left = until - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(min(left, _LOOK_SECONDS))
            return not self._running

    def close(self) -> bool:
        """Ends the batch. Returns whether nothing is being written to it."""
        with self._changed:
            self._over = True
            return not self._writing

    @contextmanager
    def write(self) -> Iterator[bool]:
        """Counts a write while it is in progress. Gives whether the batch still takes it."""
        with self._changed:
            in_time = not self._over
            self._writing += in_time
        try:
            yield in_time
        finally:
            with self._changed:
                self._writing -= in_time


def record_lost_rows(checkpoints: Workspace, error: ResultLost) -> None:
    """Records that the staged result lacks rows."""
    checkpoints.write(_FILE, str(error).encode())


def lost_rows(checkpoints: Workspace) -> ResultLost | None:
    """Why the staged result lacks rows of earlier batches; None if it is not known to."""
    if not checkpoints.exists(_FILE):
        return None
    return ResultLost(checkpoints.read(_FILE, _MOST_BYTES).decode(errors="replace"))
