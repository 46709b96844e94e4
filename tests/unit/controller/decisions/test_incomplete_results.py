"""Results that were still open when the input ended: said before anything is published, and not
replaced by nothing.
"""

from datetime import timedelta
from typing import Any

import pytest

from backfill.api.approval import undecidable
from backfill.api.backfill import Backfill
from backfill.api.conditions import ConditionType, Reason, find_condition
from backfill.api.spec import Window
from backfill.api.status import BackfillStatus, OutputStatus, Progress, Verdict, WindowLosses
from backfill.controller.decisions.actions import Decision, StartJob
from backfill.controller.decisions.decide import decide
from backfill.controller.decisions.open_result_messages import left_out
from backfill.controller.driver import DriverState
from backfill.controller.jobs.kinds.publish import PublishJob
from backfill.controller.jobs.kinds.settle import SettleJob, SettleResult, Totals
from backfill.controller.jobs.staged_outputs import staged_outputs
from backfill.protocol.split_assignment import QueryProgress, SourceProgress
from cases import cases
from situations import (
    RUNNING,
    START,
    STEPS,
    assigned,
    attempt,
    backfill,
    decided,
    job_state,
    observed,
    planned,
    reported,
    running,
    with_condition,
)

OPEN = {"open_at_end": 7, "open_from": START + timedelta(hours=9), "needed_drain_seconds": 1800.0}
COMPLETE = {"open_at_end": 0, "needed_drain_seconds": 0.0}
ALL_REPLACED = WindowLosses(production_rows=40, result_rows=40)
UNKNOWN = {"open_unknown": "the query keeps user-defined state"}


def output(mode: str = "Replace", *, name: str = "counts", **publish: str) -> dict[str, Any]:
    return {
        "name": name,
        "table": f"lake.ops.{name}",
        "timestampColumn": "at",
        "publish": {"mode": mode, "approval": "Automatic", **publish},
    }


def settled(**found: Any) -> BackfillStatus:
    found = {"losses": ALL_REPLACED, **found}
    status = planned(attempts=(attempt(outcome="Succeeded"),), committed=STEPS, output=found)
    return with_condition(status, ConditionType.RUNNING, "False", Reason.ALL_STEPS_COMMITTED)


def waiting(resource: Backfill) -> Backfill:
    return resource.model_copy(update={"status": decide(observed(resource)).status})


def approve(resource: Backfill) -> Decision:
    assert not undecidable(resource, Verdict.APPROVE)
    return decide(observed(resource, decisions=(decided(resource.status, Verdict.APPROVE),)))


def said(decision: Decision, kind: ConditionType) -> tuple[Reason, str]:
    condition = find_condition(decision.status.conditions, kind)
    assert condition is not None
    return condition.reason, condition.message


def publishes(decision: Decision) -> list[str]:
    jobs = (action.job for action in decision.next.actions if isinstance(action, StartJob))
    return [job.staged.output.name for job in jobs if isinstance(job, PublishJob)]


def test_rows_whose_replacement_has_not_closed_are_not_deleted_before_a_person_says_so() -> None:
    decision = decide(observed(backfill(settled(**OPEN), outputs=[output()])))
    assert publishes(decision) == []
    assert decision.next.at_rest
    reason, message = said(decision, ConditionType.PUBLISHED)
    assert reason == Reason.WAITING_FOR_APPROVAL
    assert message.splitlines() == [
        "waiting for approval to publish counts",
        (
            "counts: publishing deletes the rows of lake.ops.counts in [2024-01-01T00:00:00Z,"
            " 2024-01-01T10:00:00Z) and does not replace all of them: 7 results of the window that"
            " were still open when the input ended, from 2024-01-01T09:00:00Z on; a new Backfill"
            " with a window.drain longer than 30m lets them close, if the sources have later events"
        ),
    ]


def test_values_that_are_not_final_replace_no_others_before_a_person_says_so() -> None:
    upsert = output("Upsert") | {"keys": ["at"]}
    decision = decide(observed(backfill(settled(**OPEN), outputs=[upsert])))
    assert publishes(decision) == []
    _, message = said(decision, ConditionType.PUBLISHED)
    assert (
        "counts: publishing replaces rows of lake.ops.counts in [2024-01-01T00:00:00Z,"
        " 2024-01-01T10:00:00Z) by their keys. The result lacks 7 results of the window that were"
        " still open when the input ended"
    ) in message
    decision = decide(observed(backfill(settled(**COMPLETE), outputs=[upsert])))
    assert publishes(decision) == ["counts"]


@cases(
    ("mode", "words"),
    {
        "upsert": (
            "Upsert",
            "The result has values that are not final for 7 results of the window",
        ),
        "replace": (
            "Replace",
            "and replaces some with values that are not final: 7 results of the",
        ),
    },
)
def test_open_results_of_a_stream_that_changes_rows_are_said_to_be_there(
    mode: str, words: str
) -> None:
    found, keyed = OPEN | {"output_mode": "update"}, output(mode) | {"keys": ["at"]}
    decision = decide(observed(backfill(settled(**found), outputs=[keyed])))
    assert words in said(decision, ConditionType.PUBLISHED)[1]
    (status,) = decision.status.outputs
    window = Window.model_validate({"start": "2024-01-01T00:00:00Z", "end": "2024-01-01T10:00:00Z"})
    assert left_out(status, window).startswith(
        "counts has values that are not final for 7 results of the window"
    )


def test_rows_whose_replacement_can_not_be_counted_are_not_deleted_before_a_person_says_so() -> (
    None
):
    decision = decide(observed(backfill(settled(**UNKNOWN), outputs=[output()])))
    assert publishes(decision) == []
    reason, message = said(decision, ConditionType.PUBLISHED)
    assert reason == Reason.WAITING_FOR_APPROVAL
    assert "open, because the query keeps user-defined state" in message


def test_history_that_a_comparison_with_the_clock_may_have_dropped_is_not_replaced_before_a_person_says_so() -> (
    None
):
    found = COMPLETE | {"by_clock": "current_timestamp() in a filter"}
    decision = decide(observed(backfill(settled(**found), outputs=[output()])))
    assert publishes(decision) == []
    _, message = said(decision, ConditionType.PUBLISHED)
    assert (
        "its query uses current_timestamp() in a filter, which follows the time of this run"
        in message
    )
    waits = waiting(backfill(settled(**found), outputs=[output()]))
    assert publishes(approve(waits)) == ["counts"]
    assert publishes(decide(observed(backfill(settled(**found), outputs=[output("Append")])))) == [
        "counts"
    ]


def test_a_comparison_with_the_clock_is_said_while_the_run_reads() -> None:
    query = QueryProgress(
        name="counts",
        output="counts",
        by_clock="now() in a filter",
        sources=(SourceProgress(name="clicks"),),
    )
    decision = decide(running(report=reported("Running", queries=(query,))))
    _, message = said(decision, ConditionType.RUNNING)
    assert "counts: its query uses now() in a filter" in message


def test_times_whose_text_may_differ_from_productions_are_said_once_while_the_run_reads() -> None:
    status = planned(attempts=(attempt(),))
    (counts,) = status.outputs
    totals = counts.model_copy(update={"name": "totals"})
    queries = tuple(
        QueryProgress(
            name=each.name,
            output=each.name,
            warnings="of clicks, the application uses the text of times",
            sources=(SourceProgress(name="clicks"),),
        )
        for each in (counts, totals)
    )
    resource = backfill(
        status.model_copy(update={"outputs": (counts, totals)}),
        outputs=[output(), output(name="totals")],
    )
    report = reported("Running", queries=queries)
    decision = decide(observed(resource, driver=RUNNING, assignment=assigned(), report=report))
    _, message = said(decision, ConditionType.RUNNING)
    assert message.count("of clicks, the application uses the text of times") == 1


def test_a_result_of_an_earlier_version_that_says_nothing_waits_as_well() -> None:
    _, message = said(
        decide(observed(backfill(settled(), outputs=[output()]))), ConditionType.PUBLISHED
    )
    assert "because the driver did not report it" in message


@cases(
    ("found", "publish"),
    {
        "complete": (COMPLETE, output()),
        "append": (OPEN, output("Append")),
        "append, unknown": (UNKNOWN, output("Append")),
        "allowed": (OPEN, output(incomplete="Publish")),
        "allowed, unknown": (UNKNOWN, output(incomplete="Publish")),
    },
)
def test_what_deletes_nothing_unseen_is_published(
    found: dict[str, Any], publish: dict[str, Any]
) -> None:
    assert publishes(decide(observed(backfill(settled(**found), outputs=[publish])))) == ["counts"]


def test_outputs_that_are_complete_do_not_wait_for_the_others() -> None:
    outputs = (
        OutputStatus(name="a", table="lake.ops.a", **OPEN),
        OutputStatus(name="b", table="lake.ops.b", losses=ALL_REPLACED, **COMPLETE),
    )
    status = settled().model_copy(update={"outputs": outputs})
    resource = backfill(status, outputs=[output(name="a"), output(name="b")])
    assert publishes(decide(observed(resource))) == ["b"]


def test_a_drain_that_was_long_enough_is_not_asked_for_once_more() -> None:
    window = {"start": "2024-01-01T00:00:00Z", "end": "2024-01-01T10:00:00Z", "drain": "2h"}
    _, message = said(
        decide(observed(backfill(settled(**OPEN), outputs=[output()], window=window))),
        ConditionType.PUBLISHED,
    )
    assert (
        "they close only once every source has events more than 30m after the window's end"
        in message
    )


def test_whoever_approves_a_replacement_is_told_of_late_rows() -> None:
    progress = Progress(steps=STEPS, committed=STEPS, rows_dropped_late=12)
    status = settled(**COMPLETE).model_copy(update={"progress": progress})
    _, message = said(
        decide(observed(backfill(status, outputs=[output(approval="Manual")]))),
        ConditionType.PUBLISHED,
    )
    assert "12 rows dropped as late" in message


def test_an_approval_covers_what_was_said_to_be_missing() -> None:
    for publish in (output(), output(approval="Manual")):
        resource = waiting(backfill(settled(**OPEN), outputs=[publish]))
        assert publishes(approve(resource)) == ["counts"]


def test_there_is_nothing_to_approve_before_the_end() -> None:
    resource = backfill(planned(attempts=(attempt(),)), outputs=[output(approval="Manual")])
    assert "no result waiting" in undecidable(resource, Verdict.APPROVE)


def test_what_a_query_left_open_is_recorded_with_its_output() -> None:
    sources = (SourceProgress(name="clicks", committed=STEPS + 1, rows=1000),)
    queries = (QueryProgress(name="q", output="counts", sources=sources, **OPEN),)
    report = reported("Finished", committed=STEPS + 1, queries=queries)
    decision = decide(running(driver=DriverState("Exited", 0), report=report))
    (recorded,) = decision.status.outputs
    assert (recorded.open_at_end, recorded.open_from, recorded.needed_drain_seconds) == tuple(
        OPEN.values()
    )


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (OPEN, "counts lacks 7 results of the window that were still open"),
        (UNKNOWN, "counts may lack results of the window"),
    ],
    ids=["counted", "unknown"],
)
def test_what_is_missing_is_said_before_anything_is_published(
    found: dict[str, Any], words: str
) -> None:
    status = planned(attempts=(attempt(outcome="Succeeded"),), committed=STEPS, output=found)
    resource = backfill(status)
    result = SettleResult({"counts": Totals("backfill/january", rows=40, rows_outside_window=2)})
    decision = decide(
        observed(
            resource,
            job=job_state(
                SettleJob(staged_outputs(resource), resource.spec.window), "Done", result=result
            ),
        )
    )
    assert words in said(decision, ConditionType.RUNNING)[1]


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (COMPLETE, ""),
        (
            COMPLETE | {"by_clock": "now() in a filter"},
            "may lack results of the window: its query uses now() in a filter",
        ),
        (UNKNOWN, "may lack results of the window: it is unknown how many were still open"),
        (OPEN | {"open_at_end": 1}, "lacks 1 result of the window that was still open"),
        (OPEN | {"open_at_end": 2}, "lacks 2 results of the window that were still open"),
        (
            OPEN | {"needed_drain_seconds": None},
            "a new Backfill with a longer window.drain lets them close",
        ),
        (
            OPEN | {"needed_drain_seconds": 0.0},
            "they close only once every source has events more than 0s after the window's end",
        ),
        (
            OPEN | {"needed_drain_seconds": 1799.0},
            "they close only once every source has events more than 29m59s after the window's end",
        ),
        (
            OPEN | {"needed_drain_seconds": 1800.0},
            "a new Backfill with a window.drain longer than 30m lets them close",
        ),
        (
            OPEN | {"needed_drain_seconds": 1800.25},
            "a new Backfill with a window.drain longer than 30m1s lets them close",
        ),
    ],
)
def test_what_a_result_lacks_is_said_with_the_drain_that_helps(
    found: dict[str, Any], words: str
) -> None:
    half_an_hour = Window(start=START, end=START + timedelta(hours=10), drain=timedelta(minutes=30))
    text = left_out(OutputStatus(name="counts", table="lake.ops.counts", **found), half_an_hour)
    assert words in text
    assert bool(text) == bool(words)


@pytest.mark.parametrize(
    ("other", "found"),
    [
        (COMPLETE, tuple(OPEN.values())),
        (
            {"open_at_end": 2, "open_from": START, "needed_drain_seconds": 60.0},
            (9, START, 1800.0),
        ),
        ({"open_at_end": 2, "open_from": START}, (9, START, None)),
        ({"open_unknown": "no column"}, (None, OPEN["open_from"], None)),
    ],
)
def test_what_any_of_several_queries_left_open_is_missing_in_their_output(
    other: dict[str, Any], found: tuple[Any, ...]
) -> None:
    for first, second in ((OPEN, other), (other, OPEN)):
        queries = (
            QueryProgress(name="q", output="counts", **first),
            QueryProgress(name="r", output="counts", **second),
        )
        report = reported("Finished", committed=STEPS + 1, queries=queries)
        decision = decide(running(driver=DriverState("Exited", 0), report=report))
        (recorded,) = decision.status.outputs
        assert (
            recorded.open_at_end,
            recorded.open_from,
            recorded.needed_drain_seconds,
        ) == found
        assert recorded.open_unknown == other.get("open_unknown", "")


def test_a_query_whose_function_writes_several_outputs_counts_once() -> None:
    sources = (SourceProgress(name="clicks", committed=STEPS + 1, rows=100 * STEPS),)
    of_function = QueryProgress(name="each", sources=sources, open_at_end=7, late_rows=3)
    again = {"output": "sums", "late_rows": 0}
    queries = (
        of_function.model_copy(update={"output": "counts"}),
        of_function.model_copy(update=again),
        QueryProgress(name="other", output="others", sources=sources, open_at_end=1),
    )
    ended = running(
        report=reported("Finished", queries=queries), driver=DriverState("Exited", exit_status=0)
    )
    progress = decide(ended).status.progress
    assert (progress.open_at_end, progress.rows_dropped_late) == (8, 3)
    assert ended.work.rows_done == 2 * 100 * STEPS
