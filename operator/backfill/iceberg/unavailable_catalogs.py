"""Requests to a catalog that is unavailable for a moment, as during an update of it."""

import time
from collections.abc import Callable
from typing import TypeVar

from backfill.iceberg.library_errors import is_unavailable

_FIRST_WAIT_SECONDS = 0.1
_LONGEST_WAIT_SECONDS = 2.0

_Answer = TypeVar("_Answer")


class Patience:
    """How long requests are repeated, from the first error on."""

    def __init__(self, seconds: float, passes: Callable[[Exception], bool]):
        """``passes`` returns whether an error may be gone a moment later."""
        self._seconds = seconds
        self._passes = passes
        self._until: float | None = None

    def bears(self, error: Exception) -> bool:
        """Whether a request may be repeated after an error."""
        if self._until is None:
            self._until = time.monotonic() + self._seconds
        return self._passes(error) and time.monotonic() < self._until


def answered(
    request: Callable[[], _Answer],
    seconds: float,
    passes: Callable[[Exception], bool] = is_unavailable,
) -> _Answer:
    """What a request gives, which is repeated for some seconds while its errors may pass.

    Raises:
        Exception: what the request raises otherwise.
    """
    patience, wait = Patience(seconds, passes), _FIRST_WAIT_SECONDS
    while True:
        try:
            return request()
        except Exception as error:
            if not patience.bears(error):
                raise
        time.sleep(wait)
        wait = min(wait * 2, _LONGEST_WAIT_SECONDS)
