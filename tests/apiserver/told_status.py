"""What an operator would have written: the statuses that the command line's tests show."""

from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from rest import BACKFILLS, Manifest, Rest

from backfill.api.conditions import Condition, ConditionType, Reason, set_condition
from backfill.api.status import Attempt, BackfillStatus, OutputStatus, Progress, SourceStatus

START = datetime(2021, 7, 10, 22, tzinfo=UTC)
SOURCES = {"impressions": 43, "playbacks": 41, "licences": 60}
"""How many hours of each source are read."""

Status = Literal["True", "False", "Unknown"]
Told = tuple[ConditionType, Status, Reason, str]

PLANNED: Told = (
    ConditionType.PLANNED,
    "True",
    Reason.PLAN_READY,
    "1,380 steps, about 84,000,000 rows in 1,212 files",
)
IN_PROGRESS: Told = (ConditionType.SUCCEEDED, "Unknown", Reason.IN_PROGRESS, "")


def conditions(*told: Told, at: datetime, generation: int) -> tuple[Condition, ...]:
    """Conditions in the order they are told."""
    result: tuple[Condition, ...] = ()
    for kind, status, reason, message in told:
        result = set_condition(result, kind, status, reason, message, at, generation)
    return result


def running(*told: Told, generation: int = 1, **changes: Any) -> BackfillStatus:
    """In the middle of the second attempt, unless something else is told."""
    now = datetime.now(UTC).replace(microsecond=0)
    marks = {name: START + timedelta(hours=hours) for name, hours in SOURCES.items()}
    said = told or ((ConditionType.RUNNING, "True", Reason.REPLAYING, "attempt 2 is reading"),)
    status = BackfillStatus(
        observed_generation=generation,
        plan_id="3fa2b6c0d1e2f3a4",
        workspace="s3://lake-backfills/work/streaming/rmi-july-11",
        started_at=now - timedelta(hours=1, minutes=5),
        attempts=(
            Attempt(
                number=1,
                child="rmi-july-11-a1",
                started_at=now - timedelta(hours=1),
                finished_at=now - timedelta(minutes=50),
                outcome="Failed",
                message=(
                    "its driver exceeded the memory limit of its pod (2Gi); raise"
                    " spec.overrides.driver.memory"
                ),
            ),
            Attempt(
                number=2,
                child="rmi-july-11-a2",
                started_at=now - timedelta(minutes=49),
                steps_at_start=120,
            ),
        ),
        progress=Progress(
            steps=1380,
            committed=334,
            summary="334/1380 (24%)",
            rows_read=20_345_678,
            rows_dropped_late=12,
            rows_per_second=12_480.0,
            rate="12.5k/s",
            eta=now + timedelta(hours=2, minutes=10),
            executors=12,
            executor_target=14,
            executor_reason="14 executors finish within 5 h at the measured 900 rows/s each",
        ),
        watermark=min(marks.values()),
        sources=tuple(
            SourceStatus(name=name, files=400, rows=6_000_000, bytes=3 << 30, watermark=at)
            for name, at in marks.items()
        ),
        outputs=(
            OutputStatus(
                name="summary",
                table="lake.reports.impression_play_summary",
                branch="backfill/rmi-july-11",
                rows=51_200,
            ),
        ),
        conditions=conditions(
            PLANNED,
            *said,
            *([] if any(s[0] == "Succeeded" for s in said) else [IN_PROGRESS]),
            at=now,
            generation=generation,
        ),
    )
    return status.model_copy(update=changes)


def tell(admin: Rest, namespace: str, name: str, status: BackfillStatus) -> Manifest:
    """Writes a status, as the operator does: for the generation that is there."""
    return admin.patch(
        f"{BACKFILLS.format(namespace)}/{name}/status", {"status": status.to_manifest()}
    ).expect()
