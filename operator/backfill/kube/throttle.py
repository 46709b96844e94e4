"""Bounds the rate of requests: a bucket of tokens that fills steadily."""

import threading
import time
from collections.abc import Callable


class Throttle:
    """Threads share it. Whoever comes when it is empty waits for a token of its own, in the order
    of coming.
    """

    def __init__(
        self,
        per_second: float,
        burst: int,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ):
        """``burst`` requests may go at once after a quiet time."""
        self._per_second = per_second
        self._burst = burst
        self._monotonic = monotonic
        self._sleep = sleep
        self._tokens = float(burst)
        self._filled_at = monotonic()
        self._lock = threading.Lock()

    def wait(self) -> None:
        """Returns when a request may go."""
        with self._lock:
            now = self._monotonic()
            self._tokens = (
                min(self._burst, self._tokens + (now - self._filled_at) * self._per_second) - 1
            )
            self._filled_at = now
            owed = -self._tokens / self._per_second
        if owed > 0:
            self._sleep(owed)
