"""Passes releases from the agent to the sources: a small file on the driver's own disk.

Each source is planned in a separate process, and a file that is replaced atomically is visible to
all of them. The agent writes it, and ``latestOffset`` of the sources reads it.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from backfill.protocol.atomic_files import replace_file


@dataclass(frozen=True, slots=True)
class Release:
    """What the sources may read. Once ``stop`` is set, ``released`` never changes again."""

    released: int = 0
    """Number of steps that may be read."""
    stop: bool = False
    """Whether to stop after the released steps."""


def release_path(scratch: str) -> Path:
    """The release file in a driver's scratch directory."""
    return Path(scratch) / "release.json"


def write_release(path: Path, release: Release) -> None:
    """Replaces the file.

    It need not survive a crash of the machine, since the next driver writes its own.
    """
    replace_file(path, json.dumps(asdict(release)).encode(), durable=False)


def read_release(path: Path) -> Release:
    """What may be read now; nothing if the agent has not written the file yet."""
    try:
        return Release(**json.loads(path.read_bytes()))
    except FileNotFoundError:
        return Release()
