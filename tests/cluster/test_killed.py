"""The operator's, the driver's or an executor's pod is killed midway. The same result follows."""

from collections.abc import Callable

import pytest
from installation import Installation
from live_cluster import until
from replays import Replay

pytestmark = pytest.mark.timeout(1800)


def test_a_driver_goes_on_while_the_operator_is_killed(
    replay: Callable[..., Replay], installation: Installation
) -> None:
    orphan = replay("orphan").begin()
    orphan.until_midway()
    killed = installation.leader
    for pod in installation.replicas:
        installation.cluster.kill_pod(pod)

    until(lambda: installation.leader not in ("", killed), "another operator leads")
    orphan.until_succeeded(attempts=1)


def test_another_driver_goes_on_after_the_last_committed_step(
    replay: Callable[..., Replay],
) -> None:
    lost = replay("lost-driver").begin()
    committed = lost.until_midway()
    (driver,) = lost.drivers
    lost.team.cluster.kill_pod(driver)

    ended = lost.until_succeeded(attempts=2)
    failed, last = ended["status"]["attempts"]
    assert failed["outcome"] == "Failed"
    assert "driver" in failed["message"]
    assert committed <= last["stepsAtStart"] < ended["status"]["progress"]["steps"]


def test_a_driver_goes_on_with_another_executor(replay: Callable[..., Replay]) -> None:
    crippled = replay("lost-executor").begin()
    crippled.until_midway()
    (killed,) = crippled.executors
    crippled.team.cluster.kill_pod(killed)

    ended = crippled.until_succeeded(attempts=1)
    assert ended["status"]["attempts"][0]["outcome"] == "Succeeded"
