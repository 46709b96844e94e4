"""What a Backfill depends on is restarted midway: its driver goes on, in the same attempt."""

from collections.abc import Callable

import pytest
from installation import Installation
from live_cluster import until
from replays import Replay
from restarts import restart_api_server, restart_spark_operator

pytestmark = pytest.mark.timeout(1800)


@pytest.mark.alone
def test_the_spark_operator_is_restarted(replay: Callable[..., Replay]) -> None:
    unsupervised = replay("unsupervised").begin()
    unsupervised.until_midway()
    restart_spark_operator(unsupervised.team.cluster)
    unsupervised.until_succeeded(attempts=1)


@pytest.mark.alone
def test_the_api_server_is_restarted(replay: Callable[..., Replay]) -> None:
    unheard = replay("unheard").begin()
    unheard.until_midway()
    restart_api_server(unheard.team.cluster)
    unheard.until_succeeded(attempts=1)


def test_the_chart_is_upgraded(replay: Callable[..., Replay], installation: Installation) -> None:
    upgraded = replay("upgraded").begin()
    upgraded.until_midway()
    before = installation.leader
    installation.change("upgrade", "--wait", "--timeout", "2m", workers=4)
    until(lambda: installation.leader not in ("", before), "the new release leads")
    upgraded.until_succeeded(attempts=1)
