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
"""How long threads and tasks are waited for while they write nothing. Each time that some have not
ended by then, later batches of the query wait half as long: functions may start such a thread in
every batch.
"""
_LONGEST_SECONDS = 600.0
"""How long they are waited for at most, however often they write."""
_LOOK_SECONDS = 0.2
_FILE = "lacks-rows.txt"
_MOST_BYTES = 64 * 1024


class BatchThreads:
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

    def close(self, seconds: float, stop: threading.Event) -> bool:
        """Ends the batch once all have ended, or nothing has been written for so many seconds, but
        never while something is being written. Returns False if some have not ended, or when
        ``stop`` is set.
        """
        with self._changed:
            at_last = time.monotonic() + _LONGEST_SECONDS
            until = time.monotonic() + seconds
            while self._running and not stop.is_set():
                now = time.monotonic()
                if self._writing:
                    until = now + seconds
                left = min(until, at_last) - now
                if left <= 0:
                    break
                self._changed.wait(min(left, _LOOK_SECONDS))
            self._over = True
            while self._writing and not stop.is_set():
                self._changed.wait(_LOOK_SECONDS)
            return not self._running

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
                self._changed.notify_all()


def record_lost_rows(checkpoints: Workspace, error: ResultLost) -> None:
    """Records that the staged result lacks rows."""
    checkpoints.write(_FILE, str(error).encode())


def lost_rows(checkpoints: Workspace) -> ResultLost | None:
    """Why the staged result lacks rows of earlier batches; None if it is not known to."""
    if not checkpoints.exists(_FILE):
        return None
    return ResultLost(checkpoints.read(_FILE, _MOST_BYTES).decode(errors="replace"))
