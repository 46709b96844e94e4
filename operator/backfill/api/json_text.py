"""Reads JSON that somebody else wrote, which may be nested as deeply as its size allows.

Python's own reader takes as many levels as the interpreter does: a thousand by default, 1,500 in
3.12 whatever it is asked for. The reader here takes the same number everywhere, and so does
pydantic, whose reader it is.
"""

import re
from contextlib import suppress
from typing import Any, Final

from pydantic_core import from_json

MOST_LEVELS: Final = 200
"""Of lists and objects within each other. A pod, the deepest of what is read, has 15."""
CUT: Final = "nested too deeply to be read"
"""What is read in place of values below :data:`MOST_LEVELS`."""
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[][{}]')
_OPENING = b"[{"


def read_json_text(text: bytes | str) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: it is no JSON, or nested more deeply than :data:`MOST_LEVELS`.
    """
    return from_json(text)


def read_all_but_depths(text: bytes) -> Any:
    """The value of a JSON text that holds objects of several people: what one of them nests too
    deeply does not keep the others from being read.

    Raises:
        ValueError: it is no JSON.
    """
    try:
        return from_json(text)
    except ValueError:
        return from_json(_without_depths(text))


def readable_everywhere(text: bytes) -> bytes:
    """The same as text, for a library that reads JSON by itself."""
    with suppress(ValueError):
        from_json(text)
        return text
    return _without_depths(text)


def levels_of(value: object) -> int:
    """How many lists and mappings are within each other; 0 for a value that is neither."""
    levels, here = 0, [value]
    while here := [each for each in here if isinstance(each, dict | list)]:
        levels += 1
        here = [
            item for each in here for item in (each.values() if isinstance(each, dict) else each)
        ]
    return levels


def _without_depths(text: bytes) -> bytes:
    """The text with :data:`CUT` in place of every list and object that is nested too deeply."""
    kept: list[bytes] = []
    level = begin = 0
    for token in _TOKEN.finditer(text):
        mark = token[0]
        if mark in _OPENING:
            level += 1
            if level == MOST_LEVELS + 1:
                kept.append(text[begin : token.start()])
        elif not mark.startswith(b'"'):
            if level == MOST_LEVELS + 1:
                kept.append(b'"%b"' % CUT.encode())
                begin = token.end()
            level -= 1
    kept.append(text[begin:])
    return b"".join(kept)
