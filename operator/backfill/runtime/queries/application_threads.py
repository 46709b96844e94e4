"""Finds threads of the application, which may still start a query."""

import sys
from collections.abc import Iterator, Set
from types import FrameType

_NOT_THE_APPLICATION = {"backfill", "py4j", "pyiceberg", "pyspark"}
"""Packages that have their own threads in a driver."""
_AROUND_TASKS = "backfill.runtime.switching.side_effects"
"""Module that calls what the application gives to its threads."""


def application_works(waiting: Set[int]) -> bool:
    """Whether a thread that is not in ``waiting`` runs code
    of the application or of a library that it uses.

    The owner of a thread is that of the first function on its stack outside of Python's standard
    library, and of what is put around it.
    """
    return any(
        _is_of_application(frame)
        for thread, frame in sys._current_frames().items()
        if thread not in waiting
    )


def _is_of_application(newest: FrameType) -> bool:
    frames = list(_stack(newest))
    if not all(isinstance(frame, FrameType) for frame in frames):
        return True  # a thread whose stack changes while Python 3.11 walks it is at work
    modules = [str(frame.f_globals.get("__name__", "")) for frame in frames]
    packages = [module.partition(".")[0] for module in modules if module != _AROUND_TASKS]
    first = next(
        (package for package in reversed(packages) if package not in sys.stdlib_module_names), None
    )
    return first is not None and first not in _NOT_THE_APPLICATION


def _stack(newest: FrameType) -> Iterator[FrameType]:
    frame: FrameType | None = newest
    while frame is not None:
        yield frame
        frame = getattr(frame, "f_back", None)
