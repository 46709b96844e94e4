"""Trying again until it works: how long to wait in between, and what to say of it."""

import logging
import random

_MOST_ASKED_SECONDS = 30.0

_log = logging.getLogger(__name__)


class Retries:
    """One thing that is tried again and again. The wait doubles; the log says when it begins to
    fail and when it works.
    """

    def __init__(self, what: str, first_seconds: float, last_seconds: float):
        self._what, self._first, self._last = what, first_seconds, last_seconds
        self._failures = 0
        self._next = first_seconds

    def worked(self) -> None:
        """The next failure is a first one."""
        if self._failures:
            _log.info("%s works again after %d failures", self._what, self._failures)
        self._failures, self._next = 0, self._first

    def failed(self, error: Exception, asked_seconds: float | None = None) -> float:
        """Seconds to wait now: at least what the server asked for, up to half a minute.

        A random part keeps a thousand drivers from coming back at the same moment.
        """
        self._failures += 1
        _log.log(
            logging.WARNING if self._failures == 1 else logging.DEBUG,
            "%s failed and is tried again: %s",
            self._what,
            error,
        )
        seconds, self._next = self._next, min(self._next * 2, self._last)
        return max(
            seconds * random.uniform(0.5, 1.0), min(asked_seconds or 0.0, _MOST_ASKED_SECONDS)
        )
