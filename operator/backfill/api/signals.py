"""Signals that ask a process to end: Ctrl-C, or SIGTERM from a supervisor or the kubelet."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def asked_to_end(react: Callable[[], None]) -> Iterator[None]:
    """Calls a function for each SIGINT and SIGTERM while the block runs, in the main thread."""

    def handle(_number: int, _frame: FrameType | None) -> None:
        react()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
