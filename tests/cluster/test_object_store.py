"""Tables and workspace in an object store, the catalog in PostgreSQL: nothing is shared but what a
network reaches.
"""

import base64

import pytest
from installation import Installation
from live_cluster import until
from plays import Plays
from replays import Replay
from rest import Manifest
from stores import Stores
from teams import CATALOG_SECRET, Team

pytestmark = pytest.mark.timeout(1800)
"""Several times what a machine of two cores needs: each file of a checkpoint is a request here."""
SPARK_CONF = {
    "spark.sql.shuffle.partitions": "2",
    "spark.logConf": "true",  # nothing that Spark knows may be a credential
    "spark.kubernetes.executor.deleteOnTermination": "false",  # their logs are read in the end
}


def test_a_backfill_in_an_object_store_is_published_and_its_credentials_are_in_secrets_only(
    stores: Stores, remote: Installation
) -> None:
    (team,) = remote.teams
    stored = Replay(team, Plays(stores.catalog()).summary("stored"))
    two = {"minExecutors": 2, "maxExecutors": 2}
    stored.begin(scaling=two, maxMisalignment="4h", overrides={"sparkConf": SPARK_CONF})
    until(lambda: len(_running(stored.executors)) == 2, "two executors are up")
    pods = [pod["metadata"]["name"] for pod in (*stored.drivers, *stored.executors)]
    first = {
        team.cluster.kubectl(team.namespace, "exec", pod, "--", "cat", "/proc/1/comm").strip()
        for pod in pods
    }
    assert first == {"tini"}
    stored.until_succeeded()

    logs = {pod: team.cluster.kubectl(team.namespace, "logs", pod) for pod in pods}
    ran = [pod for pod, log in logs.items() if "Running task" in log]
    assert ran and pods[0] not in ran, "executors have run tasks, and no driver"
    assert "spark.logConf=true" in logs[pods[0]], "the driver tells its properties"
    told = logs | _told(remote) | {"the chart": remote.helm("get", "all")}
    assert [
        where for where, text in told.items() for each in stores.credentials if each in text
    ] == []
    assert stores.files_with_credentials() == []
    assert _secrets_with(stores.credentials, team) == {CATALOG_SECRET}


def _running(pods: list[Manifest]) -> list[Manifest]:
    return [pod for pod in pods if pod["status"]["phase"] == "Running"]


def _told(installation: Installation) -> dict[str, str]:
    """All objects and logs of the operator's and the team's namespaces, but for Secrets."""
    cluster = installation.cluster
    listed = cluster.kubectl(
        installation.namespace, "api-resources", "--namespaced", "--verbs=list", "--output=name"
    ).split()
    # Events have two names
    kinds = ",".join(kind for kind in listed if kind not in ("secrets", "events"))
    namespaces = [installation.namespace, *(team.namespace for team in installation.teams)]
    objects = {
        f"objects of {name}": cluster.kubectl(name, "get", kinds, "--output=yaml")
        for name in namespaces
    }
    for name, text in objects.items():
        assert "kind: ConfigMap" in text and "kind: Event" in text, name
    operator = {pod["metadata"]["name"] for pod in installation.replicas}
    logs = {name: cluster.kubectl(installation.namespace, "logs", name) for name in operator}
    assert all("stored" in log for log in logs.values()), "the operator tells what it does"
    return objects | logs


def _secrets_with(credentials: tuple[str, ...], team: Team) -> set[str]:
    """Names of the team's Secrets that have any of them."""
    found = set()
    for secret in team.items("api/v1/namespaces/{}/secrets"):
        values = [
            base64.b64decode(value).decode(errors="replace")
            for value in secret.get("data", {}).values()
        ]
        if any(each in value for each in credentials for value in values):
            found.add(secret["metadata"]["name"])
    return found
