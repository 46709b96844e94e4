"""How long to wait before something is tried again."""

import random

_MOST_ASKED_SECONDS = 30.0


class Backoff:
    """Doubles from the first to the last. A random part keeps a thousand drivers from coming back at the same moment."""

    def __init__(self, first_seconds: float, last_seconds: float):
        self._first, self._last = first_seconds, last_seconds
        self._next = first_seconds

    def reset(self) -> None:
        """It worked: the next failure is a first one."""
        self._next = self._first

    def next(self, asked_seconds: float | None = None) -> float:
        """Seconds to wait now; at least what the server asked for, up to half a minute."""
        seconds, self._next = self._next, min(self._next * 2, self._last)
        return max(seconds * random.uniform(0.5, 1.0), min(asked_seconds or 0.0, _MOST_ASKED_SECONDS))
