"""Shell completion of ``kubectl backfill``: kubectl runs
a program ``kubectl_complete-backfill`` on the path.
"""

import os
import shlex
import sys

import typer
from typer.main import get_install_completion_arguments

from backfill.cli.command_lines import CLUSTER, application

_VARIABLE = "_KUBECTL_BACKFILL_COMPLETE"
_NO_FILES = 4
"""Cobra's directive not to complete file names."""


def main() -> None:
    """Prints completions of the last argument and the directive, in Cobra's format."""
    words = ["kubectl-backfill", *sys.argv[1:]]
    os.environ |= {
        _VARIABLE: "complete_bash",
        "COMP_WORDS": shlex.join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    get_install_completion_arguments()  # makes the shells known that are asked for by that variable
    try:
        application(CLUSTER)(prog_name="kubectl backfill", complete_var=_VARIABLE)
    finally:
        typer.echo(f":{_NO_FILES}")
