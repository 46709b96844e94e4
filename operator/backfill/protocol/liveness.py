"""Whether a controller is alive, as everybody on its machine can see it."""

import fcntl
from pathlib import Path

from backfill.protocol.split_assignment import LOCK_FILE


def controller_alive(channel: Path) -> bool:
    """Whether some controller holds the lock of this channel. A look does not disturb others who look."""
    try:
        with (channel / LOCK_FILE).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
