"""Why a query failed, in as few words as Spark's errors allow."""

import re

from backfill.api.errors import InvalidPlanInput

_QUERY_PLAN = "\n=== Streaming Query ==="
_STACK = "Traceback (most recent call last):\n"
_BAD_INPUT = f"{InvalidPlanInput.__module__}.{InvalidPlanInput.__name__}: "
_STATE = re.compile(r"\n\s*SQLSTATE: ")
_JAVA_CALL = re.compile(r"An error occurred while calling \S+\n: ")
_JAVA_FRAME = re.compile(r"\n\s+(at .*|\.\.\. \d+ more)")


def cause_of(error: BaseException) -> str:
    """What an error of Spark says, without the pages of query plan that follow it.

    Where Python code raised it, in a function of the application or in a source, it is what that raised, without the stack.
    """
    told = _JAVA_CALL.sub("", _JAVA_FRAME.sub("", str(error).partition(_QUERY_PLAN)[0]), count=1).rstrip("\n")
    _, python, stack = told.rpartition(_STACK)
    if not python:
        return told
    lines = _STATE.split(stack)[0].splitlines()
    raised = next((number for number, line in enumerate(lines) if line and not line.startswith(" ")), len(lines))
    return "\n".join(lines[raised:]) or told


def bad_input_of(cause: str) -> str | None:
    """What is wrong with the tables, if a source gave up because of them; only text comes back from where it ran."""
    return cause.removeprefix(_BAD_INPUT) if cause.startswith(_BAD_INPUT) else None
