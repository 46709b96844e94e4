"""Restricts PyIceberg's access to files in a process that works for others. It changes PyIceberg's
own classes, which are used in several places and under several names.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

from backfill.iceberg.allowed_local_files import OutOfReach, require_location
from backfill.iceberg.connection_checks import require_server
from backfill.iceberg.required_credentials import OWN, S3_SCHEMES, needed_for_files
from backfill.iceberg.store_relay import relay_uri
from backfill.iceberg.untrusted_properties import named_servers, store_problems


@cache
def confine_file_io() -> None:
    """Makes PyIceberg refuse locations that :mod:`backfill.iceberg.allowed_local_files` refuses,
    and properties that would give away this process's identity.
    """
    begin, parse, find = (
        FileIO.__init__,
        PyArrowFileIO.parse_location,
        FsspecFileIO._get_fs_from_uri,
    )
    open_arrow, open_fsspec = PyArrowFileIO._initialize_fs, FsspecFileIO._get_fs

    def checked_begin(self: FileIO, properties: dict[str, Any]) -> None:
        for wrong in store_problems(properties):
            raise OutOfReach(f"property {wrong.name} {wrong.why}")
        begin(self, properties)

    def checked_parse(
        location: str, properties: dict[str, Any] | None = None
    ) -> tuple[str, str, str]:
        scheme, netloc, path = parse(location)
        require_location(scheme, path)
        return scheme, netloc, path

    def checked_find(self: FsspecFileIO, uri: Any, location: str = "") -> Any:
        scheme = uri.scheme or "file"
        require_location(scheme, location.removeprefix("file:").removeprefix("//"))
        return find(self, uri, location)

    def checked_arrow(self: PyArrowFileIO, scheme: str, netloc: str | None = None) -> Any:
        _require_login(scheme, self.properties, arrow=True)
        _require_servers(self.properties)
        if scheme in S3_SCHEMES and OWN not in self.properties:
            self.properties = {**self.properties, "s3.proxy-uri": relay_uri()}
        return open_arrow(self, scheme, netloc)

    def checked_fsspec(self: FsspecFileIO, scheme: str, hostname: str | None = None) -> Any:
        _require_login(scheme, self.properties, arrow=False)
        _require_servers(self.properties)
        return open_fsspec(self, scheme, hostname)

    FileIO.__init__ = checked_begin  # type: ignore[method-assign,assignment]
    PyArrowFileIO.parse_location = staticmethod(checked_parse)  # type: ignore[method-assign]
    FsspecFileIO._get_fs_from_uri = checked_find  # type: ignore[method-assign]
    PyArrowFileIO._initialize_fs = checked_arrow  # type: ignore[method-assign]
    FsspecFileIO._get_fs = checked_fsspec  # type: ignore[method-assign]


def _require_login(scheme: str, properties: Mapping[str, Any], *, arrow: bool) -> None:
    """Checks that a catalog that is not this process's own does not use its identity."""
    if OWN not in properties and (needed := needed_for_files(scheme, properties, arrow=arrow)):
        raise OutOfReach(
            f"files at {scheme}:// are not opened with the operator's own identity for a catalog"
            f" that a Backfill refers to: add {needed} to its Secret, or set planning.runIn: Pod"
        )


def _require_servers(properties: Mapping[str, Any]) -> None:
    """Checks servers before clients of object stores are made,
    because these connect by themselves.
    """
    if OWN not in properties:
        for name, server in named_servers(properties):
            require_server(name, server)
