"""An executor's, the operator's and the driver's pod are killed midway. The same result follows."""

from collections.abc import Callable

import pytest
from installation import Installation
from live_cluster import until
from replays import Replay

pytestmark = pytest.mark.timeout(1800)


def test_a_run_outlives_its_executor_its_operator_and_its_driver(
    replay: Callable[..., Replay], installation: Installation
) -> None:
    survivor = replay("survivor").begin(maxMisalignment="30m")
    cluster = installation.cluster
    survivor.until_midway()
    (executor,) = survivor.executors
    cluster.kill_pod(executor)
    survivor.until_further(attempts=1)

    leader = installation.leader
    for pod in installation.replicas:
        cluster.kill_pod(pod)
    until(lambda: installation.leader not in ("", leader), "another operator leads")
    committed = survivor.until_further(attempts=1)

    (driver,) = survivor.drivers
    cluster.kill_pod(driver)
    ended = survivor.until_succeeded(attempts=2)
    failed, last = ended["status"]["attempts"]
    assert failed["outcome"] == "Failed"
    assert failed["message"]  # a query may fail first, as Spark is taken down beneath it
    assert committed <= last["stepsAtStart"] < ended["status"]["progress"]["steps"]
