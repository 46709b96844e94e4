"""The log of a driver on this machine."""

import time
from collections.abc import Iterator
from pathlib import Path

from backfill.api.errors import BackfillError
from backfill.controller.local.store import LocalStore
from backfill.protocol.controller_liveness import controller_alive

_POLL_SECONDS = 0.2


def log_of(store: LocalStore, attempt: int, *, follow: bool, tail: int | None) -> Iterator[str]:
    """The log of an attempt's driver in parts, from its last ``tail`` lines on if given.

    With ``follow``, it goes on until the attempt has ended, or no process works on the Backfill.

    Raises:
        BackfillError: the log has been removed.
    """
    path = store.attempts / str(attempt) / "driver.log"
    try:
        start = _start_of_tail(path, tail)
        with path.open(encoding="utf-8", errors="replace", newline="") as log:
            log.seek(start)
            while True:
                goes_on = follow and _at_work(store, attempt)
                if text := log.read():  # after the look, so that the end is not missed
                    yield text
                if not goes_on:
                    return
                time.sleep(_POLL_SECONDS)
    except FileNotFoundError:
        raise BackfillError(f"the log of attempt {attempt} has been removed: {path}") from None


def _start_of_tail(path: Path, tail: int | None) -> int:
    if tail is None:
        return 0
    with path.open("rb") as log:
        lengths = [len(line) for line in log]
    return sum(lengths[: max(len(lengths) - tail, 0)])


def _at_work(store: LocalStore, attempt: int) -> bool:
    backfill = store.load()
    last = backfill.status.attempts[-1:] if backfill else ()
    runs = any(each.number == attempt and each.outcome == "Running" for each in last)
    return runs and controller_alive(store.channel)
