"""The forms in which a command answers."""

from enum import StrEnum


class Output(StrEnum):
    """What standard output is for."""

    TEXT = "text"
    JSON = "json"
