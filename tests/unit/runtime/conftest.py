"""A plan of six steps of ten minutes, without files: the driver's own parts need only its
header.
"""

import pytest

from backfill.api.spec import OrderingPolicy
from backfill.planning.plan import PlanHeader, PlanInputs, Proof, SourceInput, SourceTotals

START_US = 1_625_961_600_000_000
STEP_US = 600_000_000
STEPS = 6


@pytest.fixture
def header() -> PlanHeader:
    names = ("impressions", "playbacks")
    inputs = PlanInputs(
        start_us=START_US,
        end_us=START_US + STEPS * STEP_US,
        policy=OrderingPolicy.WITHIN_LATENESS,
        allowed_lateness_us=0,
        max_misalignment_us=2 * STEP_US,
        target_step_bytes=1,
        parallelism=1,
        sources=tuple(
            SourceInput(
                name=name,
                table=f"lake.default.{name}",
                table_uuid="",
                snapshot_id=1,
                schema_id=0,
                timestamp_column="at",
                timestamp_field_id=1,
                timestamp_type="timestamptz",
            )
            for name in names
        ),
    )
    return PlanHeader(
        plan_id=inputs.plan_id(),
        inputs=inputs,
        step_starts_us=tuple(START_US + step * STEP_US for step in range(STEPS)),
        step_ends_us=tuple(START_US + (step + 1) * STEP_US for step in range(STEPS)),
        sources=tuple(
            SourceTotals(name=name, files=0, splits=0, rows=0, bytes=0, wide_files=0)
            for name in names
        ),
        proof=Proof(greatest_disorder_us=0, greatest_misalignment_us=0),
    )
