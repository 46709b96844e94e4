"""Texts about how the queries of a Backfill are run, as batch jobs or as streams."""

import math
from datetime import timedelta

from backfill.api.quantities import format_duration
from backfill.api.spec import Window
from backfill.api.status import OutputStatus


def how_run(output: OutputStatus, window: Window) -> str:
    """How the query of an output is run, and if as a stream, why.

    Also says whether the window is too short for it. Empty if nothing is known.
    """
    if output.execution is None:
        return ""
    if output.execution == "Batch":
        return "; ".join(
            ["batch jobs", *too_short(output.look_back_seconds, output.look_ahead_seconds, window)]
        )
    how = f"stream, because {output.execution_reason}" if output.execution_reason else "stream"
    if output.output_mode == "update":
        how += "; until its last step is committed, the branch also holds older rows of its keys"
    return how


def too_short(back: float | None, ahead: float | None, window: Window) -> list[str]:
    """Warnings about a ``warmUp`` or ``drain`` shorter than what results depend on.

    Results depend on rows up to this many seconds before and after them; None if that is unknown.
    """
    found = []
    if back is not None and window.warm_up.total_seconds() < back:
        found.append(
            f"its results depend on rows up to {_duration(back)} before them, and window.warmUp is"
            f" {format_duration(window.warm_up)}: the first ones may be incomplete; a"
            f" window.warmUp of {_duration(back)} would complete them"
        )
    if ahead is not None and window.drain.total_seconds() < ahead:
        found.append(
            f"its results depend on rows up to {_duration(ahead)} after them, and window.drain is"
            f" {format_duration(window.drain)}: the last ones may be incomplete or open; a"
            f" window.drain of {_duration(ahead)} would complete them"
        )
    return found


def _duration(seconds: float) -> str:
    return format_duration(timedelta(seconds=math.ceil(seconds)))
