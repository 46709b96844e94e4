"""Executors come and go while the application runs, as many as the Backfill is allowed."""

import re
import time
from collections.abc import Callable
from functools import partial

import pytest
from live_cluster import until
from replays import Replay
from rest import Manifest

pytestmark = pytest.mark.timeout(1800)


@pytest.mark.alone
def test_they_follow_the_bounds_of_the_backfill(
    replay: Callable[..., Replay], record_property: Callable[[str, object], None]
) -> None:
    elastic = replay("elastic").begin(maxMisalignment="30m")
    elastic.until_midway()
    (first,), (driver,) = elastic.executors, elastic.drivers
    log = partial(_log, elastic, driver["metadata"]["name"])

    began = time.monotonic()
    elastic.change(scaling={"minExecutors": 3, "maxExecutors": 3})
    until(lambda: len(_ready(elastic)) == 3, "three executors are up")
    record_property("two more executors", f"{time.monotonic() - began:.1f} s")
    assert elastic.released["executorTarget"] == 3
    until(lambda: _progress(elastic).get("executors") == 3, "all three are at work")
    assert _progress(elastic)["executorTarget"] == 3
    assert _progress(elastic)["executorReason"] == "minExecutors and maxExecutors are both 3"

    began = time.monotonic()
    elastic.change(scaling={"minExecutors": 1, "maxExecutors": 1})
    until(lambda: len(elastic.executors) == 1, "two executors are gone")
    record_property("two executors less", f"{time.monotonic() - began:.1f} s")
    assert [pod["metadata"]["uid"] for pod in elastic.executors] == [first["metadata"]["uid"]]
    until(lambda: _progress(elastic).get("executorTarget") == 1, "the status says so")
    # Spark sees that a pod has ended a moment after everybody else, or has itself ended before
    try:
        until(lambda: _have_left(log()), "the driver has seen them leave")
    finally:
        print("".join(line for line in log().splitlines(True) if "xecutor" in line))
    assert len(_released(log())) >= 2
    assert [line for line in log().splitlines() if "Lost task" in line] == []
    elastic.until_succeeded(attempts=1)


def _ready(replay: Replay) -> list[Manifest]:
    return [pod for pod in replay.executors if pod["status"]["phase"] == "Running"]


def _progress(replay: Replay) -> Manifest:
    progress: Manifest = replay.state["status"]["progress"]
    return progress


def _have_left(log: str) -> bool:
    return _released(log) <= _gone(log) or "SparkContext is stopping" in log


def _released(log: str) -> set[str]:
    """The executors that the driver has let go."""
    lines: list[str] = re.findall(r"executors released: (.*)", log)
    return {executor for line in lines for executor in line.split(", ")}


def _gone(log: str) -> set[str]:
    """Those that are no longer there, whatever Spark says of the reason."""
    how = r"Executor (\d+) on \S+ (?:is decommissioned|killed by driver)|Lost executor (\d+) on"
    return {first or second for first, second in re.findall(how, log)}


def _log(replay: Replay, pod: str) -> str:
    return replay.team.cluster.kubectl(replay.team.namespace, "logs", pod)
