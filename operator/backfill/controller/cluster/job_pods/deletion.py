"""Pods that are being deleted. Where a node is lost nobody tells that its pods have ended, and they
stay for ever. Pure.
"""

from datetime import datetime, timedelta
from typing import Final

from backfill.api.quantities import format_time, parse_time
from backfill.kube.resources import Manifest

PATIENCE: Final = timedelta(minutes=1)
"""A kubelet that is alive needs less once the pod's grace is over."""


def being_deleted(manifest: Manifest) -> bool:
    """Whether the deletion of an object was asked for."""
    return manifest["metadata"].get("deletionTimestamp") is not None


def overdue(pod: Manifest, now: datetime) -> bool:
    """Whether it should have been gone by now: its node does not answer."""
    return being_deleted(pod) and now > _gone_by(pod) + PATIENCE


def end_in_words(pod: Manifest, now: datetime) -> str:
    """What somebody waits for who waits for its end, and what to do where that may take for
    ever.
    """
    metadata = pod["metadata"]
    end = f"the end of pod {metadata['name']}"
    if not overdue(pod, now):
        return f"{end}, which is being deleted" if being_deleted(pod) else end
    command = f"kubectl delete pod {metadata['name']} -n {metadata['namespace']} --force"
    return (
        f"{end}, which was to be gone by {format_time(_gone_by(pod))}; if its node is lost for"
        f" good, run: {command}"
    )


def _gone_by(pod: Manifest) -> datetime:
    """Kubernetes counts the grace in."""
    return parse_time(pod["metadata"]["deletionTimestamp"])
