"""What is said of a pod that somebody waits for the end of."""

from datetime import UTC, datetime, timedelta
from typing import Any

from backfill.controller.cluster.job_pods.pod_deletion import PATIENCE, end_in_words, overdue

GONE_BY = datetime(2024, 3, 1, 12, tzinfo=UTC)


def pod(**metadata: str) -> dict[str, Any]:
    return {"metadata": {"name": "july-job-1", "namespace": "streaming"} | metadata}


DELETED = pod(deletionTimestamp="2024-03-01T12:00:00Z")


def test_a_pod_that_nobody_deletes_is_never_overdue() -> None:
    assert not overdue(pod(), GONE_BY + timedelta(days=1))
    assert end_in_words(pod(), GONE_BY) == "pod july-job-1 to terminate"


def test_a_pod_has_its_grace_and_its_kubelet_some_more_time() -> None:
    assert not overdue(DELETED, GONE_BY + PATIENCE)
    assert end_in_words(DELETED, GONE_BY) == "pod july-job-1 to terminate (it is being deleted)"


def test_of_a_pod_that_should_be_gone_it_is_said_how_to_get_rid_of_it() -> None:
    said = end_in_words(DELETED, GONE_BY + PATIENCE + timedelta(seconds=1))
    assert "was due by 2024-03-01T12:00:00Z" in said
    assert said.endswith("run: kubectl delete pod july-job-1 -n streaming --force")
