"""Pods that are being deleted. If a node is lost, nothing reports the end of its pods, and they
stay forever. Pure.
"""

from datetime import datetime, timedelta
from typing import Final

from backfill.api.quantities import format_time, parse_time
from backfill.kube.resources import Manifest

PATIENCE: Final = timedelta(minutes=1)
"""A working kubelet needs less after the pod's grace period."""


def being_deleted(manifest: Manifest) -> bool:
    """Whether an object is being deleted."""
    return manifest["metadata"].get("deletionTimestamp") is not None


def overdue(pod: Manifest, now: datetime) -> bool:
    """Whether a pod should have been deleted by now: its node does not respond."""
    return being_deleted(pod) and now > _gone_by(pod) + PATIENCE


def end_in_words(pod: Manifest, now: datetime) -> str:
    """The end of a pod that is waited for, and what to do if it may never come."""
    metadata = pod["metadata"]
    end = f"pod {metadata['name']} to terminate"
    if not overdue(pod, now):
        return f"{end} (it is being deleted)" if being_deleted(pod) else end
    command = f"kubectl delete pod {metadata['name']} -n {metadata['namespace']} --force"
    return (
        f"{end}, which was due by {format_time(_gone_by(pod))}; if its node is lost for good, run:"
        f" {command}"
    )


def _gone_by(pod: Manifest) -> datetime:
    """When the pod should be deleted. The timestamp includes the grace period."""
    return parse_time(pod["metadata"]["deletionTimestamp"])
