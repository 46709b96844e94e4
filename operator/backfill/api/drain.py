"""How results that are open when the input ends can close: for messages and reports."""

import math
from datetime import timedelta

from backfill.api.quantities import format_duration
from backfill.api.spec import Window


def how_to_close(number: int, needed_drain_seconds: float | None, window: Window) -> str:
    """What lets this number of open results close, as the end of a sentence."""
    it, closes, lets = (
        ("it", "closes", "lets it close") if number == 1 else ("they", "close", "lets them close")
    )
    if needed_drain_seconds is None:
        return f"a new Backfill with a longer window.drain {lets}"
    drain = format_duration(timedelta(seconds=math.ceil(needed_drain_seconds)))
    if needed_drain_seconds < window.drain.total_seconds():
        return (
            f"{it} {closes} only once every source has events more than {drain} after the window's"
            " end"
        )
    return (
        f"a new Backfill with a window.drain longer than {drain} {lets}, if the sources have later"
        " events"
    )
