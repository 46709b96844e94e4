"""What Argo CD makes of a Backfill, by its own means: a Lua script that sees the resource as
``obj``.
"""

from datetime import UTC, datetime
from typing import Any

from lupa import LuaRuntime

from backfill.api.conditions import ConditionType, Reason, set_condition
from cases import cases
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


@cases(
    ("resource", "expected"),
    {
        "new": ({"metadata": {}, "spec": {}}, ("Progressing", "not picked up by the operator yet")),
        "without conditions": (
            {"metadata": {}, "spec": {}, "status": {}},
            ("Progressing", "not picked up by the operator yet"),
        ),
        "reading": (
            backfill(UNDER_WAY, running(Reason.REPLAYING)),
            ("Progressing", "Replaying, 12/48 (25%)"),
        ),
        "a failed attempt is not a failed backfill": (
            backfill(UNDER_WAY, running(Reason.BACKING_OFF)),
            ("Progressing", "BackingOff, 12/48 (25%)"),
        ),
        "suspended": (
            backfill(UNDER_WAY, running(Reason.SUSPENDED), suspend=True),
            ("Suspended", "about the driver"),
        ),
        "suspended before it was published": (
            backfill(
                UNDER_WAY,
                running(Reason.ALL_STEPS_COMMITTED),
                (ConditionType.PUBLISHED, "Unknown", Reason.SUSPENDED, "not published yet"),
                suspend=True,
            ),
            ("Suspended", "not published yet"),
        ),
        "still stopping": (
            backfill(UNDER_WAY, running(Reason.SUSPENDING), suspend=True),
            ("Progressing", "Suspending, 12/48 (25%)"),
        ),
        "waits for approval": (
            backfill(
                UNDER_WAY,
                (ConditionType.PUBLISHED, "Unknown", Reason.WAITING_FOR_APPROVAL, "7 rows wait"),
            ),
            ("Suspended", "7 rows wait"),
        ),
        "stalled": (
            backfill(
                UNDER_WAY,
                (ConditionType.STALLED, "True", Reason.DRIVER_START_BLOCKED, "no such image"),
            ),
            ("Degraded", "no such image"),
        ),
        "failed for good": (
            backfill((ConditionType.SUCCEEDED, "False", Reason.INVALID_INPUT, "no such table")),
            ("Degraded", "no such table"),
        ),
        "succeeded": (
            backfill((ConditionType.SUCCEEDED, "True", Reason.FINISHED, "published")),
            ("Healthy", "published"),
        ),
        "tried again after it had failed": (
            backfill(
                (ConditionType.SUCCEEDED, "False", Reason.ATTEMPTS_EXHAUSTED, "old"), generation=2
            ),
            ("Progressing", "the operator has not seen this change yet"),
        ),
    },
)
def test_health(resource: dict[str, Any], expected: tuple[str, str]) -> None:
    assert health(resource) == expected
