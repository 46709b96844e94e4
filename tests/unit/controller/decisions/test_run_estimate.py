"""What a run will take, by what earlier runs of the application have taken."""

from datetime import timedelta
from typing import Any

import pytest

from backfill.api.backfill import Backfill
from backfill.api.status import BackfillStatus, Cost, Progress
from backfill.controller.decisions.run.run_estimate import by_earlier_runs
from situations import NOW, backfill

GIB = 2**30


def earlier(name: str, days_ago: int = 1, *, cost: Cost | None, **spec: Any) -> Backfill:
    """A Backfill that has read everything."""
    status = BackfillStatus(
        cost=cost,
        progress=Progress(steps=10, committed=10),
        finished_at=NOW - timedelta(days=days_ago),
    )
    found = backfill(status, **spec)
    metadata = found.metadata.model_copy(update={"name": name})
    return found.model_copy(update={"metadata": metadata})


def took(gib: int, minutes: float, executors: int = 2) -> Cost:
    seconds = 60 * minutes
    return Cost(driver_seconds=seconds, executor_seconds=executors * seconds, bytes_read=gib * GIB)


def test_bytes_take_as_long_as_those_of_all_earlier_runs_together() -> None:
    others = [earlier("small", 2, cost=took(1, 4)), earlier("large", 1, cost=took(9, 6))]
    found = by_earlier_runs(backfill(), 20 * GIB, others)
    assert found is not None
    assert (found.seconds, found.executor_seconds) == (20 * 60, 40 * 60)
    assert (found.backfills, found.bytes_read) == (("large", "small"), 10 * GIB)


def test_only_the_latest_five_count() -> None:
    others = [earlier(f"run-{day}", day, cost=took(1, day)) for day in range(1, 8)]
    found = by_earlier_runs(backfill(), GIB, others)
    assert found is not None
    assert found.backfills == ("run-1", "run-2", "run-3", "run-4", "run-5")
    assert found.seconds == 180


def test_a_run_that_was_tiny_beside_this_one_does_not_count() -> None:
    tiny, fitting = earlier("tiny", cost=took(1, 1)), earlier("fitting", cost=took(2, 4))
    found = by_earlier_runs(backfill(), 101 * GIB, [tiny, fitting])
    assert found is not None
    assert found.backfills == ("fitting",)
    assert by_earlier_runs(backfill(), 101 * GIB, [tiny]) is None


@pytest.mark.parametrize(
    "other",
    [
        earlier("january", cost=took(1, 1)),
        earlier("other", cost=took(1, 1), applicationRef={"name": "another"}),
        earlier("stream", cost=took(1, 1), execution="Streaming"),
        earlier("limited", cost=took(1, 1), maxRowsPerSecond=100),
        earlier("nothing", cost=Cost(driver_seconds=60)),
        earlier("older-version", cost=None),
        backfill(BackfillStatus(cost=took(1, 1), progress=Progress(steps=10, committed=9))),
    ],
    ids=["itself", "application", "execution", "rate", "read nothing", "no cost", "unfinished"],
)
def test_runs_that_say_nothing_about_this_one_do_not_count(other: Backfill) -> None:
    assert by_earlier_runs(backfill(), GIB, [other]) is None
    also = earlier("like-it", cost=took(1, 1))
    found = by_earlier_runs(backfill(), GIB, [other, also])
    assert found is not None
    assert found.backfills == ("like-it",)
