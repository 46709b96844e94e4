"""A Backfill that was refused before it read anything has no plan, so that its spec can change."""

from dataclasses import replace
from datetime import timedelta

import pytest

from backfill.api.conditions import ConditionType, Reason, find_condition
from backfill.api.errors import BackfillError
from backfill.api.status import BackfillStatus, Progress
from backfill.controller.decisions.actions import StartJob
from backfill.controller.decisions.decide import decide
from backfill.controller.decisions.observed import Observed
from backfill.controller.decisions.policy import CLUSTER
from backfill.controller.decisions.status_draft import Draft
from backfill.controller.jobs.kinds.discard import DiscardJob
from backfill.controller.jobs.kinds.make_plan import PlanJob
from situations import attempt, backfill, job_state, observed, planned


def refused(reason: Reason, progress: Progress | None = None) -> Observed:
    """A Backfill that has failed in its first attempt."""
    status = planned(attempts=(attempt(1, outcome="Failed"),))
    if progress is not None:
        status = status.model_copy(update={"progress": progress})
    draft = Draft(observed(backfill(status)))
    draft.fail(ConditionType.RUNNING, reason, "spec.sources: no source replaces the topic ordrs")
    return replace(observed(backfill(draft.status)), policy=CLUSTER)


def with_status(seen: Observed, status: BackfillStatus) -> Observed:
    return replace(seen, backfill=seen.backfill.model_copy(update={"status": status}))


def removed(seen: Observed) -> BackfillStatus:
    """The status once everything is removed."""
    job = DiscardJob.of(seen.backfill)
    asked = decide(seen)
    assert asked.next.actions == (StartJob(job),)
    return decide(with_status(replace(seen, job=job_state(job, "Done")), asked.status)).status


def test_a_typo_in_a_topic_is_corrected_in_the_same_backfill() -> None:
    seen = refused(Reason.UNSUPPORTED_PROGRAM)
    status = removed(seen)
    assert (status.plan_id, status.sources, status.outputs) == (None, (), ())
    outcome = find_condition(status.conditions, ConditionType.SUCCEEDED)
    assert outcome is not None and "ordrs" in outcome.message
    assert decide(with_status(seen, status)).next.at_rest
    window = {"start": "2024-01-01T00:00:00Z", "end": "2024-01-01T01:00:00Z"}
    corrected = backfill(status, generation=2, window=window)
    later = seen.now + timedelta(days=1)
    decision = decide(replace(seen, backfill=corrected, job=None, now=later))
    (action,) = decision.next.actions
    assert isinstance(action, StartJob) and isinstance(action.job, PlanJob)
    assert action.job.spec.window == corrected.spec.window
    assert decision.status.started_at == later, "or completeWithin has passed already"
    running = find_condition(decision.status.conditions, ConditionType.RUNNING)
    assert running is None, "or the refusal is shown while it is planned again"


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(refused(Reason.ATTEMPTS_EXHAUSTED), id="may succeed by itself"),
        pytest.param(
            refused(Reason.INVALID_INPUT, Progress(steps=12, committed=1, rows_read=9)), id="read"
        ),
    ],
)
def test_a_backfill_that_may_go_on_keeps_its_plan(seen: Observed) -> None:
    """Or rows of two specs are published as one result."""
    decision = decide(seen)
    assert decision.next.actions == ()
    assert decision.status.plan_id == seen.backfill.status.plan_id


def test_a_plan_stays_while_what_was_made_with_it_can_not_be_removed() -> None:
    seen = refused(Reason.UNSUPPORTED_PROGRAM)
    job = DiscardJob.of(seen.backfill)
    failed = job_state(job, "Failed", error=BackfillError("the store is away"))
    decision = decide(replace(seen, job=failed))
    assert decision.status.plan_id is not None and decision.status.retry is not None
