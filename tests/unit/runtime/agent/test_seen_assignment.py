"""What a driver makes of the answers and events that tell of its SplitAssignment."""

from typing import Any

import pytest

from backfill.protocol.split_assignment import SplitAssignmentStatus
from backfill.runtime.agent.seen_assignment import SeenAssignment

HEARTBEAT = "2026-01-01T00:00:00Z"


def manifest(
    version: int, owner: str = "backfill-1", status: dict[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    said = {
        "backfill": "b",
        "planId": "p",
        "attempt": 1,
        "steps": 9,
        "released": version,
        "watermark": HEARTBEAT,
    }
    metadata = {
        "uid": "object-1",
        "resourceVersion": str(version),
        "ownerReferences": [{"uid": owner}],
    }
    return {"metadata": metadata, "spec": said | spec} | ({"status": status} if status else {})


@pytest.fixture
def seen() -> SeenAssignment:
    return SeenAssignment(owner_uid="backfill-1")


def released(seen: SeenAssignment) -> int:
    assert seen.spec is not None
    return seen.spec.released


def test_versions_are_compared_as_numbers_and_an_older_one_changes_nothing(
    seen: SeenAssignment,
) -> None:
    for version in (9, 10, 9):
        seen.take(manifest(version))
    assert (released(seen), seen.version) == (10, "10")


def test_an_object_of_another_owner_means_that_ours_is_gone(seen: SeenAssignment) -> None:
    seen.take(manifest(1))
    seen.take(manifest(2, owner="backfill-2"))
    assert (seen.gone, released(seen)) == (True, 1)


def test_a_spec_that_makes_no_sense_leaves_the_one_before_in_force(seen: SeenAssignment) -> None:
    seen.take(manifest(1))
    seen.take(manifest(2, released=-1))
    assert released(seen) == 1


def test_fields_of_a_newer_controller_are_passed_over(seen: SeenAssignment) -> None:
    seen.take(manifest(1, fieldOfTheFuture=1))
    assert released(seen) == 1


@pytest.mark.parametrize(
    "status", [None, {"heartbeat": HEARTBEAT, "attempt": 1, "phase": "Dancing"}]
)
def test_a_status_that_is_missing_or_of_another_version_is_none(
    seen: SeenAssignment, status: dict[str, Any] | None
) -> None:
    seen.take(manifest(1, status=status))
    assert seen.status is None


@pytest.mark.parametrize(
    ("status", "unchanged"),
    [
        (None, {"op": "test", "path": "/status", "value": None}),
        (
            {"heartbeat": HEARTBEAT, "attempt": 1},
            {"op": "test", "path": "/status/heartbeat", "value": HEARTBEAT},
        ),
    ],
)
def test_a_report_is_bound_to_the_object_the_attempt_and_the_report_before(
    seen: SeenAssignment, status: dict[str, Any] | None, unchanged: dict[str, Any]
) -> None:
    seen.take(manifest(1, status=status))
    report = SplitAssignmentStatus.model_validate(
        {"attempt": 3, "heartbeat": "2026-01-01T00:00:10Z"}
    )
    *tests, change = seen.status_patch(report)
    assert tests == [
        {"op": "test", "path": "/metadata/uid", "value": "object-1"},
        {"op": "test", "path": "/spec/attempt", "value": 3},
        unchanged,
    ]
    assert (change["op"], change["path"], change["value"]["attempt"]) == ("add", "/status", 3)
