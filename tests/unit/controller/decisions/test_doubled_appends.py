"""An Append to rows that another Backfill has published is refused before anything runs; whoever may
replace or add to some is warned.
"""

from backfill.api.conditions import ConditionType, Reason, find_condition, set_condition
from backfill.api.errors import BadInput, Problem
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

OVERLAP = Problem("spec.outputs[0].publish", "lake.ops.counts already has rows of this window")
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


def test_rows_that_others_have_published_are_not_appended_to() -> None:
    resource = backfill(outputs=_outputs("Manual"))
    failed = job_state(plan_job(resource), "Failed", error=BadInput(OVERLAP))
    decision = decide(observed(resource, job=failed))
    assert _said(decision, ConditionType.PLANNED) == ("False", Reason.INVALID_INPUT, [str(OVERLAP)])
    assert (decision.status.plan_id, decision.next.at_rest) == (None, True)


def test_naming_the_other_backfill_plans_once_more() -> None:
    named = _outputs("Manual")
    named[0]["publish"] = {"mode": "Append", "allowOverlap": ["morning"]}
    assert plan_job(backfill(outputs=named)) != plan_job(backfill(outputs=_outputs("Manual")))


def test_a_history_that_can_not_tell_is_a_warning() -> None:
    status, reason, lines = _said(
        _decided("Automatic", _planned(warnings=(UNKNOWN,))), ConditionType.PLANNED
    )
    assert (status, reason) == ("True", Reason.PLAN_READY)
    assert UNKNOWN in lines


def test_whoever_is_to_approve_an_overlap_reads_of_it() -> None:
    settled = planned(attempts=(attempt(outcome="Succeeded"),), committed=STEPS)
    settled = with_condition(settled, ConditionType.RUNNING, "False", Reason.ALL_STEPS_COMMITTED)
    warned = f"4 steps\n{OVERLAP}\nspec.outputs[9].publish: of another output"
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
    assert str(OVERLAP) in lines
    assert not any("of another output" in line for line in lines)
