"""Runs the spans of one query: several at a time, computed in any order, committed in order."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from pyspark import InheritableThread

from backfill.outputs.staging import StagedBatch
from backfill.runtime.batch.spans import Span
from backfill.runtime.queries.failure_causes import cause_of, started_too_slowly
from backfill.runtime.queries.run_state import Run
from backfill.runtime.queries.tracker import OpenResults, ReportedBatch

AT_ONCE = 2
"""Spans at a time: while one has too few tasks left for all cores, the next one fills them."""

_log = logging.getLogger(__name__)
_Given = TypeVar("_Given")


@dataclass(frozen=True, slots=True)
class Computed:
    """A span's results, in files to which nothing refers yet."""

    batch: StagedBatch
    rows: Mapping[str, int]
    """By source, the number of rows of its steps."""
    late_rows: int = 0
    """Those rows of its steps that a stream would certainly have dropped."""


class SpanWork(Protocol):
    """What is done for each span."""

    def spans(self) -> Sequence[Span]:
        """Those that are left, which follow each other and end with the plan; none where all is
        committed. Finding them may take a while: once they are found, it is not asked again.
        """

    def reads(self, span: Span) -> Span:
        """The same span, with all that it should read by what is known now."""

    def write(self, span: Span) -> Computed | None:
        """Writes its results into files, to which nothing refers yet. None if they turn out to
        depend on more rows than were read; then :meth:`reads` says which.
        """

    def commit(self, batch: StagedBatch) -> None:
        """Adds them to the branch, unless they are there."""

    @property
    def open_results(self) -> OpenResults:
        """What could not be closed, once all spans are committed."""


class SpanRunner:
    """A handle of a query that is run by spans."""

    def __init__(
        self,
        run: Run,
        query: str,
        work: SpanWork,
        *,
        clock_us: Callable[[], int] = lambda: time.time_ns() // 1_000,
    ):
        self._run = run
        self._query = query
        self._work = work
        self._finding = threading.Lock()
        self._asked = self._found = False
        self._spans: list[Span] = []
        self._clock_us = clock_us
        self._turn = threading.Condition()
        self._begun = self._committed = 0
        self._stopped = False
        self._error: BaseException | None = None
        self.threads = [
            InheritableThread(
                target=self._work_on_spans, name=f"backfill-spans-{number}", daemon=True
            )
            for number in range(AT_ONCE)
        ]

    def start(self) -> None:
        """Begins; spans wait for their release."""
        for thread in self.threads:
            thread.start()

    @property
    def isActive(self) -> bool:
        """Whether spans are left and nothing has failed. A query that has given everything is
        active, as a stream is, until it is stopped.
        """
        return self._error is None and not self._stopped

    @property
    def at_rest(self) -> bool:
        """Whether every span that was begun is committed, and none begins any more: not even if it
        is still being found out which ones there are.
        """
        with self._turn:
            idle = not any(thread.is_alive() for thread in self.threads)
            finding = not self._found and self._run.stopping.is_set()
            return (idle or finding) and self._begun == self._committed

    @property
    def reads_ahead(self) -> int:
        """How many steps after the last committed one the spans at work read."""
        with self._turn:
            ahead = self._spans[self._committed : self._committed + AT_ONCE]
            if not ahead:
                return 0
            return max(span.read_end for span in ahead) - ahead[0].steps.start

    @property
    def open_results(self) -> OpenResults:
        """What could not be closed, once all spans are committed."""
        return self._work.open_results

    def stop(self) -> None:
        """Begins nothing more. What is at work ends with the driver."""
        with self._turn:
            self._stopped = True
            self._turn.notify_all()

    def exception(self) -> Exception | None:
        """Why it ended by itself."""
        error = self._error
        return error if error is None or isinstance(error, Exception) else RuntimeError(str(error))

    def _work_on_spans(self) -> None:
        try:
            self._find_spans()
            while (number := self._next()) is not None:
                self._do(number)
        except BaseException as error:
            if self._stopped:  # Spark ends what is at work
                return
            _log.exception("spans of the query %s failed", self._query)
            with self._turn:
                self._error = self._error or error
                self._turn.notify_all()

    def _find_spans(self) -> None:
        """Done by one thread, for which the others wait."""
        with self._finding:
            if self._asked:
                return
            self._asked = True
            spans = list(self._patiently(self._work.spans))
            with self._turn:
                self._spans, self._found = spans, True
            if not spans:
                self._flush()

    def _next(self) -> int | None:
        """The next span to begin, once all that it reads is released; None where there is none, or
        none may begin any more.
        """
        with self._turn:
            if self._begun == len(self._spans) or not self.isActive:
                return None
            number = self._begun
            self._begun += 1
        return number if self._released(number) else None

    def _released(self, number: int) -> bool:
        """Waits until all that a span reads may be read. False where none may begin any more."""
        span = self._work.reads(self._spans[number])
        with self._turn:
            self._spans[number] = span
        if self._run.wait_for_release(span.read_end):
            return True
        with self._turn:  # those after it wait as well, or for its commit: they end with it
            self._begun = min(self._begun, number)
            self._turn.notify_all()
        return False

    def _do(self, number: int) -> None:
        began_us = self._clock_us()
        write = self._work.write
        while (computed := self._patiently(partial(write, self._spans[number]))) is None:
            if not self._released(number):
                return
        with self._turn:
            self._turn.wait_for(
                lambda: self._committed == number or self._begun <= number or not self.isActive
            )
            if self._committed != number:
                return
        self._work.commit(computed.batch)
        self._report(self._spans[number], began_us, computed)
        with self._turn:
            self._committed += 1
            self._turn.notify_all()
        if number + 1 == len(self._spans):
            self._flush()

    def _patiently(self, work: Callable[[], _Given]) -> _Given:
        """Once more where a Python process was slow to start, as on a busy machine."""
        try:
            return work()
        except Exception as error:
            if self._stopped or not started_too_slowly(cause_of(error)):
                raise
            _log.warning("the query %s: retrying once: %s", self._query, cause_of(error))
        return work()

    def _report(self, span: Span, began_us: int, computed: Computed) -> None:
        tracker = self._run.tracker
        tracker.commit(
            ReportedBatch(
                self._query,
                began_us,
                self._clock_us(),
                span.steps.stop,
                rows=computed.rows,
                first=span.steps.start,
                arrived_late=computed.late_rows,
            )
        )

    def _flush(self) -> None:
        """There is no state for a last watermark to close: the flush is done with the last span."""
        tracker = self._run.tracker
        tracker.record_open_results(self._query, self._work.open_results)
        now_us, steps = self._clock_us(), tracker.steps
        tracker.commit(ReportedBatch(self._query, now_us, now_us, steps + 1, rows={}, first=steps))
