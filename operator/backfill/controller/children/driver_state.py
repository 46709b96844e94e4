"""The state of a driver, by its pod and by what the Spark operator reports of the child. Pure.

The pod is authoritative if there is one: a Spark operator may be slow or unavailable, or call a run
completed that is not.
"""

from datetime import datetime
from typing import Any

from backfill.api.quantities import parse_time
from backfill.controller.children.dialect import ChildState
from backfill.controller.children.pod_template import container_name
from backfill.controller.driver import QUOTA_EXCEEDED, DriverState
from backfill.kube.request_errors import QUOTA
from backfill.kube.resources import Manifest

_MOST_MESSAGE = 600
_OUT_OF_MEMORY = "OOMKilled"
_API_SERVER = "Message: "
_QUOTA_ADVICE = "Raise the ResourceQuota, or lower spec.overrides.driver."


def driver_state(child: ChildState | None, pod: Manifest | None) -> DriverState:
    """The state of an attempt's driver. ``child`` and ``pod`` are None if they do not exist."""
    if pod is not None:
        return _of_pod(pod)
    if child is None:
        return DriverState("Absent")
    message = essence(child.message)
    if child.phase == "Waiting":
        return DriverState("Pending", reason=child.reason, message=message, since=child.since)
    if child.phase == "Running":
        message = "its driver pod is gone, but the Spark operator has not reported that yet"
        return DriverState("Exited", reason="DriverGone", message=message)
    if QUOTA in child.message:
        return DriverState(
            "Exited",
            reason=QUOTA_EXCEEDED,
            message=f"{message.rstrip('.')}. {_QUOTA_ADVICE}",
            since=child.since,
        )
    return DriverState("Exited", reason=child.reason, message=message, since=child.since)


def has_ended(pod: Manifest) -> bool:
    """Whether the driver in a pod has ended, although other containers of it may still run."""
    return _of_pod(pod).phase == "Exited"


def essence(message: str) -> str:
    """The line of a long message that says what is wrong.

    Spark operators pass on whole stack traces.
    """
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    told = next(
        (_of_api_server(line) for line in lines if _API_SERVER in line or QUOTA in line), None
    )
    raised = next((line for line in lines if "Exception: " in line or "Error: " in line), None)
    return (told or raised or (lines[0] if lines else ""))[:_MOST_MESSAGE]


def _of_api_server(line: str) -> str:
    """The API server's message, without the request before it and the whole answer after it, which
    Spark's client adds.
    """
    return line.split(_API_SERVER, 1)[-1].partition(" Received status: ")[0].strip()


def _of_pod(pod: Manifest) -> DriverState:
    status = pod.get("status") or {}
    container = _spark_status(status)
    ended = (container.get("state") or {}).get("terminated")
    if ended is not None:
        return _exited(ended, pod)
    phase = status.get("phase")
    if phase in ("Failed", "Succeeded"):
        reason, message = (
            status.get("reason") or phase,
            status.get("message") or _init_failure(status),
        )
        return DriverState(
            "Exited",
            0 if phase == "Succeeded" else None,
            reason=reason,
            message=message[:_MOST_MESSAGE],
        )
    if pod["metadata"].get("deletionTimestamp"):
        return DriverState(
            "Running", reason="Terminating", message="its driver pod is being deleted"
        )
    if phase == "Unknown":
        return DriverState(
            "Running", reason="NodeLost", message="the node of its driver pod does not respond"
        )
    started = (container.get("state") or {}).get("running")
    if started is not None:
        return DriverState("Running", since=_time(started.get("startedAt")))
    return _pending(pod, container)


def _exited(ended: Manifest, pod: Manifest) -> DriverState:
    reason = ended.get("reason") or "Error"
    message = ended.get("message") or (pod["status"].get("message") or "")
    if reason == _OUT_OF_MEMORY:
        limit = _memory_limit(pod)
        needed = (
            "its driver ran out of memory, although its container has no limit"
            if limit is None
            else f"its driver exceeded the memory limit of its pod ({limit})"
        )
        message = f"{needed}; raise spec.overrides.driver.memory or memoryOverhead"
    elif pod["status"].get("reason"):
        reason = pod["status"]["reason"]  # such as Evicted
    since = _time(ended.get("finishedAt"))
    last_words = message[-_MOST_MESSAGE:]  # it may be the end of a log
    return DriverState(
        "Exited", ended.get("exitCode"), reason=reason, message=last_words, since=since
    )


def _pending(pod: Manifest, container: Manifest) -> DriverState:
    status = pod.get("status") or {}
    since = _time(pod["metadata"].get("creationTimestamp"))
    for condition in status.get("conditions") or []:
        if condition["type"] != "PodScheduled":
            continue
        # for a pod on a node, the wait began there
        since = _time(condition.get("lastTransitionTime")) or since
        if condition["status"] == "False":
            reason = condition.get("reason") or "Unschedulable"
            return DriverState(
                "Pending",
                reason=reason,
                message=(condition.get("message") or "")[:_MOST_MESSAGE],
                since=since,
            )
    for each in (*(status.get("initContainerStatuses") or ()), container):
        waiting = (each.get("state") or {}).get("waiting")
        if waiting is not None:
            reason = waiting.get("reason") or "ContainerCreating"
            return DriverState(
                "Pending",
                reason=reason,
                message=(waiting.get("message") or "")[:_MOST_MESSAGE],
                since=since,
            )
    return DriverState(
        "Pending", reason="PodPending", message="its driver pod is waiting for a node", since=since
    )


def _spark_status(status: Manifest) -> Manifest:
    statuses: list[Manifest] = status.get("containerStatuses") or []
    name = container_name("driver")
    return next(
        (each for each in statuses if each.get("name") == name), statuses[0] if statuses else {}
    )


def _init_failure(status: Manifest) -> str:
    for each in status.get("initContainerStatuses") or []:
        ended = (each.get("state") or {}).get("terminated") or {}
        if ended.get("exitCode"):
            return f"its init container {each['name']} exited with status {ended['exitCode']}"
    return ""


def _memory_limit(pod: Manifest) -> str | None:
    containers = (pod.get("spec") or {}).get("containers") or []
    name = container_name("driver")
    container = next(
        (each for each in containers if each.get("name") == name),
        containers[0] if containers else {},
    )
    limit = ((container.get("resources") or {}).get("limits") or {}).get("memory")
    return None if limit is None else str(limit)


def _time(value: Any) -> datetime | None:
    return parse_time(value) if value else None
