"""What became of a driver, told from its pod and the Spark operator's words."""

from datetime import UTC, datetime
from typing import Any

import pytest

from backfill.controller.children.apache import Apache
from backfill.controller.children.dialect import ChildState
from backfill.controller.children.driver_state import driver_state, essence
from backfill.controller.children.kubeflow import Kubeflow
from backfill.kube.resources import Manifest

RUNNING = ChildState("Running", "Running")
COMPLETED = ChildState("Over", "Completed")
CREATED = "2024-01-01T00:00:00Z"


def pod(
    phase: str,
    state: dict[str, Any] | None = None,
    *,
    name: str = "spark-kubernetes-driver",
    **status: Any,
) -> Manifest:
    containers = [{"name": name, "state": state}] if state else []
    return {
        "metadata": {"name": "a-driver", "creationTimestamp": CREATED},
        "spec": {"containers": [{"name": name}]},
        "status": {"phase": phase, "containerStatuses": containers, **status},
    }


def scheduled(value: str, reason: str = "", message: str = "") -> dict[str, Any]:
    return {
        "conditions": [
            {"type": "PodScheduled", "status": value, "reason": reason, "message": message}
        ]
    }


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": message}}


def ended(code: int, **more: Any) -> dict[str, Any]:
    return {
        "terminated": {"exitCode": code, "reason": "Completed" if code == 0 else "Error", **more}
    }


BESIDE = {"name": "proxy", "state": {"running": {}}}
DELETED = pod("Running", {"running": {}})
DELETED["metadata"]["deletionTimestamp"] = CREATED

CASES: list[tuple[str, ChildState | None, Manifest | None, tuple[str, str, int | None]]] = [
    ("nothing is there", None, None, ("Absent", "", None)),
    ("no Spark operator has seen the child", ChildState("Waiting", "NotSubmitted"), None, ("Pending", "NotSubmitted", None)),
    ("the submission failed", ChildState("Over", "SubmissionFailed"), None, ("Exited", "SubmissionFailed", None)),
    ("a quota is used up", ChildState("Over", "Failed", "exceeded quota: x"), None, ("Exited", "QuotaExceeded", None)),
    ("the pod is gone though the operator says it runs", RUNNING, None, ("Exited", "DriverGone", None)),
    ("completed and the pod is gone", COMPLETED, None, ("Exited", "Completed", None)),
    ("no node fits", RUNNING, pod("Pending", **scheduled("False", "Unschedulable")), ("Pending", "Unschedulable", None)),
    ("gated by a queue", RUNNING, pod("Pending", **scheduled("False", "SchedulingGated")), ("Pending", "SchedulingGated", None)),
    ("the image is not there", RUNNING, pod("Pending", waiting("ErrImagePull")), ("Pending", "ErrImagePull", None)),
    ("a Secret lacks a key", RUNNING, pod("Pending", waiting("CreateConfigError")), ("Pending", "CreateConfigError", None)),
    ("nothing is known of the pod yet", RUNNING, pod("Pending"), ("Pending", "PodPending", None)),
    ("it runs", RUNNING, pod("Running", {"running": {"startedAt": CREATED}}), ("Running", "", None)),
    ("it runs though the operator calls it completed", COMPLETED, pod("Running", {"running": {}}), ("Running", "", None)),
    ("it runs in a container of another name", RUNNING, pod("Running", {"running": {}}, name="x"), ("Running", "", None)),
    ("it runs without its child", None, pod("Running", {"running": {}}), ("Running", "", None)),
    ("it is being deleted", RUNNING, DELETED, ("Running", "Terminating", None)),
    ("its node is lost", RUNNING, pod("Unknown"), ("Running", "NodeLost", None)),
    ("it ended well", RUNNING, pod("Succeeded", ended(0)), ("Exited", "Completed", 0)),
    ("it failed", RUNNING, pod("Failed", ended(1)), ("Exited", "Error", 1)),
    ("it ended while what runs beside it goes on", RUNNING, pod("Running", ended(0)), ("Exited", "Completed", 0)),
    ("it was killed for memory", RUNNING, pod("Failed", ended(137, reason="OOMKilled")), ("Exited", "OOMKilled", 137)),
    ("it was evicted with its container known", RUNNING, pod("Failed", ended(143), reason="Evicted"), ("Exited", "Evicted", 143)),
    ("it was evicted before it ran", RUNNING, pod("Failed", reason="Evicted"), ("Exited", "Evicted", None)),
    ("its pod succeeded without a word of the container", RUNNING, pod("Succeeded"), ("Exited", "Succeeded", 0)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("child", "driver", "told"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_the_driver_is(
    child: ChildState | None, driver: Manifest | None, told: tuple[str, str, int | None]
) -> None:
    state = driver_state(child, driver)
    assert (state.phase, state.reason, state.exit_status) == told


def test_a_container_before_it_that_failed_is_named() -> None:
    status = {"initContainerStatuses": [{"name": "warm", "state": {"terminated": {"exitCode": 3}}}]}
    assert (
        driver_state(None, pod("Failed", **status)).message
        == "its init container warm exited with status 3"
    )


def test_a_container_before_it_that_can_not_start_says_why() -> None:
    status = {"initContainerStatuses": [{"name": "warm", "state": waiting("ImagePullBackOff")}]}
    assert (
        driver_state(None, pod("Pending", waiting("PodInitializing"), **status)).reason
        == "ImagePullBackOff"
    )


QUOTA = (
    'pods "rmi-a1-driver" is forbidden: exceeded quota: tiny, requested: requests.memory=2496Mi,'
    " limited: requests.memory=1Gi"
)
REFUSED = (
    'failed to run spark-submit: WARNING: x\nException in thread "main"'
    " io.fabric8.kubernetes.client.KubernetesClientException: Failure executing: POST at:"
    f" https://10.0.0.1/api/v1/namespaces/streaming/pods. Message: {QUOTA}. Received status:"
    f" Status(apiVersion=v1, code=403, message={QUOTA}, metadata=ListMeta(_continue=null)).\n\tat y"
)


def test_a_quota_that_is_used_up_is_told_in_the_api_servers_words_with_what_to_do() -> None:
    state = driver_state(ChildState("Over", "SubmissionFailed", REFUSED), None)
    assert (state.phase, state.reason) == ("Exited", "QuotaExceeded")
    assert state.message == f"{QUOTA}. Raise the ResourceQuota, or lower spec.overrides.driver."


TRACE = (
    "failed to run spark-submit: 24/01/01 WARN x\n\tat y\nCaused by: java.io.IOException:"
    " no\n\tat z"
)


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("", ""),
        ("driver pod not found", "driver pod not found"),
        (TRACE, "Caused by: java.io.IOException: no"),
        ("x" * 5000, "x" * 600),
    ],
)
def test_a_long_message_is_cut_to_what_was_wrong(message: str, line: str) -> None:
    assert essence(message) == line


@pytest.mark.parametrize(
    "state",
    ["", "SUBMITTED", "SUSPENDED", "SUSPENDING", "RESUMING", "PENDING_RERUN", "INVALIDATING"],
)
def test_kubeflow_has_no_driver_yet(state: str) -> None:
    child = {
        "metadata": {"creationTimestamp": CREATED},
        "status": {"applicationState": {"state": state}},
    }
    assert Kubeflow().state(child).phase == "Waiting"


@pytest.mark.parametrize("state", ["RUNNING", "SUCCEEDING", "FAILING", "UNKNOWN"])
def test_kubeflow_has_a_driver(state: str) -> None:
    child = {
        "metadata": {},
        "status": {"applicationState": {"state": state}, "terminationTime": None},
    }
    assert Kubeflow().state(child).phase == "Running"


@pytest.mark.parametrize(
    "summary", ["DriverStartTimedOut", "SchedulingFailure", "DriverEvicted", "Succeeded"]
)
def test_apaches_child_is_over_and_says_how(summary: str) -> None:
    end, released = (
        {"currentStateSummary": summary, "message": "so"},
        {"currentStateSummary": "ResourceReleased"},
    )
    for current in (end, released):
        status = {"currentState": current, "stateTransitionHistory": {"9": end, "10": released}}
        state = Apache().state({"metadata": {}, "status": status})
        assert (state.phase, state.reason, state.message) == ("Over", summary, "so")


@pytest.mark.parametrize(
    ("written", "microsecond"),
    [
        ("2026-11-28T12:56:48Z", 0),
        ("2026-11-28T12:56:48.704Z", 704_000),
        ("2026-11-28T12:56:48.704885277Z", 704_885),
    ],
)
def test_apaches_times_have_as_many_digits_as_javas(written: str, microsecond: int) -> None:
    current = {"currentStateSummary": "RunningHealthy", "lastTransitionTime": written}
    state = Apache().state({"metadata": {}, "status": {"currentState": current}})
    assert state.since == datetime(2026, 11, 28, 12, 56, 48, microsecond, tzinfo=UTC)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"memory": "2Gi"}, "its driver exceeded the memory limit of its pod (2Gi)"),
        ({}, "its driver ran out of memory, although its container has no limit"),
    ],
)
def test_a_driver_that_was_killed_for_memory_says_what_it_was_allowed(
    limits: Manifest, message: str
) -> None:
    driver = pod("Failed", ended(137, reason="OOMKilled"))
    container = {"name": "spark-kubernetes-driver", "resources": {"limits": limits}}
    state = driver_state(RUNNING, {**driver, "spec": {"containers": [container]}})
    assert state.message == f"{message}; raise spec.overrides.driver.memory or memoryOverhead"
