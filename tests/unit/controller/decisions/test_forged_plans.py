"""Plans that a pod returns and that cannot be of its Backfill: they fail it with a reason, and raise
nothing while it is decided.
"""

from typing import Any

import pytest

from backfill.api.conditions import ConditionType, Reason, find_condition
from backfill.api.status import OutputStatus
from backfill.controller.decisions.actions import CancelJob
from backfill.controller.decisions.decide import decide
from backfill.controller.jobs.kinds.make_plan import PlanResult
from backfill.controller.jobs.kinds.settle import SettleJob, SettleResult
from backfill.controller.jobs.staged_outputs import staged_outputs
from backfill.planning.plan import PlanHeader
from situations import HEADER, STEPS, attempt, backfill, job_state, observed, plan_job, planned

pytestmark = pytest.mark.hostile
(CLICKS,) = HEADER.sources
FAR_US = 2**62


def of_clicks(**fields: Any) -> dict[str, Any]:
    return {"sources": (CLICKS.model_copy(update=fields),)}


FORGED = {
    "without steps": {"step_starts_us": (), "step_ends_us": ()} | of_clicks(step_rows=()),
    "fewer ends than starts": {"step_ends_us": HEADER.step_ends_us[1:]},
    "fewer rows than steps": of_clicks(step_rows=(1,)),
    "steps in any order": {"step_starts_us": tuple(reversed(HEADER.step_starts_us))},
    "steps beyond all times": {"step_starts_us": tuple(range(FAR_US, FAR_US + STEPS))},
    "a window beyond all times": {"inputs": HEADER.inputs.model_copy(update={"end_us": FAR_US})},
    "another source": of_clicks(name="views"),
    "no source": {"sources": ()},
    "two sources": {"sources": (CLICKS, CLICKS)},
    "rows below zero": of_clicks(step_rows=(-1,) * STEPS),
    "rows beyond all tables": of_clicks(rows=10**400),
}


@pytest.mark.parametrize("forged", FORGED)
def test_a_forged_plan_fails_its_own_backfill_with_a_reason(forged: str) -> None:
    header: PlanHeader = HEADER.model_copy(update=FORGED[forged])
    header = header.model_copy(update={"plan_id": header.inputs.plan_id()})
    resource = backfill()
    job = job_state(plan_job(resource), "Done", result=PlanResult(header, ()))
    decision = decide(observed(resource, job=job))
    failed = find_condition(decision.status.conditions, ConditionType.SUCCEEDED)
    assert failed is not None
    assert (failed.status, failed.reason) == ("False", Reason.PLANNING_FAILED)
    assert "does not belong to this Backfill" in failed.message
    assert decision.status.plan_id is None
    assert CancelJob() in decision.next.actions


def test_of_the_outputs_only_the_snapshots_are_taken_from_a_pod() -> None:
    resource = backfill()
    claims = (
        OutputStatus(name="counts", table="lake.theirs.t", base_snapshot_id=7, snapshot_id=8),
        OutputStatus(name="more", table="lake.theirs.t"),
    )
    job = job_state(plan_job(resource), "Done", result=PlanResult(HEADER, claims))
    decision = decide(observed(resource, job=job))
    assert decision.status.outputs == (
        OutputStatus(name="counts", table="lake.ops.counts", base_snapshot_id=7),
    )


def test_an_output_that_a_pod_did_not_count_is_not_published() -> None:
    resource = backfill(planned(attempts=(attempt(outcome="Succeeded"),), committed=STEPS))
    job = job_state(
        SettleJob(staged_outputs(resource), resource.spec.window), "Done", result=SettleResult({})
    )
    failed = find_condition(
        decide(observed(resource, job=job)).status.conditions, ConditionType.PUBLISHED
    )
    assert failed is not None
    assert "did not count every output" in failed.message
