"""Output formats of commands, and the options of commands that both forms of the program have."""

from enum import StrEnum
from typing import Annotated

import typer


class Output(StrEnum):
    """What a command writes to standard output."""

    TEXT = "text"
    JSON = "json"


SampledOutput = Annotated[
    str | None,
    typer.Option(
        "--of", metavar="OUTPUT", help="Name of the output. Required if there are several."
    ),
]
SampledRows = Annotated[
    int, typer.Option("--rows", min=1, max=1000, help="Maximum number of rows to show.")
]
