"""Types of fields that several parts of the spec share."""

import re
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from backfill.api.workspace_locations import LOCATION_PATTERN

NAME_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
INPUT_NAME_PATTERN = r"^[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?$"
CATALOG_NAME_PATTERN = r"^[A-Za-z0-9]+([-_][A-Za-z0-9]+)*$"
TABLE_NAME_PATTERN = r"^[A-Za-z0-9]+([-_][A-Za-z0-9]+)*(\.[^.\s\x00-\x1f\x7f]+){2,}$"

Name = Annotated[str, Field(max_length=63, pattern=NAME_PATTERN)]
InputName = Annotated[str, Field(max_length=63, pattern=INPUT_NAME_PATTERN)]
MOST_TABLE_NAME = 255
TableName = Annotated[str, Field(max_length=MOST_TABLE_NAME, pattern=TABLE_NAME_PATTERN)]
PlanId = Annotated[str, Field(max_length=128)]
ColumnName = Annotated[str, Field(min_length=1, max_length=255)]
_MAP_VALUE = re.compile(r"""(?P<map>.+)\[(?P<quote>['"])(?P<key>.*)(?P=quote)]""", re.DOTALL)
DirectoryUri = Annotated[str, Field(min_length=1, max_length=1024, pattern=LOCATION_PATTERN)]

_NOT_IN_NAME = re.compile(r"[^-_.A-Za-z0-9]+")


def as_input_name(text: str) -> str:
    """A text as the name of a source or output: what that cannot have becomes ``-``. Empty if
    nothing is left.
    """
    return _NOT_IN_NAME.sub("-", text).strip("-_.")[:63].rstrip("-_.")


class TimestampUnit(StrEnum):
    """Unit of a ``long`` timestamp column."""

    SECONDS = "s"
    MILLISECONDS = "ms"
    MICROSECONDS = "us"
    NANOSECONDS = "ns"


def map_and_key(column: str) -> tuple[str, str] | None:
    """The map and the key of a column that is written as ``map['key']``, as in Spark SQL; None for
    another column.
    """
    found = _MAP_VALUE.fullmatch(column)
    return None if found is None else (found["map"], found["key"])


def bare(name: str) -> str:
    """A name without regard to case and punctuation, to find those that come near."""
    return "".join(filter(str.isalnum, name)).lower()
