"""A result with a column that is null in every row, unlike in production, waits for a person."""

from typing import Any

import pytest

from backfill.api.backfill import Backfill
from backfill.api.conditions import ConditionType, Reason, find_condition
from backfill.api.status import BackfillStatus
from backfill.controller.decisions.actions import StartJob
from backfill.controller.decisions.decide import decide
from backfill.controller.jobs.kinds.publish import PublishJob
from backfill.controller.jobs.kinds.settle import SettleJob, SettleResult, Totals
from backfill.controller.jobs.staged_outputs import staged_outputs
from situations import STEPS, attempt, backfill, job_state, observed, planned, with_condition


def result(*null: str, status: BackfillStatus | None = None, **publish: Any) -> Backfill:
    counted = planned(
        attempts=(attempt(outcome="Succeeded"),),
        committed=STEPS,
        output={"open_at_end": 0, "null_columns": null},
    )
    counted = with_condition(counted, ConditionType.RUNNING, "False", Reason.ALL_STEPS_COMMITTED)
    publish = {"mode": "Append", "approval": "Automatic", **publish}
    described = {"name": "counts", "table": "lake.ops.counts", "publish": publish}
    return backfill(status or counted, outputs=[described])


def published(resource: Backfill) -> bool:
    actions = decide(observed(resource)).next.actions
    return any(isinstance(each, StartJob) and isinstance(each.job, PublishJob) for each in actions)


def message(resource: Backfill, kind: ConditionType) -> str:
    found = find_condition(decide(observed(resource)).status.conditions, kind)
    assert found is not None
    return found.message


def test_what_a_program_did_not_find_is_not_published_before_a_person_has_seen_it() -> None:
    waiting = result("user.name", "coupon", allowNull=["coupon"])
    assert not published(waiting)
    assert message(waiting, ConditionType.PUBLISHED).splitlines()[:2] == [
        "waiting for approval to publish counts",
        (
            "counts: null in every row, although lake.ops.counts has values: user.name; the"
            " application may decode fields by names that its records do not have here. If null is"
            " right, list the columns in publish.allowNull"
        ),
    ]


@pytest.mark.parametrize("allowed", ["user", "user.name"])
def test_a_column_that_is_allowed_while_the_result_waits_publishes_it(allowed: str) -> None:
    waiting = decide(observed(result("user.name"))).status
    assert not published(result(status=waiting, allowNull=["name", "use"]))
    assert published(result(status=waiting, allowNull=[allowed]))


def test_null_columns_are_said_of_results_that_are_not_published_as_well() -> None:
    status = planned(attempts=(attempt(outcome="Succeeded"),), committed=STEPS)
    resource = backfill(status, outputs=[{"name": "counts", "table": "lake.ops.counts"}])
    job = SettleJob(staged_outputs(resource), resource.spec.window)
    totals = Totals("branch", 10, 0, 1, null_columns=("coupon",))
    done = job_state(job, phase="Done", result=SettleResult({"counts": totals}))
    decided = decide(observed(resource, job=done)).status
    assert decided.outputs[0].null_columns == ("coupon",)
    running = find_condition(decided.conditions, ConditionType.RUNNING)
    assert running is not None
    assert "counts: null in every row, although lake.ops.counts has values: coupon;" in (
        running.message
    )
