"""With handOff.maxDistance, history goes on with newer rows before its last step is read."""

from datetime import timedelta
from typing import Any

import pytest
from test_handing_over import resource

from backfill.api.backfill import Backfill
from backfill.api.conditions import ConditionType, Reason, find_condition
from backfill.api.errors import InvalidPlanInput, Problem
from backfill.api.hand_off import HandOffStatus, HistoryExtension
from backfill.api.quantities import from_us, to_us
from backfill.api.status import Attempt, BackfillStatus
from backfill.controller.decisions.actions import (
    CancelJob,
    Decision,
    StartDriver,
    StartJob,
    WriteAssignment,
)
from backfill.controller.decisions.decide import decide
from backfill.controller.decisions.observed import Observed
from backfill.controller.decisions.policy import CLUSTER
from backfill.controller.driver import DriverState
from backfill.controller.jobs.kinds.extend import ExtendJob, Extension
from backfill.controller.jobs.kinds.make_plan import PlanJob, PlanResult
from backfill.controller.jobs.kinds.recover import RecoverJob
from backfill.controller.jobs.kinds.verify import VerifyJob
from backfill.controller.manager.events import transitions
from backfill.planning.plan import PlanHeader
from backfill.planning.workspace import Workspace
from situations import (
    HEADER,
    HOUR,
    NOW,
    RUNNING,
    STEPS,
    assigned,
    attempt,
    job_state,
    observed,
    planned,
    reported,
)

HELD = STEPS - 1
"""Steps that are committed when the last one is held back."""
STOPPED = (attempt(1, "Stopped"),)


def extended(hours: int = 4, before: PlanHeader = HEADER) -> PlanHeader:
    """A header with one step more, which ends some hours ago."""
    end = to_us(NOW - timedelta(hours=hours))
    inputs = before.inputs.model_copy(update={"extends": before.inputs, "end_us": end})
    more = {name: (*getattr(before.sources[0], name), 10) for name in ("step_rows", "step_bytes")}
    return before.model_copy(
        update={
            "inputs": inputs,
            "step_starts_us": (*before.step_starts_us, end - HOUR),
            "step_ends_us": (*before.step_ends_us, end),
            "sources": (before.sources[0].model_copy(update=more),),
        }
    )


def growing(
    status: BackfillStatus,
    *,
    ended: timedelta = timedelta(hours=20),
    limit: str = "1h",
    **handed: Any,
) -> Backfill:
    hand_off = HandOffStatus(growing=True, history_end=NOW - ended, **handed)
    status = status.model_copy(update={"hand_off": hand_off})
    return resource(status, "Prepare", handOff={"maxDistance": limit})


def handed(decision: Decision) -> HandOffStatus:
    assert decision.status.hand_off is not None
    return decision.status.hand_off


def running(committed: int = HELD, **fields: Any) -> Observed:
    status = planned(attempts=(attempt(),), committed=committed)
    return observed(
        growing(status, **fields),
        driver=RUNNING,
        report=reported("Running", committed),
        assignment=assigned(released=HELD),
    )


def between(job: Any = None, attempts: tuple[Attempt, ...] = STOPPED, **fields: Any) -> Observed:
    status = planned(attempts=attempts, committed=HELD)
    return observed(growing(status, **fields), job=job)


def extend_job(backfill: Backfill, header: PlanHeader = HEADER) -> ExtendJob:
    return ExtendJob.of(backfill, Workspace.of(backfill, "/work"), header)


def written(decision: Decision) -> Any:
    (action,) = decision.next.actions
    assert isinstance(action, WriteAssignment)
    return action.assignment


def made(hand_off: dict[str, str], steps: int = STEPS) -> HandOffStatus:
    """What is recorded with a new plan."""
    new = resource(BackfillStatus(), "Prepare", handOff=hand_off)
    job = PlanJob.of(new, Workspace.of(new, "/work"), 1)
    inputs = HEADER.inputs.model_copy(update={"live": True})
    changes = {
        "plan_id": inputs.plan_id(),
        "inputs": inputs,
        "step_starts_us": HEADER.step_starts_us[:steps],
        "step_ends_us": HEADER.step_ends_us[:steps],
        "sources": tuple(
            each.model_copy(update={"step_rows": each.step_rows[:steps]}) for each in HEADER.sources
        ),
    }
    result = PlanResult(HEADER.model_copy(update=changes), ())
    return handed(decide(observed(new, job=job_state(job, "Done", result=result))))


def test_only_a_plan_that_may_grow_holds_its_last_step_back() -> None:
    assert made({"maxDistance": "1h"}).growing
    assert made({"maxDistance": "1h"}, steps=2).growing
    assert made({}).growing is None
    assert made({}).complete_because is None


def test_a_plan_of_one_step_is_read_at_once() -> None:
    recorded = made({"maxDistance": "1h"}, steps=1)
    assert recorded.growing is None
    assert recorded.complete_because == "the plan has a single step, which cannot be held back"


@pytest.mark.parametrize("committed", range(STEPS))
def test_the_last_step_is_never_released_while_history_may_go_on(committed: int) -> None:
    decision = decide(running(committed))
    released = [
        action.assignment.released
        for action in decision.next.actions
        if isinstance(action, WriteAssignment)
    ]
    assert all(each <= HELD for each in released)


def test_a_driver_stops_before_the_last_step_if_history_ends_too_long_ago() -> None:
    decision = decide(running())
    assert written(decision).stop
    assert written(decision).released == HELD
    assert handed(decision).growing


def test_the_last_step_is_read_if_history_ends_close_enough() -> None:
    world = running(ended=timedelta(minutes=59))
    decision = decide(world)
    assert handed(decision).growing is None
    assert handed(decision).complete_because == (
        "its last step was due 59m later, which is within maxDistance"
    )
    assert not decision.next.actions

    recorded = world.backfill.model_copy(update={"status": decision.status})
    later = decide(
        observed(recorded, driver=RUNNING, report=world.report, assignment=world.assignment)
    )
    assert written(later).released == STEPS


def test_a_plan_is_extended_while_no_driver_runs() -> None:
    world = between()
    first = decide(world)
    assert first.next.actions == (StartJob(extend_job(world.backfill)),)
    running = find_condition(first.status.conditions, ConditionType.RUNNING)
    assert running is not None and running.reason == Reason.EXTENDING

    header = extended()
    done = job_state(extend_job(world.backfill), "Done", result=Extension(header))
    second = decide(between(done))
    assert second.next.actions == (CancelJob(),)
    status = second.status
    assert (status.plan_id, status.newest_plan_id) == (HEADER.plan_id, header.inputs.own_id())
    assert status.plan_digest == header.digest
    assert status.progress.steps == STEPS + 1
    assert status.progress.committed == HELD
    assert handed(second).history_end == from_us(header.inputs.end_us)
    assert handed(second).growing

    (event,) = [each for each in transitions(first.status, status) if "History" in each.reason]
    assert event.message == "history extended to 2024-03-01T08:00:00Z"

    backfill = world.backfill.model_copy(update={"status": status})
    check = VerifyJob(header, 2)
    third = decide(observed(backfill, header=header))
    assert third.next.actions == (StartJob(check),)
    backfill = world.backfill.model_copy(update={"status": third.status})
    fourth = decide(observed(backfill, header=header, job=job_state(check, "Done")))
    begun = [each for each in fourth.next.actions if isinstance(each, WriteAssignment)]
    assert StartDriver(2) in fourth.next.actions
    assert begun[0].assignment.plan_id == HEADER.plan_id
    assert begun[0].assignment.steps == STEPS + 1
    assert begun[0].assignment.released <= STEPS


def test_a_plan_that_does_not_follow_on_the_present_one_is_not_used() -> None:
    world, header = between(), extended()
    starts = (HEADER.step_starts_us[0] + 1, *header.step_starts_us[1:])
    for wrong in (
        HEADER,
        header.model_copy(update={"step_starts_us": starts}),
        extended(before=header),
    ):
        done = job_state(extend_job(world.backfill), "Done", result=Extension(wrong))
        decision = decide(between(done))
        assert handed(decision).growing is None
        assert decision.status.newest_plan_id == HEADER.plan_id


def extension(hours_before: float, hours: float = 1) -> HistoryExtension:
    """One that was made some hours after the end of history."""
    at = NOW - timedelta(hours=3)
    return HistoryExtension(
        plan_id="0" * 16,
        at=at,
        after=at - timedelta(hours=hours_before),
        history_end=NOW - timedelta(hours=hours),
    )


@pytest.mark.parametrize(("before", "again"), [(8, True), (7.9, False)])
def test_each_extension_halves_the_distance_or_is_the_last_one(before: float, again: bool) -> None:
    ended = timedelta(hours=4)
    stopped = attempt(1, "Stopped", started_at=NOW - timedelta(hours=3), finished_at=NOW)
    decision = decide(between(attempts=(stopped,), ended=ended, extensions=(extension(before, 4),)))
    assert any(isinstance(action, StartJob) for action in decision.next.actions)
    job = next(a.job for a in decision.next.actions if isinstance(a, StartJob))
    assert isinstance(job, ExtendJob) is again
    assert bool(handed(decision).growing) is again


def test_a_pause_does_not_count_as_rows_that_come_too_fast() -> None:
    decision = decide(between(ended=timedelta(hours=4), extensions=(extension(3, 4),)))
    job = next(a.job for a in decision.next.actions if isinstance(a, StartJob))
    assert isinstance(job, ExtendJob), "it has run for minutes in the three hours since then"


@pytest.mark.parametrize(
    ("phase", "fields", "why"),
    [
        ("Done", {"result": Extension(reason="the tables have no newer rows")}, "no newer rows"),
        ("Failed", {"error": InvalidPlanInput(Problem("spec.sources[0]", "gone"))}, "gone"),
    ],
)
def test_history_ends_as_it_is_if_it_cannot_go_on(
    phase: str, fields: dict[str, Any], why: str
) -> None:
    world = between()
    decision = decide(between(job_state(extend_job(world.backfill), phase, **fields)))
    assert handed(decision).growing is None
    assert why in (handed(decision).complete_because or "")
    assert decision.status.newest_plan_id == HEADER.plan_id
    assert decision.next.actions == (CancelJob(),)


def test_a_failed_attempt_before_the_last_step_leads_to_an_extension_after_its_backoff() -> None:
    world = running()
    failed = observed(
        world.backfill,
        driver=DriverState("Exited", 1),
        report=reported("Failed", HELD, message="x"),
        assignment=world.assignment,
    )
    decision = decide(failed)
    assert decision.status.attempts[-1].outcome == "Failed"
    later = decision.status.model_copy(update={"next_attempt_at": NOW})
    backfill = world.backfill.model_copy(update={"status": later})
    job = next(a.job for a in decide(observed(backfill)).next.actions if isinstance(a, StartJob))
    assert isinstance(job, ExtendJob)


def test_a_lost_header_of_an_extended_plan_is_read_from_its_own_directory() -> None:
    header = extended()
    one = HistoryExtension(plan_id=header.inputs.own_id(), at=NOW, after=NOW, history_end=NOW)
    world = between(extensions=(one,))
    lost = observed(world.backfill, header=None, plan_error="it is lost", policy=CLUSTER)
    (action,) = decide(lost).next.actions
    assert isinstance(action, StartJob)
    assert isinstance(action.job, RecoverJob)
    assert action.job.plan_id == header.inputs.own_id()
