"""What keeps a Backfill from running is said on it, with what to do, while others run beside it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from installation import Installation
from live_cluster import until
from plays import Plays
from replays import Replay
from teams import OTHER_SECRET, Team

from iceberg_tables import catalog_properties

pytestmark = pytest.mark.timeout(1800)
_QUOTA = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "tiny"},
    "spec": {"hard": {"requests.memory": "1Gi"}},
}
"""Enough for a job, and too little for a driver."""


@pytest.fixture(scope="module")
def stopped(
    installation: Installation, teams: dict[str, Team], plays: Plays
) -> Iterator[dict[str, Replay]]:
    """Three Backfills that have all begun, each with something wrong."""
    named = {"no-image": "open", "no-quota": "poor", "wrong-secret": "open"}
    made = {name: Replay(teams[team], plays.summary(name)) for name, team in named.items()}
    teams["poor"].apply(_QUOTA)
    nowhere = Path(teams["open"].storage.workspace).parent / "nowhere"
    teams["open"].apply(teams["open"].secret(OTHER_SECRET, **catalog_properties(nowhere)))
    catalogs = [{"name": "lake", "secretRef": {"name": OTHER_SECRET}}]
    made["no-image"].begin(overrides={"driver": {"image": "localhost/no-such-image:1"}})
    made["no-quota"].begin(failurePolicy={"backoff": "1s", "maxAttempts": 1})
    made["wrong-secret"].begin(catalogs=catalogs, suspend=True)
    yield made
    for each in made.values():
        each.delete()


def test_an_image_that_cannot_be_pulled_is_named_and_a_corrected_one_is_taken(
    stopped: dict[str, Replay],
) -> None:
    nowhere = stopped["no-image"]
    said = nowhere.until("names its image", "DriverStartBlocked")
    assert "the image cannot be pulled" in said["message"]
    assert "localhost/no-such-image:1" in said["message"]
    assert nowhere.condition("Stalled")["status"] == "True"
    until(
        lambda: (
            ("Warning", "DriverStartBlocked")
            in {(event["type"], event["reason"]) for event in nowhere.events}
        ),
        "an Event says so",
    )

    nowhere.change(overrides={"driver": {"image": None}})
    until(
        lambda: [each["outcome"] for each in nowhere.attempts] == ["Stopped", "Running"],
        "an attempt with the application's own image takes the place of that",
    )
    until(lambda: nowhere.drivers, "its driver runs")
    assert nowhere.condition("Stalled").get("status") != "True"
    nowhere.delete()
    until(lambda: nowhere.gone and not nowhere.belongings, "nothing of it is left")


def test_a_quota_that_is_too_small_is_named_and_costs_no_attempt(
    stopped: dict[str, Replay],
) -> None:
    large = stopped["no-quota"]
    said = large.until("names the quota", "DriverStartBlocked")
    assert (
        f'pods "{large.name}-a1-driver" is forbidden: exceeded quota: tiny, requested:'
        " requests.memory=" in said["message"]
    )
    assert "Raise the ResourceQuota, or lower spec.overrides.driver." in said["message"]
    assert large.condition("Stalled")["status"] == "True"
    assert not large.drivers
    assert [each["outcome"] for each in large.attempts] == ["Stopped"], "it has not failed"

    large.team.cluster.kubectl(large.team.namespace, "delete", "resourcequota", "tiny")
    large.change(retryNonce="room")
    until(lambda: large.drivers, "a driver runs once there is room")


def test_a_secret_with_another_catalog_is_told_of_and_read_again(
    stopped: dict[str, Replay],
) -> None:
    misled = stopped["wrong-secret"]
    said = misled.until("cannot open its catalog", "TryingAgain", kind="Planned")
    assert "unable to open database file" in said["message"]

    misled.team.apply(misled.team.secret(OTHER_SECRET, **misled.team.storage.properties))
    misled.until("is planned", "PlanReady", kind="Planned")
    misled.until("is not started", "Suspended")
    assert misled.attempts == []
