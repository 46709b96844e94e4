"""The agent between a controller and queries that are told by the test what they have committed."""

import fcntl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pytest
from py4j.protocol import Py4JNetworkError

from backfill.api.errors import (
    BadInput,
    InvalidPlanInput,
    Problem,
    ResultLost,
    UnsupportedProgram,
)
from backfill.api.quantities import from_us
from backfill.planning.plan import PlanHeader
from backfill.protocol.atomic_files import replace_file
from backfill.protocol.split_assignment import (
    ASSIGNMENT_FILE,
    LOCK_FILE,
    OutputComparison,
    SplitAssignmentSpec,
    SplitAssignmentStatus,
)
from backfill.runtime.agent.agent import Agent, Release
from backfill.runtime.agent.channel import DirectoryChannel
from backfill.runtime.queries.lost_commits import LostCommits
from backfill.runtime.queries.run_state import Run, StartedQuery, identity
from backfill.runtime.queries.tracker import ReportedBatch, Tracker, Traits
from backfill.runtime.settings import RuntimeSettings
from waiting import PATIENCE_SECONDS, eventually


class FakeQuery:
    """Runs until it is stopped, or fails."""

    def __init__(self) -> None:
        self.isActive = True
        self.error: Exception | None = None
        self.stop_error: Exception | None = None

    def exception(self) -> Exception | None:
        return self.error

    def stop(self) -> None:
        if self.stop_error is not None:
            raise self.stop_error
        self.isActive = False


class Driver:
    """A run and its agent in a directory, with the controller's lock held."""

    def __init__(self, directory: Path, header: PlanHeader, controller_grace_seconds: float):
        sources = [
            {"name": source.name, "table": source.table, "timestampColumn": "at"}
            for source in header.inputs.sources
        ]
        self.settings = RuntimeSettings.model_validate(
            {
                "backfill": "b",
                "namespace": "n",
                "uid": "u",
                "attempt": 2,
                "planId": header.plan_id,
                "plan": str(directory),
                "checkpoints": str(directory),
                "channel": str(directory),
                "window": {"start": "2021-07-11T00:00:00Z", "end": "2021-07-11T01:00:00Z"},
                "sources": sources,
                "outputs": [{"name": "summary", "table": "lake.default.summary"}],
                "mainFile": "app.py",
            }
        )
        self.header = header
        self.tracker = Tracker(
            header,
            [source.name for source in header.inputs.sources],
            lambda _s, _k: 0,
            time.monotonic_ns,
        )
        self.run = Run(self.settings, self.tracker, application_works=lambda _waiting: False)
        self.compare: Callable[[], bool] = lambda: True
        self.channel = DirectoryChannel(directory)
        lost_commits = LostCommits(self.run, silence_seconds=0.1)
        self.agent = Agent(
            self.run,
            self.channel,
            lambda query: query.handle.stop(),
            lambda: self.compare(),  # noqa: PLW0108 - a test may replace it
            controller_grace_seconds,
            lost_commits=lost_commits,
        )
        self.lock: IO[bytes] = (directory / LOCK_FILE).open("wb")
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        self.handle = FakeQuery()

    def start_query(self, sources: tuple[str, ...] = ("impressions", "playbacks")) -> None:
        self.tracker.add("q", "summary", dict.fromkeys(sources, 0))
        handle: Any = self.handle
        self.run.started(
            StartedQuery("q", "summary", "", handle, SimpleNamespace(), SimpleNamespace())
        )  # type: ignore[arg-type]

    def commit(self, step: int) -> None:
        self.tracker.commit(ReportedBatch("q", 0, 1, step, {}))

    def assign(
        self,
        released: int,
        *,
        ahead: int = 0,
        stop: bool = False,
        attempt: int = 2,
        plan_id: str | None = None,
    ) -> None:
        spec = SplitAssignmentSpec(
            backfill="b",
            plan_id=plan_id or self.header.plan_id,
            attempt=attempt,
            steps=self.header.steps,
            released=released,
            released_ahead=ahead,
            watermark=from_us(0),
            stop=stop,
        )
        path = Path(self.settings.channel) / ASSIGNMENT_FILE
        replace_file(path, spec.model_dump_json(by_alias=True).encode(), durable=False)

    @property
    def release(self) -> Release:
        """What streams may read."""
        released = sum(self.run.wait_for_step(step, 0) for step in range(self.header.steps))
        return Release(released, self.run.stopping.is_set())

    @property
    def phase(self) -> str | None:
        status = self.channel.last_status()
        return status.phase if status else None

    @property
    def status(self) -> SplitAssignmentStatus:
        status = self.channel.last_status()
        assert status is not None
        return status

    def until(self, condition: Callable[[], bool]) -> None:
        eventually(condition, lambda: f"{self.channel.last_status()} {self.release}")

    def ended(self) -> SplitAssignmentStatus:
        assert self.agent.reported.wait(PATIENCE_SECONDS)
        return self.status


@contextmanager
def _driver(
    directory: Path, header: PlanHeader, controller_grace_seconds: float = 60.0
) -> Iterator[Driver]:
    driver = Driver(directory, header, controller_grace_seconds)
    driver.agent.start()
    try:
        yield driver
    finally:
        driver.run.over.set()
        driver.agent.join(PATIENCE_SECONDS)
        driver.lock.close()


@pytest.fixture
def driver(tmp_path: Path, header: PlanHeader) -> Iterator[Driver]:
    with _driver(tmp_path, header) as driver:
        yield driver


def test_sources_are_told_of_a_few_steps_at_a_time_so_that_a_stop_need_not_read_all_that_is_released(
    driver: Driver,
) -> None:
    driver.start_query()
    driver.assign(6)
    driver.until(lambda: driver.release == Release(4))
    driver.commit(1)
    driver.until(lambda: driver.release == Release(5))
    driver.assign(6, stop=True)
    driver.until(lambda: driver.release == Release(5, stop=True))
    driver.commit(5)
    assert driver.ended().phase == "Stopped"


def test_a_stop_reads_no_more_than_the_step_under_way_where_the_rate_of_rows_is_limited(
    driver: Driver,
) -> None:
    limited = driver.run.settings.model_copy(update={"max_rows_per_second": 100})
    driver.run.settings = limited
    driver.start_query()
    driver.assign(6)
    driver.until(lambda: driver.release == Release(1))
    driver.commit(1)
    driver.until(lambda: driver.release == Release(2))
    driver.assign(6, stop=True)
    driver.until(lambda: driver.release == Release(2, stop=True))
    driver.commit(2)
    assert driver.ended().phase == "Stopped"


def test_what_the_controller_releases_is_what_the_sources_see(driver: Driver) -> None:
    for released in (1, 3):
        driver.assign(released)
        driver.until(lambda released=released: driver.release == Release(released))  # type: ignore[misc]


def test_a_release_never_goes_back(driver: Driver) -> None:
    driver.assign(3)
    driver.until(lambda: driver.release.released == 3)
    driver.assign(2, stop=True)
    driver.until(lambda: driver.release == Release(3, stop=True))


def test_queries_that_run_one_after_the_other_are_each_released_from_the_first_step(
    driver: Driver,
) -> None:
    """None of them waits for a source of the next one, and a stop reads little of the last one."""
    run, tracker = driver.run, driver.tracker
    run._idle_grace_seconds, run._application_works = 0.0, lambda _waiting: False
    driver.start_query(("impressions",))
    ended = threading.Thread(
        target=run.wait_for, args=(lambda: tracker.reached("q", tracker.flushed),), daemon=True
    )
    ended.start()
    driver.until(lambda: driver.phase == "Running")
    assert driver.status.waiting_sources == ("playbacks",)
    assert [query.name for query in driver.status.queries] == ["q"]
    driver.assign(6)
    driver.until(lambda: driver.release == Release(2))
    driver.commit(7)
    ended.join(PATIENCE_SECONDS)
    assert not ended.is_alive()
    driver.until(lambda: driver.release == Release(0))
    assert not run.over.is_set(), "a source is not read yet"
    tracker.add("r", "other", {"playbacks": 0})
    driver.until(lambda: driver.release == Release(2))
    driver.until(lambda: driver.status.waiting_sources == ())
    driver.assign(6, stop=True)
    driver.until(lambda: driver.release == Release(2, stop=True))


def test_assignments_of_another_plan_and_of_older_attempts_are_not_for_this_driver(
    driver: Driver,
) -> None:
    driver.assign(5, plan_id="other")
    driver.assign(5, attempt=1)
    driver.assign(1)
    driver.until(lambda: driver.release.released > 0)
    assert driver.release.released == 1


def test_spans_are_told_of_more_steps_and_streams_do_not_wait_for_them(driver: Driver) -> None:
    driver.start_query()
    driver.tracker.add("by spans", "other", {"playbacks": 0}, Traits(execution="Batch"))
    driver.assign(2, ahead=6)
    driver.until(lambda: driver.release.released == 2)
    assert driver.run.wait_for_release(6)
    driver.commit(1)
    driver.assign(6, ahead=6)
    driver.until(lambda: driver.release.released == 5)


def test_queries_are_reported_only_when_all_sources_and_outputs_are_known(driver: Driver) -> None:
    driver.start_query(("impressions",))
    driver.until(lambda: driver.channel.last_status() is not None)
    first = driver.status.heartbeat
    driver.until(lambda: driver.status.heartbeat > first)
    assert (driver.status.phase, driver.status.queries) == ("Starting", ())
    driver.tracker.add("r", "other", {"playbacks": 0})
    driver.until(lambda: driver.phase == "Running")
    assert [query.name for query in driver.status.queries] == ["q", "r"]


def test_when_every_query_has_committed_the_flush_they_are_closed_and_the_run_is_finished(
    driver: Driver,
) -> None:
    driver.start_query()
    driver.commit(driver.header.steps)
    driver.until(lambda: driver.phase == "Running")
    assert driver.handle.isActive
    driver.commit(driver.header.steps + 1)
    assert driver.ended().phase == "Finished"
    assert not driver.handle.isActive


def test_a_stop_lets_what_is_released_be_committed_and_then_stops_the_queries(
    driver: Driver,
) -> None:
    driver.start_query()
    driver.assign(2)
    driver.until(lambda: driver.release.released == 2)
    driver.commit(1)
    driver.assign(2, stop=True)
    driver.until(lambda: driver.release.stop)
    assert driver.handle.isActive
    driver.assign(4, stop=True)
    driver.commit(2)
    assert driver.ended().phase == "Stopped"
    assert driver.release == Release(2, stop=True)
    assert not driver.handle.isActive


def test_a_flush_whose_report_was_lost_is_found_in_the_checkpoint(driver: Driver) -> None:
    driver.start_query()
    driver.commit(driver.header.steps)
    commits = Path(driver.settings.checkpoints) / identity("q", "summary") / "commits"
    commits.mkdir(parents=True)
    for batch in range(driver.header.steps + 1):
        (commits / str(batch)).touch()
    assert driver.ended().phase == "Finished"
    assert [source.committed for source in driver.status.queries[0].sources] == [
        driver.header.steps + 1
    ] * 2


@pytest.mark.parametrize(
    "stopped_after",
    [pytest.param(None, id="at the end"), pytest.param(2, id="where it is to stop")],
)
def test_a_query_that_can_not_be_closed_fails_the_run_instead_of_hanging_it(
    driver: Driver, stopped_after: int | None
) -> None:
    driver.handle.stop_error = Py4JNetworkError("Answer from Java side is empty")
    driver.start_query()
    if stopped_after is None:
        driver.commit(driver.header.steps + 1)
    else:
        driver.assign(stopped_after, stop=True)
        driver.commit(stopped_after)
    end = driver.ended()
    assert (end.phase, end.reason) == ("Failed", "ApplicationFailed")
    assert end.message == "the queries could not be closed: Answer from Java side is empty"


def test_outputs_that_a_query_may_yet_be_started_for_are_not_closed_without_rows(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    starting = threading.Event()
    monkeypatch.setattr(Run, "may_write_more", property(lambda _: not starting.is_set()))
    driver.start_query()
    driver.commit(driver.header.steps + 1)
    driver.until(lambda: driver.phase == "Running")
    assert driver.handle.isActive
    starting.set()
    assert driver.ended().phase == "Finished"


def test_a_result_that_is_lost_when_a_query_is_closed_is_not_tried_again(driver: Driver) -> None:
    driver.handle.stop_error = ResultLost("the staged result of output summary was dropped")
    driver.start_query()
    driver.commit(driver.header.steps + 1)
    end = driver.ended()
    assert (end.phase, end.reason) == ("Failed", "ResultLost")
    assert end.message == "the staged result of output summary was dropped"


def test_results_are_compared_while_reports_go_on_and_before_the_run_has_finished(
    driver: Driver,
) -> None:
    found = OutputComparison(output="summary", settings="s", matching=3)
    enough = threading.Event()

    def compare() -> bool:
        driver.run.compares("summary")
        assert enough.wait(PATIENCE_SECONDS)
        driver.run.compared(found)
        return True

    driver.compare = compare
    driver.start_query()
    driver.commit(driver.header.steps + 1)
    driver.until(lambda: driver.channel.last_status() is not None)
    driver.until(lambda: driver.status.comparing == "summary")
    assert driver.phase == "Running"
    enough.set()
    end = driver.ended()
    assert (end.phase, end.comparing, end.comparisons) == ("Finished", "", (found,))


def test_a_run_that_is_stopped_while_it_compares_is_stopped_and_not_failed(driver: Driver) -> None:
    def cancelled() -> bool:
        assert driver.run.stopping.wait(PATIENCE_SECONDS)
        raise RuntimeError("Job 7 cancelled part of cancelled job tag")

    driver.compare = cancelled
    driver.start_query()
    driver.commit(driver.header.steps + 1)
    driver.assign(driver.header.steps, stop=True)
    end = driver.ended()
    assert (end.phase, end.comparisons) == ("Stopped", ())


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError("no space left"), "ApplicationFailed"),
        (ResultLost("it expired"), "ResultLost"),
    ],
)
def test_a_comparison_that_fails_fails_the_attempt(
    driver: Driver, error: Exception, reason: str
) -> None:
    def fails() -> bool:
        raise error

    driver.compare = fails
    driver.start_query()
    driver.commit(driver.header.steps + 1)
    end = driver.ended()
    assert (end.phase, end.reason) == ("Failed", reason)
    assert str(error) in end.message


def test_a_driver_that_is_stopped_before_it_has_queries_ends(driver: Driver) -> None:
    driver.assign(1, stop=True)
    assert driver.ended().phase == "Stopped"


TOO_SLOW = RuntimeError("Python worker failed to connect back.\n=== Streaming Query ===\npages")


def _fails(
    driver: Driver, again: Callable[[], FakeQuery | None], error: Exception = TOO_SLOW
) -> None:
    """The query of the driver fails. ``again`` starts it again."""
    driver.start_query()
    (query,) = driver.run.queries
    driver.run.started(replace(query, again=again))
    driver.handle.error = error
    driver.handle.isActive = False


def test_a_query_whose_process_is_slow_to_start_is_started_again_three_times(
    driver: Driver,
) -> None:
    handles: list[FakeQuery] = []

    def again() -> FakeQuery:
        handles.append(FakeQuery())
        return handles[-1]

    _fails(driver, again)
    for number in (1, 2, 3):
        driver.until(lambda number=number: len(handles) == number)  # type: ignore[misc]
        handles[-1].error = TOO_SLOW
        handles[-1].isActive = False
    end = driver.ended()
    assert (end.reason, end.message) == (
        "ApplicationFailed",
        "the query q failed: Python worker failed to connect back.",
    )
    assert len(handles) == 3


def _not_at_all() -> FakeQuery | None:
    return None


def _in_vain() -> FakeQuery | None:
    raise Py4JNetworkError("Answer from Java side is empty")


@pytest.mark.parametrize("again", [_not_at_all, _in_vain])
def test_a_query_that_can_not_be_started_again_fails_the_run_with_its_first_error(
    driver: Driver, again: Callable[[], FakeQuery | None]
) -> None:
    _fails(driver, again)
    assert driver.ended().message == "the query q failed: Python worker failed to connect back."


def test_a_query_that_fails_ends_the_run_with_its_message_without_the_plan(driver: Driver) -> None:
    error = RuntimeError("division by zero\n=== Streaming Query ===\npages of plan")
    _fails(driver, FakeQuery, error)  # it is not started again: nothing says that the error passes
    end = driver.ended()
    assert (end.phase, end.reason, end.message) == (
        "Failed",
        "ApplicationFailed",
        "the query q failed: division by zero",
    )
    with pytest.raises(RuntimeError, match="division by zero"):
        driver.run.wait()


@pytest.mark.parametrize(
    "cause",
    [
        "SparkContext has been shutdown",
        "Job 3 cancelled because SparkContext was shut down",
        "Cannot call methods on a stopped SparkContext.",
    ],
)
def test_the_end_of_spark_in_the_driver_is_not_taken_for_a_fault_of_the_query(
    driver: Driver, cause: str
) -> None:
    _fails(driver, FakeQuery, RuntimeError(cause))
    end = driver.ended()
    assert (end.phase, end.reason) == ("Failed", "ApplicationFailed"), "another attempt starts"
    assert end.message == (
        "Spark in the driver was stopped, for example because its pod was deleted, while the query"
        f" q was running: {cause}"
    )


def test_spans_that_find_spark_gone_do_not_blame_the_query(driver: Driver) -> None:
    _fails(driver, FakeQuery, Py4JNetworkError("Error while sending or receiving"))
    end = driver.ended()
    assert (end.phase, end.reason, end.message) == (
        "Failed",
        "ApplicationFailed",
        "the driver lost its connection to Spark: Py4JNetworkError",
    )


@pytest.mark.parametrize(
    ("kind", "reason"),
    [(InvalidPlanInput, "InvalidInput"), (UnsupportedProgram, "UnsupportedProgram")],
)
def test_a_query_that_finds_rows_or_results_wrong_is_not_tried_again(
    driver: Driver, kind: type[BadInput], reason: str
) -> None:
    driver.start_query()
    driver.handle.error = kind(Problem("spec.ordering.allowedLateness", "is 1m", "set 2m"))
    driver.handle.isActive = False
    end = driver.ended()
    assert (end.phase, end.reason, end.message) == (
        "Failed",
        reason,
        "spec.ordering.allowedLateness: is 1m; set 2m",
    )


def test_a_result_that_is_lost_when_batch_jobs_commit_is_not_tried_again(driver: Driver) -> None:
    driver.start_query()
    driver.handle.error = ResultLost("the staged result of output summary was dropped")
    driver.handle.isActive = False
    end = driver.ended()
    assert (end.phase, end.reason) == ("Failed", "ResultLost")
    assert end.message == "the staged result of output summary was dropped"


def test_an_application_that_waits_without_reading_a_source_is_not_supported(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backfill.runtime.queries.run_state._SILENT_SECONDS", 0.0)
    monkeypatch.setattr(driver.run, "_idle_grace_seconds", 0.5)
    # those that run tests side by side, and what earlier tests have left
    others, frames = sys._current_frames().keys(), sys._current_frames
    monkeypatch.setattr(
        sys,
        "_current_frames",
        lambda: {thread: frame for thread, frame in frames().items() if thread not in others},
    )
    driver.start_query(("impressions",))
    driver.until(
        lambda: driver.phase == "Starting" and "reads the source playbacks" in driver.status.message
    )
    driver.run.application_waits()
    end = driver.ended()
    assert (end.phase, end.reason) == ("Failed", "UnsupportedProgram")
    assert "no query of the application reads the source playbacks" in end.message


def test_a_driver_without_a_controller_stops_by_itself(tmp_path: Path, header: PlanHeader) -> None:
    with _driver(tmp_path, header, controller_grace_seconds=0.3) as driver:
        driver.start_query()
        driver.assign(1)
        driver.until(lambda: driver.release == Release(1))
        driver.lock.close()
        driver.until(lambda: driver.release.stop)
        driver.commit(1)
        assert driver.ended().phase == "Stopped"
