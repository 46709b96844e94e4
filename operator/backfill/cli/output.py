"""Output formats of commands."""

from enum import StrEnum


class Output(StrEnum):
    """What a command writes to standard output."""

    TEXT = "text"
    JSON = "json"
