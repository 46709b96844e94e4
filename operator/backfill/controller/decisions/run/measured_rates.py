"""What the controller measures itself: the time since the last heartbeat of the driver, and how
fast it commits.
"""

from dataclasses import dataclass

from backfill.controller.decisions.observed import Observed
from backfill.coordination.recent_rate import Rate
from backfill.protocol.split_assignment import SplitAssignmentStatus

_LEAST_SECONDS = 10.0
"""That of an executor is measured over at least so much work, and that of the run over so much time
where it commits spans: of two that are at work together, the second one is often committed right
after the first, as if it had taken a second.
"""


@dataclass(slots=True)
class _Unmeasured:
    """Work since a rate was measured last."""

    since: float
    """When that was, in seconds."""
    work: float = 0.0

    def measured(self, rate: Rate, work: float, now: float, least: float) -> Rate:
        """The rate with further work, unless less time has passed: then it is measured later."""
        self.work += work
        seconds = now - self.since
        if seconds < least:
            return rate
        found = rate.after(self.work, seconds)
        self.since, self.work = now, 0.0
        return found


class Meter:
    """Measures with the controller's own monotonic clock.

    A clock that is set, or a machine that was suspended, does not count as silence.
    """

    def __init__(self) -> None:
        self.rate = Rate()
        """Recent rate of planned rows committed, per second."""
        self.executor_rate = Rate()
        """Recent rate of planned rows committed by one executor,
        per second of work without waits.
        """
        self._attempt: int | None = None
        self._report: SplitAssignmentStatus | None = None
        self._heard_at = 0.0
        self._begun_with: int | None = None
        self._rows_done: int | None = None
        self._passed, self._worked = _Unmeasured(0.0), _Unmeasured(0.0)

    def note(self, attempt: int, observed: Observed, now: float) -> None:
        """Records that the latest report of an attempt was seen at ``now``."""
        report = observed.report
        if attempt != self._attempt:
            self._attempt, self._heard_at = attempt, now
            self._report = self._begun_with = self._rows_done = None
        if report is None or report is self._report:
            return
        self._report, self._heard_at = report, now
        if observed.header is not None and report.queries and report.phase != "Starting":
            self._measure(observed.work.rows_done, report, now)

    def silence(self, now: float) -> float:
        """Seconds since the last report of the driver.

        Before the first one, since this controller began to watch the driver.
        """
        return now - self._heard_at

    def _measure(self, rows_done: int, report: SplitAssignmentStatus, now: float) -> None:
        if self._begun_with is None:
            self._begun_with = rows_done
        elif self._rows_done is None and rows_done > self._begun_with:
            # the first batch of a driver waits for much to start
            self._rows_done = rows_done
            self._passed, self._worked = _Unmeasured(now), _Unmeasured(report.processing_seconds)
        elif self._rows_done is not None and rows_done > self._rows_done:
            rows, self._rows_done = rows_done - self._rows_done, rows_done
            least = _LEAST_SECONDS if report.has_spans else 0.0
            self.rate = self._passed.measured(self.rate, rows, now, least)
            self.executor_rate = self._worked.measured(
                self.executor_rate,
                rows / max(report.executors, 1),
                report.processing_seconds,
                _LEAST_SECONDS,
            )
