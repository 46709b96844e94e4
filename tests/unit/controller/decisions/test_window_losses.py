"""Rows of production are not removed without replacement before a person says so."""

from datetime import timedelta
from typing import Any

import pytest

from backfill.api.approval import undecidable
from backfill.api.backfill import Backfill
from backfill.api.conditions import ConditionType, Reason, find_condition
from backfill.api.status import BackfillStatus, LostStretch, Verdict, WindowLosses
from backfill.controller.decisions.actions import Decision, StartJob
from backfill.controller.decisions.decide import decide
from backfill.controller.jobs.kinds.publish import PublishJob
from backfill.controller.jobs.kinds.settle import SettleJob, SettleResult, Totals
from backfill.controller.jobs.staged_outputs import staged_outputs
from situations import (
    START,
    STEPS,
    attempt,
    backfill,
    decided,
    job_state,
    observed,
    planned,
    with_condition,
)

HOLE = LostStretch(
    start=START + timedelta(hours=3),
    end=START + timedelta(hours=3, minutes=30),
    production_rows=1800,
)
THINNER = LostStretch(
    start=START + timedelta(hours=5),
    end=START + timedelta(hours=6),
    production_rows=1000,
    result_rows=985,
)


def losses(*stretches: LostStretch, **fields: Any) -> WindowLosses:
    lost = sum(each.production_rows - each.result_rows for each in stretches)
    return WindowLosses(
        production_rows=7200, result_rows=7200 - lost, stretches=stretches, **fields
    )


def output(mode: str = "Replace", **publish: str) -> dict[str, Any]:
    return {
        "name": "counts",
        "table": "lake.ops.counts",
        "timestampColumn": "at",
        "keys": ["at"],
        "publish": {"mode": mode, "approval": "Automatic", **publish},
    }


def settled(found: WindowLosses | None, **publish: str) -> Backfill:
    status = planned(
        attempts=(attempt(outcome="Succeeded"),),
        committed=STEPS,
        output={"open_at_end": 0, "losses": found},
    )
    status = with_condition(status, ConditionType.RUNNING, "False", Reason.ALL_STEPS_COMMITTED)
    return backfill(status, outputs=[output(**publish)])


def publishes(decision: Decision) -> bool:
    jobs = (action.job for action in decision.next.actions if isinstance(action, StartJob))
    return any(isinstance(job, PublishJob) for job in jobs)


def waits_because(decision: Decision) -> list[str]:
    found = find_condition(decision.status.conditions, ConditionType.PUBLISHED)
    assert found is not None
    assert (found.status, found.reason) == ("Unknown", Reason.WAITING_FOR_APPROVAL)
    assert decision.next.at_rest
    assert not publishes(decision)
    return found.message.splitlines()


def test_what_a_result_lacks_is_not_removed_before_a_person_has_seen_where_that_is() -> None:
    decision = decide(observed(settled(losses(HOLE, THINNER))))
    assert waits_because(decision) == [
        "waiting for approval to publish counts",
        (
            "counts: publishing would remove more rows of lake.ops.counts than it replaces"
            " (publish.maxLoss: 1 %): 7,200 rows in production, 5,385 in the result"
        ),
        (
            "  [2024-01-01T03:00:00Z, 2024-01-01T03:30:00Z): 1,800 rows in production, 0 in the"
            " result"
        ),
        (
            "  [2024-01-01T05:00:00Z, 2024-01-01T06:00:00Z): 1,000 rows in production, 985 in the"
            " result"
        ),
    ]


def test_an_approval_of_the_losses_publishes() -> None:
    resource = settled(losses(HOLE))
    waiting = resource.model_copy(update={"status": decide(observed(resource)).status})
    assert not undecidable(waiting, Verdict.APPROVE)
    approved = decided(waiting.status, Verdict.APPROVE)
    assert publishes(decide(observed(waiting, decisions=(approved,))))


@pytest.mark.parametrize(
    ("found", "publish", "published"),
    [
        (losses(), {}, True),
        (losses(THINNER), {}, False),
        (losses(THINNER), {"maxLoss": "1.5"}, True),
        (losses(THINNER), {"maxLoss": "1.4999"}, False),
        (losses(THINNER, HOLE), {"maxLoss": "99.9"}, False),
        (losses(THINNER, HOLE), {"maxLoss": "100"}, True),
        (losses(HOLE), {"incomplete": "Publish", "mismatch": "Publish"}, False),
        (losses(HOLE), {"mode": "Append"}, True),
        (losses(HOLE), {"mode": "Upsert"}, True),
        (None, {}, False),
        (None, {"maxLoss": "100"}, True),
        (WindowLosses(problem="a file is gone"), {}, False),
    ],
)
def test_what_is_published_loses_no_more_than_was_allowed(
    found: WindowLosses | None, publish: dict[str, str], *, published: bool
) -> None:
    decision = decide(observed(settled(found, **publish)))
    assert publishes(decision) is published
    if not published:
        waits_because(decision)


def test_a_limit_that_is_raised_while_the_result_waits_publishes_it() -> None:
    resource = settled(losses(THINNER))
    waiting = decide(observed(resource)).status
    raised = settled(losses(THINNER), maxLoss="2").model_copy(update={"status": waiting})
    assert publishes(decide(observed(raised)))


def test_whoever_approves_learns_what_could_not_be_counted() -> None:
    gone = WindowLosses(problem="file a.parquet does not exist")
    lines = waits_because(decide(observed(settled(gone))))
    assert lines[1] == (
        "counts: it is unknown how many rows of lake.ops.counts in the window would be removed"
        " without replacement: file a.parquet does not exist"
    )


def test_further_stretches_are_mentioned() -> None:
    lines = waits_because(decide(observed(settled(losses(HOLE, further=1234)))))
    assert lines[-1] == "  and 1,234 more"


def test_losses_within_the_limit_are_said_to_whoever_approves() -> None:
    found = losses(THINNER)
    lines = waits_because(decide(observed(settled(found, approval="Manual", maxLoss="2"))))
    assert "counts: 7,200 rows in production, 7,185 in the result" in lines


def test_what_was_counted_is_recorded_and_kept_when_there_is_nothing_left_to_count() -> None:
    resource = backfill(
        planned(attempts=(attempt(outcome="Succeeded"),), committed=STEPS), outputs=[output()]
    )

    def counted(resource: Backfill, found: WindowLosses | None) -> BackfillStatus:
        job = SettleJob(staged_outputs(resource), resource.spec.window)
        result = SettleResult({"counts": Totals("backfill/january", 40, 0, 9, found)})
        return decide(observed(resource, job=job_state(job, "Done", result=result))).status

    status = counted(resource, losses(HOLE))
    assert status.outputs[0].losses == losses(HOLE)
    again = counted(resource.model_copy(update={"status": status}), None)
    assert again.outputs[0].losses == losses(HOLE)
