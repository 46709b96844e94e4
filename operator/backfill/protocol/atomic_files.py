"""Local files: replaced atomically, as another process may be reading them or they must survive a
crash, and found below a directory.
"""

import os
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path


def replace_file(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Writes a file so that readers see either the old or the new content, never part of it.

    ``durable`` also waits for the disk, so that the new content survives a crash of the machine.
    """
    replace_with_chunks(path, (content,), durable=durable)


def replace_with_chunks(path: Path, chunks: Iterable[bytes], *, durable: bool = True) -> None:
    """The same for a content in several parts."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with temporary.open("wb") as stream:
            for chunk in chunks:
                stream.write(chunk)
            stream.flush()
            if durable:
                os.fsync(stream.fileno())
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:  # as for a full disk
            error.filename = str(path)
        raise


def files_below(directory: Path) -> Iterator[str]:
    """The paths of all files below a directory, relative to it. Links to directories are no files,
    and are not followed.
    """
    for found, _, names in os.walk(directory):
        for name in names:
            yield (Path(found) / name).relative_to(directory).as_posix()
