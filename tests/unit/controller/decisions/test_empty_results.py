"""Results without a single row of the window, although rows were read, wait for a person."""

import pytest

from backfill.api.backfill import Backfill
from backfill.api.conditions import ConditionType, Reason, find_condition
from backfill.api.status import BackfillStatus, OutputStatus, Verdict
from backfill.controller.decisions.actions import Decision, StartJob
from backfill.controller.decisions.decide import decide
from backfill.controller.jobs.kinds.publish import PublishJob, PublishResult
from backfill.controller.jobs.kinds.settle import SettleJob, SettleResult, Totals
from backfill.controller.jobs.staged_outputs import staged_outputs
from situations import (
    STEPS,
    attempt,
    backfill,
    decided,
    job_state,
    observed,
    planned,
    with_condition,
)

NAMES = ("plays", "alerts")


def results(read: int, rows: int, outside: int = 0, *, publish: str = "Append") -> Backfill:
    """Of two outputs, of which the second may have rows."""
    status = planned(attempts=(attempt(outcome="Succeeded"),), committed=STEPS)
    status = status.model_copy(
        update={
            "outputs": tuple(
                OutputStatus(
                    name=name,
                    table=f"lake.ops.{name}",
                    branch="result",
                    open_at_end=0,
                    rows=number,
                    rows_outside_window=outside,
                )
                for name, number in zip(NAMES, (0, rows), strict=True)
            ),
            "progress": status.progress.model_copy(update={"rows_read": read}),
        }
    )
    status = with_condition(status, ConditionType.RUNNING, "False", Reason.ALL_STEPS_COMMITTED)
    return backfill(
        status,
        outputs=[
            {"name": name, "table": f"lake.ops.{name}", "publish": {"mode": publish}}
            for name in NAMES
        ],
    )


def published(decision: Decision) -> list[str]:
    jobs = (each.job for each in decision.next.actions if isinstance(each, StartJob))
    return [job.staged.output.name for job in jobs if isinstance(job, PublishJob)]


def message(status: BackfillStatus, kind: ConditionType) -> str:
    found = find_condition(status.conditions, kind)
    assert found is not None
    return found.message


@pytest.mark.parametrize(
    ("outside", "why"),
    [
        (0, "the application may filter by fields that its records do not have here"),
        (
            3,
            (
                "6 rows written for times outside it; compare the window with what the application"
                " writes into timestampColumn"
            ),
        ),
    ],
)
def test_a_run_of_which_every_row_was_filtered_out_does_not_succeed_unseen(
    outside: int, why: str
) -> None:
    waiting = decide(observed(results(1_000, 0, outside)))
    assert not published(waiting)
    assert waiting.next.at_rest
    assert message(waiting.status, ConditionType.PUBLISHED).splitlines()[:2] == [
        "waiting for approval to publish plays, alerts",
        f"no result has a row in the window, although 1,000 rows were read: {why}",
    ]


def test_nothing_that_is_approved_is_published_as_one() -> None:
    resource = results(1_000, 0)
    waiting = decide(observed(resource)).status
    approval = decided(waiting, Verdict.APPROVE)
    resource = resource.model_copy(update={"status": waiting})
    first = decide(observed(resource, decisions=(approval,)))
    assert published(first) == ["plays"]
    (job,) = (each.job for each in first.next.actions if isinstance(each, StartJob))
    assert isinstance(job, PublishJob)
    assert [each.output.name for each in job.others] == ["alerts"]
    resource = resource.model_copy(update={"status": first.status})
    done = job_state(job, phase="Done", result=PublishResult("plays", 8))
    second = decide(observed(resource, job=done, decisions=(approval,)))
    assert published(second) == ["alerts"]
    (job,) = (each.job for each in second.next.actions if isinstance(each, StartJob))
    assert isinstance(job, PublishJob)
    assert not job.others, "it was checked together with the first"


@pytest.mark.parametrize(("read", "rows"), [(0, 0), (1_000, 1)])
def test_an_empty_output_beside_one_with_rows_is_no_alarm(read: int, rows: int) -> None:
    assert published(decide(observed(results(read, rows)))) == ["plays"]


def test_a_result_that_is_not_published_says_that_it_is_empty_as_well() -> None:
    resource = results(1_000, 5, publish="None")
    job = SettleJob(staged_outputs(resource), resource.spec.window)
    totals = {name: Totals("branch", 0, 0, 1) for name in NAMES}
    status = with_condition(resource.status, ConditionType.RUNNING, "True", Reason.REPLAYING)
    resource = resource.model_copy(update={"status": status})
    done = job_state(job, phase="Done", result=SettleResult(totals))
    said = message(decide(observed(resource, job=done)).status, ConditionType.RUNNING)
    assert "no result has a row in the window, although 1,000 rows were read" in said
