"""The directory or object store prefix of a Backfill's plan and checkpoints.

The operator only names workspaces; PyArrow is imported when one is opened.
"""

import os
import posixpath
import shutil
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from backfill.api.backfill import Backfill
from backfill.api.errors import Problem, first_line
from backfill.api.sealed_json import sealed, unsealed
from backfill.api.workspace_locations import LOCATION_FORM, is_local, is_plain
from backfill.iceberg.library_errors import says_later
from backfill.protocol.atomic_files import files_below, replace_file

if TYPE_CHECKING:
    from pyarrow import fs

_PROBE = ".probe"


@dataclass(frozen=True)
class Workspace:
    """One Backfill's part of a workspace.

    Files never change once written: :meth:`write` replaces a whole file atomically, so that a
    reader sees the old or the new content, and never a mixture.
    """

    uri: str
    """A path, or ``scheme://…``."""
    catalog: str = ""
    """Name of the catalog whose connection properties open an object store. Properties that it
    lacks are taken from the environment.
    """
    own: str = ""
    """End of the path that belongs to this Backfill alone.
    Nothing is opened whose path does not end so, on a disk also after symbolic links are followed.
    Empty if it is unknown; then nothing can be removed.
    """

    @classmethod
    def of(cls, backfill: Backfill, uri: str) -> Self:
        """The workspace that a Backfill's status has recorded."""
        metadata = backfill.metadata
        return cls(uri, backfill.spec.workspace_catalog, f"{metadata.namespace}/{metadata.name}")

    @classmethod
    def below(cls, base: str, catalog: str, namespace: str, name: str) -> Self:
        """The part of a directory or prefix for a Backfill."""
        return cls(posixpath.join(base, namespace, name), catalog, f"{namespace}/{name}")

    def child(self, *parts: str) -> "Workspace":
        """A directory below this one."""
        own = posixpath.join(self.own, *parts) if self.own else ""
        return replace(self, uri=posixpath.join(self.uri, *parts), own=own)

    def beside(self, name: str, other: str) -> "Workspace":
        """The directory ``other`` beside this one, which is called ``name``."""
        return replace(
            self,
            uri=f"{self.uri.rstrip('/').removesuffix(name)}{other}",
            own=f"{self.own.removesuffix(name)}{other}" if self.own else "",
        )

    @property
    def for_spark(self) -> str:
        """The URI for Spark: Hadoop uses the scheme ``s3a`` where others use ``s3``."""
        return (
            f"s3a://{self.uri.removeprefix('s3://')}" if self.uri.startswith("s3://") else self.uri
        )

    def exists(self, name: str) -> bool:
        """Whether a file or directory exists."""
        if is_local(self.uri):
            return self._local(name).exists()
        return _is_there(*self._open(name))

    def names(self, directory: str) -> list[str]:
        """The names directly below a directory; none if it does not exist."""
        from pyarrow import fs

        if is_local(self.uri):
            local = self._local(directory)
            return [entry.name for entry in local.iterdir()] if local.exists() else []
        filesystem, path = self._open(directory)
        return [
            entry.base_name
            for entry in filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True))
        ]

    def files(self) -> list[str]:
        """The paths of all files below, relative to it; none if it does not exist."""
        from pyarrow import fs

        if is_local(self.uri):
            return list(files_below(self._local()))
        filesystem, path = self._open()
        found = filesystem.get_file_info(
            fs.FileSelector(path, allow_not_found=True, recursive=True)
        )
        return [
            posixpath.relpath(entry.path, path) for entry in found if entry.type == fs.FileType.File
        ]

    def read(self, name: str, most_bytes: int | None = None) -> bytes:
        """Reads a file.

        Raises:
            FileNotFoundError: it does not exist.
            ValueError: it has more than ``most_bytes``.
        """
        with self.open_input(name) as file:
            if most_bytes is not None and file.size() > most_bytes:
                raise ValueError(f"{name} has {file.size():,} bytes, more than {most_bytes:,}")
            return bytes(file.read())

    def write(self, name: str, content: bytes) -> None:
        """Replaces a file atomically.

        On a local disk, the content survives a crash of the machine.
        """
        if is_local(self.uri):
            local = self._local(name)
            local.parent.mkdir(parents=True, exist_ok=True)
            replace_file(local, content)
            return
        filesystem, path = self._open(name)
        # object stores show a file only when it is complete
        with filesystem.open_output_stream(path) as stream:
            stream.write(content)

    def read_sealed(self, name: str, most_bytes: int | None = None) -> bytes:
        """Reads JSON that :meth:`write_sealed` has written.

        Raises:
            FileNotFoundError: it does not exist.
            ValueError: it is damaged, or has more than ``most_bytes``.
        """
        try:
            return unsealed(self.read(name, most_bytes))
        except ValueError as error:
            raise ValueError(f"{self.child(name).uri} is damaged: {error}") from error

    def write_sealed(self, name: str, content: bytes) -> None:
        """Replaces a file of JSON atomically, with a digest by which damage is noticed."""
        self.write(name, sealed(content))

    def problems(self) -> list[Problem]:
        """Why nothing can be stored here, determined by writing a file and removing it."""
        try:
            self.write(_PROBE, b"")
            if is_local(self.uri):
                self._local(_PROBE).unlink()
            else:
                filesystem, path = self._open(_PROBE)
                filesystem.delete_file(path)
        except (OSError, ValueError) as error:
            fix = (
                "use a directory or an object store prefix that is writable, and check its"
                " credentials"
            )
            # a store that does not answer may recover soon
            away = isinstance(error, OSError)
            return [
                Problem(
                    "spec.workspace",
                    f"{self.uri} cannot be written to: {first_line(error)}",
                    fix,
                    may_pass=away,
                    unavailable=says_later(error),
                )
            ]
        return []

    def remove(self) -> None:
        """Removes everything below.

        Raises:
            ValueError: it may not belong to one Backfill alone.
        """
        if not self.own:
            raise ValueError(f"{self.uri} may not belong to a Backfill, so it was not removed")
        if is_local(self.uri):
            with suppress(FileNotFoundError):
                shutil.rmtree(self._local())
            return
        filesystem, path = self._open()
        if not _is_there(filesystem, path):
            return
        try:
            filesystem.delete_dir(path)
        except OSError:
            # A store with real directories refuses to remove those that are not empty yet, and
            # removes them with their last file.
            if _is_there(filesystem, path):
                raise

    def remove_if_empty(self) -> None:
        """Removes the directory itself, unless it has files."""
        from pyarrow import fs

        if is_local(self.uri):
            # it may hold files of others, or its parent belong to others
            with suppress(OSError):
                self._local().rmdir()
            return
        filesystem, path = self._open()
        if not filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True)):
            self.remove()

    def open_input(self, name: str) -> "fs.NativeFile":
        """Opens a file for random access."""
        import pyarrow as pa

        if is_local(self.uri):
            return pa.OSFile(str(self._local(name)))
        filesystem, path = self._open(name)
        return filesystem.open_input_file(path)

    def _local(self, *parts: str) -> Path:
        """A path on a disk, in the directory to which symbolic links lead."""
        self._check()
        directory = os.path.realpath(self.uri.removeprefix("file:"))
        self._check_end(directory, self.own)
        return Path(directory, *parts)

    def _open(self, *parts: str) -> "tuple[fs.FileSystem, str]":
        """The file system and path for something in an object store."""
        from backfill.iceberg.object_stores import open_store

        self._check()
        place = urlsplit(posixpath.join(self.uri, *parts))
        path = place.netloc + place.path
        self._check_end(path, posixpath.join(self.own, *parts))
        return open_store(place.scheme, place.netloc, self.catalog), path

    def _check_end(self, path: str, own: str) -> None:
        """Checks that a path ends as this Backfill's own does."""
        if not f"{path}/".endswith(f"{posixpath.join('/', own).rstrip('/')}/"):
            raise ValueError(f"{self.uri} leads to {path}, which does not belong to this Backfill")

    def _check(self) -> None:
        """Checks that every library parses the location in the same way, and that it ends as this
        Backfill's does.
        """
        # a driver escapes the names of its queries
        named = self.uri if self.own else self.uri.replace("%", "-")
        if not is_plain(named):
            raise ValueError(
                f"{self.uri!r} may mean a different place to the object store; {LOCATION_FORM}"
            )
        if self.own and not self.uri.endswith(f"/{self.own}"):
            raise ValueError(
                f"{self.uri} does not belong to this Backfill, whose workspace ends in {self.own}"
            )


def _is_there(filesystem: "fs.FileSystem", path: str) -> bool:
    from pyarrow import fs

    return bool(filesystem.get_file_info(path).type != fs.FileType.NotFound)


def checkpoints(workspace: Workspace) -> Workspace:
    """Directory of the checkpoints of all plans' queries."""
    return workspace.child("checkpoints")
