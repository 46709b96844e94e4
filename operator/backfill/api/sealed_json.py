"""JSON files with a digest of their content, so that damage is noticed when they are read.

A damaged file may still be well formed: a flipped bit turns one digit or name into another.
"""

import hashlib

_START, _MIDDLE, _END = b'{"sha256":"', b'","content":', b"}"
_DIGITS = 64


def sealed(content: bytes) -> bytes:
    """JSON as a JSON object with its digest."""
    return b"".join((_START, sha256(content).encode(), _MIDDLE, content, _END))


def unsealed(stored: bytes) -> bytes:
    """The JSON in what :func:`sealed` has returned.

    Raises:
        ValueError: it differs from what was sealed.
    """
    begin = len(_START) + _DIGITS + len(_MIDDLE)
    content = stored[begin : -len(_END)]
    if stored != sealed(content):
        raise ValueError("its content differs from what was written")
    return content


def sha256(content: bytes) -> str:
    """Digest of a file: 64 hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()
