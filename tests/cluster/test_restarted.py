"""What a Backfill depends on is restarted midway: its driver goes on, in the same attempt."""

from collections.abc import Callable

import pytest
from installation import WAITING, Installation
from live_cluster import until
from replays import Replay
from restarts import restart_api_server, restart_spark_operator

pytestmark = pytest.mark.timeout(1800)


@pytest.mark.alone
def test_restarts_of_spark_operator_and_api_server_and_a_new_release_cost_no_attempt(
    replay: Callable[..., Replay], installation: Installation
) -> None:
    steady = replay("steady").begin(maxMisalignment="30m")
    steady.until_midway()
    restart_spark_operator(installation.cluster)
    steady.until_further(attempts=1)

    restart_api_server(installation.cluster)
    steady.until_further(attempts=1)

    before = installation.leader
    installation.change("upgrade", *WAITING, workers=4)
    until(lambda: installation.leader not in ("", before), "the new release leads")
    steady.until_succeeded(attempts=1)
