"""Observations to decide on: a Backfill of ten steps, an hour each, in whatever situation a test
describes.
"""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from backfill.api.backfill import Backfill
from backfill.api.conditions import ConditionType, Reason, set_condition
from backfill.api.quantities import to_us
from backfill.api.spec import OrderingPolicy
from backfill.api.status import (
    Attempt,
    BackfillStatus,
    DecisionStatus,
    OutputStatus,
    Progress,
    SourceStatus,
    Verdict,
)
from backfill.controller.decisions.observed import Observed
from backfill.controller.decisions.policy import LOCAL
from backfill.controller.driver import DriverState
from backfill.controller.jobs.any_job import Job, JobState
from backfill.controller.jobs.kinds.make_plan import PlanJob
from backfill.controller.jobs.kinds.verify import VerifyJob
from backfill.planning.plan import PlanHeader, PlanInputs, Proof, SourceTotals
from backfill.planning.workspace import Workspace
from backfill.protocol.split_assignment import (
    QueryProgress,
    SourceProgress,
    SplitAssignmentSpec,
    SplitAssignmentStatus,
)

NOW = datetime(2024, 3, 1, 12, tzinfo=UTC)
START = datetime(2024, 1, 1, tzinfo=UTC)
HOUR = 3_600_000_000
STEPS = 10
RUNNING = DriverState("Running")


def backfill(
    status: BackfillStatus | None = None, *, generation: int = 1, deleted: bool = False, **spec: Any
) -> Backfill:
    return Backfill.model_validate(
        {
            "metadata": {
                "name": "january",
                "generation": generation,
                **({"deletionTimestamp": "2024-03-01T12:00:00Z"} if deleted else {}),
            },
            "spec": {
                "applicationRef": {"name": "app"},
                "window": {"start": "2024-01-01T00:00:00Z", "end": "2024-01-01T10:00:00Z"},
                "maxMisalignment": "2h",
                "sources": [
                    {"name": "clicks", "table": "lake.raw.clicks", "timestampColumn": "at"}
                ],
                "outputs": [
                    {"name": "counts", "table": "lake.ops.counts", "publish": {"mode": "Append"}}
                ],
                **spec,
            },
            "status": status or BackfillStatus(),
        }
    )


def header() -> PlanHeader:
    start = to_us(START)
    inputs = PlanInputs(
        start_us=start,
        end_us=start + STEPS * HOUR,
        policy=OrderingPolicy.WITHIN_LATENESS,
        allowed_lateness_us=0,
        max_misalignment_us=2 * HOUR,
        target_step_bytes=1,
        parallelism=1,
        sources=(),
    )
    totals = SourceTotals(
        name="clicks",
        files=STEPS,
        splits=STEPS,
        rows=1000,
        bytes=5000,
        wide_files=0,
        step_rows=(100,) * STEPS,
    )
    return PlanHeader(
        plan_id=inputs.plan_id(),
        inputs=inputs,
        step_starts_us=tuple(start + step * HOUR for step in range(STEPS)),
        step_ends_us=tuple(start + (step + 1) * HOUR for step in range(STEPS)),
        sources=(totals,),
        proof=Proof(greatest_disorder_us=0, greatest_misalignment_us=0),
    )


HEADER = header()


def planned(**fields: Any) -> BackfillStatus:
    return BackfillStatus(
        plan_id=HEADER.plan_id,
        workspace="/work",
        progress=Progress(steps=STEPS, committed=fields.pop("committed", 0)),
        sources=(SourceStatus(name="clicks", files=STEPS, rows=1000, bytes=5000),),
        outputs=(
            OutputStatus(
                name="counts",
                table="lake.ops.counts",
                base_snapshot_id=7,
                **fields.pop("output", {}),
            ),
        ),
        **fields,
    )


def with_condition(
    status: BackfillStatus, kind: ConditionType, value: Any, reason: Reason, generation: int = 1
) -> BackfillStatus:
    conditions = set_condition(status.conditions, kind, value, reason, "", NOW, generation)
    return status.model_copy(update={"conditions": conditions})


def attempt(number: int = 1, outcome: str = "Running", **fields: Any) -> Attempt:
    times = {"started_at": NOW - timedelta(minutes=5)}
    if outcome != "Running":
        times["finished_at"] = NOW - timedelta(minutes=1)
    return Attempt(number=number, outcome=outcome, **{**times, **fields})  # type: ignore[arg-type]


def assigned(
    number: int = 1, released: int = 2, *, stop: bool = False, watermark: datetime = START
) -> SplitAssignmentSpec:
    return SplitAssignmentSpec(
        backfill="january",
        plan_id=HEADER.plan_id,
        attempt=number,
        steps=STEPS,
        released=released,
        watermark=watermark,
        stop=stop,
    )


def reported(
    phase: str, committed: int = 0, number: int = 1, **fields: Any
) -> SplitAssignmentStatus:
    sources = (
        SourceProgress(name="clicks", committed=committed, rows=100 * min(committed, STEPS)),
    )
    queries = (
        ()
        if phase == "Starting"
        else (QueryProgress(name="query", output="counts", sources=sources, open_at_end=0),)
    )
    return SplitAssignmentStatus(
        attempt=number,
        phase=phase,  # type: ignore[arg-type]
        queries=fields.pop("queries", queries),
        heartbeat=fields.pop("heartbeat", NOW),
        **fields,
    )


def observed(resource: Backfill, **fields: Any) -> Observed:
    """What is observed of a resource on this machine; the plan is there once its status names
    one.
    """
    known = HEADER if resource.status.plan_id else None
    return replace(Observed(resource, NOW, workspace="/work", policy=LOCAL, header=known), **fields)


def running(
    attempts: tuple[Attempt, ...] | None = None,
    *,
    resource: dict[str, Any] | None = None,
    **fields: Any,
) -> Observed:
    """A Backfill with an attempt under way."""
    committed = fields.pop("committed", 0)
    status = planned(attempts=attempts or (attempt(),), committed=committed)
    fields = {"driver": RUNNING, "assignment": assigned(), **fields}
    return observed(backfill(status, **(resource or {})), **fields)


def decided(status: BackfillStatus, verdict: Verdict, **fields: Any) -> DecisionStatus:
    """What jane decides about the present result."""
    given = {"result": status.result, "by": "jane", "at": NOW, "reason": "as agreed", **fields}
    return DecisionStatus(decision=verdict, **given)


def plan_job(resource: Backfill) -> PlanJob:
    return PlanJob.of(resource, Workspace.of(resource, "/work"), 1)


def verified(number: int) -> JobState:
    return JobState(VerifyJob(HEADER, number), "Done")


def job_state(job: Job, phase: str, **fields: Any) -> JobState:
    return JobState(job, phase, **fields)  # type: ignore[arg-type]
