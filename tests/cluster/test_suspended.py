"""A Backfill that is suspended midway gives everything back, and goes on where it stopped."""

from collections.abc import Callable

import pytest
from live_cluster import until
from replays import Replay

pytestmark = pytest.mark.timeout(1800)


def test_it_goes_on_after_the_last_committed_step(replay: Callable[..., Replay]) -> None:
    paused = replay("paused").begin()
    paused.until_midway()

    paused.change(suspend=True)
    paused.until("is suspended", "Suspended")
    assert [each["outcome"] for each in paused.attempts] == ["Stopped"]
    until(lambda: not paused.drivers and not paused.executors, "its pods are gone")
    committed = paused.committed
    assert 1 <= committed < paused.released["steps"]

    paused.change(suspend=False)
    ended = paused.until_succeeded(attempts=2)
    assert ended["status"]["attempts"][1]["stepsAtStart"] == committed
