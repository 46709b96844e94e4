"""A plan's header that the cluster has lost is read again from the workspace."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from backfill.api.conditions import ConditionType, Reason, find_condition
from backfill.api.errors import BackfillError, PlanCorrupt
from backfill.controller.decisions.actions import CancelJob, Decision, StartJob
from backfill.controller.decisions.decide import decide
from backfill.controller.decisions.observed import Observed
from backfill.controller.decisions.policy import CLUSTER
from backfill.controller.jobs.kinds.recover import RecoverJob
from backfill.planning.plan import HEADER_FILE, plan_directory
from backfill.planning.workspace import Workspace
from situations import HEADER, attempt, backfill, job_state, observed, planned

JOB = RecoverJob(HEADER.plan_id, Workspace("/work", "lake", "default/january"))
LOST = "the header of plan 12 is lost"


def lost(*, suspend: bool = False) -> Observed:
    status = planned(attempts=(attempt(),), plan_digest=HEADER.digest)
    resource = backfill(status, suspend=suspend)
    return observed(resource, header=None, plan_error=LOST, policy=CLUSTER)


def told(decision: Decision, kind: ConditionType) -> tuple[str, str, str]:
    found = find_condition(decision.status.conditions, kind)
    assert found is not None
    return found.status, found.reason, found.message


@pytest.mark.parametrize("suspend", [False, True])
def test_it_is_read_by_a_job_before_anything_else_is_done(suspend: bool) -> None:
    decision = decide(lost(suspend=suspend))
    assert decision.next.actions == (StartJob(JOB),)
    assert told(decision, ConditionType.PLANNED) == (
        "Unknown",
        Reason.PLANNING,
        f"{LOST}; recovering it from the workspace",
    )


def test_with_the_header_everything_goes_on() -> None:
    decision = decide(replace(lost(), job=job_state(JOB, "Done", result=HEADER)))
    assert told(decision, ConditionType.PLANNED)[:2] == ("True", Reason.PLAN_READY)
    assert (decision.next.actions, decision.next.requeue_seconds) == ((CancelJob(),), 0)


def test_a_store_that_does_not_answer_is_asked_again() -> None:
    decision = decide(
        replace(lost(), job=job_state(JOB, "Failed", error=BackfillError("no answer")))
    )
    assert told(decision, ConditionType.PLANNED)[:2] == ("Unknown", Reason.TRYING_AGAIN)
    assert (decision.next.actions, decision.next.requeue_seconds) == ((CancelJob(),), 10)


def test_where_the_workspace_has_lost_it_too_the_backfill_has_failed_and_says_so() -> None:
    decision = decide(
        replace(
            lost(), job=job_state(JOB, "Failed", error=PlanCorrupt("it is not in /work either"))
        )
    )
    status, reason, message = told(decision, ConditionType.SUCCEEDED)
    assert (status, reason) == ("False", Reason.PLANNING_FAILED)
    assert message == f"{LOST}; it is not in /work either; cancel this backfill and start over"


@pytest.mark.hostile
def test_a_header_that_was_changed_in_the_workspace_is_not_taken_for_the_one_that_was_planned() -> (
    None
):
    """Or whoever deletes the ConfigMap and may write to the workspace chooses the steps."""
    changed = HEADER.model_copy(update={"step_ends_us": HEADER.step_starts_us})
    decision = decide(replace(lost(), job=job_state(JOB, "Done", result=changed)))
    status, reason, message = told(decision, ConditionType.SUCCEEDED)
    assert (status, reason) == ("False", Reason.PLANNING_FAILED)
    assert "differs from the one that was planned" in message


def put(workspace: Workspace, content: bytes) -> None:
    plan_directory(workspace, HEADER.plan_id).write_sealed(HEADER_FILE, content)


def test_the_job_finds_the_header_in_the_workspace(tmp_path: Path) -> None:
    workspace = Workspace(str(tmp_path))
    put(workspace, json.dumps(HEADER.to_manifest()).encode())
    assert RecoverJob(HEADER.plan_id, workspace).run(lambda progress: None) == HEADER


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "is not in .* either"),
        (b"{", "plan.json cannot be used"),
        (
            json.dumps(HEADER.to_manifest() | {"planId": "0123456789abcdef"}).encode(),
            "but contains the inputs of plan",
        ),
    ],
    ids=["gone", "damaged", "another plan"],
)
def test_a_header_that_is_not_the_plans_is_lost(
    tmp_path: Path, content: bytes | None, said: str
) -> None:
    workspace = Workspace(str(tmp_path))
    if content is not None:
        put(workspace, content)
    with pytest.raises(PlanCorrupt, match=said):
        RecoverJob(HEADER.plan_id, workspace).run(lambda progress: None)
