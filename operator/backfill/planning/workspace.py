"""The directory, or object store prefix, where one Backfill keeps its plan and checkpoints.

The operator only names workspaces: PyArrow is imported where one is opened.
"""

import posixpath
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from backfill.api.atomic import replace_file
from backfill.api.errors import Problem

if TYPE_CHECKING:
    from pyarrow import fs

_PROBE = ".probe"


def _filesystem(uri: str) -> "tuple[fs.FileSystem, str]":
    """Splits a URI, or a plain path, into a file system and a path in it."""
    from pyarrow import fs

    if urlsplit(uri).scheme in ("", "file"):
        path = uri.removeprefix("file://")
        return fs.LocalFileSystem(), str(Path(path).absolute())
    filesystem, path = fs.FileSystem.from_uri(uri)
    return filesystem, path


@dataclass(frozen=True)
class Workspace:
    """One Backfill's part of the workspace.

    ``uri`` is a plain path or ``scheme://…``. Files are immutable once written: :meth:`write` replaces a whole file at
    once, so a reader sees the old or the new one and never half of it.
    """

    uri: str

    def child(self, *parts: str) -> "Workspace":
        """A directory below this one."""
        return Workspace(posixpath.join(self.uri, *parts))

    def location(self, *parts: str) -> str:
        """The URI of something below, as Spark takes it."""
        return posixpath.join(self.uri, *parts)

    def exists(self, name: str) -> bool:
        """Whether a file or directory is there."""
        from pyarrow import fs

        filesystem, path = _filesystem(self.location(name))
        return bool(filesystem.get_file_info(path).type != fs.FileType.NotFound)

    def names(self, directory: str) -> list[str]:
        """What is directly below a directory; nothing if it is not there."""
        from pyarrow import fs

        filesystem, path = _filesystem(self.location(directory))
        return [entry.base_name for entry in filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True))]

    def read(self, name: str) -> bytes:
        """A file's content.

        Raises:
            FileNotFoundError: it is not there.
        """
        filesystem, path = _filesystem(self.location(name))
        with filesystem.open_input_file(path) as file:
            return bytes(file.read())

    def write(self, name: str, content: bytes) -> None:
        """Replaces a file at once (on a local disk also through a crash of the machine)."""
        from pyarrow import fs

        filesystem, path = _filesystem(self.location(name))
        filesystem.create_dir(posixpath.dirname(path), recursive=True)
        if not isinstance(filesystem, fs.LocalFileSystem):
            with filesystem.open_output_stream(path) as stream:  # object stores show a file only when it is complete
                stream.write(content)
            return
        replace_file(Path(path), content)

    def problems(self) -> list[Problem]:
        """Why nothing can be kept here, found by writing a file and removing it."""
        try:
            self.write(_PROBE, b"")
            filesystem, path = _filesystem(self.location(_PROBE))
            filesystem.delete_file(path)
        except (OSError, ValueError) as error:
            fix = "name a directory or an object store prefix that can be written to, and check its credentials"
            return [Problem("spec.workspace", f"{self.uri} can not be written to: {error}", fix)]
        return []

    def remove(self) -> None:
        """Removes everything below, if anything is there."""
        from pyarrow import fs

        filesystem, path = _filesystem(self.uri)
        if filesystem.get_file_info(path).type != fs.FileType.NotFound:
            filesystem.delete_dir(path)

    def open_input(self, name: str) -> "fs.NativeFile":
        """A file for random access."""
        filesystem, path = _filesystem(self.location(name))
        return filesystem.open_input_file(path)
