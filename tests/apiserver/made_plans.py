"""Plans as a planner makes them, and the production application they are for."""

import random

from rest import Manifest

from backfill.planning.plan import PlanHeader, PlanInputs, Proof, SourceInput, SourceTotals

START_US = 1_625_961_600_000_000
STEP_US = 450_000_000
PRODUCTION: Manifest = {
    "apiVersion": "sparkoperator.k8s.io/v1beta2",
    "kind": "SparkApplication",
    "metadata": {"name": "rmi", "labels": {"team": "stream"}},
    "spec": {
        "type": "Python",
        "mode": "cluster",
        "image": "registry/rmi:1",
        "sparkVersion": "4.3.0",
        "mainApplicationFile": "local:///app/rmi.py",
        "driver": {"cores": 1},
        "executor": {"cores": 1, "instances": 2},
    },
}


def header(steps: int = 3, sources: int = 2) -> PlanHeader:
    """A plan of which no two steps are alike."""
    noise = random.Random(steps)
    names = [f"source-{number}" for number in range(sources)]
    inputs = PlanInputs(
        start_us=START_US,
        end_us=START_US + steps * STEP_US,
        policy="WithinLateness",
        allowed_lateness_us=300_000_000,
        max_misalignment_us=2 * STEP_US,
        target_step_bytes=2**28,
        parallelism=8,
        sources=tuple(_source_input(name) for name in names),
    )
    starts = tuple(START_US + step * STEP_US for step in range(steps))
    return PlanHeader(
        plan_id=inputs.plan_id(),
        inputs=inputs,
        step_starts_us=starts,
        step_ends_us=tuple(start + noise.randrange(STEP_US // 2, STEP_US) for start in starts),
        sources=tuple(_totals(name, steps, noise) for name in names),
        proof=Proof(greatest_disorder_us=0, greatest_misalignment_us=STEP_US),
    )


def _source_input(name: str) -> SourceInput:
    table = {"table": f"lake.raw.{name}", "table_uuid": "u", "snapshot_id": 1, "schema_id": 0}
    return SourceInput(
        name=name,
        timestamp_column="at",
        timestamp_field_id=1,
        timestamp_type="timestamptz",
        **table,
    )


def _totals(name: str, steps: int, noise: random.Random) -> SourceTotals:
    rows = tuple(int(noise.lognormvariate(13, 0.7)) for _ in range(steps))
    sizes = tuple(int(count * noise.uniform(38, 44)) for count in rows)
    return SourceTotals(
        name=name,
        files=steps,
        splits=steps,
        rows=sum(rows),
        bytes=sum(sizes),
        wide_files=0,
        step_rows=rows,
        step_bytes=sizes,
    )
