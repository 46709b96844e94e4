"""Reads JSON that somebody else wrote: it may be nested as deeply as its size allows, and have as
many values.

Python's own reader takes as many levels as the interpreter does: a thousand by default, always
1,500 in 3.12. This one is pydantic's, and both take the same number of levels everywhere.
"""

import re
from contextlib import suppress
from typing import Any, Final

from pydantic_core import from_json

MOST_LEVELS: Final = 200
"""Of lists and objects within each other. A pod, the deepest of what is read, has 15."""
MOST_VALUES: Final = 30_000
"""Of one field. Three characters of text can cost a hundred bytes of memory."""
CUT: Final = "too large or nested too deeply to be read"
"""What is read in place of a field with more values or levels."""
_SHARED_LEVELS: Final = 4
"""The list of objects, an object, its ``metadata``, ``spec`` or ``status``: only what is within
these is cut, so that an object can be recognized.
"""
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[][{},]')
"""A string that is cut off goes to the end: it is not sought again from each quote within."""


def read_json_text(text: bytes | str) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: it is no JSON, or nested more deeply than :data:`MOST_LEVELS`.
    """
    return from_json(text)


def read_within_bounds(text: bytes) -> Any:
    """The value of a JSON text that contains objects of several people.

    An object that is too large or nested too deeply is cut, so that the others can still be read.

    Raises:
        ValueError: the text is not JSON.
    """
    if _values_of(text) <= MOST_VALUES:
        with suppress(ValueError):
            return from_json(text)
    return from_json(_cut(text))


def within_bounds(text: bytes) -> bytes:
    """The same as text, for a library that reads JSON by itself."""
    if _values_of(text) <= MOST_VALUES:
        with suppress(ValueError):
            from_json(text)
            return text
    return _cut(text)


def is_within(value: object, *, levels: int, values: int) -> bool:
    """Whether a value is complete and small enough.

    It must have no part that was cut, and at most this many levels of lists and mappings, and this
    many values.
    """
    level = number = 0
    here: list[Any] = [value]
    while here:
        number += len(here)
        if number > values or CUT in [each for each in here if isinstance(each, str)]:
            return False
        here = [each for each in here if isinstance(each, dict | list)]
        level += bool(here)
        if level > levels:
            return False
        here = [
            item for each in here for item in (each.values() if isinstance(each, dict) else each)
        ]
    return True


def _values_of(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def _cut(text: bytes) -> bytes:
    """The text with :data:`CUT` in place of each list or object that is too large or too deep."""
    cuts: list[tuple[int, int]] = []
    opened: list[tuple[int, int, int]] = []
    values = 0
    for token in _TOKEN.finditer(text):
        mark = token[0][:1]
        if mark == b",":
            values += 1
        elif mark in b"[{":
            values += 1
            opened.append((token.start(), values, len(cuts)))
        elif mark in b"]}" and opened:
            level = len(opened)
            start, before, first_within = opened.pop()
            too_large = level > _SHARED_LEVELS and values - before > MOST_VALUES
            if too_large or level == MOST_LEVELS + 1:
                cuts[first_within:] = [(start, token.end())]
                values = before
    kept, begin = [], 0
    for start, end in cuts:
        kept += [text[begin:start], b'"%b"' % CUT.encode()]
        begin = end
    return b"".join((*kept, text[begin:]))
