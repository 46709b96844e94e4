"""Spans are computed in any order and committed in order, each once, as far as they are released."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from backfill.outputs.staging import StagedBatch
from backfill.planning.plan import PlanHeader
from backfill.runtime.batch.span_runner import Computed, SpanRunner
from backfill.runtime.batch.spans import Span
from backfill.runtime.queries.run_state import FINISHED, Run
from backfill.runtime.queries.tracker import OpenResults, Tracker
from waiting import PATIENCE_SECONDS, eventually

FINDING = -1
SLOW_START = (
    "Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times:"
    " org.apache.spark.SparkException: Python worker failed to connect back.\n\tat org.apache.spark"
)


class Spans:
    """The spans of a plan of six steps, computed when the test says so."""

    def __init__(self, header: PlanHeader, spans: list[range]):
        self.tracker = Tracker(header, ["impressions"], lambda _s, _k: 0, lambda: 0)
        settings: Any = None
        self.run = Run(settings, self.tracker)
        self.tracker.add("q", "summary", {"impressions": spans[0].start if spans else 6})
        self.begun: list[int] = []
        self.committed: list[tuple[int | None, int]] = []
        self.go = {steps.start: threading.Event() for steps in spans}
        self.failures: dict[int, Exception] = {}
        self.slow_starts: dict[int, int] = {}
        """By first step, how often no Python process is there in time."""
        self.further: dict[int, int] = {}
        """By first step, for spans whose first try finds that it reads too little: its right end."""
        self.tried: set[int] = set()
        self.commit_failure: Exception | None = None
        self.found = [Span(steps, {"impressions": steps}) for steps in spans]
        self.finding_failure: Exception | None = None
        self.finding = threading.Event()
        self.finding.set()
        self.runner = SpanRunner(self.run, "q", self)

    def spans(self) -> list[Span]:
        assert self.finding.wait(PATIENCE_SECONDS)
        if self.slow_starts.pop(FINDING, 0):
            raise RuntimeError(SLOW_START)
        if self.finding_failure is not None:
            raise self.finding_failure
        found, self.found = self.found, []
        return found

    def reads(self, span: Span) -> Span:
        if span.steps.start not in self.tried:
            return span
        end = self.further[span.steps.start]
        return Span(span.steps, {"impressions": range(span.steps.start, end)})

    def write(self, span: Span) -> Computed | None:
        self.begun.append(span.steps.start)
        assert self.go[span.steps.start].wait(PATIENCE_SECONDS)
        if span.read_end < self.further.get(span.steps.start, 0):
            self.tried.add(span.steps.start)
            return None
        if self.slow_starts.get(span.steps.start, 0):
            self.slow_starts[span.steps.start] -= 1
            raise RuntimeError(SLOW_START)
        if span.steps.start in self.failures:
            raise self.failures[span.steps.start]
        batch = StagedBatch("q", span.steps[-1], (), 0, 0, first=span.steps[0])
        return Computed(batch, {"impressions": 10 * len(span.steps)}, late_rows=len(span.steps))

    open_results = OpenResults(count=0)

    def commit(self, batch: StagedBatch) -> None:
        if self.commit_failure is not None:
            raise self.commit_failure
        self.committed.append((batch.first, batch.batch_id))

    @property
    def progress(self) -> tuple[int, int]:
        (source,) = self.tracker.queries[0].sources
        return source.committed, source.rows

    def until(self, condition: Callable[[], bool]) -> None:
        eventually(condition, lambda: f"begun {self.begun}, committed {self.committed}")


@pytest.fixture
def spans(header: PlanHeader) -> Iterator[Spans]:
    made = Spans(header, [range(0, 2), range(2, 3), range(3, 6)])
    yield made
    for go in made.go.values():
        go.set()
    made.run.end(FINISHED)


def test_a_later_span_waits_with_its_commit_for_the_one_before_it(spans: Spans) -> None:
    spans.run.release(6)
    spans.runner.start()
    spans.until(lambda: sorted(spans.begun) == [0, 2])
    spans.go[2].set()
    spans.go[3].set()
    assert spans.committed == []
    assert sorted(spans.begun) == [0, 2], "two at a time"
    spans.go[0].set()
    spans.until(lambda: spans.tracker.all_reached(7))
    assert spans.committed == [(0, 1), (2, 2), (3, 5)]
    assert spans.tracker.queries[0].arrived_late == 6
    assert spans.progress == (7, 60)
    assert spans.tracker.queries[0].open_at_end == 0, "told before other queries are done"
    assert spans.runner.isActive
    assert spans.runner.exception() is None


def test_no_span_begins_before_all_that_it_reads_is_released(spans: Spans) -> None:
    spans.runner.start()
    spans.until(lambda: spans.runner.reads_ahead == 3)
    spans.run.release(1)
    spans.run.release(2)
    spans.until(lambda: spans.begun == [0])
    spans.go[0].set()
    spans.until(lambda: spans.committed == [(0, 1)])
    assert spans.runner.reads_ahead == 4
    assert spans.begun == [0]
    spans.run.release(3)
    spans.until(lambda: spans.begun == [0, 2])


def test_a_stop_ends_with_what_was_begun_and_begins_nothing_more(spans: Spans) -> None:
    spans.run.release(2)
    spans.runner.start()
    spans.until(lambda: spans.begun == [0])
    spans.run.stopping.set()
    spans.run.release(6)
    assert not spans.runner.at_rest
    spans.go[0].set()
    spans.until(lambda: spans.runner.at_rest)
    assert (spans.begun, spans.committed) == ([0], [(0, 1)])
    assert spans.progress == (2, 20)


def test_a_stop_does_not_wait_until_it_is_found_which_spans_there_are(spans: Spans) -> None:
    spans.finding.clear()
    spans.run.release(6)
    spans.runner.start()
    assert not spans.runner.at_rest
    spans.run.stopping.set()
    assert spans.runner.at_rest
    spans.finding.set()
    spans.until(lambda: not any(thread.is_alive() for thread in spans.runner.threads))
    assert spans.runner.at_rest
    assert (spans.begun, spans.progress) == ([], (0, 0))


def test_what_ends_with_spark_after_a_stop_is_no_failure(
    spans: Spans, caplog: pytest.LogCaptureFixture
) -> None:
    spans.finding.clear()
    spans.finding_failure = OSError("the SparkContext was shut down")
    spans.runner.start()
    spans.runner.stop()
    spans.finding.set()
    spans.until(lambda: not any(thread.is_alive() for thread in spans.runner.threads))
    assert spans.runner.exception() is None
    assert not caplog.records


def test_a_span_that_has_to_read_more_waits_for_its_release_and_is_computed_again(
    spans: Spans,
) -> None:
    spans.further[0] = 5
    spans.run.release(3)
    spans.runner.start()
    spans.until(lambda: sorted(spans.begun) == [0, 2])
    for go in spans.go.values():
        go.set()
    spans.until(lambda: spans.runner.reads_ahead == 5)
    assert spans.committed == []
    spans.run.release(5)
    spans.until(lambda: spans.committed == [(0, 1), (2, 2)])
    assert sorted(spans.begun) == [0, 0, 2]
    assert spans.runner.reads_ahead == 3
    spans.run.release(6)
    spans.until(lambda: spans.committed == [(0, 1), (2, 2), (3, 5)])


def test_a_stop_ends_spans_that_wait_to_read_more_and_those_after_them(spans: Spans) -> None:
    spans.further[0] = 5
    spans.run.release(3)
    spans.runner.start()
    for go in spans.go.values():
        go.set()
    spans.until(lambda: spans.runner.reads_ahead == 5)
    spans.until(lambda: sorted(spans.begun) == [0, 2])
    spans.run.stopping.set()
    spans.until(lambda: spans.runner.at_rest)
    assert spans.committed == []
    assert spans.runner.exception() is None


def test_a_span_that_fails_ends_the_query_after_those_before_it(spans: Spans) -> None:
    spans.failures[2] = ValueError("no such file")
    spans.run.release(6)
    spans.runner.start()
    spans.until(lambda: len(spans.begun) == 2)
    spans.go[2].set()
    spans.until(lambda: not spans.runner.isActive)
    assert str(spans.runner.exception()) == "no such file"
    spans.go[0].set()
    spans.until(lambda: spans.committed == [(0, 1)])
    spans.until(lambda: not any(thread.is_alive() for thread in spans.runner.threads))
    assert 3 not in spans.begun
    assert spans.progress[0] == 2


@pytest.mark.parametrize("slow", [FINDING, 2])
def test_what_fails_because_python_was_slow_to_start_is_done_once_more(
    spans: Spans, slow: int
) -> None:
    spans.slow_starts[slow] = 1
    for go in spans.go.values():
        go.set()
    spans.run.release(6)
    spans.runner.start()
    spans.until(lambda: spans.tracker.all_reached(7))
    assert spans.committed == [(0, 1), (2, 2), (3, 5)]
    assert sorted(spans.begun) == ([0, 2, 3] if slow == FINDING else [0, 2, 2, 3])
    assert spans.runner.exception() is None


def test_what_fails_so_twice_is_told(spans: Spans) -> None:
    spans.slow_starts[2] = 2
    for go in spans.go.values():
        go.set()
    spans.run.release(6)
    spans.runner.start()
    spans.until(lambda: not any(thread.is_alive() for thread in spans.runner.threads))
    assert str(spans.runner.exception()) == SLOW_START


def test_a_commit_that_fails_is_told_and_nothing_after_it_is_committed(spans: Spans) -> None:
    spans.commit_failure = OSError("the catalog is away")
    spans.run.release(6)
    for go in spans.go.values():
        go.set()
    spans.runner.start()
    spans.until(lambda: not any(thread.is_alive() for thread in spans.runner.threads))
    assert str(spans.runner.exception()) == "the catalog is away"
    assert spans.committed == []
    assert spans.progress == (0, 0)


def test_without_spans_nothing_is_begun(spans: Spans) -> None:
    spans.finding_failure = OSError("no such file")
    spans.run.release(6)
    spans.runner.start()
    spans.until(lambda: not any(thread.is_alive() for thread in spans.runner.threads))
    assert str(spans.runner.exception()) == "no such file"
    assert not spans.runner.isActive
    assert (spans.begun, spans.progress) == ([], (0, 0))


def test_a_query_of_which_all_is_committed_is_flushed_at_once(header: PlanHeader) -> None:
    done = Spans(header, [])
    done.runner.start()
    done.until(lambda: done.tracker.all_reached(7))
    assert done.runner.isActive
    assert done.runner.reads_ahead == 0
    done.runner.stop()
    assert not done.runner.isActive
