"""SIGTERM and SIGINT end a driver as a suspension does: what is released is committed first."""

import logging
import os
import signal
import threading
from types import FrameType

_PATIENCE_SECONDS = 60.0

_log = logging.getLogger(__name__)


class GracefulSignals:
    """The first signal sets ``stopping``; a second one, or a minute, ends the process at once."""

    def __init__(self, stopping: threading.Event):
        self._stopping = stopping
        self._deadline: threading.Timer | None = None

    def install(self) -> None:
        """Takes both signals. PySpark takes SIGINT when a context starts, so this is called again
        after that.
        """
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._handle)
            signal.signal(signal.SIGINT, self._handle)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self._deadline is not None:
            os._exit(128 + number)
        _log.warning("signal %s: stopping after what is released", number)
        self._stopping.set()
        self._deadline = threading.Timer(_PATIENCE_SECONDS, os._exit, (128 + number,))
        self._deadline.daemon = True
        self._deadline.start()
