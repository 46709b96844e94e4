"""Backfills from ``kubectl apply`` to the published result, on a real cluster."""

import time
from collections.abc import Callable

import pytest
from images import JOBS
from installation import RELEASE, Installation
from live_cluster import until
from replays import Replay
from teams import ACCOUNT, CATALOG_SECRET

pytestmark = pytest.mark.timeout(1800)
MOST_EVENTS = 15
_REVIEWS = "apis/authorization.k8s.io/v1/subjectaccessreviews"


@pytest.mark.alone
def test_an_unmodified_kafka_application_mends_its_output_and_what_is_published_stays(
    replay: Callable[..., Replay], record_property: Callable[[str, object], None]
) -> None:
    mending = replay("mending")
    # with two hours without plays
    mending.summary.window = {"start": "2024-03-01T06:00:00Z", "end": "2024-03-01T12:00:00Z"}
    began = time.monotonic()
    mending.begin(execution="Auto")
    until(lambda: mending.committed > 0, "a step is committed")
    first_step = time.monotonic() - began
    until(
        lambda: mending.committed >= mending.released["steps"],
        "all steps are committed",
    )
    committed = time.monotonic()
    ended = mending.until_succeeded()
    ending = time.monotonic() - committed

    assert {each["type"]: each["status"] for each in ended["status"]["conditions"]} == {
        "Planned": "True",
        "InputComplete": "True",
        "Running": "False",
        "Published": "True",
        "Succeeded": "True",
        "Ready": "True",
    }
    progress = ended["status"]["progress"]
    assert progress["committed"] == progress["steps"] > 10
    assert len(mending.events) < MOST_EVENTS
    record_property("first step", f"{first_step:.1f} s")
    record_property("ending", f"{ending:.1f} s")
    print(
        f"apply to the first committed step: {first_step:.1f} s; last one to Succeeded:"
        f" {ending:.1f} s"
    )
    assert ending < first_step / 2, "37 s and 4 s on two cores: it waited for something"

    mending.delete()
    mending.until_nothing_is_left()
    assert mending.summary.rows == mending.summary.fixed


def test_two_backfills_run_at_once(replay: Callable[..., Replay]) -> None:
    morning, noon = replay("morning"), replay("noon")
    noon.summary.window = {"start": "2024-03-01T10:00:00Z", "end": "2024-03-01T14:00:00Z"}
    morning.begin(execution="Auto")
    # several executors share the tasks of one span
    noon.begin(execution="Auto", scaling={"minExecutors": 2, "maxExecutors": 2})

    until(lambda: morning.drivers and noon.drivers, "both have a driver at once")
    morning.until_succeeded()
    noon.until_succeeded()


def test_what_the_application_reads_and_writes_is_found_by_its_own_image(
    replay: Callable[..., Replay],
) -> None:
    summary = replay("summary")  # the table that the program names
    left_out = dict.fromkeys(("sources", "outputs", "ordering", "maxMisalignment", "planning"))
    summary.begin(window=summary.summary.window, publish="Replace", execution="Auto", **left_out)
    summary.until("waits for approval", "WaitingForApproval", "Published")
    found = summary.state["status"]["resolved"]
    assert {each["table"] for each in found["sources"]} == {
        "lake.raw.impressions",
        "lake.raw.playbacks",
    }
    assert found["warmUp"] == "30m"
    origins = {each["field"]: each["why"] for each in found["origins"]}
    assert "up to 30m earlier" in origins["spec.window.warmUp"]
    summary.approve()
    summary.until_succeeded()
    assert "sources" not in summary.state["spec"]

    summary.delete()
    summary.until_nothing_is_left()


def test_jobs_are_pods_with_the_drivers_account_and_the_operator_reads_no_secret(
    replay: Callable[..., Replay], installation: Installation
) -> None:
    planned = replay("planned").begin(execution="Auto")
    assert not _operator_reads_secrets(installation, planned.team.namespace)
    (pod,) = until(lambda: planned.pods(**{"backfill.dev/job": "plan"}), "a pod makes the plan")
    assert pod["spec"]["serviceAccountName"] == ACCOUNT
    assert [each["image"] for each in pod["spec"]["containers"]] == [JOBS]
    planned.until_succeeded()


def _operator_reads_secrets(installation: Installation, namespace: str) -> bool:
    """Whether it may read the Secret with the team's catalog, by the API server's word."""
    asked = {"namespace": namespace, "verb": "get", "resource": "secrets", "name": CATALOG_SECRET}
    user = f"system:serviceaccount:{installation.namespace}:{RELEASE}"
    review = {"spec": {"user": user, "resourceAttributes": asked}}
    return bool(installation.cluster.admin.create(_REVIEWS, review).expect()["status"]["allowed"])
