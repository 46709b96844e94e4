"""Limits the rate of requests, by a bucket of tokens that is filled steadily."""

import threading
import time
from collections.abc import Callable


class Throttle:
    """May be used by several threads.

    If the bucket is empty, they wait for a token in the order of their calls.
    """

    def __init__(
        self,
        per_second: float,
        burst: int,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ):
        """``burst`` is the size of the bucket:
        that many requests may be made at once after a pause.
        """
        self._per_second = per_second
        self._burst = burst
        self._monotonic = monotonic
        self._sleep = sleep
        self._tokens = float(burst)
        self._filled_at = monotonic()
        self._lock = threading.Lock()

    def wait(self) -> None:
        """Waits until a request may be made."""
        with self._lock:
            now = self._monotonic()
            self._tokens = (
                min(self._burst, self._tokens + (now - self._filled_at) * self._per_second) - 1
            )
            self._filled_at = now
            owed = -self._tokens / self._per_second
        if owed > 0:
            self._sleep(owed)
