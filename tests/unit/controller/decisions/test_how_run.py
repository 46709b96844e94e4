"""The status says how each query is run, why as a stream, and which window would be long enough."""

from datetime import timedelta
from typing import Any

from backfill.api.conditions import ConditionType, find_condition
from backfill.api.spec import Window
from backfill.api.status import OutputStatus
from backfill.controller.decisions.decide import decide
from backfill.controller.decisions.run.execution_messages import how_run
from backfill.protocol.split_assignment import QueryProgress, SourceProgress
from cases import cases
from situations import START, reported, running

HOUR = timedelta(hours=1)
WINDOW = Window(start=START, end=START + 10 * HOUR, warm_up="30m", drain="90m")


def output(**fields: Any) -> OutputStatus:
    return OutputStatus(name="counts", table="lake.ops.counts", **fields)


@cases(
    ("fields", "expected"),
    {
        "not known yet": ({}, ""),
        "as the resource says": ({"execution": "Streaming"}, "runs in Streaming execution"),
        "a stream for a reason": (
            {"execution": "Streaming", "execution_reason": "it keeps state"},
            "runs in Streaming execution, because it keeps state",
        ),
        "a stream that changes rows": (
            {"execution": "Streaming", "output_mode": "update"},
            (
                "runs in Streaming execution; until the last step is committed, the branch also"
                " contains older rows with the same keys"
            ),
        ),
        "a stream that gives all rows again": (
            {"execution": "Streaming", "output_mode": "complete"},
            "runs in Streaming execution",
        ),
        "within the window": (
            {"execution": "Batch", "look_back_seconds": 1800.0, "look_ahead_seconds": 5400.0},
            "runs in Batch execution",
        ),
        "a stream beyond the end": (
            {"execution": "Streaming", "look_back_seconds": 0.0, "look_ahead_seconds": 7200.0},
            "runs in Streaming execution; its results depend on rows up to 2h later, but"
            " window.drain is only 1h30m: the last results may be incomplete or still open; set"
            " window.drain to 2h to complete them",
        ),
        "beyond both ends": (
            {"execution": "Batch", "look_back_seconds": 1801.0, "look_ahead_seconds": 5400.5},
            "runs in Batch execution; its results depend on rows up to 30m1s earlier, but"
            " window.warmUp is only 30m: the first results may be incomplete; set window.warmUp"
            " to 30m1s to complete them; its results depend on rows up to 1h30m1s later, but"
            " window.drain is only 1h30m: the last results may be incomplete or still open; set"
            " window.drain to 1h30m1s to complete them",
        ),
    },
)
def test_it_is_said_in_words(fields: dict[str, Any], expected: str) -> None:
    assert how_run(output(**fields), WINDOW) == expected


def test_live_traffic_closes_the_last_results_without_a_drain() -> None:
    window = Window(start=START, end="Live")
    stream = output(execution="Streaming", look_back_seconds=0.0, look_ahead_seconds=7200.0)
    assert how_run(stream, window) == "runs in Streaming execution"


def test_it_is_recorded_and_said_while_the_run_reads() -> None:
    query = QueryProgress(
        name="counted",
        output="counts",
        sources=(SourceProgress(name="clicks"),),
        execution="Streaming",
        execution_reason="it keeps state",
        output_mode="complete",
    )
    decision = decide(running(report=reported("Running", queries=(query,))))
    (found,) = decision.status.outputs
    assert (found.execution, found.execution_reason) == ("Streaming", "it keeps state")
    assert found.output_mode == "complete"
    condition = find_condition(decision.status.conditions, ConditionType.RUNNING)
    assert condition is not None
    assert condition.message == (
        "the driver is reading; counts: runs in Streaming execution, because it keeps state"
    )
