"""Waiting for what another thread, process or server does."""

import time
from collections.abc import Callable
from typing import Any

PATIENCE_SECONDS = 240.0
"""Many times what anything awaited here takes on an idle machine: on a busy one it comes late, and
only what never comes waits so long.
"""
_FIRST_LOOK_SECONDS, _LOOK_SECONDS = 0.01, 0.1
"""Between two looks at first, and at most: a look may be a request to a server."""


def eventually(
    condition: Callable[[], Any],
    what: "str | Callable[[], str]",
    seconds: float = PATIENCE_SECONDS,
) -> Any:
    """The first true value of a condition. Where there is none in time the test fails with
    ``what``, asked for only then.
    """
    began = time.monotonic()
    while not (value := condition()):
        waited = time.monotonic() - began
        assert waited < seconds, (
            f"not within {seconds:g} s: {what if isinstance(what, str) else what()}"
        )
        time.sleep(min(_FIRST_LOOK_SECONDS + waited / 20, _LOOK_SECONDS))
    return value
