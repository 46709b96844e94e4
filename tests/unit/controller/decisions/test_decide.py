"""Every situation of a Backfill, and what is decided in it."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from backfill.api.backfill import Backfill
from backfill.api.conditions import ConditionType, Reason, find_condition
from backfill.api.errors import (
    BackfillError,
    InvalidPlanInput,
    Problem,
    PublishConflict,
    ResultLost,
)
from backfill.api.quantities import from_us
from backfill.api.status import Attempt, BackfillStatus, OutputStatus
from backfill.controller.decisions import observed as observed_module
from backfill.controller.decisions.actions import (
    CancelJob,
    Decision,
    KillDriver,
    RemoveAssignment,
    RemoveResource,
    StartDriver,
    StartJob,
    WriteAssignment,
)
from backfill.controller.decisions.decide import decide
from backfill.controller.decisions.observed import Observed
from backfill.controller.decisions.policy import CLUSTER
from backfill.controller.decisions.status_draft import AttemptChange, StatusChange
from backfill.controller.driver import DriverState
from backfill.controller.jobs.kinds.discard import DiscardJob
from backfill.controller.jobs.kinds.make_plan import PlanResult
from backfill.controller.jobs.kinds.publish import PublishJob, PublishResult
from backfill.controller.jobs.kinds.settle import SettleJob, SettleResult, Totals
from backfill.controller.jobs.kinds.verify import VerifyJob
from backfill.controller.jobs.staged_outputs import staged_outputs
from backfill.protocol.split_assignment import FAILED_ON_ROWS
from situations import (
    HEADER,
    NOW,
    RUNNING,
    START,
    STEPS,
    assigned,
    attempt,
    backfill,
    job_state,
    observed,
    plan_job,
    planned,
    reported,
    running,
    verified,
    with_condition,
)

LOST = InvalidPlanInput(Problem("spec.sources[0].snapshot", "snapshot 5 is gone", "take another"))


def stage(decision: Decision, kind: ConditionType) -> tuple[str, Reason]:
    condition = find_condition(decision.status.conditions, kind)
    assert condition is not None, f"{kind} is not set"
    return condition.status, condition.reason


def message(decision: Decision, kind: ConditionType) -> str:
    condition = find_condition(decision.status.conditions, kind)
    return condition.message if condition else ""


def kinds(decision: Decision) -> list[str]:
    return [type(action).__name__ for action in decision.next.actions]


def test_a_new_backfill_is_planned_by_the_worker() -> None:
    decision = decide(observed(backfill()))
    assert decision.next.actions == (StartJob(plan_job(backfill())),)
    assert stage(decision, ConditionType.PLANNED) == ("Unknown", Reason.PLANNING)
    assert decision.status.observed_generation == 1
    assert decision.status.started_at == NOW


def test_planning_under_way_is_left_alone() -> None:
    resource = backfill()
    decision = decide(observed(resource, job=job_state(plan_job(resource), "Running")))
    assert decision.next.actions == ()
    assert not decision.next.at_rest


def test_a_finished_plan_is_recorded_with_the_snapshots_of_the_outputs_before_anything_runs() -> (
    None
):
    resource = backfill()
    outputs = (OutputStatus(name="counts", table="lake.ops.counts", base_snapshot_id=7),)
    decision = decide(
        observed(
            resource, job=job_state(plan_job(resource), "Done", result=PlanResult(HEADER, outputs))
        )
    )
    assert decision.status.plan_id == HEADER.plan_id
    assert decision.status.outputs == outputs
    assert decision.status.sources[0].rows == 1000
    assert stage(decision, ConditionType.PLANNED) == ("True", Reason.PLAN_READY)
    assert decision.next.actions == ()


def test_bad_input_found_by_planning_ends_it_with_every_problem_on_a_line() -> None:
    resource = backfill()
    error = InvalidPlanInput(
        [
            Problem("spec.sources[0].table", "is missing"),
            Problem("spec.outputs[0].table", "is missing too"),
        ]
    )
    decision = decide(observed(resource, job=job_state(plan_job(resource), "Failed", error=error)))
    assert stage(decision, ConditionType.SUCCEEDED) == ("False", Reason.INVALID_INPUT)
    assert message(decision, ConditionType.PLANNED).splitlines() == [
        "spec.sources[0].table: is missing",
        "spec.outputs[0].table: is missing too",
    ]
    assert decision.next.at_rest


def test_a_planner_that_breaks_is_not_taken_for_bad_input() -> None:
    resource = backfill()
    decision = decide(
        observed(
            resource,
            job=job_state(plan_job(resource), "Failed", error=BackfillError("out of memory")),
        )
    )
    assert stage(decision, ConditionType.SUCCEEDED) == ("False", Reason.PLANNING_FAILED)


def test_without_java_nothing_is_planned() -> None:
    decision = decide(observed(backfill(), obstacles=(Problem("", "Spark needs Java"),)))
    assert stage(decision, ConditionType.PLANNED) == ("False", Reason.INVALID_INPUT)
    assert decision.next.actions == ()


def test_a_plan_that_was_lost_ends_the_backfill() -> None:
    decision = decide(
        observed(backfill(planned()), header=None, plan_error="plan 12 cannot be read")
    )
    assert stage(decision, ConditionType.SUCCEEDED) == ("False", Reason.PLANNING_FAILED)


def test_the_first_attempt_follows_planning_at_once_and_is_recorded_before_it_is_started() -> None:
    resource = backfill(planned())
    decision = decide(observed(resource, job=job_state(plan_job(resource), "Done")))
    assert kinds(decision) == [
        "CancelJob",
        "WriteAssignment",
        "StartDriver",
    ], "the plan's header is not needed twice"
    assert [(a.number, a.outcome) for a in decision.status.attempts] == [(1, "Running")]
    assert stage(decision, ConditionType.RUNNING) == ("Unknown", Reason.STARTING)


def test_the_first_release_is_what_may_be_read_from_the_beginning() -> None:
    decision = decide(observed(backfill(planned()), job=verified(1)))
    assert decision.next.actions[1:] == (
        WriteAssignment(assigned(released=2, watermark=START)),
        StartDriver(1),
    )


@pytest.mark.parametrize("number", [1, 2])
def test_an_attempt_that_does_not_follow_planning_has_the_snapshots_verified_first(
    number: int,
) -> None:
    attempts = (attempt(outcome="Stopped"),) if number == 2 else ()
    decision = decide(observed(backfill(planned(attempts=attempts))))
    assert decision.next.actions == (StartJob(VerifyJob(HEADER, number)),)


def test_planning_does_not_stand_for_the_verification_of_a_later_attempt() -> None:
    resource = backfill(planned(attempts=(attempt(outcome="Stopped"),)))
    decision = decide(observed(resource, job=job_state(plan_job(resource), "Done")))
    assert decision.next.actions == (StartJob(VerifyJob(HEADER, 2)),)


def test_a_verification_for_an_earlier_attempt_does_not_count() -> None:
    decision = decide(
        observed(backfill(planned(attempts=(attempt(outcome="Stopped"),))), job=verified(1))
    )
    assert decision.next.actions == (StartJob(VerifyJob(HEADER, 2)),)


def test_a_snapshot_that_expired_before_an_attempt_ends_the_backfill() -> None:
    decision = decide(
        observed(backfill(planned()), job=job_state(VerifyJob(HEADER, 1), "Failed", error=LOST))
    )
    assert stage(decision, ConditionType.SUCCEEDED) == ("False", Reason.INVALID_INPUT)
    assert decision.next.actions == (CancelJob(),)


def test_steps_are_released_as_they_are_committed() -> None:
    decision = decide(running(report=reported("Running", committed=3)))
    assert decision.next.actions == (
        WriteAssignment(assigned(released=5, watermark=from_us(HEADER.step_starts_us[3]))),
    )
    assert decision.status.progress.committed == 3
    assert decision.status.progress.rows_read == 300
    assert decision.status.watermark == from_us(HEADER.step_starts_us[3])
    assert stage(decision, ConditionType.RUNNING) == ("True", Reason.REPLAYING)


@pytest.mark.parametrize("phase", ["Starting", "Failed"])
def test_a_driver_that_does_not_read_is_not_said_to(phase: str) -> None:
    decision = decide(running(report=reported(phase)))
    assert find_condition(decision.status.conditions, ConditionType.RUNNING) is None


def test_a_driver_that_waits_for_its_application_says_for_what_while_it_starts() -> None:
    decision = decide(
        running(
            report=reported(
                "Starting", message="no query of the application writes the output counts"
            )
        )
    )
    said = find_condition(decision.status.conditions, ConditionType.RUNNING)
    assert said is not None
    assert (said.status, said.reason) == ("Unknown", Reason.STARTING)
    assert said.message == "no query of the application writes the output counts"


def test_what_a_start_waited_for_is_not_taken_for_why_its_driver_ended() -> None:
    report = reported("Starting", message="no query of the application writes the output counts")
    decision = decide(running(report=report, driver=DriverState("Exited", 137)))
    assert "writes the output counts" not in decision.status.attempts[-1].message


def test_watermarks_and_work_are_computed_once_for_the_status_and_the_assignment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[str] = []
    for name in ("watermarks", "work"):
        computed = getattr(observed_module, name)
        monkeypatch.setattr(
            observed_module,
            name,
            lambda *given, name=name, computed=computed: made.append(name) or computed(*given),
        )
    decide(replace(running(report=reported("Running", committed=2)), policy=CLUSTER))
    assert sorted(made) == ["watermarks", "work"]


def test_an_assignment_that_has_not_changed_is_not_written_again() -> None:
    decision = decide(running(report=reported("Running", committed=0)))
    assert decision.next.actions == ()


def test_a_report_that_came_late_takes_no_release_back() -> None:
    decision = decide(
        running(report=reported("Running", committed=1), assignment=assigned(released=6))
    )
    assert decision.next.actions == (
        WriteAssignment(assigned(released=6, watermark=from_us(HEADER.step_starts_us[1]))),
    )


def test_a_driver_that_is_starting_does_not_set_progress_back() -> None:
    status = planned(attempts=(attempt(1, "Stopped"), attempt(2)), committed=4)
    known_from_before = reported(
        "Starting", number=2, queries=reported("Running", committed=4).queries
    )
    seen = observed(
        backfill(status),
        driver=DriverState("Running"),
        assignment=assigned(2),
        report=known_from_before,
    )
    assert decide(seen).status.progress.committed == 4


def test_an_assignment_of_an_earlier_attempt_is_replaced_for_an_adopted_driver() -> None:
    decision = decide(
        running((attempt(1, "Failed"), attempt(2)), assignment=assigned(1, released=9))
    )
    assert decision.next.actions == (WriteAssignment(assigned(2, released=2)),)


def test_a_finished_driver_is_waited_for() -> None:
    decision = decide(
        running(report=reported("Finished", committed=STEPS + 1), assignment=_all_released())
    )
    assert decision.next.actions == ()
    assert decision.status.attempts[0].outcome == "Running"


def test_a_driver_that_finished_and_ended_makes_its_attempt_succeed() -> None:
    decision = decide(
        running(driver=DriverState("Exited", 0), report=reported("Finished", committed=STEPS + 1))
    )
    assert decision.status.attempts[0].outcome == "Succeeded"
    assert decision.status.progress.committed == STEPS
    assert decision.status.progress.open_at_end == 0


def test_a_driver_that_says_it_finished_and_has_not_committed_every_step_has_failed() -> None:
    decision = decide(
        running(driver=DriverState("Exited", 0), report=reported("Finished", committed=9))
    )
    assert decision.status.attempts[0].outcome == "Failed"
    assert "committed only 9 of 10 steps" in decision.status.attempts[0].message


def test_a_driver_that_failed_is_tried_again_after_the_backoff() -> None:
    decision = decide(running(driver=DriverState("Exited", 17), report=reported("Running")))
    assert decision.status.attempts[0].outcome == "Failed"
    assert "status 17" in decision.status.attempts[0].message
    assert decision.status.next_attempt_at == NOW + timedelta(seconds=30)
    assert stage(decision, ConditionType.RUNNING) == ("Unknown", Reason.BACKING_OFF)


def test_why_a_driver_could_not_even_report_is_the_message_of_its_attempt() -> None:
    log = (
        "+ exec tini",
        "error: the SplitAssignment january cannot be read: 403",
        "INFO ShutdownHookManager",
    )
    decision = decide(running(driver=DriverState("Exited", 1, log_tail=log)))
    assert decision.status.attempts[0].message.endswith(
        "committed: the SplitAssignment january cannot be read: 403"
    )


def test_success_is_what_the_driver_reported_and_not_its_exit_status() -> None:
    decision = decide(
        running(driver=DriverState("Exited", 0), report=reported("Running", committed=9))
    )
    assert decision.status.attempts[0].outcome == "Failed"


def test_a_driver_that_stopped_by_itself_costs_no_attempt_and_no_wait() -> None:
    decision = decide(
        running(driver=DriverState("Exited", None), report=reported("Stopped", committed=3))
    )
    assert decision.status.attempts[0].outcome == "Stopped"
    assert decision.status.next_attempt_at is None


def test_nothing_is_started_before_the_backoff_is_over() -> None:
    status = planned(
        attempts=(attempt(outcome="Failed"),), next_attempt_at=NOW + timedelta(seconds=20)
    )
    decision = decide(observed(backfill(status)))
    assert decision.next.actions == ()
    assert decision.next.requeue_seconds == 20


@pytest.mark.parametrize(
    ("failed_before", "committed", "wait"),
    [
        pytest.param(0, 0, 30, id="the first failure waits for the backoff"),
        pytest.param(1, 0, 60, id="the second without progress waits twice as long"),
        pytest.param(3, 0, 240, id="the fourth eight times"),
        pytest.param(3, 1, 30, id="progress makes it begin anew"),
    ],
)
def test_waits_double_while_there_is_no_progress(
    failed_before: int, committed: int, wait: int
) -> None:
    earlier = tuple(attempt(number, "Failed") for number in range(1, failed_before + 1))
    resource = {"failurePolicy": {"maxAttempts": 9}}
    last = attempt(failed_before + 1, steps_at_start=0)
    report = reported("Running", committed=committed, number=last.number)
    decision = decide(
        running((*earlier, last), resource=resource, driver=DriverState("Exited", 1), report=report)
    )
    assert decision.status.next_attempt_at == NOW + timedelta(seconds=wait)


def test_a_wait_is_never_longer_than_ten_minutes() -> None:
    earlier = tuple(attempt(number, "Failed") for number in range(1, 15))
    seen = running(
        (*earlier, attempt(15)),
        resource={"failurePolicy": {"maxAttempts": 50}},
        driver=DriverState("Exited", 1),
    )
    assert decide(seen).status.next_attempt_at == NOW + timedelta(minutes=10)


def _last_of_five(generation: int = 1, **fields: Any) -> Observed:
    earlier = tuple(attempt(number, "Failed", generation=generation) for number in range(1, 5))
    driver = DriverState("Exited", 1, log_tail=("Traceback", "KeyError: 'user'"))
    return running((*earlier, attempt(5, generation=fields.pop("now", 1))), driver=driver, **fields)


def test_as_many_failures_in_a_row_as_allowed_end_it_and_show_the_end_of_the_log() -> None:
    decision = decide(_last_of_five())
    assert stage(decision, ConditionType.SUCCEEDED) == ("False", Reason.ATTEMPTS_EXHAUSTED)
    assert "KeyError: 'user'" in message(decision, ConditionType.RUNNING)
    assert decision.status.next_attempt_at is None


def test_failures_before_a_person_asked_again_do_not_count() -> None:
    decision = decide(_last_of_five(generation=1, now=2, resource={"generation": 2}))
    assert stage(decision, ConditionType.RUNNING) == ("Unknown", Reason.BACKING_OFF)


@pytest.mark.parametrize(
    "reason",
    [
        Reason.UNSUPPORTED_PROGRAM,
        Reason.PROGRAM_FAILED,
        Reason.BATCH_RESULTS_DIFFER,
        Reason.INVALID_INPUT,
    ],
)
def test_what_would_fail_again_is_not_tried_again(reason: Reason) -> None:
    report = reported("Failed", reason=reason.value, message="foreachBatch writes to JDBC")
    decision = decide(running(driver=DriverState("Exited", 2), report=report))
    assert stage(decision, ConditionType.SUCCEEDED) == ("False", reason)
    assert message(decision, ConditionType.RUNNING) == "foreachBatch writes to JDBC"


def _again(first: str, last: str, reason: str = FAILED_ON_ROWS, committed: int = 0) -> Decision:
    """After three attempts that ended with errors."""
    earlier = (attempt(1, "Failed", message=first), attempt(2, "Failed", message=last))
    report = reported("Failed", number=3, reason=reason, message=last, committed=committed)
    return decide(running((*earlier, attempt(3)), driver=DriverState("Exited", 1), report=report))


def test_an_error_of_the_program_that_repeats_before_any_step_ends_it() -> None:
    decision = _again(
        "counts failed: KeyError: 'a'\n  line 3", "counts failed: KeyError: 'b'\n  line 3"
    )
    assert stage(decision, ConditionType.SUCCEEDED) == ("False", Reason.PROGRAM_FAILED)
    assert (
        message(decision, ConditionType.RUNNING)
        == "3 attempts in a row failed in the same way: counts failed: KeyError: 'b'\n  line 3"
    )
    assert decision.status.next_attempt_at is None


@pytest.mark.parametrize(
    "decision",
    [
        pytest.param(_again("KeyError: 'a'", "TypeError: 'a'"), id="another error"),
        pytest.param(_again("no answer", "no answer", "ApplicationFailed"), id="of a server"),
        pytest.param(_again("KeyError: 'a'", "KeyError: 'a'", committed=1), id="after a step"),
    ],
)
def test_another_attempt_follows_where_it_may_succeed(decision: Decision) -> None:
    assert stage(decision, ConditionType.RUNNING) == ("Unknown", Reason.BACKING_OFF)


def test_a_driver_that_hangs_is_killed_and_the_reason_is_kept() -> None:
    decision = decide(running(report=reported("Running", committed=2), report_age_seconds=61))
    assert decision.next.actions == (KillDriver(1),)
    after = replace(running(decision.status.attempts), driver=DriverState("Exited", -9))
    assert "no heartbeat for 61 s" in decide(after).status.attempts[0].message


def test_a_driver_is_looked_at_again_when_it_would_hang() -> None:
    assert (
        decide(running(report=reported("Running"), report_age_seconds=50)).next.requeue_seconds
        == 10
    )


def test_an_attempt_without_a_trace_of_its_driver_failed_when_it_was_begun() -> None:
    decision = decide(running(driver=DriverState("Absent")))
    assert decision.status.attempts[0].outcome == "Failed"
    assert decision.status.attempts[0].finished_at == NOW - timedelta(minutes=5)
    assert decision.status.next_attempt_at is not None
    assert decision.status.next_attempt_at < NOW, "the wait passed while no controller was there"


def test_a_driver_that_ended_unseen_ended_with_its_last_sign_of_life() -> None:
    report = reported("Running", committed=2, heartbeat=NOW - timedelta(seconds=90))
    decision = decide(running(driver=DriverState("Exited", None), report=report))
    assert decision.status.attempts[0].finished_at == NOW - timedelta(seconds=90)


def test_suspending_tells_the_driver_to_stop_once() -> None:
    suspended = {"suspend": True}
    decision = decide(running(resource=suspended, report=reported("Running", committed=2)))
    assert decision.next.actions == (WriteAssignment(assigned(stop=True)),)
    assert stage(decision, ConditionType.RUNNING) == ("Unknown", Reason.SUSPENDING)
    assert decide(running(resource=suspended, assignment=assigned(stop=True))).next.actions == ()


def test_a_stopped_driver_of_a_suspended_backfill_is_at_rest() -> None:
    decision = decide(
        running(
            resource={"suspend": True},
            driver=DriverState("Exited", 0),
            report=reported("Stopped", committed=2),
        )
    )
    assert decision.status.attempts[0].outcome == "Stopped"
    assert stage(decision, ConditionType.RUNNING) == ("False", Reason.SUSPENDED)
    assert decision.next.at_rest


def test_a_driver_that_hangs_while_it_should_stop_is_killed() -> None:
    decision = decide(
        running(resource={"suspend": True}, assignment=assigned(stop=True), report_age_seconds=61)
    )
    assert decision.next.actions == (KillDriver(1),)


def test_resuming_does_not_take_back_a_stop_that_the_driver_may_have_seen() -> None:
    decision = decide(
        running(assignment=assigned(stop=True), report=reported("Running", committed=2))
    )
    assert decision.next.actions == ()


def test_a_suspended_backfill_is_planned_and_not_started() -> None:
    resource = backfill(suspend=True)
    assert decide(observed(resource)).next.actions == (StartJob(plan_job(resource)),)
    planned = decide(
        observed(resource, job=job_state(plan_job(resource), "Done", result=PlanResult(HEADER, ())))
    )
    assert stage(planned, ConditionType.PLANNED) == ("True", Reason.PLAN_READY)
    after = decide(observed(resource.model_copy(update={"status": planned.status}), header=HEADER))
    assert (stage(after, ConditionType.RUNNING), after.next.actions, after.next.at_rest) == (
        ("False", Reason.SUSPENDED),
        (),
        True,
    )


def test_what_was_planned_or_verified_before_a_suspension_does_not_stand_for_a_verification_after_it() -> (
    None
):
    resource = backfill(planned(), suspend=True)
    for before in (job_state(plan_job(resource), "Done"), verified(1)):
        suspended = decide(observed(resource, job=before))
        assert (suspended.next.actions, suspended.next.at_rest) == ((CancelJob(),), True)
    resumed = decide(observed(backfill(suspended.status)))
    assert resumed.next.actions == (StartJob(VerifyJob(HEADER, 1)),)


def test_a_controller_that_is_to_end_abandons_planning() -> None:
    resource = backfill()
    decision = decide(
        observed(resource, job=job_state(plan_job(resource), "Running"), shutting_down=True)
    )
    assert decision.next.actions == (CancelJob(),)


def test_suspending_lets_a_commit_under_way_come_to_its_end() -> None:
    resource = backfill(_settled(), suspend=True)
    decision = decide(observed(resource, job=job_state(_publish_job(resource), "Running")))
    assert decision.next.actions == ()
    assert not decision.next.at_rest


def test_a_controller_that_is_to_end_stops_the_driver_without_suspending_the_backfill() -> None:
    decision = decide(running(shutting_down=True, report=reported("Running", committed=2)))
    assert decision.next.actions == (WriteAssignment(assigned(stop=True)),)


def _all_released() -> Any:
    return assigned(released=STEPS, watermark=from_us(HEADER.inputs.read_end_us))


def _succeeded_attempt() -> BackfillStatus:
    return planned(attempts=(attempt(outcome="Succeeded"),), committed=STEPS)


def _settled(**output: Any) -> BackfillStatus:
    status = planned(attempts=(attempt(outcome="Succeeded"),), committed=STEPS, output=output)
    return with_condition(status, ConditionType.RUNNING, "False", Reason.ALL_STEPS_COMMITTED)


def _publish_job(resource: Backfill) -> PublishJob:
    return PublishJob(staged_outputs(resource)[0], resource.spec.window)


def test_after_the_last_step_the_result_is_counted() -> None:
    resource = backfill(_succeeded_attempt())
    assert decide(observed(resource)).next.actions == (
        StartJob(SettleJob(staged_outputs(resource), resource.spec.window)),
    )


def test_what_was_counted_is_recorded() -> None:
    resource = backfill(_succeeded_attempt())
    result = SettleResult({"counts": Totals("backfill/january", rows=40, rows_outside_window=2)})
    decision = decide(
        observed(
            resource,
            job=job_state(
                SettleJob(staged_outputs(resource), resource.spec.window), "Done", result=result
            ),
        )
    )
    assert (decision.status.outputs[0].rows, decision.status.outputs[0].rows_outside_window) == (
        40,
        2,
    )
    assert stage(decision, ConditionType.RUNNING) == ("False", Reason.ALL_STEPS_COMMITTED)


def test_files_of_failed_tasks_that_were_left_are_named() -> None:
    resource = backfill(_succeeded_attempt())
    totals = {"counts": Totals("backfill/january", rows=40, rows_outside_window=2)}
    state = job_state(
        SettleJob(staged_outputs(resource), resource.spec.window),
        "Done",
        result=SettleResult(totals, "m0.avro cannot be read"),
    )
    decision = decide(observed(resource, job=state))
    message = next(
        each.message for each in decision.status.conditions if each.type == ConditionType.RUNNING
    )
    assert "files of failed tasks remain: m0.avro cannot be read" in message


def test_a_result_that_can_not_be_read_fails() -> None:
    resource = backfill(_succeeded_attempt())
    for error, reason in (
        (BackfillError("no catalog"), Reason.PUBLISH_FAILED),
        (ResultLost("dropped"), Reason.RESULT_LOST),
    ):
        state = job_state(
            SettleJob(staged_outputs(resource), resource.spec.window), "Failed", error=error
        )
        assert stage(decide(observed(resource, job=state)), ConditionType.SUCCEEDED) == (
            "False",
            reason,
        )


def test_a_counted_result_is_published() -> None:
    resource = backfill(_settled())
    decision = decide(observed(resource))
    assert decision.next.actions == (StartJob(_publish_job(resource)),)
    assert stage(decision, ConditionType.PUBLISHED) == ("Unknown", Reason.PUBLISHING)


def test_publishing_succeeds_when_every_output_is_published() -> None:
    resource = backfill(_settled(rows=40))
    state = job_state(_publish_job(resource), "Done", result=PublishResult("counts", 99))
    decision = decide(observed(resource, job=state))
    assert decision.status.outputs[0].snapshot_id == 99
    assert stage(decision, ConditionType.PUBLISHED) == ("True", Reason.PUBLISHED)
    assert stage(decision, ConditionType.SUCCEEDED) == ("True", Reason.FINISHED)
    assert decision.next.at_rest


def test_outputs_are_published_one_after_the_other() -> None:
    outputs = [
        {"name": name, "table": f"lake.ops.{name}", "publish": {"mode": "Append"}}
        for name in ("a", "b")
    ]
    statuses = (
        OutputStatus(name="a", table="lake.ops.a", snapshot_id=98),
        OutputStatus(name="b", table="lake.ops.b"),
    )
    resource = backfill(_settled().model_copy(update={"outputs": statuses}), outputs=outputs)
    decision = decide(observed(resource))
    assert decision.next.actions == (
        StartJob(PublishJob(staged_outputs(resource)[1], resource.spec.window)),
    )


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (PublishConflict("snapshot 8 changed the window"), Reason.PUBLISH_CONFLICT),
        (ResultLost("the branch was dropped"), Reason.RESULT_LOST),
        (BackfillError("no catalog"), Reason.PUBLISH_FAILED),
    ],
    ids=["production changed the window", "the branch was dropped", "anything else"],
)
def test_publishing_that_fails_ends_the_backfill_with_its_reason(
    error: Exception, reason: Reason
) -> None:
    resource = backfill(_settled())
    decision = decide(
        observed(resource, job=job_state(_publish_job(resource), "Failed", error=error))
    )
    assert stage(decision, ConditionType.SUCCEEDED) == ("False", reason)
    assert decision.next.actions == (CancelJob(),)


def test_a_new_start_is_told_what_it_must_not_append_once_more() -> None:
    modes = {"added": "Append", "replaced": "Replace", "refused": "Append"}
    outputs = [
        {
            "name": name,
            "table": f"lake.ops.{name}",
            "timestampColumn": "at",
            "publish": {"mode": mode},
        }
        for name, mode in modes.items()
    ]
    statuses = [
        OutputStatus(name=name, table=f"lake.ops.{name}", snapshot_id=7)
        for name in ("added", "replaced")
    ]
    statuses.append(OutputStatus(name="refused", table="lake.ops.refused"))
    resource = backfill(_settled().model_copy(update={"outputs": tuple(statuses)}), outputs=outputs)
    job = PublishJob(staged_outputs(resource)[2], resource.spec.window)
    decision = decide(
        observed(
            resource,
            job=job_state(job, "Failed", error=PublishConflict("snapshot 8 changed the window")),
        )
    )
    published = next(
        each for each in decision.status.conditions if each.type == ConditionType.PUBLISHED
    )
    assert published.message.splitlines() == [
        "refused: snapshot 8 changed the window",
        "already appended; omit it from a new Backfill to avoid duplicates: added",
    ]


MANUAL = [
    {
        "name": "counts",
        "table": "lake.ops.counts",
        "publish": {"mode": "Append", "approval": "Manual"},
    }
]
UNPUBLISHED = [{"name": "counts", "table": "lake.ops.counts"}]


def test_publishing_that_needs_approval_waits_for_a_person() -> None:
    decision = decide(observed(backfill(_settled(), outputs=MANUAL)))
    assert stage(decision, ConditionType.PUBLISHED) == ("Unknown", Reason.WAITING_FOR_APPROVAL)
    assert stage(decision, ConditionType.SUCCEEDED) == ("Unknown", Reason.IN_PROGRESS)
    assert decision.next.at_rest


def test_a_result_that_is_not_to_be_published_stays_in_its_branch() -> None:
    decision = decide(observed(backfill(_settled(branch="backfill/january"), outputs=UNPUBLISHED)))
    assert stage(decision, ConditionType.PUBLISHED) == ("False", Reason.NOT_PUBLISHED)
    assert stage(decision, ConditionType.SUCCEEDED) == ("True", Reason.FINISHED)


def test_without_outputs_it_is_said_that_there_is_nothing_to_publish() -> None:
    status = _settled().model_copy(update={"outputs": ()})
    published = find_condition(
        decide(observed(backfill(status, outputs=[]))).status.conditions, ConditionType.PUBLISHED
    )
    assert published is not None
    assert published.message == "spec.outputs contains no table, so there is nothing to publish"


def _failed(reason: Reason) -> BackfillStatus:
    return with_condition(
        planned(attempts=(attempt(outcome="Failed"),)), ConditionType.SUCCEEDED, "False", reason
    )


def test_a_failed_backfill_is_left_alone() -> None:
    decision = decide(observed(backfill(_failed(Reason.ATTEMPTS_EXHAUSTED))))
    assert (decision.next.actions, decision.next.at_rest) == ((), True)


def test_a_failed_backfill_is_tried_anew_when_it_is_wanted_again() -> None:
    decision = decide(observed(backfill(_failed(Reason.ATTEMPTS_EXHAUSTED), generation=2)))
    assert decision.next.actions == (StartJob(VerifyJob(HEADER, 2)),)
    assert stage(decision, ConditionType.SUCCEEDED) == ("Unknown", Reason.IN_PROGRESS)


def test_a_backfill_that_succeeded_stays_so_whatever_is_wanted_later() -> None:
    status = with_condition(_settled(), ConditionType.SUCCEEDED, "True", Reason.FINISHED)
    decision = decide(observed(backfill(status, generation=3)))
    assert (decision.next.actions, decision.next.at_rest) == ((), True)


def test_a_driver_left_at_work_by_a_failed_backfill_is_killed() -> None:
    status = with_condition(
        planned(attempts=(attempt(),)), ConditionType.SUCCEEDED, "False", Reason.PLANNING_FAILED
    )
    assert decide(observed(backfill(status), driver=DriverState("Running"))).next.actions == (
        KillDriver(1),
    )


def test_deletion_kills_the_driver_first() -> None:
    assert decide(running(resource={"deleted": True})).next.actions == (CancelJob(), KillDriver(1))


def test_deletion_then_discards_what_was_made() -> None:
    resource = backfill(planned(attempts=(attempt(outcome="Failed"),)), deleted=True)
    assert decide(observed(resource)).next.actions == (StartJob(DiscardJob.of(resource)),)


def test_deletion_leaves_no_assignment_to_a_driver_that_starts_late() -> None:
    seen = running(resource={"deleted": True}, driver=DriverState())
    decision = decide(seen)
    assert decision.next.actions == (RemoveAssignment(),)
    assert decision.next.requeue_seconds == 0
    found_it_before = replace(seen, assignment=None, driver=RUNNING)
    assert decide(found_it_before).next.actions == (CancelJob(), KillDriver(1))


def test_deletion_waits_for_a_commit_under_way() -> None:
    resource = backfill(_settled(), deleted=True)
    assert (
        decide(observed(resource, job=job_state(_publish_job(resource), "Running"))).next.actions
        == ()
    )


def test_deletion_forgets_the_resource_last() -> None:
    resource = backfill(planned(), deleted=True)
    decision = decide(observed(resource, job=job_state(DiscardJob.of(resource), "Done")))
    assert decision.next.actions == (RemoveResource(),)


def test_what_can_not_be_removed_keeps_the_resource() -> None:
    resource = backfill(planned(), deleted=True)
    decision = decide(
        observed(
            resource,
            job=job_state(DiscardJob.of(resource), "Failed", error=BackfillError("no catalog")),
        )
    )
    assert stage(decision, ConditionType.SUCCEEDED) == ("False", Reason.REMOVAL_FAILED)
    assert decision.next.at_rest


def test_what_planning_may_have_made_is_removed_although_there_is_no_plan() -> None:
    resource = backfill(BackfillStatus(workspace="/work"), deleted=True)
    assert decide(observed(resource)).next.actions == (StartJob(DiscardJob.of(resource)),)


def test_a_backfill_for_which_nothing_was_begun_is_forgotten_at_once() -> None:
    assert decide(observed(backfill(deleted=True))).next.actions == (RemoveResource(),)


def test_the_same_observation_gives_the_same_decision() -> None:
    seen = running(report=reported("Running", committed=3))
    assert decide(seen) == decide(seen)


def test_every_field_of_a_status_can_be_changed_with_its_type() -> None:
    assert set(StatusChange.__annotations__) == set(BackfillStatus.model_fields)
    assert set(AttemptChange.__annotations__) < set(Attempt.model_fields)


def test_what_batch_jobs_do_before_they_commit_is_recorded_while_they_run() -> None:
    report = reported("Running").model_copy(update={"reads_ahead_steps": 4, "tasks_percent": 30})
    progress = decide(running(report=report)).status.progress
    assert (progress.batch_steps, progress.batch_tasks_percent) == (4, 30)
    ended = decide(running(report=report, driver=DriverState("Exited", 1))).status.progress
    assert (ended.batch_steps, ended.batch_tasks_percent) == (0, None)
