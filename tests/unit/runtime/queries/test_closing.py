"""The end of a query whose open results cannot be counted."""

from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from backfill.planning.plan import PlanHeader
from backfill.protocol.hand_off_messages import HandOffSettings
from backfill.runtime.queries.query_end import close_query
from backfill.runtime.queries.run_state import StartedQuery
from backfill.runtime.queries.tracker import Tracker, Traits


class FakeSpark:
    """The handle and the frame of a query. What is asked while Spark dies fails as a method call
    that went wrong does.
    """

    def __init__(self, *, gone: bool):
        self._gone = gone

    def stop(self) -> None:
        """It was there until now."""

    def exception(self) -> None:
        if self._gone:
            raise Py4JNetworkError("Connection refused")

    @property
    def _jdf(self) -> None:
        raise Py4JError("An error occurred while calling o1.queryExecution")


def _close(spark: Any, header: PlanHeader) -> int | None:
    tracker = Tracker(header, ["impressions", "playbacks"], lambda _source, _step: 0, lambda: 0)
    tracker.add("q", "summary", {"impressions": header.steps + 1})
    run: Any = SimpleNamespace(tracker=tracker, settings=SimpleNamespace(hand_off=None))
    close_query(StartedQuery("q", "summary", "checkpoint", spark, spark, spark), run)
    return tracker.queries[0].open_at_end


def test_when_spark_dies_while_open_results_are_counted_the_next_attempt_has_to_count_them(
    header: PlanHeader,
) -> None:
    with pytest.raises(Py4JNetworkError, match="refused"):
        _close(FakeSpark(gone=True), header)


def test_results_that_spark_can_not_count_do_not_undo_the_run(header: PlanHeader) -> None:
    assert _close(FakeSpark(gone=False), header) is None


def test_a_function_finishes_its_outputs_when_its_query_is_closed(header: PlanHeader) -> None:
    tracker = Tracker(header, ["impressions"], lambda _source, _step: 0, lambda: 0)
    tracker.add_function("f", {"impressions": header.steps + 1}, Traits(), ())
    run: Any = SimpleNamespace(tracker=tracker, settings=SimpleNamespace(hand_off=None))
    spark: Any = FakeSpark(gone=False)
    finished: list[str] = []
    finish = lambda: finished.append("f")  # noqa: E731
    close_query(StartedQuery("f", None, "", spark, spark, spark, finish=finish), run)
    assert finished == ["f"]


def test_what_is_open_at_a_hand_off_goes_on_with_live_traffic(header: PlanHeader) -> None:
    tracker = Tracker(header, ["impressions", "playbacks"], lambda _source, _step: 0, lambda: 0)
    tracker.add("q", "summary", {"impressions": header.steps + 1})
    settings = SimpleNamespace(hand_off=HandOffSettings())
    run: Any = SimpleNamespace(tracker=tracker, settings=settings)
    spark: Any = FakeSpark(gone=True)
    close_query(StartedQuery("q", "summary", "checkpoint", spark, spark, spark), run)
    assert tracker.queries[0].open_at_end == 0
