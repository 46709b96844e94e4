"""What follows from rows that a source lacks: Replace is refused before anything runs, unless that
is allowed; everything else is warned of.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from backfill.api.conditions import ConditionType, Reason, find_condition
from backfill.api.errors import BadInput, InputAwaited, Problem
from backfill.api.status import OutputStatus
from backfill.controller.decisions.actions import CancelJob, Decision, StartDriver, StartJob
from backfill.controller.decisions.decide import decide
from backfill.controller.jobs.any_job import JobState
from backfill.controller.jobs.kinds.make_plan import PlanJob, PlanResult
from backfill.controller.manager.events import Notice, transitions
from backfill.planning.plan import InputCheck
from situations import HEADER, NOW, backfill, job_state, observed, plan_job

LACKING = InputCheck(complete=False, missing=("no rows from 3 to 4",))
COMPLETE = InputCheck(complete=True, reached=True, known_from="rows arrived after the end")
UNKNOWN = InputCheck(reached=True, unknown=("the oldest row arrived at 2",))
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
        "spec.sources[0].allowIncomplete: is false, but lake.raw.clicks lacks"
    )
    assert "no rows from 3 to 4; wait until the rows have arrived" in message
    assert said(decision, ConditionType.SUCCEEDED)[:2] == ("False", Reason.INVALID_INPUT)
    assert said(decision, ConditionType.INPUT_COMPLETE) == (
        "False",
        Reason.INPUT_INCOMPLETE,
        "source clicks: no rows from 3 to 4",
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
        "source clicks: no rows from 3 to 4",
    )
    assert any(each.reason == "IncompleteInputAllowed" for each in events(decision))


@pytest.mark.parametrize("mode", ["Append", "None"])
def test_other_modes_get_a_warning(mode: str) -> None:
    decision = decided(LACKING, mode)
    assert decision.status.plan_id == HEADER.plan_id
    assert said(decision, ConditionType.INPUT_COMPLETE)[:2] == ("False", Reason.INPUT_INCOMPLETE)
    warning = Notice("Warning", "InputIncomplete", "source clicks: no rows from 3 to 4")
    assert warning in events(decision)


def test_unknown_is_said_and_refuses_nothing() -> None:
    decision = decided(UNKNOWN, "Replace")
    assert decision.status.plan_id == HEADER.plan_id
    assert said(decision, ConditionType.INPUT_COMPLETE) == (
        "Unknown",
        Reason.INPUT_UNKNOWN,
        "source clicks: the oldest row arrived at 2",
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
            "the input range ends at 2024-01-01T10:00:00Z"
            in said(decision, ConditionType.INPUT_COMPLETE)[2]
        )
    assert decided(COMPLETE, "Replace", early).status.plan_id == HEADER.plan_id


MISSING = InputAwaited(Problem("spec.sources[0].table", "lake.raw.clicks: it ends at 3"))


class Waiting:
    """A Backfill with ``waitForInput: 2h``, decided on again and again."""

    def __init__(self, mode: str = "Replace", **spec: Any) -> None:
        output = {
            "name": "counts",
            "table": "lake.ops.counts",
            "timestampColumn": "at",
            "publish": {"mode": mode, "approval": "Automatic"},
        }
        self.spec = {"outputs": [output], "waitForInput": "2h", **spec}
        self.resource = backfill(**self.spec)
        self.now = NOW

    def decide(self, job: JobState | None = None, **after: float) -> Decision:
        self.now += timedelta(**after)
        decision = decide(observed(self.resource, job=job, now=self.now))
        self.resource = backfill(
            decision.status, generation=self.resource.metadata.generation, **self.spec
        )
        return decision

    def edit(self, **spec: Any) -> None:
        self.spec |= spec
        self.resource = backfill(self.resource.status, generation=2, **self.spec)


def started(decision: Decision) -> PlanJob:
    (action,) = decision.next.actions
    assert isinstance(action, StartJob)
    assert isinstance(action.job, PlanJob)
    return action.job


def test_missing_rows_are_waited_for_and_looked_for_again() -> None:
    waiting = Waiting()
    job = started(waiting.decide())
    assert job.awaits_input
    decision = waiting.decide(job_state(job, "Failed", error=MISSING))
    assert said(decision, ConditionType.PLANNED) == (
        "Unknown",
        Reason.WAITING_FOR_INPUT,
        "waiting until 2024-03-01T14:00:00Z for missing rows\n"
        "spec.sources[0].table: lake.raw.clicks: it ends at 3",
    )
    assert said(decision, ConditionType.INPUT_COMPLETE)[:2] == ("False", Reason.WAITING_FOR_INPUT)
    assert Notice("Normal", "WaitingForInput", str(MISSING)) in events(decision)
    assert (decision.next.actions, decision.next.requeue_seconds) == ((CancelJob(),), 120)
    early = waiting.decide(seconds=50)
    assert (early.next.actions, early.next.requeue_seconds) == ((), 70)
    assert started(waiting.decide(seconds=70)) == job
    assert waiting.decide(job_state(job, "Running"), seconds=5).next.actions == ()
    again = waiting.decide(job_state(job, "Failed", error=MISSING))
    assert said(again, ConditionType.PLANNED) == said(decision, ConditionType.PLANNED)


def test_a_look_that_takes_long_is_repeated_less_often() -> None:
    waiting = Waiting()
    job = started(waiting.decide())
    waiting.decide(job_state(job, "Failed", error=MISSING))
    for minutes, pause in ((1, 120), (4, 240), (20, 300)):
        wait = waiting.resource.status.input_wait
        assert wait is not None
        waiting.now = wait.next_check_at
        started(waiting.decide())
        decision = waiting.decide(job_state(job, "Failed", error=MISSING), minutes=minutes)
        assert decision.next.requeue_seconds == pause, minutes


@pytest.mark.parametrize("mode", ["Replace", "Append"])
def test_after_the_wait_it_goes_on_as_without_it(mode: str) -> None:
    waiting = Waiting(mode)
    job = started(waiting.decide())
    waiting.decide(job_state(job, "Failed", error=MISSING))
    last = started(waiting.decide(hours=1, minutes=59))
    assert last.awaits_input
    assert waiting.decide(
        job_state(last, "Failed", error=MISSING)
    ).next.requeue_seconds == pytest.approx(60)
    final = started(waiting.decide(minutes=1))
    assert not final.awaits_input
    totals = HEADER.sources[0].model_copy(update={"input": LACKING})
    outputs = (OutputStatus(name="counts", table="lake.ops.counts", base_snapshot_id=7),)
    result = PlanResult(HEADER.model_copy(update={"sources": (totals,)}), outputs)
    decision = waiting.decide(job_state(final, "Done", result=result))
    assert decision.status.input_wait is None
    assert (decision.status.plan_id is None) == (mode == "Replace")
    assert said(decision, ConditionType.INPUT_COMPLETE)[:2] == ("False", Reason.INPUT_INCOMPLETE)


def test_rows_that_arrived_meanwhile_end_the_wait() -> None:
    waiting = Waiting()
    job = started(waiting.decide())
    waiting.decide(job_state(job, "Failed", error=MISSING))
    again = started(waiting.decide(minutes=2))
    totals = HEADER.sources[0].model_copy(update={"input": COMPLETE})
    outputs = (OutputStatus(name="counts", table="lake.ops.counts", base_snapshot_id=7),)
    result = PlanResult(HEADER.model_copy(update={"sources": (totals,)}), outputs)
    decision = waiting.decide(job_state(again, "Done", result=result))
    assert (decision.status.plan_id, decision.status.input_wait) == (HEADER.plan_id, None)


def test_a_change_of_the_spec_is_looked_at_at_once() -> None:
    waiting = Waiting()
    job = started(waiting.decide())
    waiting.decide(job_state(job, "Failed", error=MISSING))
    waiting.edit(waitForInput="0s")
    assert not started(waiting.decide(seconds=1)).awaits_input


def test_a_failure_ends_the_wait_and_says_nothing_of_rows_any_more() -> None:
    waiting = Waiting()
    job = started(waiting.decide())
    waiting.decide(job_state(job, "Failed", error=MISSING))
    again = started(waiting.decide(minutes=2))
    gone = BadInput(Problem("spec.sources[0].table", "table lake.raw.clicks does not exist"))
    decision = waiting.decide(job_state(again, "Failed", error=gone))
    assert said(decision, ConditionType.SUCCEEDED)[1] == Reason.INVALID_INPUT
    assert find_condition(decision.status.conditions, ConditionType.INPUT_COMPLETE) is None
