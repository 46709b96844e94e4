"""The status says how each query is run, why as a stream, and which window would be long enough."""

from datetime import timedelta
from typing import Any

from backfill.api.conditions import ConditionType, find_condition
from backfill.api.spec import Window
from backfill.api.status import OutputStatus
from backfill.controller.decisions.decide import decide
from backfill.controller.decisions.execution_messages import how_run
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
        "as the resource says": ({"execution": "Streaming"}, "stream"),
        "a stream for a reason": (
            {"execution": "Streaming", "execution_reason": "it keeps state"},
            "stream, because it keeps state",
        ),
        "a stream that changes rows": (
            {"execution": "Streaming", "output_mode": "update"},
            "stream; until its last step is committed, the branch also holds older rows of its keys",
        ),
        "a stream that gives all rows again": (
            {"execution": "Streaming", "output_mode": "complete"},
            "stream",
        ),
        "within the window": (
            {"execution": "Batch", "look_back_seconds": 1800.0, "look_ahead_seconds": 5400.0},
            "batch jobs",
        ),
        "beyond both ends": (
            {"execution": "Batch", "look_back_seconds": 1801.0, "look_ahead_seconds": 5400.5},
            "batch jobs; its results depend on rows up to 30m1s before them, and window.warmUp is"
            " 30m: the first ones may be incomplete; a window.warmUp of 30m1s would complete them;"
            " its results depend on rows up to 1h30m1s after them, and window.drain is 1h30m: the"
            " last ones may be incomplete or open; a window.drain of 1h30m1s would complete them",
        ),
    },
)
def test_it_is_said_in_words(fields: dict[str, Any], expected: str) -> None:
    assert how_run(output(**fields), WINDOW) == expected


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
    assert condition.message == ("attempt 1 is reading; counts: stream, because it keeps state")
