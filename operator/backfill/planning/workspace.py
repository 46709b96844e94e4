"""The directory, or object store prefix, where one Backfill keeps its plan and checkpoints.

The operator only names workspaces: PyArrow is imported where one is opened.
"""

import posixpath
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from backfill.api.atomic import replace_file
from backfill.api.errors import Problem

if TYPE_CHECKING:
    from pyarrow import fs

_PROBE = ".probe"


@dataclass(frozen=True)
class Workspace:
    """One Backfill's part of the workspace.

    Files are immutable once written: :meth:`write` replaces a whole file at once, so a reader sees the old or the new one
    and never half of it.
    """

    uri: str
    """A plain path or ``scheme://…``."""
    catalog: str = ""
    """The catalog whose connection properties open an object store; where it says nothing, the environment does."""

    def child(self, *parts: str) -> "Workspace":
        """A directory below this one."""
        return replace(self, uri=posixpath.join(self.uri, *parts))

    @property
    def for_spark(self) -> str:
        """The URI as Spark takes it: Hadoop calls ``s3a`` what everybody else calls ``s3``."""
        return f"s3a://{self.uri.removeprefix('s3://')}" if self.uri.startswith("s3://") else self.uri

    def exists(self, name: str) -> bool:
        """Whether a file or directory is there."""
        return _is_there(*self._open(name))

    def names(self, directory: str) -> list[str]:
        """What is directly below a directory; nothing if it is not there."""
        from pyarrow import fs

        filesystem, path = self._open(directory)
        return [entry.base_name for entry in filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True))]

    def read(self, name: str) -> bytes:
        """A file's content.

        Raises:
            FileNotFoundError: it is not there.
        """
        filesystem, path = self._open(name)
        with filesystem.open_input_file(path) as file:
            return bytes(file.read())

    def write(self, name: str, content: bytes) -> None:
        """Replaces a file at once (on a local disk also through a crash of the machine)."""
        from pyarrow import fs

        filesystem, path = self._open(name)
        if not isinstance(filesystem, fs.LocalFileSystem):
            with filesystem.open_output_stream(path) as stream:  # object stores show a file only when it is complete
                stream.write(content)
            return
        filesystem.create_dir(posixpath.dirname(path), recursive=True)
        replace_file(Path(path), content)

    def problems(self) -> list[Problem]:
        """Why nothing can be kept here, found by writing a file and removing it."""
        try:
            self.write(_PROBE, b"")
            filesystem, path = self._open(_PROBE)
            filesystem.delete_file(path)
        except (OSError, ValueError) as error:
            fix = "name a directory or an object store prefix that can be written to, and check its credentials"
            away = isinstance(error, OSError)  # a store that does not answer may be back in a moment
            return [Problem("spec.workspace", f"{self.uri} can not be written to: {error}", fix, may_pass=away)]
        return []

    def remove(self) -> None:
        """Removes everything below, if anything is there."""
        filesystem, path = self._open()
        if not _is_there(filesystem, path):
            return
        try:
            filesystem.delete_dir(path)
        except OSError:
            # A store that keeps directories refuses those that are not empty yet, and drops them with their last file.
            if _is_there(filesystem, path):
                raise

    def remove_if_empty(self) -> None:
        """Removes the directory itself, unless something is in it."""
        from pyarrow import fs

        filesystem, path = self._open()
        if isinstance(filesystem, fs.LocalFileSystem):
            with suppress(OSError):  # somebody else's files are in it, or its parent belongs to somebody else
                Path(path).rmdir()
        elif not filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True)):
            self.remove()

    def open_input(self, name: str) -> "fs.NativeFile":
        """A file for random access."""
        filesystem, path = self._open(name)
        return filesystem.open_input_file(path)

    def _open(self, *parts: str) -> "tuple[fs.FileSystem, str]":
        """The file system of something below, and the path in it."""
        from pyarrow import fs

        uri = posixpath.join(self.uri, *parts)
        place = urlsplit(uri)
        if place.scheme in ("", "file"):
            return fs.LocalFileSystem(), str(Path(uri.removeprefix("file://")).absolute())
        from backfill.planning.iceberg.storage import open_store

        return open_store(place.scheme, place.netloc, self.catalog), place.netloc + place.path


def _is_there(filesystem: "fs.FileSystem", path: str) -> bool:
    from pyarrow import fs

    return bool(filesystem.get_file_info(path).type != fs.FileType.NotFound)
