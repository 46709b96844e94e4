"""What Argo CD makes of a Backfill, by its own means: a Lua script that sees the resource as
``obj``.
"""

from datetime import UTC, datetime
from typing import Any

import pytest
from lupa import LuaRuntime

from backfill.api.conditions import ConditionType, Reason, set_condition
from repository import ROOT

SCRIPT = (ROOT / "deploy" / "argocd" / "health.lua").read_text()
NOW = datetime(2024, 1, 1, tzinfo=UTC)
UNDER_WAY = (ConditionType.SUCCEEDED, "Unknown", Reason.IN_PROGRESS, "")


def health(resource: dict[str, Any]) -> tuple[str, str]:
    lua = LuaRuntime()
    lua.globals()["obj"] = lua.table_from(resource, recursive=True)
    result = lua.execute(SCRIPT)
    return result["status"], result["message"]


def backfill(
    *told: Any, suspend: bool = False, generation: int = 1, observed: int = 1
) -> dict[str, Any]:
    conditions: Any = ()
    for kind, status, reason, message in told:
        conditions = set_condition(conditions, kind, status, reason, message, NOW, observed)
    status = {
        "observedGeneration": observed,
        "progress": {"summary": "12/48 (25%)"},
        "conditions": [condition.to_manifest() for condition in conditions],
    }
    return {"metadata": {"generation": generation}, "spec": {"suspend": suspend}, "status": status}


def running(reason: Reason) -> tuple[ConditionType, str, Reason, str]:
    return ConditionType.RUNNING, "Unknown", reason, "about the driver"


@pytest.mark.parametrize(
    ("resource", "expected"),
    [
        ({"metadata": {}, "spec": {}}, ("Progressing", "not taken up by the operator yet")),
        (
            {"metadata": {}, "spec": {}, "status": {}},
            ("Progressing", "not taken up by the operator yet"),
        ),
        (backfill(UNDER_WAY, running(Reason.REPLAYING)), ("Progressing", "Replaying, 12/48 (25%)")),
        (
            backfill(UNDER_WAY, running(Reason.BACKING_OFF)),
            ("Progressing", "BackingOff, 12/48 (25%)"),
        ),
        (
            backfill(UNDER_WAY, running(Reason.SUSPENDED), suspend=True),
            ("Suspended", "about the driver"),
        ),
        (
            backfill(
                UNDER_WAY,
                running(Reason.ALL_STEPS_COMMITTED),
                (ConditionType.PUBLISHED, "Unknown", Reason.SUSPENDED, "not published yet"),
                suspend=True,
            ),
            ("Suspended", "not published yet"),
        ),
        (
            backfill(UNDER_WAY, running(Reason.SUSPENDING), suspend=True),
            ("Progressing", "Suspending, 12/48 (25%)"),
        ),
        (
            backfill(
                UNDER_WAY,
                (ConditionType.PUBLISHED, "Unknown", Reason.WAITING_FOR_APPROVAL, "7 rows wait"),
            ),
            ("Suspended", "7 rows wait"),
        ),
        (
            backfill(
                UNDER_WAY,
                (ConditionType.STALLED, "True", Reason.DRIVER_START_BLOCKED, "no such image"),
            ),
            ("Degraded", "no such image"),
        ),
        (
            backfill((ConditionType.SUCCEEDED, "False", Reason.INVALID_INPUT, "no such table")),
            ("Degraded", "no such table"),
        ),
        (
            backfill((ConditionType.SUCCEEDED, "True", Reason.FINISHED, "published")),
            ("Healthy", "published"),
        ),
        (
            backfill(
                (ConditionType.SUCCEEDED, "False", Reason.ATTEMPTS_EXHAUSTED, "old"), generation=2
            ),
            ("Progressing", "the operator has not seen this change yet"),
        ),
    ],
    ids=[
        "new",
        "without conditions",
        "reading",
        "a failed attempt is not a failed backfill",
        "suspended",
        "suspended before it was published",
        "still stopping",
        "waits for approval",
        "stalled",
        "failed for good",
        "succeeded",
        "tried again after it had failed",
    ],
)
def test_health(resource: dict[str, Any], expected: tuple[str, str]) -> None:
    assert health(resource) == expected
