"""Values of a manifest with comments."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

TODO: Final = "TODO: "
"""Begins a comment that a person has to settle."""


@dataclass(frozen=True, slots=True)
class Commented:
    """A value with comments above it."""

    value: Any
    comments: tuple[str, ...]


def plain(value: Any) -> Any:
    """The value without comments."""
    match value:
        case Commented():
            return plain(value.value)
        case dict():
            return {key: plain(each) for key, each in value.items()}
        case list():
            return [plain(each) for each in value]
    return value


def comments(value: Any, place: str = "spec") -> Iterator[tuple[str, str]]:
    """All comments, each with the field that it is about, as kubectl writes it."""
    match value:
        case Commented():
            yield from ((place, each) for each in value.comments)
            yield from comments(value.value, place)
        case dict():
            for key, each in value.items():
                yield from comments(each, f"{place}.{key}")
        case list():
            for number, each in enumerate(value):
                yield from comments(each, f"{place}[{number}]")
