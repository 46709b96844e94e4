"""What the controller measures itself: the time since the last heartbeat of the driver, and how
fast it commits.
"""

from backfill.controller.decisions.observed import Observed
from backfill.coordination.rate import Rate
from backfill.protocol.split_assignment import SplitAssignmentStatus


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
        self._measured_at = 0.0
        self._begun_with: int | None = None
        self._rows_done: int | None = None
        self._at_work_seconds = 0.0

    def note(self, attempt: int, observed: Observed, now: float) -> None:
        """Records that the latest report of an attempt was seen at ``now``."""
        report = observed.report
        if attempt != self._attempt:
            self._attempt, self._heard_at = attempt, now
            self._report = self._begun_with = self._rows_done = None
            self._at_work_seconds = 0.0
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
            self._rows_done, self._measured_at = rows_done, now
            self._at_work_seconds = report.processing_seconds
        elif self._rows_done is not None and rows_done > self._rows_done:
            rows, at_work_seconds = (
                rows_done - self._rows_done,
                report.processing_seconds - self._at_work_seconds,
            )
            self.rate = self.rate.after(rows, now - self._measured_at)
            self.executor_rate = self.executor_rate.after(
                rows / max(report.executors, 1), at_work_seconds
            )
            self._rows_done, self._measured_at, self._at_work_seconds = (
                rows_done,
                now,
                report.processing_seconds,
            )
