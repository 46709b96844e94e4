"""Compressed JSON in ConfigMaps. Anyone with permission to edit these can put anything into them,
so the size is limited before the content is read.

A kilobyte of compressed text can expand to a megabyte, and three characters of JSON to hundreds of
bytes of objects.
"""

import gzip
import json
import threading
import zlib
from collections.abc import Callable
from typing import Final, TypeVar

MOST_TEXT: Final = 8 * 2**20
"""Most characters of a document. The header of a large plan has two million."""
MOST_VALUES: Final = 500_000
"""Most values in a document. The header of a large plan has 200,000, and while it is read each
takes a hundred bytes.
"""
_MOST_LETTERS: Final = 2 * 2**20
"""Most characters outside of numbers, which are kept as text."""
_MOST_COLLECTIONS: Final = 20_000
"""Most lists and mappings in a document. Each takes hundreds of bytes, even if it is empty."""
_MOST_NAMES: Final = 50_000
"""Most names in mappings. Reporting an unknown one takes a kilobyte."""
_GZIP: Final = 16 + zlib.MAX_WBITS
_OF_NUMBERS: Final = b"0123456789-,[]{} "
_one_at_a_time = threading.Lock()
_Read = TypeVar("_Read")


def packed(manifest: object) -> bytes:
    """A value as compressed JSON. The same value gives the same bytes."""
    return compressed(json.dumps(manifest, separators=(",", ":")).encode())


def compressed(text: bytes) -> bytes:
    """Compresses JSON."""
    return gzip.compress(text, mtime=0)


def read_packed(
    content: bytes, read: Callable[[bytes], _Read], most_text: int = MOST_TEXT
) -> _Read:
    """What a function reads from decompressed JSON. One document is read at a time, or the memory
    that each takes for a moment would add up.

    Raises:
        ValueError: as :func:`unpacked`, and what the function raises.
    """
    with _one_at_a_time:
        return read(unpacked(content, most_text))


def is_readable(content: bytes) -> bool:
    """Whether compressed JSON is within the limits of what is read."""
    try:
        unpacked(content)
    except ValueError:
        return False
    return True


def unpacked(content: bytes, most_text: int = MOST_TEXT) -> bytes:
    """The decompressed JSON, not parsed yet.

    Takes little more memory than ``most_text``, whatever the content is.

    Raises:
        ValueError: the content is not compressed, or has too much to be parsed.
    """
    stream = zlib.decompressobj(_GZIP)
    try:
        text = stream.decompress(content, most_text + 1)
    except zlib.error as error:
        raise ValueError(f"it is not compressed: {error}") from None
    if len(text) > most_text:
        raise ValueError(f"it has more than {most_text:,} characters")
    if not stream.eof or stream.unused_data:
        raise ValueError("it is truncated or followed by other data")
    collections = text.count(b"[") + text.count(b"{")
    limits = (
        (text.count(b","), MOST_VALUES, "values"),
        (collections, _MOST_COLLECTIONS, "lists and mappings"),
        (text.count(b":"), _MOST_NAMES, "names"),
        (len(text.translate(None, _OF_NUMBERS)), _MOST_LETTERS, "characters of text"),
    )
    for number, most, what in limits:
        if number > most:
            raise ValueError(f"it has more than {most:,} {what}")
    return text
