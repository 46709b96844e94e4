"""A Backfill that is deleted leaves nothing behind, and takes nothing away that was published."""

from collections.abc import Callable

import pytest
from live_cluster import until
from replays import Replay
from rest import SPARK_APPLICATIONS
from teams import APPLICATION

pytestmark = pytest.mark.timeout(400)


def test_midway_it_leaves_the_output_as_it_was(replay: Callable[..., Replay]) -> None:
    given_up = replay("given-up").begin()
    given_up.until_midway()
    until(lambda: given_up.summary.branches, "it has written", 20)
    assert given_up.remains

    given_up.delete()
    _nothing_is_left(given_up)
    assert given_up.summary.rows == given_up.summary.wrong
    applications = given_up.team.items(SPARK_APPLICATIONS)
    assert APPLICATION in {each["metadata"]["name"] for each in applications}


def test_afterwards_what_it_published_stays(replay: Callable[..., Replay]) -> None:
    published = replay("published")
    published.summary.window = {"start": "2024-03-01T10:00:00Z", "end": "2024-03-01T13:00:00Z"}
    published.begin()
    published.until_succeeded()

    published.delete()
    _nothing_is_left(published)
    assert published.summary.rows == published.summary.mended


def _nothing_is_left(replay: Replay) -> None:
    until(lambda: replay.gone, "the Backfill is gone", 90)
    until(lambda: not replay.belongings, "its objects are gone", 60)
    assert replay.remains == set()
    assert replay.summary.branches == set()
    assert replay.summary.stray_files == set()
