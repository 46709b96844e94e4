"""What follows from rows that a source lacks: Replace is refused before anything runs, unless that
is allowed; everything else is warned of.
"""

from datetime import UTC, datetime
from typing import Any

import pytest

from backfill.api.conditions import ConditionType, Reason, find_condition
from backfill.api.status import OutputStatus
from backfill.controller.decisions.actions import CancelJob, Decision, StartDriver
from backfill.controller.decisions.decide import decide
from backfill.controller.jobs.kinds.plan import PlanResult
from backfill.controller.manager.events import Notice, transitions
from backfill.planning.plan import InputCheck
from situations import HEADER, NOW, backfill, job_state, observed, plan_job

LACKING = InputCheck(complete=False, missing=("it has no rows from 3 to 4",))
COMPLETE = InputCheck(complete=True, reached=True, known_from="rows arrived after the end")
UNKNOWN = InputCheck(reached=True, unknown=("its oldest row arrived at 2",))
_SOURCE = {"name": "clicks", "table": "lake.raw.clicks", "timestampColumn": "at"}


def decided(check: InputCheck, mode: str, now: datetime = NOW, **source: Any) -> Decision:
    output = {
        "name": "counts",
        "table": "lake.ops.counts",
        "timestampColumn": "at",
        "publish": {"mode": mode},
    }
    resource = backfill(outputs=[output], sources=[_SOURCE | source])
    totals = HEADER.sources[0].model_copy(update={"input": check})
    header = HEADER.model_copy(update={"sources": (totals,)})
    outputs = (OutputStatus(name="counts", table="lake.ops.counts", base_snapshot_id=7),)
    job = job_state(plan_job(resource), "Done", result=PlanResult(header, outputs))
    return decide(observed(resource, job=job, now=now))


def said(decision: Decision, kind: ConditionType) -> tuple[str, Reason, str]:
    found = find_condition(decision.status.conditions, kind)
    assert found is not None
    return found.status, found.reason, found.message


def events(decision: Decision) -> list[Notice]:
    return transitions(backfill().status, decision.status)


def test_replace_is_refused_with_field_reason_and_fix_before_a_driver_starts() -> None:
    decision = decided(LACKING, "Replace")
    status, reason, message = said(decision, ConditionType.PLANNED)
    assert (status, reason) == ("False", Reason.INVALID_INPUT)
    assert message.startswith(
        "spec.sources[0].allowIncomplete: is false, and lake.raw.clicks lacks"
    )
    assert "it has no rows from 3 to 4; wait until they are there" in message
    assert said(decision, ConditionType.SUCCEEDED)[:2] == ("False", Reason.INVALID_INPUT)
    assert said(decision, ConditionType.INPUT_COMPLETE) == (
        "False",
        Reason.INPUT_INCOMPLETE,
        "source clicks: it has no rows from 3 to 4",
    )
    assert decision.status.plan_id is None
    assert decision.next.actions == (CancelJob(),)
    assert decision.next.at_rest


def test_replace_goes_on_where_it_is_allowed_and_the_status_keeps_why() -> None:
    decision = decided(LACKING, "Replace", allowIncomplete=True)
    assert decision.status.plan_id == HEADER.plan_id
    assert said(decision, ConditionType.INPUT_COMPLETE) == (
        "False",
        Reason.INCOMPLETE_INPUT_ALLOWED,
        "source clicks: it has no rows from 3 to 4",
    )
    assert any(each.reason == "IncompleteInputAllowed" for each in events(decision))


@pytest.mark.parametrize("mode", ["Append", "None"])
def test_other_modes_get_a_warning(mode: str) -> None:
    decision = decided(LACKING, mode)
    assert decision.status.plan_id == HEADER.plan_id
    assert said(decision, ConditionType.INPUT_COMPLETE)[:2] == ("False", Reason.INPUT_INCOMPLETE)
    warning = Notice("Warning", "InputIncomplete", "source clicks: it has no rows from 3 to 4")
    assert warning in events(decision)


def test_unknown_is_said_and_refuses_nothing() -> None:
    decision = decided(UNKNOWN, "Replace")
    assert decision.status.plan_id == HEADER.plan_id
    assert said(decision, ConditionType.INPUT_COMPLETE) == (
        "Unknown",
        Reason.INPUT_UNKNOWN,
        "source clicks: its oldest row arrived at 2",
    )


def test_complete_input_is_said_with_what_shows_it() -> None:
    decision = decided(COMPLETE, "Replace")
    assert said(decision, ConditionType.INPUT_COMPLETE) == (
        "True",
        Reason.INPUT_COMPLETE,
        "source clicks: rows arrived after the end",
    )
    assert not any(isinstance(action, StartDriver) for action in decision.next.actions)


def test_what_still_arrives_is_missing() -> None:
    """Whatever the table has: rows will arrive between now and the end of the drain."""
    early = datetime(2024, 1, 1, 9, 30, tzinfo=UTC)
    nearly = InputCheck(complete=True, known_from="its newest row is close to the end")
    for check in (nearly, InputCheck(unknown=("too few rows",)), InputCheck()):
        decision = decided(check, "Replace", early)
        assert decision.status.plan_id is None
        assert (
            "rows still arrive until 2024-01-01T10:00:00Z"
            in said(decision, ConditionType.INPUT_COMPLETE)[2]
        )
    assert decided(COMPLETE, "Replace", early).status.plan_id == HEADER.plan_id
