"""The agent: a thread in the driver that passes the controller's releases to the sources, and
reports progress.

It does not decide what may be read. It ends the run when everything is committed, when it is asked
to stop, when a query has failed, when its reports are no longer read, or, without a report, when a
newer attempt is running.
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

from py4j.protocol import Py4JError, Py4JJavaError

from backfill.api.conditions import Reason
from backfill.api.errors import (
    BadInput,
    InvalidPlanInput,
    ResultLost,
    RunFailed,
    UnsupportedProgram,
)
from backfill.protocol.split_assignment import SplitAssignmentSpec, SplitAssignmentStatus
from backfill.runtime.agent.channel import Channel
from backfill.runtime.agent.executor_requests import Executors
from backfill.runtime.queries.failure_causes import (
    cause_of,
    fails_on_rows,
    lasting_cause,
    lines_of_text,
    spark_was_stopped,
    started_too_slowly,
)
from backfill.runtime.queries.lost_commits import LostCommits
from backfill.runtime.queries.run_state import (
    FINISHED,
    STOPPED,
    Outcome,
    Run,
    StartedQuery,
    failed,
    failed_for_good,
    failed_on_rows,
    result_lost,
    unsupported,
)

_PERIOD_SECONDS = 0.05
_CONTROLLER_CHECK_SECONDS = 5.0
_STEPS_TOLD_AHEAD = 4
"""Steps that streams are released at once. Enough that no query waits for the agent, and the most
that is read after a request to stop. Where the rate of rows is limited, a step takes long and is
released alone.
"""
_RESTARTS = 3
"""How often a query whose Python processes start too slowly is started again before the attempt
fails.
"""
CONTROLLER_GRACE_SECONDS = 30.0
"""Seconds that a driver continues without a controller."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Release:
    """What streams may read. Once ``stop`` is set, ``released`` never changes again."""

    released: int = 0
    """Number of steps that may be read."""
    stop: bool = False
    """Whether to stop after the released steps."""


class Agent(threading.Thread):
    """Runs until the run has ended and its last status is delivered; then ``reported`` is set."""

    def __init__(
        self,
        run: Run,
        channel: Channel,
        close: Callable[[StartedQuery], None],
        complete: Callable[[], bool],
        controller_grace_seconds: float = CONTROLLER_GRACE_SECONDS,
        *,
        executors: Executors | None = None,
        lost_commits: LostCommits | None = None,
    ):
        """``close`` stops a query that has committed everything, and records what it leaves open.
        ``complete`` then makes the results what is published, and compares them, as
        far as the Backfill asks for it; it returns False if it was stopped before it was done.
        ``executors`` defaults to those of the application's SparkContext.
        """
        super().__init__(name="backfill-agent", daemon=True)
        self._run = run
        self._channel = channel
        self._close = close
        self._complete = complete
        self._release: Release | None = None
        self._closing: threading.Thread | None = None
        self._reported: SplitAssignmentStatus | None = None
        self._controller = _ControllerWatch(channel, controller_grace_seconds)
        self._executors = executors or Executors()
        self._executors_at_work = 0
        self._lost_commits = lost_commits or LostCommits(run)
        self.reported = threading.Event()

    def run(self) -> None:
        """Checks the run periodically, then sends the last report."""
        while not self._run.over.wait(_PERIOD_SECONDS):
            try:
                self._turn()
            except Exception as error:
                _log.exception("the agent failed")
                self._run.end(failed(f"the agent failed: {error}"))
        self._report()
        self._channel.close()
        self.reported.set()

    def _turn(self) -> None:
        spec = self._assignment()
        if not self._run.stopping.is_set() and self._controller.gone():
            _log.warning(
                "the controller that reads the reports is gone; stopping after the released steps"
            )
            self._run.stopping.set()
        if spec is not None:
            if spec.stop:
                self._run.stopping.set()
            self._pass_on(spec)
        self._executors_at_work = self._executors.follow(
            spec.executor_target if spec is not None else None
        )
        self._watch_queries()
        self._report()

    def _assignment(self) -> SplitAssignmentSpec | None:
        settings, spec = self._run.settings, self._channel.assignment()
        if spec is None or spec.plan_id != settings.plan_id or spec.attempt < settings.attempt:
            return None
        if spec.attempt > settings.attempt:
            _log.error(
                "attempt %s is running; ending this one, attempt %s",
                spec.attempt,
                settings.attempt,
            )
            os._exit(1)
        return spec

    def _pass_on(self, spec: SplitAssignmentSpec) -> None:
        """Passes on to spans and streams how far they may read. Nothing is released after a stop.

        Everything that was passed on to streams is read, so that they stop at the same step.
        Therefore they get only a few steps at a time, however many are released.
        """
        old, tracker, in_turn = self._release or Release(), self._run.tracker, self._run.in_turn
        if old.stop:
            return
        self._run.release(max(spec.released, spec.released_ahead))
        slow = self._run.settings.max_rows_per_second is not None
        # a query that begins after others is released all that these have read: the limit of how
        # far queries may be apart is kept here
        ahead = 1 if slow else 2 if in_turn else _STEPS_TOLD_AHEAD
        near = max(min(spec.released, tracker.slowest + ahead), old.released)
        if in_turn and tracker.slowest == tracker.flushed:
            near = 0  # the next stream begins with the first step
        new = Release(near, self._run.stopping.is_set())
        if new != self._release:
            self._run.release_to_streams(near)
            self._release = new

    def _watch_queries(self) -> None:
        if self._closing is not None:
            return
        self._lost_commits.watch()
        overdue = self._run.overdue()
        if overdue is not None and not self._run.stopping.is_set():
            self._run.end(unsupported(overdue))
        elif self._ended_by_itself():
            return
        elif self._all_is_committed():
            self._start_closing(self._finish)
        elif self._run.stopping.is_set() and all(map(self._at_rest, self._run.queries)):
            self._start_closing(self._stop_queries)

    def _all_is_committed(self) -> bool:
        run = self._run
        started = not run.missing() and run.tracker.all_reached(run.tracker.flushed)
        return started and not (run.may_start_more or run.may_write_more or run.may_go_on)

    def _ended_by_itself(self) -> bool:
        for query in self._run.queries:
            try:
                if query.handle.isActive:
                    continue
                error = query.handle.exception()
            except (Py4JError, OSError) as gone:
                self._run.end(_connection_lost(gone))
                return True
            if not self._started_again(query, error):
                self._run.end(_outcome_of(query.name, error))
            return True
        return False

    def _started_again(self, query: StartedQuery, error: Exception | None) -> bool:
        """Starts a query again whose Python processes were slow to start: it continues from its
        checkpoint, as it would in another attempt.
        """
        if error is None or query.again is None or query.restarts == _RESTARTS:
            return False
        if not started_too_slowly(cause_of(error)):
            return False
        _log.warning("restarting the query %s: %s", query.name, cause_of(error))
        try:
            handle = query.again()
        except Exception:
            _log.exception("the query %s could not be restarted", query.name)
            return False
        if handle is None:
            return False
        self._run.started(replace(query, handle=handle, restarts=query.restarts + 1))
        return True

    def _at_rest(self, query: StartedQuery) -> bool:
        if query.batch is not None:
            return query.batch.at_rest
        return self._run.tracker.reached(query.name, self._last_offset())

    def _last_offset(self) -> int:
        """The offset at which every query stops after the sources were asked to stop."""
        released, tracker = self._release.released if self._release else 0, self._run.tracker
        return released if released < tracker.steps else tracker.flushed

    def _start_closing(self, close: Callable[[], None]) -> None:
        """Closes queries in a thread, because counting open results may take longer than the
        controller waits for a heartbeat.
        """
        self._closing = threading.Thread(
            target=self._end_by, args=(close,), name="backfill-closing", daemon=True
        )
        self._closing.start()

    def _end_by(self, close: Callable[[], None]) -> None:
        """Closes the queries. Nothing else watches them from here on, so if one cannot be closed,
        the run ends here.
        """
        try:
            close()
        except ResultLost as error:
            self._run.end(result_lost(error))
        except Exception as error:
            _log.exception("the queries could not be closed")
            self._run.end(
                failed(
                    f"the queries could not be closed: {cause_of(error) or type(error).__name__}",
                    error,
                )
            )

    def _finish(self) -> None:
        for query in self._run.queries:
            self._close(query)
        self._run.end(self._completed())

    def _completed(self) -> Outcome:
        """The outcome of a run after its results were completed and compared. If that fails or is
        stopped, another attempt finds everything committed, and only does this.
        """
        try:
            return FINISHED if self._complete() else STOPPED
        except ResultLost as error:
            return result_lost(error)
        except BadInput as error:
            return unsupported(error)
        except Exception as error:
            if self._run.stopping.is_set():
                return STOPPED
            if isinstance(error, RunFailed):  # it says what has failed
                return failed(str(error), error)
            what = "compared" if self._run.comparing else "completed"
            _log.exception("the results could not be %s", what)
            cause = cause_of(error) or type(error).__name__
            return failed(f"the results could not be {what}: {cause}", error)

    def _stop_queries(self) -> None:
        """Stops all queries. The method cannot be called ``_stop``, which Thread calls itself."""
        for query in self._run.queries:
            query.handle.stop()
        self._run.end(STOPPED)

    def _report(self) -> None:
        now = datetime.now(UTC)
        status = self._status(now)
        old = self._reported
        news = old is None or status.model_copy(update={"heartbeat": old.heartbeat}) != old
        if (
            old is not None
            and not news
            and (now - old.heartbeat).total_seconds() < self._channel.heartbeat_seconds
        ):
            return
        self._channel.report(status)
        self._reported = status

    def _tasks_percent(self, now: datetime, reads_ahead: int) -> int | None:
        """How far batch jobs are with their tasks: as reported last, unless a report is due."""
        old, pause = self._reported, self._channel.heartbeat_seconds
        if not reads_ahead or old is None or (now - old.heartbeat).total_seconds() < pause:
            return old.tasks_percent if reads_ahead and old is not None else None
        return self._executors.tasks_percent

    def _status(self, now: datetime) -> SplitAssignmentStatus:
        """The status to report. Until all queries have started that are to run at the same time,
        it repeats the report of the previous attempt: they have committed at least that.
        """
        run, outcome = self._run, self._run.outcome
        complete = run.in_turn or not run.missing()
        phase: Literal["Starting", "Running", "Finished", "Stopped", "Failed"]
        phase = outcome.phase if outcome else "Running" if complete else "Starting"
        reads_ahead = max(
            (query.batch.reads_ahead for query in run.queries if query.batch), default=0
        )
        return SplitAssignmentStatus(
            attempt=run.settings.attempt,
            phase=phase,
            queries=run.tracker.queries if complete else run.tracker.before,
            waiting_sources=tuple(sorted(run.tracker.unread_sources)) if run.in_turn else (),
            executors=self._executors_at_work,
            heartbeat=now,
            processing_seconds=run.tracker.busy_seconds,
            max_observed_misalignment_seconds=run.tracker.misalignment_seconds,
            reads_ahead_steps=reads_ahead,
            tasks_percent=self._tasks_percent(now, reads_ahead),
            hand_off=run.hand_off,
            comparing=run.comparing,
            comparisons=run.comparisons,
            deliveries=run.deliveries,
            reason=outcome.reason if outcome else "",
            message=outcome.message if outcome else run.waits_for,
        )


def _outcome_of(query: str, error: Exception | None) -> Outcome:
    """The outcome of a run in which a query has ended by itself."""
    if error is None:
        return failed(f"the query {query} was stopped from outside")
    if isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError):
        return _connection_lost(error)  # spans, which this process runs, are the first to notice
    if isinstance(error, UnsupportedProgram):
        return unsupported(error)
    if isinstance(error, ResultLost):  # of spans, which commit in this process
        return result_lost(error)
    cause = cause_of(error)
    if spark_was_stopped(cause):
        return failed(
            "Spark in the driver was stopped, for example because its pod was deleted, while the"
            f" query {query} was running: {cause}",
            error,
        )
    lasting = (
        (Reason.INVALID_INPUT, cause)
        if isinstance(error, InvalidPlanInput) and not error.may_pass
        else lasting_cause(cause)
    )
    if lasting is not None:
        return failed_for_good(*lasting, error)
    message = "\n".join([f"the query {query} failed: {cause}", *lines_of_text(error)])
    return failed_on_rows(message, error) if fails_on_rows(error) else failed(message, error)


def _connection_lost(error: Exception) -> Outcome:
    return failed(f"the driver lost its connection to Spark: {type(error).__name__}", error)


class _ControllerWatch:
    """Whether the controller has been away for longer than the grace period. Checks rarely, because
    each check takes the controller's lock for a moment.
    """

    def __init__(self, channel: Channel, grace_seconds: float):
        self._channel = channel
        self._grace = grace_seconds
        self._looked_at = self._alive_at = time.monotonic()

    def gone(self) -> bool:
        now = time.monotonic()
        if now - self._looked_at >= min(_CONTROLLER_CHECK_SECONDS, self._grace / 4):
            self._looked_at = now
            if self._channel.controller_alive():
                self._alive_at = now
        return now - self._alive_at > self._grace
