"""Listing and removing files through a table's own file system and credentials."""

import posixpath
from collections.abc import Iterator

from pyarrow import fs
from pyiceberg.io import FileIO
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

from backfill.api.errors import BackfillError


def list_files(io: FileIO, directory: str) -> Iterator[str]:
    """The locations of all files below a directory; none if it is not there.

    Raises:
        BackfillError: the table uses a FileIO that can not list.
    """
    filesystem, path = _filesystem(io, directory)
    for entry in filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True, recursive=True)):
        if entry.type == fs.FileType.File:
            yield posixpath.join(directory, posixpath.relpath(entry.path, path))


def remove_file(io: FileIO, location: str) -> bool:
    """Removes a file that nothing needs. False if it can not be removed now; it then stays."""
    try:
        io.delete(location)
    except Exception:  # a store raises whatever its client library raises
        return False
    return True


def _filesystem(io: FileIO, location: str) -> tuple[fs.FileSystem, str]:
    scheme, netloc, path = PyArrowFileIO.parse_location(location, io.properties)
    if isinstance(io, PyArrowFileIO):
        return io.fs_by_scheme(scheme, netloc), path
    if isinstance(io, FsspecFileIO):
        return fs.PyFileSystem(fs.FSSpecHandler(io.get_fs(scheme))), path
    raise BackfillError(f"files can not be listed through {type(io).__name__}; use PyIceberg's PyArrowFileIO or FsspecFileIO")
