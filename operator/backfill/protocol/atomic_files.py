"""Atomic replacement of local files that another
process may be reading or that must survive a crash.
"""

import os
import uuid
from pathlib import Path


def replace_file(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Writes a file so that readers see either the old or the new content, never part of it.

    ``durable`` also waits for the disk, so that the new content survives a crash of the machine.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with temporary.open("wb") as stream:
            stream.write(content)
            stream.flush()
            if durable:
                os.fsync(stream.fileno())
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:  # as for a full disk
            error.filename = str(path)
        raise
