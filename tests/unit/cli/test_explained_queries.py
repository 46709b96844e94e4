"""What ``backfill plan --explain`` warns of."""

import pytest

from backfill.cli.explain_queries import warnings
from backfill.protocol.explanation import ExplainedQuery
from situations import backfill

HOURLY = ExplainedQuery(
    query="hourly",
    output="hourly",
    execution="Batch",
    look_back_seconds=0,
    look_ahead_seconds=0,
    reads={},
)


@pytest.mark.parametrize(("compared", "expected"), [(None, 0), (True, 0), (False, 1)])
def test_it_is_said_if_results_are_not_compared(compared: bool | None, expected: int) -> None:
    found = warnings(backfill(), HOURLY.model_copy(update={"compared": compared}))
    assert len(found) == expected
    assert all("two adjacent batch jobs both compute are not compared" in each for each in found)


def test_it_is_said_if_recurring_rows_differ_from_a_stream() -> None:
    assert warnings(backfill(), HOURLY) == []
    (found,) = warnings(backfill(), HOURLY.model_copy(update={"drops_within_watermark": True}))
    assert "if keys recur for longer than the delay, set execution: Streaming" in found


def test_times_whose_text_may_differ_from_productions_are_said() -> None:
    found = warnings(backfill(), HOURLY.model_copy(update={"warnings": ("of orders, …",)}))
    assert found == ["of orders, …"]
