"""Which workspace locations are accepted: those that every library reads in the same way.

A URI is read by the controller, by PyArrow, by Hadoop and by the object store. Anything that one of
them drops or decodes (a query, a fragment, an escape, ``..``, a look-alike of a separator) could
make them read different locations, and the one that is removed in the end could be another team's.
"""

import re
from typing import Final

_SEGMENT: Final = r"\.*[A-Za-z0-9_=+@,~-][A-Za-z0-9_=+@,~.-]*"
"""A name in a path. It does not consist of dots only."""
_BUCKET: Final = r"[A-Za-z0-9][A-Za-z0-9._-]*(:[0-9]{1,5})?"
_CONTAINER: Final = r"[A-Za-z0-9$][A-Za-z0-9-]*@"
"""Azure's container, in the place of user and password in other URIs."""
_STORE: Final = rf"((s3[an]?|oss|gcs|gs|hdfs|viewfs)://|(abfss?|wasbs?)://({_CONTAINER})?){_BUCKET}(/{_SEGMENT})*"
LOCATION_PATTERN: Final = rf"^({_STORE}|(file://)?(/{_SEGMENT})+|(\./)?{_SEGMENT}(/{_SEGMENT})*)/?$"
"""Locations that a Backfill or an operator may use."""
LOCATION_FORM: Final = (
    "use s3://bucket/path (or gs, abfss, hdfs …) or a file path, with only ASCII letters, digits"
    " and _ = + @ , ~ . - (no .., spaces, ?, # or %)"
)
"""The pattern in words."""
_STORES: Final = re.compile(f"{_STORE}/?")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_ALIASES: Final = {
    **{"s3a://": "s3://", "s3n://": "s3://", "gcs://": "gs://"},
    **{"abfs://": "abfss://", "wasb://": "wasbs://", "file:///": "/"},
}


def is_local(location: str) -> bool:
    """Whether a location is on a disk or a volume."""
    return location.startswith("file:") or _SCHEME.match(location) is None


def is_relative(location: str) -> bool:
    """Whether it depends on the working directory where a location is."""
    return _SCHEME.match(location) is None and not location.startswith("/")


def is_plain(location: str) -> bool:
    """Whether no part of a location has a special meaning.

    On a disk, any name is allowed that does not lead elsewhere.
    """
    if not is_local(location):
        return _STORES.fullmatch(location) is not None
    if location.startswith("file://") and not location.startswith("file:///"):
        return False  # a host
    return ".." not in location.split("/") and location.isprintable()


def is_below(location: str, prefix: str) -> bool:
    """Whether one location is within the directory of the other."""
    return f"{_plain(location)}/".startswith(f"{_plain(prefix)}/")


def _plain(location: str) -> str:
    """A location with the same spelling for all spellings of a scheme."""
    for alias, plain in _ALIASES.items():
        if location.startswith(alias):
            location = plain + location[len(alias) :]
            break
    return location.rstrip("/")
