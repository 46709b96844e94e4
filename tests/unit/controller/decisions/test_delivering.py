"""Rows are delivered by a further attempt, once they are approved and everything else is published."""

from typing import Any

from backfill.api.approval import undecidable
from backfill.api.backfill import Backfill
from backfill.api.conditions import ConditionType, Reason, find_condition
from backfill.api.status import BackfillStatus, DeliveryStatus, OutputStatus, Verdict
from backfill.controller.decisions.actions import Decision, StartDriver, StartJob
from backfill.controller.decisions.decide import decide
from backfill.controller.driver import DriverState, Launch, driver_settings
from backfill.controller.jobs.kinds.publish import PublishJob, PublishResult
from backfill.controller.jobs.kinds.settle import SettleJob, SettleResult, Totals
from backfill.planning.workspace import Workspace
from backfill.protocol.split_assignment import OutputDelivery
from situations import (
    HEADER,
    NOW,
    STEPS,
    assigned,
    attempt,
    backfill,
    decided,
    job_state,
    observed,
    planned,
    reported,
    with_condition,
)

EXITED = DriverState("Exited", exit_status=0)
BY_HAND = {"mode": "Append", "approval": "Manual"}


def outputs(*, copies: bool = False) -> list[dict[str, Any]]:
    alerts = {"name": "counts", "table": "lake.ops.counts", "publish": {"mode": "Deliver"}}
    return [alerts, {"name": "copies", "table": "lake.ops.copies", "publish": BY_HAND}][
        : 1 + copies
    ]


def staged(*, copies: bool = False, **delivery: Any) -> BackfillStatus:
    status = planned(
        attempts=(attempt(outcome="Succeeded"),),
        committed=STEPS,
        output={
            "rows": 5,
            "staged_snapshot_id": 11,
            "open_at_end": 0,
            "delivery": DeliveryStatus(batches=3, **delivery),
        },
    )
    if copies:
        other = OutputStatus(
            name="copies",
            table="lake.ops.copies",
            rows=4,
            staged_snapshot_id=12,
            base_snapshot_id=7,
            open_at_end=0,
        )
        status = status.model_copy(update={"outputs": (*status.outputs, other)})
    return with_condition(status, ConditionType.RUNNING, "False", Reason.ALL_STEPS_COMMITTED)


def approved(*, copies: bool = False, **seen: Any) -> Decision:
    """What follows once jane has approved."""
    resource = backfill(staged(copies=copies), outputs=outputs(copies=copies))
    waiting = decide(observed(resource)).status
    told = find_condition(waiting.conditions, ConditionType.PUBLISHED)
    assert told is not None
    assert told.reason == Reason.WAITING_FOR_APPROVAL
    assert (
        "counts: 5 rows in 3 batches would be given to the application's own sink, which cannot be"
        " undone" in told.message
    )
    again = resource.model_copy(update={"status": waiting})
    return decide(observed(again, decisions=(decided(waiting, Verdict.APPROVE),), **seen))


def going_on(status: BackfillStatus, *, copies: bool = False, **seen: Any) -> Decision:
    return decide(observed(backfill(status, outputs=outputs(copies=copies)), **seen))


def delivering(**report: Any) -> Decision:
    """What follows from a report of the second attempt, whose driver has ended."""
    status = going_on(approved().status).status
    assert status.attempts[-1].number == 2
    return going_on(
        status,
        driver=EXITED,
        report=reported("Finished", STEPS + 1, 2, **report),
        assignment=assigned(2, released=STEPS),
    )


def test_another_attempt_delivers_what_was_approved_and_reads_nothing_of_the_sources() -> None:
    begun = approved()
    delivery = begun.status.outputs[0].delivery
    assert delivery is not None
    assert (delivery.started_at, delivery.finished_at) == (NOW, None)
    told = find_condition(begun.status.conditions, ConditionType.PUBLISHED)
    assert told is not None
    assert told.reason == Reason.DELIVERING
    assert "delivering 5 rows of counts" in told.message
    assert "approved by jane" in told.message
    following = going_on(begun.status)
    assert StartDriver(2) in following.next.actions, "without a job that looks for the files"
    resource = backfill(following.status, outputs=outputs())
    launch = Launch(2, resource, HEADER.plan_id, Workspace("/work"), Workspace("/work"))
    settings = driver_settings(
        launch, channel="/channel", main_file="app.py", arguments=(), spark_conf={}
    )
    assert settings.deliver == {"counts": 11}, "the snapshot that was looked at"


def test_tables_are_published_before_anything_is_delivered() -> None:
    first = approved(copies=True)
    (job,) = (each.job for each in first.next.actions if isinstance(each, StartJob))
    assert isinstance(job, PublishJob)
    assert (job.staged.output.name, job.others) == ("copies", ())
    done = job_state(job, "Done", result=PublishResult("copies", 77))
    second = going_on(first.status, copies=True, job=done)
    assert [each.name for each in second.status.delivering] == ["counts"]


def test_it_is_finished_when_all_batches_are_reported() -> None:
    found = OutputDelivery(output="counts", batches=3, delivered=3, rows=5, last_batch=9, done=True)
    ended = delivering(deliveries=(found,))
    assert ended.status.attempts[-1].outcome == "Succeeded"
    delivery = ended.status.outputs[0].delivery
    assert delivery is not None
    assert (delivery.delivered, delivery.rows, delivery.last_batch) == (3, 5, 9)
    counting = going_on(ended.status)
    (job,) = (each.job for each in counting.next.actions if isinstance(each, StartJob))
    assert isinstance(job, SettleJob)
    totals = Totals("backfill/default/january", 5, 0, 11, batches=3)
    counted = going_on(
        counting.status, job=job_state(job, "Done", result=SettleResult({"counts": totals}))
    )
    finished = going_on(counted.status)
    told = find_condition(finished.status.conditions, ConditionType.SUCCEEDED)
    assert told is not None
    assert told.status == "True"
    assert "published 5 rows to the application's own sink (counts)" in told.message
    resource: Backfill = backfill(finished.status, outputs=outputs())
    assert "which cannot be undone" in undecidable(resource, Verdict.UNDO)


def test_an_attempt_that_has_not_delivered_everything_has_failed() -> None:
    some = OutputDelivery(output="counts", batches=3, delivered=2, rows=4, last_batch=5)
    for report in ({}, {"deliveries": (some,)}):
        ended = delivering(**report)
        assert ended.status.attempts[-1].outcome == "Failed"
        assert "without delivering all rows of counts" in ended.status.attempts[-1].message


def test_attempts_that_deliver_something_are_not_fruitless() -> None:
    status = going_on(approved().status).status
    some = OutputDelivery(output="counts", batches=3, delivered=1, rows=1, last_batch=0)
    failed = reported("Failed", STEPS + 1, 2, deliveries=(some,), message="no more rows")
    ended = going_on(status, driver=EXITED, report=failed, assignment=assigned(2, released=STEPS))
    last = ended.status.attempts[-1]
    assert (last.outcome, last.fruitless, last.message) == ("Failed", 0, "no more rows")
    assert find_condition(ended.status.conditions, ConditionType.PUBLISHED) is not None
