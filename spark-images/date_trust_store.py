"""Gives all certificates of Java's trust store one date, so that an image of the same packages has
the same bytes.

Debian makes the store when Java is installed, in the format JKS, which notes the moment of that for
each certificate.
"""

import hashlib
import struct
import sys
from pathlib import Path

PASSWORD = "changeit"
"""Everybody's: it guards against accidents only."""
SALT = b"Mighty Aphrodite"
CERTIFICATE = 2

file = Path(sys.argv[1])
store = bytearray(file.read_bytes()[: -hashlib.sha1().digest_size])
magic, version, count = struct.unpack_from(">III", store)
assert (magic, version) == (0xFEEDFEED, 2), "this is no JKS"
at = 12
for _ in range(count):
    kind, name = struct.unpack_from(">IH", store, at)
    assert kind == CERTIFICATE, "a trust store has certificates only"
    at += 6 + name
    struct.pack_into(">Q", store, at, 0)
    (format_name,) = struct.unpack_from(">H", store, at + 8)
    at += 10 + format_name
    (size,) = struct.unpack_from(">I", store, at)
    at += 4 + size
assert at == len(store)
file.write_bytes(store + hashlib.sha1(PASSWORD.encode("utf-16-be") + SALT + store).digest())
