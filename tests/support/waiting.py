"""Waiting for what another thread, process or server does."""

import time
from collections.abc import Callable
from typing import Any

PATIENCE_SECONDS = 240.0
"""Many times what anything awaited here takes on an idle machine: on a busy one it comes late, and
only what never comes waits so long.
"""
_LOOK_SECONDS = 0.01


def eventually(
    condition: Callable[[], Any],
    what: "str | Callable[[], str]",
    seconds: float = PATIENCE_SECONDS,
) -> Any:
    """The first true value of a condition. Where there is none in time the test fails with
    ``what``, asked for only then.
    """
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, (
            f"not within {seconds:g} s: {what if isinstance(what, str) else what()}"
        )
        time.sleep(_LOOK_SECONDS)
    return value
