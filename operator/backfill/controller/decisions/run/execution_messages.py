"""Texts about how the queries of a Backfill are run, as batch jobs or as streams."""

import math
from datetime import timedelta

from backfill.api.quantities import format_duration
from backfill.api.spec import Window
from backfill.api.status import OutputStatus, execution_in_words


def how_run(output: OutputStatus, window: Window) -> str:
    """How the query of an output is run, and if as a stream, why.

    Also says whether the window is too short for it. Empty if nothing is known.
    """
    if output.execution is None:
        return ""
    said = [execution_in_words(output.execution, output.execution_reason)]
    if output.output_mode == "update":
        said.append(
            "until the last step is committed, the branch also contains older rows with the same"
            " keys"
        )
    return "; ".join(
        [*said, *too_short(output.look_back_seconds, output.look_ahead_seconds, window)]
    )


def too_short(back: float | None, ahead: float | None, window: Window) -> list[str]:
    """Warnings about a ``warmUp`` or ``drain`` shorter than what results depend on. Where live
    traffic continues, it closes the last results.

    Results depend on rows up to this many seconds before and after them; None if that is unknown.
    """
    found = []
    if back is not None and window.warm_up.total_seconds() < back:
        found.append(
            f"its results depend on rows up to {_duration(back)} earlier, but window.warmUp is"
            f" only {format_duration(window.warm_up)}: the first results may be incomplete; set"
            f" window.warmUp to {_duration(back)} to complete them"
        )
    if ahead is not None and not window.live and window.drain.total_seconds() < ahead:
        found.append(
            f"its results depend on rows up to {_duration(ahead)} later, but window.drain is only"
            f" {format_duration(window.drain)}: the last results may be incomplete or still open;"
            f" set window.drain to {_duration(ahead)} to complete them"
        )
    return found


def _duration(seconds: float) -> str:
    return format_duration(timedelta(seconds=math.ceil(seconds)))
