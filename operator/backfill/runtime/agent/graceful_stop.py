"""Ends a driver on SIGTERM and SIGINT like a suspension: released steps are committed first."""

import logging
import os
import signal
import threading
from types import FrameType

_PATIENCE_SECONDS = 60.0

_log = logging.getLogger(__name__)


class GracefulSignals:
    """The first signal sets ``stopping``.

    After a second one, or after a minute, the process ends at once.
    """

    def __init__(self, stopping: threading.Event):
        self._stopping = stopping
        self._deadline: threading.Timer | None = None

    def install(self) -> None:
        """Installs the handlers. Call it again after a SparkContext was started, since PySpark
        replaces that of SIGINT.
        """
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._handle)
            signal.signal(signal.SIGINT, self._handle)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self._deadline is not None:
            os._exit(128 + number)
        _log.warning("signal %s: stopping after the released steps", number)
        self._stopping.set()
        self._deadline = threading.Timer(_PATIENCE_SECONDS, os._exit, (128 + number,))
        self._deadline.daemon = True
        self._deadline.start()
