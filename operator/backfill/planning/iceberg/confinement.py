"""Closes PyIceberg's ways to files for a process that works for others: in its own classes, since it makes them in several
places and by several names."""

from functools import cache
from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

from backfill.planning.iceberg.properties import store_problems
from backfill.planning.reach import require_location


@cache
def confine_file_io() -> None:
    """Has PyIceberg open no location that :mod:`backfill.planning.reach` refuses, and none with properties that would give
    away what is this process's own."""
    begin, parse, find = FileIO.__init__, PyArrowFileIO.parse_location, FsspecFileIO._get_fs_from_uri

    def checked_begin(self: FileIO, properties: dict[str, Any]) -> None:
        for wrong in store_problems(properties):
            raise ValueError(f"property {wrong.name} {wrong.why}")
        begin(self, properties)

    def checked_parse(location: str, properties: dict[str, Any] | None = None) -> tuple[str, str, str]:
        scheme, netloc, path = parse(location)
        require_location(scheme, path)
        return scheme, netloc, path

    def checked_find(self: FsspecFileIO, uri: Any, location: str = "") -> Any:
        scheme = uri.scheme or "file"
        require_location(scheme, location.removeprefix("file:").removeprefix("//"))
        return find(self, uri, location)

    FileIO.__init__ = checked_begin  # type: ignore[method-assign,assignment]
    PyArrowFileIO.parse_location = staticmethod(checked_parse)  # type: ignore[method-assign]
    FsspecFileIO._get_fs_from_uri = checked_find  # type: ignore[method-assign]
