"""Exit statuses of commands."""

from collections.abc import Callable
from typing import Final

import typer

from backfill.api.errors import BadInput, grouped

SUCCEEDED: Final = 0
FAILED: Final = 1
BAD_INPUT: Final = 2
WAITS: Final = 3
"""It waits for a person: it is suspended, was interrupted, or needs approval."""


def refused(error: BadInput, located: Callable[[str], str] = str) -> int:
    """Lists the problems of the input on standard error, and returns the exit status: that of a
    failure if they are only that a server is unavailable for a moment.

    ``located`` adds to a problem where its field is.
    """
    for problem in grouped(error.problems):
        typer.echo(f"error: {located(problem)}", err=True)
    return FAILED if error.unavailable else BAD_INPUT
