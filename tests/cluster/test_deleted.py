"""A Backfill that is deleted midway leaves nothing behind."""

from collections.abc import Callable

import pytest
from live_cluster import until
from replays import Replay
from rest import SPARK_APPLICATIONS
from teams import APPLICATION

pytestmark = pytest.mark.timeout(1800)


def test_the_output_is_as_it_was_and_the_application_still_there(
    replay: Callable[..., Replay],
) -> None:
    given_up = replay("given-up").begin()
    given_up.until_midway()
    until(lambda: given_up.summary.branches, "it has written")
    assert given_up.remains

    given_up.delete()
    given_up.until_nothing_is_left()
    assert given_up.summary.rows == given_up.summary.wrong
    applications = given_up.team.items(SPARK_APPLICATIONS)
    assert APPLICATION in {each["metadata"]["name"] for each in applications}
