"""Why a query failed, in as few words as Spark's errors allow."""

import re

_QUERY_PLAN = "\n=== Streaming Query ==="
_STACK = "Traceback (most recent call last):\n"
_STATE = re.compile(r"\n\s*SQLSTATE: ")


def cause_of(error: Exception) -> str:
    """What an error of Spark says, without the pages of query plan that follow it.

    Where Python code raised it, in a function of the application or in a source, it is what that raised, without the stack.
    """
    told = str(error).partition(_QUERY_PLAN)[0]
    _, python, stack = told.rpartition(_STACK)
    if not python:
        return told
    lines = _STATE.split(stack)[0].splitlines()
    raised = next((number for number, line in enumerate(lines) if line and not line.startswith(" ")), len(lines))
    return "\n".join(lines[raised:]) or told
