"""How the agent tells the sources what may be read: one small file on the driver's own disk.

Each source is planned by a process of its own, so a file that is replaced at once is what all of
them can see without asking anyone. The agent writes it, ``latestOffset`` of the sources reads it.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from backfill.protocol.atomic_files import replace_file


@dataclass(frozen=True, slots=True)
class Release:
    """What the sources may read. Once ``stop`` is set, ``released`` never changes again."""

    released: int = 0
    """How many steps may be read."""
    stop: bool = False
    """Read what is released, and then nothing more."""


def release_path(scratch: str) -> Path:
    """The release file of the driver whose scratch directory this is."""
    return Path(scratch) / "release.json"


def write_release(path: Path, release: Release) -> None:
    """Replaces the file. It need not outlive the machine: the next driver writes its own."""
    replace_file(path, json.dumps(asdict(release)).encode(), durable=False)


def read_release(path: Path) -> Release:
    """What may be read now; nothing while the agent has not written the file yet."""
    try:
        return Release(**json.loads(path.read_bytes()))
    except FileNotFoundError:
        return Release()
