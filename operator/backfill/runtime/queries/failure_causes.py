"""Why a query failed, as short as Spark's errors allow."""

import re

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


def cause_of(error: BaseException) -> str:
    """The message of a Spark error, without the pages of query plan that follow it.

    If Python code of the application or a source raised it, this is the message of that error,
    without its stack trace.
    """
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


def started_too_slowly(cause: str) -> bool:
    """Whether a Python process of a query took longer to start than Spark waits: ten seconds for
    that of a source, which no property changes. A busy machine may need longer.
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
