"""What keeps a driver or a job from starting and that a person corrects: it takes effect at once,
and until then costs no attempt.
"""

from dataclasses import replace
from datetime import timedelta

import pytest

from backfill.api.conditions import ConditionType, Reason, find_condition
from backfill.api.errors import InvalidPlanInput, Problem
from backfill.api.status import BackfillStatus
from backfill.controller.decisions.actions import (
    CancelJob,
    Decision,
    KillDriver,
    RemoveResource,
    StartDriver,
    StartJob,
)
from backfill.controller.decisions.decide import decide
from backfill.controller.decisions.observed import Observed
from backfill.controller.decisions.policy import CLUSTER
from backfill.controller.decisions.run.attempts import QUOTA_RETRY
from backfill.controller.decisions.run.pending_driver import UNTAKEN_NOTICE
from backfill.controller.driver import DriverState
from backfill.controller.jobs.kinds.discard import DiscardJob
from situations import NOW, attempt, backfill, job_state, observed, plan_job, planned, verified

WRONG_IMAGE = DriverState(
    "Pending", reason="ImagePullBackOff", message="not found", since=NOW - timedelta(minutes=1)
)
NO_ROOM = DriverState("Exited", reason="QuotaExceeded", message="exceeded quota: team", since=NOW)
UNREADABLE = InvalidPlanInput(
    Problem("spec.sources[0].table", "catalog lake is away", may_pass=True)
)


def at_work(driver: DriverState, *, generation: int = 1, number: int = 1) -> Observed:
    status = planned(attempts=(attempt(number, child=f"january-a{number}"),))
    resource = backfill(status, generation=generation)
    return replace(observed(resource), policy=CLUSTER, next_child="january-a2", driver=driver)


def told(decision: Decision, kind: ConditionType) -> tuple[str, Reason, str]:
    found = find_condition(decision.status.conditions, kind)
    assert found is not None
    return found.status, found.reason, found.message


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(at_work(WRONG_IMAGE, generation=2), id="the overrides"),
        pytest.param(at_work(replace(WRONG_IMAGE, outdated=True)), id="production"),
    ],
)
def test_an_attempt_that_waits_for_a_wrong_image_ends_once_the_image_is_corrected(
    seen: Observed,
) -> None:
    """Or the correction has no effect for ten minutes, and the attempt counts as a failure."""
    decision = decide(seen)
    assert decision.next.actions == (KillDriver(1),)
    gone = replace(
        seen,
        backfill=seen.backfill.model_copy(update={"status": decision.status}),
        driver=DriverState("Absent"),
    )
    ended = decide(gone)
    assert ended.status.attempts[-1].outcome == "Stopped"
    assert ended.status.next_attempt_at is None
    following = decide(
        replace(
            gone,
            backfill=gone.backfill.model_copy(update={"status": ended.status}),
            job=verified(2),
        )
    )
    assert StartDriver(2) in following.next.actions


@pytest.mark.parametrize("reason", ["Unschedulable", "ContainerCreating", "NotSubmitted"])
def test_a_change_of_the_spec_leaves_a_driver_that_may_still_start_alone(reason: str) -> None:
    decision = decide(at_work(replace(WRONG_IMAGE, reason=reason), generation=2))
    assert decision.next.actions == ()


def test_a_quota_that_keeps_drivers_out_is_waited_for_however_long_it_lasts() -> None:
    """Five tries in a row would fail the Backfill, although nothing is wrong with it."""
    status = planned(attempts=(attempt(1, child="january-a1"),))
    for number in range(1, 9):
        seen = at_work(NO_ROOM, number=number)
        decision = decide(
            replace(seen, backfill=seen.backfill.model_copy(update={"status": status}))
        )
        value, reason, message = told(decision, ConditionType.RUNNING)
        assert (value, reason) == ("Unknown", Reason.DRIVER_START_BLOCKED)
        assert "exceeded quota: team" in message
        assert told(decision, ConditionType.STALLED)[:2] == ("True", Reason.DRIVER_START_BLOCKED)
        assert decision.status.next_attempt_at == NOW + QUOTA_RETRY
        assert decision.status.attempts[-1].fruitless == 0
        status = decision.status.model_copy(
            update={
                "attempts": (*decision.status.attempts, attempt(number + 1, child="x")),
                "next_attempt_at": None,
            }
        )


@pytest.mark.parametrize("generation", [1, 2])
def test_a_change_of_the_spec_or_a_retry_ends_the_wait_for_the_next_attempt(
    generation: int,
) -> None:
    """Or what the message asks for, as less memory for the driver, has no effect for minutes."""
    ended = attempt(1, outcome="Stopped", child="january-a1")
    status = planned(attempts=(ended,), next_attempt_at=NOW + QUOTA_RETRY)
    resource = backfill(status, generation=generation)
    seen = replace(observed(resource), policy=CLUSTER, next_child="x", job=verified(2))
    decision = decide(seen)
    if generation > 1:
        assert StartDriver(2) in decision.next.actions
    else:
        assert decision.next.requeue_seconds == QUOTA_RETRY.total_seconds()


def test_a_job_whose_pod_a_quota_keeps_out_is_reported_as_stalled_with_the_reason() -> None:
    resource = backfill()
    why = "its pod to be admitted: exceeded quota: team"
    job = job_state(plan_job(resource), "Running", waits_for=why, blocked=True)
    decision = decide(replace(observed(resource, job=job), policy=CLUSTER))
    value, reason, message = told(decision, ConditionType.PLANNED)
    assert (value, reason) == ("Unknown", Reason.JOB_POD_BLOCKED)
    assert why in message
    assert told(decision, ConditionType.STALLED)[:2] == ("True", Reason.JOB_POD_BLOCKED)


def test_a_healthy_start_that_a_busy_spark_operator_takes_a_minute_for_alarms_nobody() -> None:
    waiting = DriverState("Pending", reason="NotSubmitted", since=NOW - UNTAKEN_NOTICE / 2)
    decision = decide(at_work(waiting))
    assert told(decision, ConditionType.RUNNING)[:2] == ("Unknown", Reason.STARTING)
    assert decision.next.requeue_seconds == (UNTAKEN_NOTICE / 2).total_seconds()
    longer = replace(waiting, since=NOW - UNTAKEN_NOTICE)
    assert told(decide(at_work(longer)), ConditionType.RUNNING)[1] == Reason.DRIVER_PENDING


def test_a_backfill_that_was_never_planned_is_gone_as_soon_as_it_cannot_be_cleaned_up() -> None:
    """A pruning tool would wait five minutes for a catalog that is away, or a pod that cannot
    start.
    """
    resource = backfill(BackfillStatus(workspace="/work"), deleted=True)
    seen = replace(observed(resource), policy=CLUSTER)
    assert decide(seen).next.actions == (StartJob(DiscardJob.of(resource)),)
    failed = decide(
        replace(seen, job=job_state(DiscardJob.of(resource), "Failed", error=UNREADABLE))
    )
    assert failed.next.actions == (RemoveResource(),)
    assert "catalog lake is away" in told(failed, ConditionType.SUCCEEDED)[2]
    starting = job_state(DiscardJob.of(resource), "Running", waits_for="pod a (ContainerCreating)")
    assert decide(replace(seen, job=starting)).next.actions == ()
    blocked = decide(replace(seen, job=replace(starting, blocked=True)))
    assert blocked.next.actions == (RemoveResource(),)
    assert "while it waited for pod a" in told(blocked, ConditionType.SUCCEEDED)[2]


def test_what_may_pass_is_waited_for() -> None:
    resource = backfill()
    job = job_state(plan_job(resource), "Failed", error=UNREADABLE)
    decision = decide(replace(observed(resource, job=job), policy=CLUSTER))
    assert told(decision, ConditionType.PLANNED)[:2] == ("Unknown", Reason.TRYING_AGAIN)
    assert decision.next.actions == (CancelJob(),)
