"""Steps are held back from streams until they are released."""

import threading
from pathlib import Path
from typing import Any

import pytest

from backfill.planning.plan import PlanHeader
from backfill.runtime.queries.run_state import Run
from backfill.runtime.queries.tracker import Tracker
from backfill.runtime.settings import RuntimeSettings
from waiting import PATIENCE_SECONDS


@pytest.fixture
def run(header: PlanHeader, tmp_path: Path) -> Run:
    given: dict[str, Any] = {"checkpoints": str(tmp_path), "outputs": ()}
    tracker = Tracker(header, [], lambda _source, _step: 0, lambda: 0)
    return Run(RuntimeSettings.model_construct(**given), tracker)


@pytest.mark.parametrize(
    ("released", "readable"),
    [(0, []), (1, [0]), (5, [0, 1, 2, 3, 4]), (6, [0, 1, 2, 3, 4, 5, 6])],
    ids=["nothing", "a step", "all but the last", "the last step and the flush"],
)
def test_a_stream_reads_what_is_released_the_flush_with_the_last_step_and_nothing_beyond(
    run: Run, released: int, readable: list[int]
) -> None:
    run.release(released + 1)  # of spans only
    run.release_to_streams(released)
    steps = range(run.tracker.steps + 3)
    assert [step for step in steps if run.wait_for_step(step, 0)] == readable


def test_a_stream_that_begins_after_others_waits_for_its_own_first_step(run: Run) -> None:
    run.release_to_streams(run.tracker.steps)
    run.release_to_streams(0)
    assert not run.wait_for_step(0, 0)


def test_a_stream_that_waits_goes_on_as_soon_as_its_step_is_released(run: Run) -> None:
    read = threading.Event()

    def wait() -> None:
        if run.wait_for_step(1, PATIENCE_SECONDS):
            read.set()

    waits = threading.Thread(target=wait, daemon=True)
    waits.start()
    run.release_to_streams(1)
    assert not read.is_set()
    run.release_to_streams(2)
    waits.join(PATIENCE_SECONDS)
    assert read.is_set()
