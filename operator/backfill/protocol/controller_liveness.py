"""Whether a controller is alive, visible to every process on its machine."""

import fcntl
from pathlib import Path

from backfill.protocol.split_assignment import LOCK_FILE


def controller_alive(channel: Path) -> bool:
    """Whether a controller holds the lock of this channel. Checks do not disturb each other."""
    try:
        with (channel / LOCK_FILE).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
