"""JSON, compressed, in ConfigMaps. Whoever may edit them may put anything there, so it is bounded
before it is read.

A kilobyte of compressed text can stand for a megabyte, and three characters of JSON for hundreds of
bytes of objects.
"""

import gzip
import json
import zlib
from typing import Final

MOST_TEXT: Final = 16 * 2**20
"""Characters of a document. The header of a large plan has two million."""
_MOST_VALUES: Final = 2_000_000
"""Values in a document: a list of numbers costs 40 bytes for each."""
_MOST_COLLECTIONS: Final = 20_000
"""Lists and mappings in a document: each costs hundreds of bytes, even if it is empty."""
_MOST_NAMES: Final = 50_000
"""Names in mappings: what is wrong with one that is not known costs a kilobyte to note."""
_GZIP: Final = 16 + zlib.MAX_WBITS


def packed(manifest: object) -> bytes:
    """JSON, compressed; the same content gives the same bytes."""
    return compressed(json.dumps(manifest, separators=(",", ":")).encode())


def compressed(text: bytes) -> bytes:
    """The same for what is JSON already."""
    return gzip.compress(text, mtime=0)


def unpacked(content: bytes, most_text: int = MOST_TEXT) -> bytes:
    """The JSON, which has not been parsed yet. Takes little more memory than ``most_text``,
    whatever the content is.

    Raises:
        ValueError: it is not compressed, or too much to be parsed.
    """
    stream = zlib.decompressobj(_GZIP)
    try:
        text = stream.decompress(content, most_text + 1)
    except zlib.error as error:
        raise ValueError(f"it is not compressed: {error}") from None
    if len(text) > most_text:
        raise ValueError(f"it has more than {most_text:,} characters")
    if not stream.eof or stream.unused_data:
        raise ValueError("it is cut off, or something follows it")
    collections = text.count(b"[") + text.count(b"{")
    if (
        text.count(b",") > _MOST_VALUES
        or collections > _MOST_COLLECTIONS
        or text.count(b":") > _MOST_NAMES
    ):
        most = (
            f"{_MOST_VALUES:,} values, {_MOST_COLLECTIONS:,} lists and mappings or {_MOST_NAMES:,}"
            " names"
        )
        raise ValueError(f"it has more than {most}")
    return text
