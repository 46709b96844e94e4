"""What is decided where drivers are pods, nobody waits at a terminal, and anything may be missing
for a while.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from backfill.api.backfill import Backfill
from backfill.api.conditions import Condition, ConditionType, Reason, find_condition
from backfill.api.errors import (
    BackfillError,
    InvalidPlanInput,
    NowhereToRun,
    Problem,
    PublishConflict,
    ResultLost,
)
from backfill.api.status import Attempt, BackfillStatus, ExportStatus
from backfill.controller.decisions.actions import (
    CancelJob,
    Decision,
    KillDriver,
    RemoveResource,
    StartDriver,
    StartJob,
    WriteAssignment,
)
from backfill.controller.decisions.decide import decide
from backfill.controller.decisions.deleting import REMOVAL_LIMIT, WORKING_LIMIT
from backfill.controller.decisions.job_retries import PATIENCE
from backfill.controller.decisions.observed import Observed
from backfill.controller.decisions.plan.planning import APPLIED_WITHIN
from backfill.controller.decisions.policy import CLUSTER
from backfill.controller.decisions.result.finished import REMOVAL_PATIENCE
from backfill.controller.decisions.run.attempts import END_LIMIT
from backfill.controller.decisions.run.pending_driver import (
    BROKEN_LIMIT,
    CREATION_LIMIT,
    NOTICE_AFTER,
    SUBMITTED_LIMIT,
    UNSCHEDULED_LIMIT,
)
from backfill.controller.decisions.run.silent_driver import CONFIRMATION, FIRST_REPORT_LIMIT_SECONDS
from backfill.controller.decisions.run.suspending import STOP_LIMIT
from backfill.controller.driver import DriverState
from backfill.controller.jobs.any_job import JobState
from backfill.controller.jobs.kinds.discard import DiscardJob
from backfill.controller.jobs.kinds.make_plan import PlanResult
from backfill.controller.jobs.kinds.publish import PublishJob
from backfill.controller.jobs.kinds.settle import SettleJob
from backfill.controller.jobs.kinds.verify import VerifyJob
from backfill.controller.jobs.staged_outputs import staged_outputs
from backfill.coordination.recent_rate import Rate
from backfill.planning.planning_progress import PlanningProgress
from backfill.protocol.split_assignment import SplitAssignmentStatus
from situations import (
    HEADER,
    NOW,
    RUNNING,
    STEPS,
    assigned,
    attempt,
    backfill,
    job_state,
    observed,
    plan_job,
    planned,
    reported,
    verified,
    with_condition,
)

UNREACHABLE = InvalidPlanInput(
    Problem("spec.sources[0].table", "catalog lake cannot be opened: timed out", may_pass=True)
)
MISSING = InvalidPlanInput(Problem("spec.sources[0].table", "table lake.raw.clicks does not exist"))
SCALING = {"minExecutors": 2, "maxExecutors": 40, "completeWithin": "1h"}


def on_cluster(resource: Backfill, **fields: Any) -> Observed:
    return replace(observed(resource), policy=CLUSTER, next_child="january-a1", **fields)


def at_work(
    driver: DriverState = RUNNING,
    *,
    now: datetime = NOW,
    of: Attempt | None = None,
    resource: Any = None,
    **fields: Any,
) -> Observed:
    """A Backfill with an attempt under way since five minutes."""
    status = planned(
        attempts=(of or attempt(child="january-a1"),), committed=fields.pop("committed", 0)
    )
    status = status.model_copy(
        update={
            "conditions": fields.pop("conditions", ()),
            "started_at": NOW - timedelta(minutes=6),
        }
    )
    return on_cluster(
        backfill(status, **(resource or {})),
        driver=driver,
        now=now,
        **{"assignment": _assigned(), **fields},
    )


def pending(reason: str, minutes: float = 0.0, message: str = "") -> DriverState:
    return DriverState(
        "Pending", reason=reason, message=message, since=NOW - timedelta(minutes=minutes)
    )


def condition(decision: Decision, kind: ConditionType) -> Condition:
    found = find_condition(decision.status.conditions, kind)
    assert found is not None, f"{kind} is not set"
    return found


def stage(decision: Decision, kind: ConditionType) -> tuple[str, Reason]:
    found = condition(decision, kind)
    return found.status, found.reason


def types(decision: Decision) -> set[str]:
    return {str(found.type) for found in decision.status.conditions}


def later(
    seen: Observed, decision: Decision, passed: timedelta = timedelta(), **fields: Any
) -> Observed:
    """The same world after what was decided is recorded, and some time has passed."""
    resource = seen.backfill.model_copy(update={"status": decision.status})
    return replace(seen, backfill=resource, now=seen.now + passed, **fields)


def _assigned(**fields: Any) -> Any:
    return assigned(**fields).model_copy(update={"executor_target": 1})


# Starting


def test_an_attempt_is_recorded_with_the_name_of_its_child_before_that_is_made() -> None:
    decision = decide(on_cluster(backfill(planned()), job=verified(1)))
    assert [(made.number, made.child, made.outcome) for made in decision.status.attempts] == [
        (1, "january-a1", "Running")
    ]
    assert decision.next.actions[2:] == (StartDriver(1),)


def test_an_attempt_that_was_recorded_and_never_made_is_made_under_the_same_number() -> None:
    seen = at_work(
        DriverState("Absent"),
        of=attempt(child="january-a1", started_at=NOW - timedelta(seconds=3)),
        assignment=None,
    )
    decision = decide(seen)
    assert decision.next.actions == (WriteAssignment(_assigned()), StartDriver(1))
    assert decision.status.attempts == seen.backfill.status.attempts


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param(
            {"of": attempt(child="january-a1", started_at=NOW - CREATION_LIMIT)},
            id="it was recorded long ago",
        ),
        pytest.param({"report": reported("Running", committed=1)}, id="it has read something"),
        pytest.param(
            {"of": attempt(child="january-a1", started_at=NOW, message="killed")},
            id="it was killed",
        ),
        pytest.param(
            {"of": attempt(started_at=NOW)},
            id="its child has no name that would show it is there already",
        ),
    ],
)
def test_an_attempt_without_a_trace_has_failed_where(fields: dict[str, Any]) -> None:
    assert decide(at_work(DriverState("Absent"), **fields)).status.attempts[-1].outcome == "Failed"


def test_an_attempt_that_has_read_is_not_made_again_though_its_reports_and_its_child_are_gone() -> (
    None
):
    of = attempt(child="january-a1", started_at=NOW - timedelta(minutes=1))
    seen = at_work(DriverState("Absent"), of=of, assignment=None)
    status = with_condition(seen.backfill.status, ConditionType.RUNNING, "True", Reason.REPLAYING)
    read = replace(seen, backfill=seen.backfill.model_copy(update={"status": status}))
    assert decide(seen).status.attempts[-1].outcome == "Running"
    assert decide(read).status.attempts[-1].outcome == "Failed"


def test_logins_that_a_driver_told_or_wrote_into_its_log_are_left_out_of_the_status() -> None:
    url = "jdbc:postgresql://writer:hunter2@db/events"
    ended = DriverState("Exited", exit_status=1, log_tail=(f"connects to {url}",))
    failed = reported("Failed").model_copy(update={"message": f"{url} does not answer"})
    decision = decide(at_work(ended, report=failed, resource={"failurePolicy": {"maxAttempts": 1}}))
    assert stage(decision, ConditionType.SUCCEEDED) == ("False", Reason.ATTEMPTS_EXHAUSTED)
    assert "***@db/events does not answer" in condition(decision, ConditionType.SUCCEEDED).message
    assert "hunter2" not in decision.status.model_dump_json()


def test_what_passes_by_itself_in_a_moment_is_not_spoken_of() -> None:
    decision = decide(at_work(pending("ContainerCreating", minutes=0.1)))
    assert stage(decision, ConditionType.RUNNING) == ("Unknown", Reason.STARTING)
    assert decision.next.requeue_seconds == pytest.approx(NOTICE_AFTER.total_seconds() - 6)


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("ErrImagePull", "image cannot be pulled"),
        ("InvalidImageName", "Correct the image"),
        ("CreateContainerConfigError", "a Secret or ConfigMap that the pod refers to is missing"),
    ],
)
def test_a_driver_that_can_not_start_without_a_person_is_told_of_at_once(
    reason: str, told: str
) -> None:
    decision = decide(at_work(pending(reason, message="the details.")))
    assert stage(decision, ConditionType.RUNNING) == ("Unknown", Reason.DRIVER_START_BLOCKED)
    assert told in condition(decision, ConditionType.RUNNING).message
    assert f"({reason}: the details)." in condition(decision, ConditionType.RUNNING).message
    assert stage(decision, ConditionType.STALLED) == ("True", Reason.DRIVER_START_BLOCKED)
    assert decision.next.actions == ()
    assert decision.next.requeue_seconds is not None


def test_an_image_that_is_pulled_in_vain_again_and_again_is_told_of_once() -> None:
    seen = at_work(pending("ErrImagePull", message="no such host"))
    first = decide(seen)
    again = decide(
        later(
            seen,
            first,
            timedelta(seconds=30),
            driver=pending("ImagePullBackOff", message="back-off 40s"),
        )
    )
    assert again.status == first.status


@pytest.mark.parametrize(
    ("reason", "limit"),
    [
        pytest.param("ImagePullBackOff", BROKEN_LIMIT, id="the image cannot be pulled"),
        pytest.param("Submitted", SUBMITTED_LIMIT, id="it was submitted and has no pod"),
        pytest.param("Unschedulable", UNSCHEDULED_LIMIT, id="no node has room for it"),
    ],
)
def test_a_pending_driver_is_given_up_after_its_limit_and_the_reason_is_kept(
    reason: str, limit: timedelta
) -> None:
    minutes = limit.total_seconds() / 60
    assert decide(at_work(pending(reason, minutes=minutes - 0.1))).next.actions == ()
    seen = at_work(pending(reason, minutes=minutes))
    decision = decide(seen)
    assert decision.next.actions == (KillDriver(1),)
    failed = decide(later(seen, decision, driver=DriverState("Absent")))
    assert failed.status.attempts[-1].outcome == "Failed"
    assert "its driver did not start" in condition(failed, ConditionType.RUNNING).message
    assert stage(failed, ConditionType.RUNNING) == ("Unknown", Reason.BACKING_OFF)


def test_a_child_that_a_queue_holds_back_waits_for_ever() -> None:
    decision = decide(at_work(pending("Suspended", minutes=100_000)))
    assert decision.next.actions == ()
    assert stage(decision, ConditionType.RECONCILING) == ("True", Reason.DRIVER_PENDING)


def test_a_driver_that_starts_after_all_is_not_stalled_any_more() -> None:
    seen = at_work(pending("ErrImagePull"))
    decision = decide(later(seen, decide(seen), driver=DriverState("Running", since=NOW)))
    assert stage(decision, ConditionType.RUNNING) == ("Unknown", Reason.STARTING)
    assert "Stalled" not in types(decision)


def test_a_child_that_was_refused_fails_the_attempt_with_what_the_server_said() -> None:
    decision = decide(
        at_work(DriverState("Exited", reason="Refused", message="exceeded quota: team"))
    )
    assert decision.status.attempts[0].message == "Refused: exceeded quota: team"
    assert decision.status.next_attempt_at is not None


# Running


def test_a_pod_is_given_time_from_the_start_of_its_container_to_its_first_report() -> None:
    started = DriverState("Running", since=NOW - timedelta(seconds=FIRST_REPORT_LIMIT_SECONDS - 10))
    decision = decide(at_work(started, report_age_seconds=4000))
    assert (decision.next.actions, decision.next.requeue_seconds) == ((), 10)


def test_silence_is_recorded_first_and_the_driver_killed_when_it_goes_on() -> None:
    seen = at_work(report=reported("Running", committed=2), report_age_seconds=61)
    noted = decide(seen)
    assert noted.next.actions == ()
    assert stage(noted, ConditionType.RUNNING) == ("Unknown", Reason.DRIVER_SILENT)
    waiting = decide(later(seen, noted, CONFIRMATION / 2, report_age_seconds=76))
    assert (waiting.next.actions, waiting.status) == ((), noted.status)
    killed = decide(later(seen, noted, CONFIRMATION, report_age_seconds=91))
    assert killed.next.actions == (KillDriver(1),)
    assert killed.status.attempts[0].message == "no heartbeat for 91 s; killed"


def test_a_driver_that_is_heard_of_again_when_the_server_is_back_goes_on() -> None:
    seen = at_work(report=reported("Running", committed=2), report_age_seconds=300)
    decision = decide(later(seen, decide(seen), CONFIRMATION, report_age_seconds=1))
    assert decision.status.attempts[0].unheard_since is None
    assert stage(decision, ConditionType.RUNNING) == ("True", Reason.REPLAYING)
    assert KillDriver(1) not in decision.next.actions


def test_killing_again_and_again_writes_nothing_until_a_person_is_needed() -> None:
    silent = attempt(child="january-a1", unheard_since=NOW - CONFIRMATION)
    seen = at_work(of=silent, report=reported("Running"), report_age_seconds=95)
    first = decide(seen)
    second = decide(later(seen, first, timedelta(seconds=20), report_age_seconds=115))
    assert (second.next.actions, second.status) == ((KillDriver(1),), first.status)
    lost = DriverState(
        "Running", reason="NodeLost", message="the node of its driver pod does not respond"
    )
    stuck = decide(later(seen, second, END_LIMIT, report_age_seconds=300, driver=lost))
    assert stage(stuck, ConditionType.STALLED) == ("True", Reason.DRIVER_TERMINATION_STUCK)
    assert "force-delete the driver pod" in condition(stuck, ConditionType.STALLED).message
    assert len(stuck.status.attempts) == 1, "no other attempt runs beside it"


def test_an_attempt_ended_when_its_container_did() -> None:
    ended = NOW - timedelta(seconds=50)
    decision = decide(at_work(DriverState("Exited", 1, reason="Error", since=ended)))
    assert decision.status.attempts[0].finished_at == ended


def test_a_spec_that_is_edited_does_not_disturb_an_attempt() -> None:
    seen = at_work(
        report=reported("Running"),
        resource={"generation": 2, "overrides": {"driver": {"memory": "4g"}}},
    )
    decision = decide(seen)
    assert decision.next.actions == ()
    assert decision.status.observed_generation == 2


def test_more_failures_than_attempts_are_kept_are_counted_all_the_same() -> None:
    policy = {"failurePolicy": {"maxAttempts": 30, "backoff": "0s"}}
    seen = at_work(DriverState("Exited", 1), resource=policy)
    for number in range(1, 31):
        decision = decide(seen)
        running = attempt(number + 1, child=f"january-a{number + 1}")
        status = decision.status.model_copy(
            update={"attempts": (*decision.status.attempts, running)[-20:]}
        )
        seen = replace(seen, backfill=seen.backfill.model_copy(update={"status": status}))
        assert stage(decision, ConditionType.SUCCEEDED)[0] == (
            "False" if number == 30 else "Unknown"
        )


# Executors


def test_the_first_assignment_asks_for_the_least_executors_until_one_is_measured() -> None:
    decision = decide(on_cluster(backfill(planned(), scaling=SCALING), job=verified(1)))
    first = decision.next.actions[1]
    assert isinstance(first, WriteAssignment)
    assert first.assignment.executor_target == 2


def test_the_target_follows_the_rate_of_one_executor_and_explains_itself() -> None:
    seen = at_work(
        report=reported("Running", committed=2),
        resource={"scaling": SCALING},
        executor_rate=Rate(1.0, 40.0),
    )
    decision = decide(seen)
    progress = decision.status.progress
    assert progress.executor_target == 11, "800 rows at 0.025 rows/s in 54 minutes and 90 %"
    assert "rows/s per executor need 11" in progress.executor_reason
    assert isinstance(decision.next.actions[0], WriteAssignment)
    assert decision.next.actions[0].assignment.executor_target == 11


def test_no_executor_is_added_where_all_queries_together_read_as_fast_as_they_may() -> None:
    limited = {"scaling": SCALING, "maxRowsPerSecond": 1}
    seen = at_work(report=reported("Running", committed=2), resource=limited)
    measured = later(
        seen,
        decide(seen),
        timedelta(minutes=50),
        executor_rate=Rate(1.0, 20.0),
        report=reported("Running", committed=3),
    )
    assert decide(measured).status.progress.executor_target == 40
    reached = decide(replace(measured, executor_rate=Rate(1.0, 2.0))).status.progress
    assert reached.executor_target == 2
    assert reached.executor_reason.endswith("; stays at 2, maxRowsPerSecond is reached")


def test_a_new_sentence_about_the_same_target_writes_nothing() -> None:
    seen = at_work(
        report=reported("Running", committed=2),
        resource={"scaling": SCALING},
        executor_rate=Rate(1.0, 40.0),
    )
    first = decide(seen)
    action = first.next.actions[0]
    assert isinstance(action, WriteAssignment)
    again = decide(later(seen, first, timedelta(seconds=5), assignment=action.assignment))
    assert (again.next.actions, again.status) == ((), first.status)


def test_a_controller_that_has_measured_nothing_yet_takes_no_executors_away() -> None:
    seen = at_work(
        report=reported("Running", committed=2),
        resource={"scaling": SCALING},
        executor_rate=Rate(1.0, 40.0),
    )
    restarted = later(
        seen,
        decide(seen),
        timedelta(minutes=5),
        executor_rate=Rate(),
        report=reported("Running", committed=3),
    )
    assert decide(restarted).status.progress.executor_target == 11


def test_batch_jobs_begin_with_all_executors_until_one_is_measured() -> None:
    def by_spans(committed: int) -> SplitAssignmentStatus:
        (query,) = reported("Running", committed=committed).queries
        query = query.model_copy(update={"execution": "Batch"})
        return reported("Running", queries=(query,))

    seen = at_work(report=by_spans(0), resource={"scaling": SCALING})
    first = decide(seen)
    assert first.status.progress.executor_target == 40
    assert first.status.progress.executor_reason.startswith(
        "the first batch jobs use all 40 executors until"
    )
    committed = later(seen, first, timedelta(minutes=2), report=by_spans(2))
    assert decide(committed).status.progress.executor_target == 40
    measured = decide(replace(committed, executor_rate=Rate(1.0, 40.0)))
    assert measured.status.progress.executor_target == 12
    restarted = later(committed, measured, timedelta(minutes=5), report=by_spans(3))
    assert decide(restarted).status.progress.executor_target == 12


def test_progress_is_told_for_people_as_well() -> None:
    decision = decide(
        at_work(report=reported("Running", committed=3), rate=Rate(1_234_500.0, 100.0))
    )
    assert (decision.status.progress.summary, decision.status.progress.rate) == (
        "3/10 (30%)",
        "12.3k/s",
    )


# Stopping


def test_a_driver_that_has_not_started_is_taken_back_when_suspended_and_costs_no_attempt() -> None:
    seen = at_work(pending("Unschedulable", minutes=5), resource={"suspend": True})
    decision = decide(seen)
    assert decision.next.actions == (KillDriver(1),)
    stopped = decide(later(seen, decision, driver=DriverState("Absent")))
    assert stopped.status.attempts[-1].outcome == "Stopped"
    assert stage(stopped, ConditionType.RUNNING) == ("False", Reason.SUSPENDED)
    assert stopped.next.at_rest


def test_a_driver_that_reports_and_does_not_stop_is_killed_after_a_while() -> None:
    told = at_work(
        assignment=_assigned(stop=True), report=reported("Running"), resource={"suspend": True}
    )
    noted, moment = decide(told), timedelta(seconds=1)
    assert decide(later(told, noted, STOP_LIMIT - moment)).next.actions == ()
    killed = decide(later(told, noted, STOP_LIMIT))
    assert killed.next.actions == (KillDriver(1),)
    patient = decide(later(told, killed, STOP_LIMIT + END_LIMIT - moment))
    assert stage(patient, ConditionType.RUNNING) == ("Unknown", Reason.SUSPENDING)
    stuck = decide(later(told, killed, STOP_LIMIT + END_LIMIT))
    assert stage(stuck, ConditionType.RUNNING) == ("Unknown", Reason.DRIVER_TERMINATION_STUCK)


def test_a_suspended_backfill_says_how_to_go_on_and_is_neither_stalled_nor_at_work() -> None:
    decision = decide(on_cluster(backfill(planned(), suspend=True)))
    assert "spec.suspend" in condition(decision, ConditionType.RUNNING).message
    assert stage(decision, ConditionType.READY) == ("False", Reason.SUSPENDED)
    assert types(decision).isdisjoint({"Stalled", "Reconciling"})


def test_a_publication_that_is_suspended_says_so() -> None:
    decision = decide(on_cluster(backfill(_counted(), suspend=True)))
    assert stage(decision, ConditionType.PUBLISHED) == ("Unknown", Reason.SUSPENDED)
    assert stage(decision, ConditionType.RUNNING) == ("False", Reason.ALL_STEPS_COMMITTED)
    resumed = backfill(decision.status)
    assert isinstance(decide(on_cluster(resumed)).next.actions[0], StartJob)


# Work that fails


def test_a_missing_application_is_waited_for_and_planning_begins_when_it_is_there() -> None:
    applied = on_cluster(
        backfill(),
        obstacles=(Problem("spec.applicationRef.name", 'there is no SparkApplication "app"'),),
    )
    decision = decide(applied)
    assert stage(decision, ConditionType.PLANNED) == (
        "Unknown",
        Reason.PLANNING,
    ), "the same file may hold it"
    assert decision.next.requeue_seconds == 1
    seen = later(applied, decision, APPLIED_WITHIN)
    decision = decide(seen)
    assert stage(decision, ConditionType.PLANNED) == ("False", Reason.INVALID_INPUT)
    assert stage(decision, ConditionType.SUCCEEDED) == ("Unknown", Reason.IN_PROGRESS)
    assert stage(decision, ConditionType.STALLED) == ("True", Reason.INVALID_INPUT)
    assert decision.next.requeue_seconds is not None
    there = decide(later(seen, decision, obstacles=()))
    assert isinstance(there.next.actions[0], StartJob)
    assert stage(there, ConditionType.RECONCILING) == ("True", Reason.PLANNING)
    assert "Stalled" not in types(there)


def _counted() -> BackfillStatus:
    status = planned(attempts=(attempt(outcome="Succeeded"),), committed=STEPS)
    return with_condition(status, ConditionType.RUNNING, "False", Reason.ALL_STEPS_COMMITTED)


def _all_committed() -> BackfillStatus:
    return planned(attempts=(attempt(outcome="Succeeded"),), committed=STEPS)


def _publication(resource: Backfill) -> PublishJob:
    return PublishJob(staged_outputs(resource)[0], resource.spec.window)


WORK = [
    pytest.param(backfill(), plan_job, ConditionType.PLANNED, id="planning"),
    pytest.param(
        backfill(planned()), lambda _: VerifyJob(HEADER, 1), ConditionType.RUNNING, id="verifying"
    ),
    pytest.param(
        backfill(_all_committed()),
        lambda it: SettleJob(staged_outputs(it), it.spec.window),
        ConditionType.RUNNING,
        id="counting",
    ),
    pytest.param(backfill(_counted()), _publication, ConditionType.PUBLISHED, id="publishing"),
]


@pytest.mark.parametrize(("resource", "job", "kind"), WORK)
def test_work_that_fails_while_the_catalog_is_away_is_tried_again_after_a_wait(
    resource: Backfill, job: Any, kind: Any
) -> None:
    seen = on_cluster(resource, job=job_state(job(resource), "Failed", error=UNREACHABLE))
    failed = decide(seen)
    assert failed.next.actions == (CancelJob(),)
    assert stage(failed, kind) == ("Unknown", Reason.TRYING_AGAIN)
    assert "timed out" in condition(failed, kind).message
    assert stage(failed, ConditionType.RECONCILING) == ("True", Reason.TRYING_AGAIN)
    waiting = decide(later(seen, failed, job=None))
    assert (waiting.next.actions, waiting.next.requeue_seconds, waiting.status) == (
        (),
        10,
        failed.status,
    )
    due = decide(later(seen, failed, timedelta(seconds=10), job=None))
    assert due.next.actions == (StartJob(job(resource)),)
    at_it = decide(later(seen, due, timedelta(seconds=11), job=job_state(job(resource), "Running")))
    assert at_it.status == due.status, "a try that is under way is nothing new to tell"


@pytest.mark.parametrize(("resource", "job", "kind"), WORK)
def test_what_work_waits_for_is_told_once_and_only_as_long_as_it_waits(
    resource: Backfill, job: Any, kind: Any
) -> None:
    seen = on_cluster(resource, job=job_state(job(resource), "Running"))
    at_work = decide(seen)
    held_up = job_state(job(resource), "Running", waits_for="pod x (Unschedulable: no node)")
    waiting = decide(later(seen, at_work, job=held_up))
    assert (
        condition(waiting, kind).message
        == f"{condition(at_work, kind).message}; waiting for pod x (Unschedulable: no node)"
    )
    assert stage(waiting, kind) == stage(at_work, kind)
    assert decide(later(seen, waiting, job=held_up)).status == waiting.status
    assert decide(later(seen, waiting)).status == at_work.status


def test_a_try_that_waits_tells_the_last_failure_as_well() -> None:
    resource = backfill()
    seen = on_cluster(resource, job=job_state(plan_job(resource), "Failed", error=UNREACHABLE))
    held_up = job_state(plan_job(resource), "Running", waits_for="the end of pod x")
    waiting = decide(later(seen, decide(seen), timedelta(seconds=11), job=held_up))
    assert "timed out" in condition(waiting, ConditionType.PLANNED).message
    assert condition(waiting, ConditionType.PLANNED).message.endswith(
        "; waiting for the end of pod x"
    )


@pytest.mark.parametrize(("resource", "job", "kind"), WORK)
def test_work_that_goes_on_failing_has_failed_for_good_in_the_end(
    resource: Backfill, job: Any, kind: ConditionType
) -> None:
    seen = on_cluster(resource, job=job_state(job(resource), "Failed", error=UNREACHABLE))
    decision, waits, passed = decide(seen), [], timedelta()
    while stage(decision, ConditionType.SUCCEEDED)[0] == "Unknown":
        assert decision.status.retry is not None
        wait = decision.status.retry.next_at - (NOW + passed)
        waits.append(wait.total_seconds())
        passed += wait
        decision = decide(later(seen, decision, passed))
    assert waits[:6] == [10, 20, 40, 80, 160, 300]
    assert PATIENCE <= passed < PATIENCE + timedelta(minutes=5)
    assert stage(decision, ConditionType.STALLED)[0] == "True"
    assert "spec.retryNonce" in condition(decision, ConditionType.STALLED).message


def test_what_can_not_pass_by_itself_fails_at_once() -> None:
    resource = backfill()
    decision = decide(
        on_cluster(resource, job=job_state(plan_job(resource), "Failed", error=MISSING))
    )
    assert stage(decision, ConditionType.SUCCEEDED) == ("False", Reason.INVALID_INPUT)
    resource = backfill(_counted())
    for error in (
        PublishConflict("snapshot 8 changed the window"),
        ResultLost("the branch was dropped"),
    ):
        decision = decide(
            on_cluster(resource, job=job_state(_publication(resource), "Failed", error=error))
        )
        assert stage(decision, ConditionType.STALLED) == ("True", Reason(type(error).__name__))


def test_a_success_after_failures_forgets_them() -> None:
    resource = backfill()
    seen = on_cluster(resource, job=job_state(plan_job(resource), "Failed", error=UNREACHABLE))
    failed = decide(seen)
    result = PlanResult(HEADER, ())
    done = decide(
        later(
            seen,
            failed,
            timedelta(minutes=1),
            job=job_state(plan_job(resource), "Done", result=result),
        )
    )
    assert done.status.retry is None
    assert stage(done, ConditionType.PLANNED) == ("True", Reason.PLAN_READY)


def test_an_edited_spec_is_tried_without_waiting() -> None:
    seen = on_cluster(backfill(), job=job_state(plan_job(backfill()), "Failed", error=UNREACHABLE))
    status = decide(seen).status
    edited = backfill(status, generation=2, retryNonce="again")
    assert decide(on_cluster(edited)).next.actions == (StartJob(plan_job(edited)),)


def test_planning_tells_how_far_it_is_in_few_words() -> None:
    resource = backfill()

    def told(files: int) -> str:
        progress = PlanningProgress("clicks", manifests_done=1, manifests=9, files=files)
        state = JobState(plan_job(resource), "Running", progress=progress)
        return condition(decide(on_cluster(resource, job=state)), ConditionType.PLANNED).message

    messages = [told(files) for files in range(0, 100_000, 100)]
    assert messages[700] == "reading the metadata of clicks: more than 50,000 files so far"
    assert len(set(messages)) < 20


# Rest


def _failed(**fields: Any) -> BackfillStatus:
    """As it was decided and recorded."""
    resource = backfill(**fields)
    seen = on_cluster(resource, job=job_state(plan_job(resource), "Failed", error=MISSING))
    return decide(seen).status


def test_a_failed_backfill_is_tried_again_for_a_new_nonce() -> None:
    status = _failed()
    assert decide(on_cluster(backfill(status))).next.at_rest
    wanted = backfill(status, generation=2, retryNonce="2")
    assert decide(on_cluster(wanted)).next.actions == (StartJob(plan_job(wanted)),)


def test_a_failed_backfill_is_not_tried_again_because_it_is_to_be_kept_longer_but_the_change_is_seen() -> (
    None
):
    decision = decide(on_cluster(backfill(_failed(), generation=2, ttlAfterFinished="7d")))
    assert decision.next.at_rest
    assert decision.status.observed_generation == 2
    assert stage(decision, ConditionType.SUCCEEDED) == ("False", Reason.INVALID_INPUT)


def _succeeded() -> BackfillStatus:
    status = with_condition(_counted(), ConditionType.SUCCEEDED, "True", Reason.FINISHED)
    return status.model_copy(update={"finished_at": NOW - timedelta(hours=1)})


def test_what_a_finished_backfill_made_is_kept_until_its_time_is_over() -> None:
    decision = decide(on_cluster(backfill(_succeeded(), ttlAfterFinished="90m")))
    assert (decision.next.actions, decision.next.requeue_seconds, decision.next.at_rest) == (
        (),
        1800,
        True,
    )


def test_what_a_finished_backfill_made_is_then_removed_once_and_the_resource_stays() -> None:
    resource = backfill(_succeeded(), ttlAfterFinished="1h")
    seen = on_cluster(resource)
    assert decide(seen).next.actions == (StartJob(DiscardJob.of(resource)),)
    done = decide(replace(seen, job=job_state(DiscardJob.of(resource), "Done")))
    assert done.status.discarded_at == NOW
    after = decide(later(seen, done, timedelta(days=1)))
    assert (after.next.actions, after.next.requeue_seconds, after.status) == ((), None, done.status)


def test_a_failed_backfill_whose_remains_are_gone_is_not_tried_again() -> None:
    status = _failed().model_copy(update={"discarded_at": NOW})
    assert decide(on_cluster(backfill(status, generation=2, retryNonce="2"))).next.actions == ()


def test_remains_that_can_not_be_removed_are_tried_again() -> None:
    resource = backfill(_succeeded(), ttlAfterFinished="1h")
    failed = decide(
        on_cluster(
            resource,
            job=job_state(DiscardJob.of(resource), "Failed", error=BackfillError("no catalog")),
        )
    )
    assert (failed.next.actions, failed.next.requeue_seconds, failed.next.at_rest) == (
        (CancelJob(),),
        10,
        False,
    )
    assert stage(failed, ConditionType.SUCCEEDED) == ("True", Reason.FINISHED)


def test_remains_that_can_never_be_removed_are_left_after_a_day() -> None:
    resource = backfill(_succeeded(), ttlAfterFinished="1h")
    seen = on_cluster(
        resource,
        job=job_state(DiscardJob.of(resource), "Failed", error=BackfillError("no catalog")),
    )
    failed = decide(seen)
    given_up = decide(later(seen, failed, REMOVAL_PATIENCE))
    assert (given_up.next.actions, given_up.next.at_rest, given_up.status) == (
        (),
        True,
        failed.status,
    )


def test_a_result_that_is_counted_anew_is_not_called_a_failure_any_more() -> None:
    status = planned(attempts=(attempt(outcome="Succeeded"),), committed=STEPS)
    for kind in (ConditionType.PUBLISHED, ConditionType.SUCCEEDED):
        status = with_condition(status, kind, "False", Reason.PUBLISH_FAILED)
    decision = decide(on_cluster(backfill(status, generation=2, retryNonce="again")))
    assert stage(decision, ConditionType.READY) == ("Unknown", Reason.REPLAYING)
    assert types(decision).isdisjoint({"Published", "Stalled"})


def test_ready_is_what_has_succeeded() -> None:
    resource = backfill(_counted(), outputs=[{"name": "counts", "table": "lake.ops.counts"}])
    decision = decide(on_cluster(resource))
    assert stage(decision, ConditionType.READY) == ("True", Reason.FINISHED)
    assert types(decision).isdisjoint({"Stalled", "Reconciling"})


def test_waiting_for_approval_is_nothing_wrong_and_nothing_under_way() -> None:
    manual = [
        {
            "name": "counts",
            "table": "lake.ops.counts",
            "publish": {"mode": "Append", "approval": "Manual"},
        }
    ]
    decision = decide(on_cluster(backfill(_counted(), outputs=manual)))
    assert stage(decision, ConditionType.READY) == ("False", Reason.WAITING_FOR_APPROVAL)
    assert types(decision).isdisjoint({"Stalled", "Reconciling"})
    assert "kubectl backfill approve" in condition(decision, ConditionType.READY).message


# Deletion


def _deleted(status: BackfillStatus, passed: timedelta = timedelta(), **fields: Any) -> Observed:
    return on_cluster(backfill(status, deleted=True), **fields, now=NOW + passed)


def test_a_pending_driver_is_killed_before_what_it_would_read_is_removed() -> None:
    seen = _deleted(
        planned(attempts=(attempt(child="january-a1"),)), driver=pending("Unschedulable")
    )
    assert decide(seen).next.actions == (CancelJob(), KillDriver(1))


def test_a_removal_that_fails_is_tried_again_until_the_limit_and_looked_at_then() -> None:
    seen = _deleted(planned())
    job = DiscardJob.of(seen.backfill)
    failed = decide(replace(seen, job=job_state(job, "Failed", error=BackfillError("no catalog"))))
    assert (failed.next.actions, failed.next.requeue_seconds) == ((CancelJob(),), 10)
    assert stage(failed, ConditionType.SUCCEEDED) == ("False", Reason.REMOVAL_FAILED)
    waiting = decide(later(seen, failed, timedelta(seconds=4)))
    assert (waiting.next.actions, waiting.next.requeue_seconds, waiting.status) == (
        (),
        6,
        failed.status,
    )
    assert decide(later(seen, failed, timedelta(seconds=10))).next.actions == (StartJob(job),)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({}, id="nothing is under way"),
        pytest.param({"driver": RUNNING}, id="the driver does not end"),
        pytest.param(
            {"driver": RUNNING, "header": None, "plan_error": "lost"}, id="the plan is lost"
        ),
    ],
)
def test_after_the_limit_a_deleted_backfill_is_let_go_of_and_what_is_left_is_named(
    fields: dict[str, Any],
) -> None:
    decision = decide(
        _deleted(planned(attempts=(attempt(child="january-a1"),)), REMOVAL_LIMIT, **fields)
    )
    assert decision.next.actions == (RemoveResource(),)
    assert stage(decision, ConditionType.SUCCEEDED) == ("False", Reason.CLEANUP_INCOMPLETE)
    told = condition(decision, ConditionType.SUCCEEDED).message
    assert "branch backfill/january of lake.ops.counts" in told
    assert "plans and checkpoints in /work" in told


@pytest.mark.parametrize("exported", [None, ExportStatus(location="s3://lake/out")])
def test_after_the_limit_files_of_an_unfinished_export_are_named(
    exported: ExportStatus | None,
) -> None:
    publish = {"mode": "Export", "location": "s3://lake/out"}
    resource = backfill(
        planned(output={"exported": exported}),
        deleted=True,
        outputs=[{"name": "counts", "table": "lake.ops.counts", "publish": publish}],
    )
    decision = decide(on_cluster(resource, now=NOW + REMOVAL_LIMIT))
    told = condition(decision, ConditionType.SUCCEEDED).message
    assert ("unfinished files in s3://lake/out" in told) == (exported is None)


def test_a_namespace_that_is_being_deleted_does_not_wait_for_a_cleanup_that_cannot_run() -> None:
    seen = _deleted(planned(), timedelta(seconds=1))
    error = NowhereToRun("namespace streaming is being terminated")
    failed = job_state(DiscardJob.of(seen.backfill), "Failed", error=error)
    decision = decide(replace(seen, job=failed))
    assert decision.next.actions == (RemoveResource(),)
    told = condition(decision, ConditionType.SUCCEEDED).message
    assert told.startswith(f"deleted before cleanup finished ({error}). Possibly left behind: ")


def test_a_deletion_under_way_is_looked_at_again_when_its_limit_is_over() -> None:
    seen = _deleted(planned(), timedelta(minutes=1))
    running = decide(replace(seen, job=job_state(DiscardJob.of(seen.backfill), "Running")))
    assert running.next.requeue_seconds == (WORKING_LIMIT - timedelta(minutes=1)).total_seconds()


def test_a_deletion_tells_what_keeps_it_waiting() -> None:
    seen = _deleted(planned(), timedelta(minutes=1))
    held_up = job_state(DiscardJob.of(seen.backfill), "Running", waits_for="the end of pod x")
    waiting = decide(replace(seen, job=held_up))
    assert (
        condition(waiting, ConditionType.SUCCEEDED).message
        == "removing everything except published results; waiting for the end of pod x"
    )


def test_a_transition_is_counted_from_what_is_recorded() -> None:
    seen = on_cluster(backfill(), obstacles=(Problem("", "no SparkApplication"),))
    first = decide(later(seen, decide(seen), APPLIED_WITHIN))
    assert decide(later(seen, first, timedelta(hours=1))).status == first.status
