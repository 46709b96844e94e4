"""Says where in a manifest file the field of a problem is, as compilers do."""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import yaml

from backfill.api.backfill import KIND
from backfill.api.manifests.documents import composed, position_of

_FIELD = re.compile(
    r"(?:(?P<kind>SparkApplication)(?:/(?P<name>\S+):)? )?"
    r"(?P<path>(?:spec|metadata|kind|apiVersion)(?:\.[\w-]+|\[[^\]]+\])*)(?=[:,])"
)
_PART = re.compile(r"(?<=\[)[^\]]+|[^.\[\]]+")


def positions_in(file: Path | None) -> Callable[[str], str]:
    """Puts file, line and column before a problem that begins with the path of a field.

    Without such a file, and if the field is not found, the problem stays as it is.
    """

    @cache
    def documents() -> list[yaml.Node]:
        try:
            return composed(file.read_text(encoding="utf-8")) if file is not None else []
        except (OSError, UnicodeDecodeError):
            return []

    def located(problem: str) -> str:
        found = _FIELD.match(problem)
        if found is None:
            return problem
        path = _PART.findall(found["path"])
        position = position_of(documents(), found["kind"] or KIND, found["name"] or "", path)
        return f"{file}:{position}: {problem}" if position else problem

    return located
