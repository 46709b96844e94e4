"""How long to wait between retries, and what to log about them."""

import logging
import random

_MOST_ASKED_SECONDS = 30.0

_log = logging.getLogger(__name__)


class Retries:
    """Retries of one operation.

    The delay doubles each time. Logs the first failure, and the next success.
    """

    def __init__(self, what: str, first_seconds: float, last_seconds: float):
        self._what, self._first, self._last = what, first_seconds, last_seconds
        self._failures = 0
        self._next = first_seconds

    def worked(self) -> None:
        """Records a success: the next failure counts as the first."""
        if self._failures:
            _log.info("%s works again after %d failures", self._what, self._failures)
        self._failures, self._next = 0, self._first

    def failed(self, error: Exception, asked_seconds: float | None = None) -> float:
        """Records a failure, and returns the seconds to wait: at least what the server asked for,
        up to half a minute.

        The delay has a random part, so that a thousand drivers do not retry at the same moment.
        """
        self._failures += 1
        _log.log(
            logging.WARNING if self._failures == 1 else logging.DEBUG,
            "%s failed; retrying: %s",
            self._what,
            error,
        )
        seconds, self._next = self._next, min(self._next * 2, self._last)
        return max(
            seconds * random.uniform(0.5, 1.0), min(asked_seconds or 0.0, _MOST_ASKED_SECONDS)
        )
