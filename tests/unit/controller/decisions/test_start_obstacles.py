"""What keeps a driver from being started: told, waited for on a cluster, and never paid for with an
attempt.
"""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from backfill.api.backfill import Backfill
from backfill.api.conditions import Condition, ConditionType, Reason, find_condition
from backfill.api.errors import Problem
from backfill.controller.decisions.actions import Decision, StartDriver, StartJob
from backfill.controller.decisions.decide import decide
from backfill.controller.decisions.observed import Observed
from backfill.controller.decisions.policy import CLUSTER, LOCAL
from backfill.controller.jobs.kinds.verify import VerifyJob
from situations import HEADER, NOW, attempt, backfill, observed, planned, verified

GONE = (Problem("spec.applicationRef.name", 'there is no SparkApplication "app"', "name another"),)


def on_cluster(resource: Backfill, **fields: Any) -> Observed:
    return replace(observed(resource), policy=CLUSTER, next_child="january-a2", **fields)


def after_a_failure(**fields: Any) -> Observed:
    """The next attempt is due, and what it is made from is gone."""
    return on_cluster(
        backfill(planned(attempts=(attempt(outcome="Failed"),))), obstacles=GONE, **fields
    )


def condition(decision: Decision, kind: ConditionType) -> Condition:
    found = find_condition(decision.status.conditions, kind)
    assert found is not None, f"{kind} is not set"
    return found


def test_an_application_that_is_gone_is_told_at_once_and_costs_no_attempt() -> None:
    decision = decide(after_a_failure())
    assert [made.number for made in decision.status.attempts] == [1]
    assert decision.next.actions == ()
    running = condition(decision, ConditionType.RUNNING)
    assert (running.status, running.reason) == ("False", Reason.INVALID_INPUT)
    assert running.message.splitlines() == [
        'spec.applicationRef.name: there is no SparkApplication "app"; name another',
        "Attempt 2 starts automatically once this is fixed.",
    ]
    assert condition(decision, ConditionType.STALLED).status == "True"
    assert condition(decision, ConditionType.SUCCEEDED).status == "Unknown", "it has not failed"


def test_it_is_looked_at_again_without_writing_anything() -> None:
    seen = after_a_failure()
    decision = decide(seen)
    assert decision.next.requeue_seconds == 30
    hours_later = replace(seen, backfill=backfill(decision.status), now=NOW + timedelta(hours=9))
    assert decide(hours_later).status == decision.status


def test_the_attempt_follows_by_itself_when_the_application_is_there_again() -> None:
    status = decide(after_a_failure()).status
    there = decide(on_cluster(backfill(status)))
    assert there.next.actions == (StartJob(VerifyJob(HEADER, 2)),)
    begun = decide(on_cluster(backfill(there.status), job=verified(2)))
    assert begun.next.actions[-1] == StartDriver(2)
    assert find_condition(begun.status.conditions, ConditionType.STALLED) is None


def test_a_wait_after_a_failure_is_told_as_such_as_long_as_it_lasts() -> None:
    status = planned(
        attempts=(attempt(outcome="Failed"),), next_attempt_at=NOW + timedelta(seconds=9)
    )
    decision = decide(on_cluster(backfill(status)))
    assert decision.next.requeue_seconds == 9


def test_without_a_cluster_it_ends_as_bad_input() -> None:
    decision = decide(replace(after_a_failure(), policy=LOCAL))
    assert condition(decision, ConditionType.SUCCEEDED).reason == Reason.INVALID_INPUT
    assert decision.next.at_rest
