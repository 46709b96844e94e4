"""Finds threads of the application, which may still start a query."""

import sys
from collections.abc import Iterator, Set
from types import FrameType

_NOT_THE_APPLICATION = {"backfill", "py4j", "pyiceberg", "pyspark"}
"""Packages that have their own threads in a driver."""


def application_works(waiting: Set[int]) -> bool:
    """Whether a thread that is not in ``waiting`` runs code
    of the application or of a library that it uses.

    The owner of a thread is that of the first function on its stack outside of Python's standard
    library.
    """
    return any(
        _is_of_application(frame)
        for thread, frame in sys._current_frames().items()
        if thread not in waiting
    )


def _is_of_application(newest: FrameType) -> bool:
    packages = [
        str(frame.f_globals.get("__name__", "")).partition(".")[0] for frame in _stack(newest)
    ]
    first = next(
        (package for package in reversed(packages) if package not in sys.stdlib_module_names), None
    )
    return first is not None and first not in _NOT_THE_APPLICATION


def _stack(newest: FrameType) -> Iterator[FrameType]:
    frame: FrameType | None = newest
    while frame is not None:
        yield frame
        frame = frame.f_back
