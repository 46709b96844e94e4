"""Where the application's program does something: for messages."""

import sys
import sysconfig
from functools import lru_cache
from pathlib import Path
from types import FrameType

import pyspark

import backfill

_LIBRARIES = tuple(
    f"{Path(directory).resolve()}/"
    for directory in {
        *map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")),
        str(Path(pyspark.__file__).parents[1]),
        str(Path(backfill.__file__).parent),
    }
)


def program_line() -> str:
    """The line of the program that runs now in this thread, in parentheses and after a space; empty
    if there is none.
    """
    _, frame = _program_frame()
    return "" if frame is None else f" ({_file(frame)}, line {frame.f_lineno})"


def library_call() -> str:
    """The function of a library that this line calls, in words that begin with a space; empty if it
    calls none.
    """
    called, frame = _program_frame()
    if frame is None or called is None:
        return ""
    package = str(called.f_globals.get("__name__", "")).partition(".")[0]
    if package in {"backfill", "py4j", "pyspark"}:
        return ""
    return f" by {package} ({called.f_code.co_qualname})"


def _program_frame() -> tuple[FrameType | None, FrameType | None]:
    """The innermost frame of the program's own code, after the one that it has called: of code
    beside its main file, since libraries may come with the program, else of any but a library.
    """
    for is_own in (is_beside_main_file, is_of_the_program):
        called: FrameType | None = None
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and not is_own(frame.f_code.co_filename):
            called, frame = frame, frame.f_back
        if frame is not None:
            return called, frame
    return None, None


def is_beside_main_file(file: str) -> bool:
    """Whether a file of code belongs to the program, and is in the directory of its main file."""
    # in this order: links are followed for few files, not for those of all libraries
    return file.startswith(_resolved(sys.path[0])) and is_of_the_program(file)


@lru_cache(maxsize=1)
def _resolved(directory: str) -> str:
    return f"{Path(directory).resolve()}/"


def is_of_the_program(file: str) -> bool:
    """Whether a file of code belongs to no library."""
    return not file.startswith("<") and not str(Path(file).resolve()).startswith(_LIBRARIES)


def _file(frame: FrameType) -> str:
    """A file as the program knows it: below the directory of its main file, or by its name."""
    file = Path(frame.f_code.co_filename).resolve()
    directory = Path(sys.path[0]).resolve()
    return str(file.relative_to(directory)) if file.is_relative_to(directory) else file.name
