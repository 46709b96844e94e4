"""Compressed JSON in ConfigMaps. Anyone with permission to edit these can put anything into them,
so the size is limited before the content is read.

A kilobyte of compressed text can expand to a megabyte, and three characters of JSON to hundreds of
bytes of objects.
"""

import gzip
import json
import zlib
from typing import Final

MOST_TEXT: Final = 16 * 2**20
"""Most characters of a document. The header of a large plan has two million."""
_MOST_VALUES: Final = 2_000_000
"""Most values in a document. In a list, a number takes 40 bytes."""
_MOST_COLLECTIONS: Final = 20_000
"""Most lists and mappings in a document. Each takes hundreds of bytes, even if it is empty."""
_MOST_NAMES: Final = 50_000
"""Most names in mappings. Reporting an unknown one takes a kilobyte."""
_GZIP: Final = 16 + zlib.MAX_WBITS


def packed(manifest: object) -> bytes:
    """A value as compressed JSON. The same value gives the same bytes."""
    return compressed(json.dumps(manifest, separators=(",", ":")).encode())


def compressed(text: bytes) -> bytes:
    """Compresses JSON."""
    return gzip.compress(text, mtime=0)


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
    if (
        text.count(b",") > _MOST_VALUES
        or collections > _MOST_COLLECTIONS
        or text.count(b":") > _MOST_NAMES
    ):
        most = (
            f"{_MOST_VALUES:,} values, {_MOST_COLLECTIONS:,} lists and"
            f" mappings or {_MOST_NAMES:,} names"
        )
        raise ValueError(f"it has more than {most}")
    return text
