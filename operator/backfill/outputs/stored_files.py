"""Lists, writes and removes files with a table's own file system and credentials.

The location of a table is what its catalog says, which may belong to a tenant. Therefore everything
that is listed must be below the directory of a result's own files, however a library parses the
location, and on a disk no symbolic link is followed there.
"""

import os
import posixpath
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, cast

from pyarrow import fs
from pyiceberg.io import FileIO
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

from backfill.api.errors import BackfillError
from backfill.iceberg.no_symlinks import UnlinkedPath


@dataclass(frozen=True, slots=True)
class OwnDirectory:
    """A directory of a result's own files within a directory that others use, too."""

    io: FileIO
    """The table's FileIO, or that of its catalog."""
    base: str
    """The directory that others use, too."""
    own: str
    """The own directory, relative to ``base``."""

    def files(self) -> Iterator[str]:
        """The locations of all files below it; none if it does not exist.

        Raises:
            BackfillError: the table's FileIO cannot list, or the location leads to another
                directory.
        """
        scheme, path = self._parse()
        if scheme == "file":
            return (posixpath.join(str(self), *parts) for parts in self._on_disk(path).files())
        return _list_files(self.io, str(self))

    def remove(self, location: str) -> bool:
        """Removes an unreferenced file. Returns False if that fails; the file then stays."""
        scheme, path = self._parse()
        if scheme != "file":
            return remove_file(self.io, location)
        try:
            self._file_on_disk(path, location).remove_file()
        except OSError:
            return False
        return True

    def open(self, location: str) -> BinaryIO:
        """Opens a file.

        Raises:
            FileNotFoundError: it does not exist.
        """
        scheme, path = self._parse()
        if scheme == "file":
            return os.fdopen(self._file_on_disk(path, location).open(), "rb")
        return cast("BinaryIO", self.io.new_input(location).open(seekable=False))

    def write(self, location: str, chunks: Iterable[bytes]) -> None:
        """Replaces a file. A store that shows files before they are complete shows a part of it
        until then, or after an error; a disk does not.
        """
        scheme, path = self._parse()
        if scheme == "file":
            self._file_on_disk(path, location).write_chunks(chunks)
            return
        with self.io.new_output(location).create(overwrite=True) as stream:
            for chunk in chunks:
                stream.write(chunk)

    def __str__(self) -> str:
        """The location of the directory."""
        return posixpath.join(self.base, self.own)

    def _parse(self) -> tuple[str, str]:
        scheme, _, path = PyArrowFileIO.parse_location(str(self), self.io.properties)
        if not f"/{path}".endswith(f"/{self.own}") or {"", ".", ".."} & set(self.own.split("/")):
            raise BackfillError(
                f"files below {self.base} cannot be removed: the location leads to {path}, where"
                " other files may be"
            )
        return scheme, path

    def _file_on_disk(self, path: str, location: str) -> UnlinkedPath:
        place = self._on_disk(path)
        names = location.removeprefix(f"{self}/").split("/")
        return UnlinkedPath(place.base, (*place.parts, *names))

    def _on_disk(self, path: str) -> UnlinkedPath:
        return UnlinkedPath(path.removesuffix(self.own), tuple(self.own.split("/")))


def _list_files(io: FileIO, directory: str) -> Iterator[str]:
    filesystem, path = _filesystem(io, directory)
    for entry in filesystem.get_file_info(
        fs.FileSelector(path, allow_not_found=True, recursive=True)
    ):
        if entry.type == fs.FileType.File:
            yield posixpath.join(directory, posixpath.relpath(entry.path, path))


def remove_file(io: FileIO, location: str) -> bool:
    """Removes an unreferenced file. Returns False if that fails; the file then stays."""
    try:
        io.delete(location)
    except Exception:  # a FileIO raises whatever its client library raises
        return False
    return True


def _filesystem(io: FileIO, location: str) -> tuple[fs.FileSystem, str]:
    scheme, netloc, path = PyArrowFileIO.parse_location(location, io.properties)
    if isinstance(io, PyArrowFileIO):
        return io.fs_by_scheme(scheme, netloc), path
    if isinstance(io, FsspecFileIO):
        return fs.PyFileSystem(fs.FSSpecHandler(io.get_fs(scheme))), path
    raise BackfillError(
        f"files cannot be listed through {type(io).__name__};"
        " use PyIceberg's PyArrowFileIO or FsspecFileIO"
    )
