"""Why a query or a program failed, as short as Spark's errors allow."""

import builtins
import decimal
import re
import traceback
from collections.abc import Iterator
from pathlib import Path

import py4j
import pyspark
from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, IllegalArgumentException, ParseException
from pyspark.errors.exceptions import base

import backfill
from backfill.api.conditions import Reason
from backfill.api.errors import InvalidPlanInput, ResultLost, first_line

_QUERY_PLAN = re.compile(r"\n=== Streaming Query ===.*|(?<=SQLSTATE: \w{5});\n.*", re.DOTALL)
_STACK = "Traceback (most recent call last):\n"
_LASTING = {
    f"{kind.__module__}.{kind.__name__}: ": reason
    for kind, reason in ((InvalidPlanInput, Reason.INVALID_INPUT), (ResultLost, Reason.RESULT_LOST))
}
_STATE = re.compile(r"\n\s*SQLSTATE: ")
_SLOW_START = "Python worker failed to connect back"
_SPARK_STOPPED = re.compile(r"SparkContext (has been|was) shut ?down|stopped SparkContext")
_JAVA_CALL = re.compile(r"An error occurred while calling \S+\n: ")
_JAVA_FRAME = re.compile(r"\n\s+(at .*|\.\.\. \d+ more)")

_LASTING_KINDS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    FileNotFoundError,
    ImportError,
    LookupError,
    NameError,
    NotImplementedError,
    SyntaxError,
    TypeError,
    ValueError,
)
_MODULES_OF_KINDS = {"": builtins, "decimal": decimal, base.__name__: base}
"""Modules whose errors may be of these kinds, by their names in a traceback."""
_KNOWN_MODULES = ("builtins", "pyspark.errors.exceptions.base")
"""Modules of these errors. Libraries derive others from them, such as one for invalid JSON, which
may be the answer of a server that is overloaded.
"""
_BECAUSE_OF_ANOTHER = (
    "During handling of the above exception",
    "direct cause of the following exception",
)
_FROM_ANOTHER = re.compile(r"^\s+raise .* from (?!None\b)", re.MULTILINE)
"""The line of a program that says so. PySpark leaves out the other error."""
_DATA_EXCEPTION = re.compile(r"SQLSTATE: 22\w{3}")
_FRAME = re.compile(r' *File "(?P<file>[^"]+)", line \d+, in .*\n(?:    .*\n)?')
_AROUND_PROGRAM = re.compile(r"(?:^|/)(?:pyspark|py4j|backfill)/|^<frozen ")
_LASTING_KINDS_OF_SPARK = (AnalysisException, IllegalArgumentException, ParseException)
_LASTING_KINDS_OF_JAVA = re.compile(
    r"java\.lang\.(ClassNotFoundException|IllegalArgumentException|(NoClassDefFound|NoSuchMethod)Error)"
    r"|org\.apache\.spark\.(sql\..*(Analysis|Parse|NotFound|NoSuch|AlreadyExists)\w*Exception"
    r"|Spark(ClassNotFound|IllegalArgument|NoSuchElement)Exception)"
)
_AROUND_OTHERS_IN_JAVA = re.compile(
    r"java\.lang\.(RuntimeException|reflect\.\w+)|org\.apache\.spark\.SparkException"
)
"""Errors that may only say where another one occurred."""
_NOT_THE_PROGRAM = tuple(str(Path(each.__path__[0])) for each in (backfill, py4j, pyspark))
_DATABRICKS = {"databricks", "databricks.connect"}
"""Modules of Databricks Connect, which cannot be installed beside PySpark."""
_FRAMES = 4
"""Number of calls that are shown of a program's stack."""


def cause_of(error: BaseException) -> str:
    """The message of a Spark error, without the pages of query plan that follow it.

    If Python code of the application or a source raised it, this is the message of that error,
    without its stack trace.
    """
    if isinstance(error, ImportError) and error.name in _DATABRICKS:
        return (
            f"{error}; databricks-connect cannot be installed beside PySpark: where it is missing,"
            " get the session from SparkSession.builder of pyspark.sql"
        )
    text = _JAVA_CALL.sub("", _JAVA_FRAME.sub("", _QUERY_PLAN.sub("", str(error))), count=1).rstrip(
        "\n"
    )
    _, python, stack = text.rpartition(_STACK)
    if not python:
        return _with_root(text, error)
    lines = _STATE.split(stack)[0].splitlines()
    raised = next(
        (number for number, line in enumerate(lines) if line and not line.startswith(" ")),
        len(lines),
    )
    return "\n".join(lines[raised:]) or text


def _with_root(text: str, error: BaseException) -> str:
    """Adds the root cause, which Spark's message may lack, such as a full disk."""
    root: Exception | None = None
    while isinstance(below := getattr(root or error, "_cause", None), Exception):
        root = below
    if root is None or (root_line := first_line(root)) in text:
        return text
    return f"{text}\nCaused by: {root_line}"


def is_lasting(error: BaseException) -> bool:
    """Whether an error that a program raised comes from the program or its settings, so that the
    next attempt would raise it as well.

    All errors behind it must be of kinds that do: an error of a connection may pass, and it is
    unknown what those of other libraries mean.
    """
    of_java = [kind for each in _chain(error) for kind in _kinds_of_java(each)]
    of_python = [each for each in _chain(error) if not _java(each) and not _is_of_spark(each)]
    if not all(type(each).__module__ in _KNOWN_MODULES for each in of_python):
        return False
    known = [kind for kind in of_java if not _AROUND_OTHERS_IN_JAVA.fullmatch(kind)]
    return (
        bool(known or of_python or any(map(_is_of_spark, _chain(error))))
        and all(map(_LASTING_KINDS_OF_JAVA.fullmatch, known))
        and all(isinstance(each, _LASTING_KINDS) for each in of_python)
    )


def fails_on_rows(error: BaseException) -> bool:
    """Whether a query's error comes from its program or the rows, as far as its text shows: it was
    raised by Python code and is of a kind that no server causes, or is a data exception of SQL.

    An error that was raised because of another one may have any cause.
    """
    text = str(error)
    if any(words in text for words in _BECAUSE_OF_ANOTHER) or _FROM_ANOTHER.search(text):
        return False
    if _DATA_EXCEPTION.search(text) is not None:
        return True
    if _STACK not in text:
        return False
    module, _, name = cause_of(error).partition(":")[0].rpartition(".")
    kind = getattr(_MODULES_OF_KINDS.get(module), name.strip(), None)
    return isinstance(kind, type) and issubclass(kind, _LASTING_KINDS)


def lines_of_text(error: BaseException) -> list[str]:
    """The last calls of the program in the text of an error that a Python process raised for it,
    without those of the libraries around it.
    """
    frames = [
        frame
        for frame in _FRAME.finditer(str(error).rpartition(_STACK)[2])
        if not _AROUND_PROGRAM.search(frame["file"])
    ]
    return "".join(frame[0] for frame in frames[-_FRAMES:]).splitlines()


def _is_of_spark(error: BaseException) -> bool:
    return isinstance(error, _LASTING_KINDS_OF_SPARK)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and those behind it."""
    while error is not None:
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _java(error: BaseException) -> JavaObject | None:
    """The error in Java that an error is made of."""
    return getattr(error, "java_exception", None) or getattr(error, "_origin", None)


def _kinds_of_java(error: BaseException) -> list[str]:
    kinds, java = [], _java(error)
    try:
        while java is not None:
            kinds.append(str(java.getClass().getName()))
            java = java.getCause()
    except Py4JError as ended:  # nothing can be asked of a Java that is gone
        kinds.append(type(ended).__name__)
    return kinds


def lines_of_program(error: BaseException) -> list[str]:
    """The last calls of a program before an error, as in a traceback, without those of libraries
    that it did not choose.
    """
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((*_NOT_THE_PROGRAM, "<frozen "))
    ]
    return "".join(traceback.format_list(frames[-_FRAMES:])).splitlines()


def started_too_slowly(cause: str) -> bool:
    """Whether a Python process of a query took longer to start than Spark waits: ten seconds where
    the driver starts one, as for ``transformWithState``, or tasks do without a daemon, which no
    property changes. A busy machine may need longer.
    """
    return _SLOW_START in cause


def spark_was_stopped(cause: str) -> bool:
    """Whether a query failed because Spark's JVM was asked to end, as it is if a pod is deleted: it
    may still report the end of its queries before it is killed.
    """
    return _SPARK_STOPPED.search(cause) is not None


def lasting_cause(cause: str) -> tuple[Reason, str] | None:
    """The reason and message if another attempt would fail in the same way, because a source or
    sink has found the tables unsuitable. None if another attempt may succeed.

    Only the text of an error arrives from where they run.
    """
    found = (
        (reason, cause.removeprefix(kind))
        for kind, reason in _LASTING.items()
        if cause.startswith(kind)
    )
    return next(found, None)
