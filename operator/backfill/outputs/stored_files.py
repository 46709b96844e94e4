"""Lists, writes and removes files with a table's own file system and credentials.

The location of a table is what its catalog says, which may belong to a tenant. Therefore everything
that is listed must be below the directory of a result's own files, however a library parses the
location and wherever symbolic links lead.
"""

import os
import posixpath
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from pyarrow import fs
from pyiceberg.io import FileIO
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

from backfill.api.errors import BackfillError
from backfill.protocol.atomic_files import files_below, replace_with_chunks


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
        path = self._path_on_disk()
        if path is None:
            return _list_files(self.io, str(self))
        return (posixpath.join(str(self), name) for name in files_below(path))

    def remove(self, location: str) -> bool:
        """Removes an unreferenced file. Returns False if that fails; the file then stays."""
        self._path_on_disk()
        return remove_file(self.io, location)

    def open(self, location: str) -> BinaryIO:
        """Opens a file.

        Raises:
            FileNotFoundError: it does not exist.
        """
        self._path_on_disk()
        return cast("BinaryIO", self.io.new_input(location).open(seekable=False))

    def write(self, location: str, chunks: Iterable[bytes]) -> None:
        """Replaces a file. A store that shows files before they are complete shows a part of it
        until then, or after an error; a disk does not.
        """
        path = self._path_on_disk()
        if path is not None:
            file = path / location.removeprefix(f"{self}/")
            file.parent.mkdir(parents=True, exist_ok=True)
            replace_with_chunks(file, chunks)
            return
        with self.io.new_output(location).create(overwrite=True) as stream:
            for chunk in chunks:
                stream.write(chunk)

    def __str__(self) -> str:
        """The location of the directory."""
        return posixpath.join(self.base, self.own)

    def _path_on_disk(self) -> Path | None:
        """The directory on a disk to which symbolic links lead; None in an object store.

        Raises:
            BackfillError: the location leads to another directory.
        """
        scheme, _, path = PyArrowFileIO.parse_location(str(self), self.io.properties)
        if scheme == "file":
            path = os.path.realpath(path)
        if not f"/{path}".endswith(f"/{self.own}") or {"", ".", ".."} & set(self.own.split("/")):
            raise BackfillError(
                f"files below {self.base} cannot be removed: the location leads to {path}, where"
                " other files may be"
            )
        return Path(path) if scheme == "file" else None


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
