"""Files on a disk or a shared volume, accessed without following a symbolic link.

Others who can write to a volume could replace a directory with a link, also between a check and its
use. Therefore every directory is opened through the one above it, and every operation is made
through the last one.
"""

import errno
import os
import shutil
import stat
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# without O_NONBLOCK, opening a pipe would wait
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class UnlinkedPath:
    """A path whose last components are not links."""

    base: str
    """An absolute directory, chosen by an administrator or by the user of a local run.
    Links in it are followed.
    """
    parts: tuple[str, ...]
    """The components below it."""

    def exists(self) -> bool:
        """Whether the path exists."""
        with suppress(FileNotFoundError, NotADirectoryError), self._parent() as (directory, name):
            os.stat(name, dir_fd=directory, follow_symlinks=False)
            return True
        return False

    def names(self) -> list[str]:
        """The names directly below a directory; none if it does not exist."""
        with (
            suppress(FileNotFoundError),
            self._opened(self.parts) as directory,
            os.scandir(directory) as entries,
        ):
            return [entry.name for entry in entries]
        return []

    def files(self) -> Iterator[tuple[str, ...]]:
        """Every regular file below a directory, by its components
        below it; none if the directory does not exist.
        """
        with suppress(FileNotFoundError), self._opened(self.parts) as directory:
            for path, _, files, opened in os.fwalk(dir_fd=directory):
                above = tuple(part for part in path.split("/") if part != ".")
                yield from ((*above, name) for name in files if _is_regular(name, opened))

    def open(self) -> int:
        """Opens a regular file. The caller closes the descriptor.

        Raises:
            FileNotFoundError: it does not exist.
            OSError: it is a link, a pipe or a directory.
        """
        with self._parent() as (directory, name):
            try:
                descriptor = os.open(name, _FILE, dir_fd=directory)
            except OSError as error:
                raise self._explained(error, name, directory) from error
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, "is not a regular file", str(self))
        return descriptor

    def write(self, content: bytes) -> None:
        """Replaces a file atomically. The content survives a crash of the machine.

        Directories are created as needed.
        """
        self.write_chunks((content,))

    def write_chunks(self, chunks: Iterable[bytes]) -> None:
        """The same for a content in several parts."""
        with self._parent(make=True) as (directory, name):
            temporary = f".{name}.{uuid.uuid4().hex}.tmp"
            try:
                with os.fdopen(
                    os.open(temporary, _NEW_FILE, 0o666, dir_fd=directory), "wb"
                ) as stream:
                    for chunk in chunks:
                        stream.write(chunk)
                    stream.flush()
                    os.fsync(stream.fileno())
                os.replace(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=directory)
                raise

    def remove(self) -> None:
        """Removes a directory with everything in it.

        A link in it is removed; its destination is not touched.
        """
        with suppress(FileNotFoundError), self._parent() as (directory, name):
            if stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
                raise self._link(name)
            shutil.rmtree(name, dir_fd=directory)

    def remove_file(self) -> None:
        """Removes a file, or a link itself."""
        with self._parent() as (directory, name):
            os.unlink(name, dir_fd=directory)

    def remove_if_empty(self) -> None:
        """Removes a directory, unless it has files or may not be removed."""
        with suppress(OSError), self._parent() as (directory, name):
            os.rmdir(name, dir_fd=directory)

    def __str__(self) -> str:
        """The path."""
        return str(Path(self.base, *self.parts))

    @contextmanager
    def _parent(self, *, make: bool = False) -> Iterator[tuple[int, str]]:
        with self._opened(self.parts[:-1], make=make) as directory:
            yield directory, self.parts[-1]

    @contextmanager
    def _opened(self, parts: tuple[str, ...], *, make: bool = False) -> Iterator[int]:
        if make:
            Path(self.base).mkdir(parents=True, exist_ok=True)
        opened = os.open(self.base, _DIRECTORY & ~os.O_NOFOLLOW)
        try:
            for part in parts:
                opened = self._below(opened, part, make=make)
            yield opened
        finally:
            os.close(opened)

    def _below(self, directory: int, part: str, *, make: bool) -> int:
        """Opens a directory in an open one, which is closed unless an error is raised."""
        if make:
            with suppress(FileExistsError):
                os.mkdir(part, dir_fd=directory)
        try:
            found = os.open(part, _DIRECTORY, dir_fd=directory)
        except OSError as error:
            raise self._explained(error, part, directory) from error
        os.close(directory)
        return found

    def _explained(self, error: OSError, name: str, directory: int) -> OSError:
        with suppress(OSError):
            if stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
                return self._link(name)
        error.filename = str(self)
        return error

    def _link(self, name: str) -> OSError:
        return OSError(
            errno.ELOOP,
            f"{name} is a symbolic link, and links in a workspace are not followed",
            str(self),
        )


def _is_regular(name: str, directory: int) -> bool:
    with suppress(FileNotFoundError):  # removed in the meantime
        return stat.S_ISREG(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    return False
