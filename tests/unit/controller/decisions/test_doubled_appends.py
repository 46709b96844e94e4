"""An Append of rows that the table was given before: refused before anything runs, unless a person
is to approve it.
"""

from backfill.api.conditions import ConditionType, Reason, find_condition, set_condition
from backfill.api.errors import Problem
from backfill.api.status import OutputStatus
from backfill.controller.decisions.actions import Decision
from backfill.controller.decisions.decide import decide
from backfill.controller.jobs.kinds.make_plan import PlanResult
from situations import (
    HEADER,
    NOW,
    STEPS,
    attempt,
    backfill,
    job_state,
    observed,
    plan_job,
    planned,
    with_condition,
)

DOUBLED = Problem(
    "spec.outputs[0].publish", "lake.ops.counts already has these rows", "set approval: Manual"
)
UNKNOWN = "spec.outputs[0].publish: the history of lake.ops.counts begins at noon"


def _outputs(approval: str) -> list[dict[str, object]]:
    return [
        {
            "name": "counts",
            "table": "lake.ops.counts",
            "publish": {"mode": "Append", "approval": approval},
        }
    ]


def _said(decision: Decision, kind: ConditionType) -> tuple[str, Reason, list[str]]:
    found = find_condition(decision.status.conditions, kind)
    assert found is not None
    return found.status, found.reason, found.message.splitlines()


def _decided(approval: str, result: PlanResult) -> Decision:
    resource = backfill(outputs=_outputs(approval))
    return decide(observed(resource, job=job_state(plan_job(resource), "Done", result=result)))


def _planned(**found: object) -> PlanResult:
    outputs = (OutputStatus(name="counts", table="lake.ops.counts", base_snapshot_id=7),)
    return PlanResult(HEADER, outputs, **found)  # type: ignore[arg-type]


def test_rows_that_are_there_are_not_appended_again_by_itself() -> None:
    decision = _decided("Automatic", _planned(doubled={"counts": DOUBLED}))
    assert _said(decision, ConditionType.PLANNED) == ("False", Reason.INVALID_INPUT, [str(DOUBLED)])
    assert (decision.status.plan_id, decision.next.at_rest) == (None, True)


def test_with_an_approval_to_come_it_is_planned_and_said() -> None:
    status, reason, lines = _said(
        _decided("Manual", _planned(doubled={"counts": DOUBLED})), ConditionType.PLANNED
    )
    assert (status, reason) == ("True", Reason.PLAN_READY)
    assert str(DOUBLED) in lines


def test_a_history_that_can_not_tell_is_a_warning() -> None:
    status, reason, lines = _said(
        _decided("Automatic", _planned(warnings=(UNKNOWN,))), ConditionType.PLANNED
    )
    assert (status, reason) == ("True", Reason.PLAN_READY)
    assert UNKNOWN in lines


def test_whoever_is_to_approve_it_reads_that_it_is_the_second_time() -> None:
    settled = planned(attempts=(attempt(outcome="Succeeded"),), committed=STEPS)
    settled = with_condition(settled, ConditionType.RUNNING, "False", Reason.ALL_STEPS_COMMITTED)
    warned = f"4 steps\n{DOUBLED}\nspec.outputs[9].publish: of another output"
    conditions = set_condition(
        settled.conditions, ConditionType.PLANNED, "True", Reason.PLAN_READY, warned, NOW, 1
    )
    waiting = decide(
        observed(
            backfill(
                settled.model_copy(update={"conditions": conditions}), outputs=_outputs("Manual")
            )
        )
    )
    status, reason, lines = _said(waiting, ConditionType.PUBLISHED)
    assert (status, reason) == ("Unknown", Reason.WAITING_FOR_APPROVAL)
    assert str(DOUBLED) in lines
    assert not any("of another output" in line for line in lines)
