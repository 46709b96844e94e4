"""Runs jobs in processes of the operator: a few at a time,
each in a new process with limited memory.

A process serves one job. So the credentials of a Backfill's catalogs are in the memory of its own
process only, and the memory of a large plan is released.
"""

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal, Protocol

from backfill.api.catalog_properties import GivenCatalog
from backfill.api.errors import BackfillError, first_line
from backfill.api.redaction import redactor
from backfill.controller.jobs.any_job import Job, JobState, job_kind
from backfill.controller.jobs.fair_threads import FairThreads, Ticket
from backfill.controller.jobs.job_messages import Message, failed, log_text, with_message
from backfill.controller.jobs.process import (
    ConfinedChild,
    Confinement,
    JobProcess,
    Process,
    ProcessDied,
)
from backfill.iceberg.allowed_addresses import Network
from backfill.kube.object_names import Key

_LOG = logging.getLogger(__name__)
_MIB = 2**20
_LOOK_SECONDS = 0.05
"""Seconds between two checks of a process's memory, which cannot grow by much more than a hundred
megabytes in between.
"""
_NEWS_SECONDS = 1.0
"""Seconds between two calls of ``on_change`` in which only progress has changed."""
_SOME_WORK_SECONDS = 0.05
"""CPU seconds that count as work: less than a request takes,
and more than waiting for minutes does.
"""
PLACE_SECONDS = 60.0
"""Seconds that a job waits for the container that is to run it."""


@dataclass(frozen=True, slots=True)
class JobUsage:
    """What a job has used, for metrics."""

    key: Key
    kind: str
    """``plan``, ``extend``, ``recover``, ``verify``, ``settle``, ``publish`` or ``discard``."""
    outcome: Literal["Done", "Failed"]
    waited_seconds: float
    """Waiting for its turn, and for its pod to start."""
    seconds: float
    """Duration, including the start of its process."""
    peak_bytes: int | None
    """Peak memory of its process; None if it is unknown, as for a pod that ended without a report.
    """


class JobPlace(Protocol):
    """Where job processes are started."""

    def ready(self, timeout_seconds: float) -> bool:
        """Whether a process can be started, within this time."""

    def start(self, connection: socket.socket, own_identity: bool) -> Process:
        """Starts a process with its end of the connection, with or without the operator's identity
        for its own catalogs.

        Raises:
            BackfillError: it cannot be started now.
        """

    def close(self) -> None:
        """Ends the place: no more processes are started."""


class BesideOperator:
    """Starts job processes as children of the operator: on one machine, or in a pod without a
    container for jobs.
    """

    def ready(self, timeout_seconds: float) -> bool:
        """True: processes can always be started."""
        return True

    def start(self, connection: socket.socket, own_identity: bool) -> Process:
        """Starts a process with its end of the connection."""
        return ConfinedChild(connection, own_identity)

    def close(self) -> None:
        """Does nothing."""


class JobPool:
    """A limited number of job processes for all Backfills. Namespaces share them; within a
    namespace, the job that has waited longest is next.
    """

    def __init__(
        self,
        catalogs: Callable[[Key], Mapping[str, GivenCatalog]],
        *,
        place: JobPlace | None = None,
        directories: tuple[Path, ...] = (),
        addresses: tuple[Network, ...] = (),
        processes: int = 2,
        memory_bytes: int = 1536 * _MIB,
        longest_seconds: float = 3600.0,
        idle_seconds: float = 300.0,
        namespaces: Callable[[], int] = lambda: 1,
        on_used: Callable[[JobUsage], None] = lambda usage: None,
    ):
        """Starts no process before there is a job.

        Args:
            catalogs: returns the catalogs that a Backfill's jobs may open; called before each job
                in a thread of the pool. If it raises a BackfillError, the job fails with that.
            place: where processes are started, by default beside the operator. It is closed with
                the pool.
            directories: where tables and workspaces may be on the machine or in the container of
                the jobs.
            addresses: addresses that jobs may connect to although they are reachable only from the
                operator, such as its loopback.
            processes: number of jobs at the same time.
            memory_bytes: memory limit of each job.
            longest_seconds: time limit of each job, so that a catalog that never answers does not
                block the others.
            idle_seconds: how long a job may do nothing, as when it waits for an answer that never
                comes.
            namespaces: returns the number of namespaces that have Backfills. If there are several,
                none has more than half of the processes.
            on_used: called for each job that has ended, in a thread of the pool.
        """
        self.catalogs = catalogs
        self.place: JobPlace = place or BesideOperator()
        self.directories = directories
        self.addresses = addresses
        self.memory_bytes = memory_bytes
        self.longest_seconds = longest_seconds
        self.idle_seconds = idle_seconds
        self.on_used = on_used
        self._threads = FairThreads(processes, namespaces)
        self._runners: set[PooledJobs] = set()

    def runner(self, key: Key, on_change: Callable[[], None]) -> "PooledJobs":
        """The jobs of one Backfill. ``on_change`` is called when their state has changed, in a
        thread of the pool.
        """
        runner = PooledJobs(self, key, on_change)
        self._runners.add(runner)
        return runner

    def submit(self, key: Key, work: Callable[[], None]) -> Ticket:
        """Queues work for a Backfill."""
        return self._threads.submit(key, work)

    def cancel(self, ticket: Ticket) -> None:
        """Removes a ticket from the queue."""
        self._threads.cancel(ticket)

    def forget(self, runner: "PooledJobs") -> None:
        """Removes the jobs of a Backfill that no longer exists."""
        self._runners.discard(runner)

    def close(self) -> None:
        """Abandons all jobs. The next operator repeats them."""
        self._threads.close()
        for runner in list(self._runners):
            runner.close()
        self._threads.join()
        self.place.close()


@dataclass(slots=True, eq=False)
class _Run:
    """One job, from the queue to its end.

    Only the thread that runs it starts its process; any thread may abandon it.
    """

    job: Job
    queued_at: float = field(default_factory=time.monotonic)
    _abandoned: bool = False
    _process: JobProcess | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def abandoned(self) -> bool:
        """Whether nobody waits for it any more."""
        with self._lock:
            return self._abandoned

    def take(self, process: JobProcess) -> bool:
        """Records the process; returns False if the job was abandoned."""
        with self._lock:
            self._process = process
            return not self._abandoned

    def abandon(self) -> None:
        with self._lock:
            self._abandoned = True
            if self._process is not None:
                self._process.kill()


class PooledJobs:
    """Runs the jobs of one Backfill in processes of the pool, one at a time."""

    def __init__(self, pool: JobPool, key: Key, on_change: Callable[[], None]):
        self._pool = pool
        self._key = key
        self._on_change = on_change
        self._lock = threading.Lock()
        self._run: _Run | None = None
        self._ticket: Ticket | None = None
        self._state: JobState | None = None

    @property
    def state(self) -> JobState | None:
        """The job in progress, or the last one."""
        return self._state

    def start(self, job: Job) -> None:
        """Starts a job when its turn comes. A job in progress is abandoned."""
        self.cancel()
        run = _Run(job)
        with self._lock:
            self._run, self._state = run, JobState(job, "Running", waits_for="its turn")
        self._ticket = self._pool.submit(self._key, lambda: self._work(run))

    def cancel(self) -> None:
        """Abandons the job in progress, or its place in the queue, and forgets the last one."""
        with self._lock:
            run, self._run, self._state = self._run, None, None
        if run is not None:
            run.abandon()
        if self._ticket is not None:
            self._pool.cancel(self._ticket)

    def close(self) -> None:
        """Ends all work; nothing can be started afterwards."""
        self.cancel()
        self._pool.forget(self)

    def _work(self, run: _Run) -> None:
        state, began = JobState(run.job, "Running"), time.monotonic()
        if not self._record(run, state):
            return
        peak_bytes: int | None = None
        try:
            state, peak_bytes = self._do(run, state)
        except BackfillError as error:
            state = failed(state, error)
        except Exception as error:
            _LOG.exception("a job could not be done", extra={"backfill": "/".join(self._key)})
            state = failed(
                state,
                BackfillError(
                    f"{type(error).__name__}: {first_line(error)} (details in the operator's log)"
                ),
            )
        now = time.monotonic()
        if self._record(run, state):
            outcome: Literal["Done", "Failed"] = "Done" if state.phase == "Done" else "Failed"
            usage = (
                job_kind(type(run.job)),
                outcome,
                began - run.queued_at,
                now - began,
                peak_bytes,
            )
            self._pool.on_used(JobUsage(self._key, *usage))

    def _do(self, run: _Run, state: JobState) -> tuple[JobState, int]:
        pool = self._pool
        if not self._wait_for_place(run, state):
            return state, 0
        catalogs = pool.catalogs(self._key)
        confinement = Confinement(catalogs, pool.directories, pool.addresses)
        start = partial(pool.place.start, own_identity=confinement.own_identity)
        watch = _Watch(JobProcess(start, confinement, pool.memory_bytes), pool.memory_bytes)
        try:
            state = self._follow(run, state, watch)
        finally:
            watch.process.close()
        if isinstance(state.error, BackfillError):
            hidden = redactor(catalogs, os.environ)
            error = hidden.error(state.error)
            state = failed(state, error)
            self._log(state.job, error, hidden.text(watch.process.printed))
        return state, watch.peak_bytes

    def _wait_for_place(self, run: _Run, state: JobState) -> bool:
        """Waits until a process can be started; returns False if the job was abandoned."""
        place, deadline = self._pool.place, time.monotonic() + PLACE_SECONDS
        if place.ready(0.0):
            return True
        if not self._record(run, replace(state, waits_for="the operator's container for jobs")):
            return False
        while not place.ready(_LOOK_SECONDS):
            if run.abandoned:
                return False
            if time.monotonic() > deadline:
                raise BackfillError(
                    f"the operator's container for jobs has not started in {PLACE_SECONDS:,.0f} s;"
                    " check the operator's pods with kubectl describe"
                )
        return self._record(run, state)

    def _follow(self, run: _Run, state: JobState, watch: "_Watch") -> JobState:
        """Follows the job until it ends, and reports progress at intervals."""
        deadline, recorded_at, unlogged = (
            time.monotonic() + self._pool.longest_seconds,
            -_NEWS_SECONDS,
            False,
        )
        try:
            if not run.take(watch.process):
                return state
            watch.process.send(run.job)
            while state.phase == "Running":
                message = watch.look()
                if watch.over or (message is not None and message.kind == "OutOfMemory"):
                    return failed(state, self._too_large(run.job))
                if time.monotonic() > deadline:
                    return failed(
                        state,
                        self._too_long(run.job, self._pool.longest_seconds, "has not finished"),
                    )
                if watch.idle_seconds > self._pool.idle_seconds:
                    return failed(
                        state,
                        self._too_long(run.job, self._pool.idle_seconds, "has made no progress"),
                    )
                if message is not None:
                    state, unlogged = with_message(state, message, "the operator's log"), True
                if (
                    state.phase == "Running"
                    and unlogged
                    and time.monotonic() - recorded_at >= _NEWS_SECONDS
                ):
                    self._record(run, state)
                    recorded_at, unlogged = time.monotonic(), False
        except ProcessDied as death:
            return failed(state, BackfillError(f"{death} (details in the operator's log)"))
        return state

    def _too_long(self, job: Job, seconds: float, what: str) -> BackfillError:
        return BackfillError(
            f"the {job_kind(type(job))} job {what} in {seconds:,.0f} s;"
            " check the catalog and object store"
        )

    def _too_large(self, job: Job) -> BackfillError:
        mebibytes = self._pool.memory_bytes // _MIB
        return BackfillError(
            f"the {job_kind(type(job))} job needs more than {mebibytes:,} MiB of memory: raise the"
            " operator's --job-memory, or set planning.runIn: Pod"
        )

    def _record(self, run: _Run, state: JobState) -> bool:
        """Records a new state; returns False if the job was abandoned."""
        with self._lock:
            if self._run is not run:
                return False
            self._state = state
        self._on_change()
        return True

    def _log(self, job: Job, error: BackfillError, printed: str) -> None:
        extra = {"backfill": "/".join(self._key), "job": job_kind(type(job))}
        _LOG.warning("%s", log_text(error, printed.splitlines()), extra=extra)


class _Watch:
    """The messages and the memory of a process."""

    def __init__(self, process: JobProcess, memory_bytes: int):
        self.process = process
        self.over = False
        """Whether it exceeded its memory, and was killed."""
        self.peak_bytes = 0
        self._memory_bytes = memory_bytes
        self._worked_seconds = 0.0
        self._worked_at = time.monotonic()

    @property
    def idle_seconds(self) -> float:
        """How long the process has neither sent a message nor worked."""
        usage = self.process.usage
        worked = usage.cpu_seconds if usage is not None else 0.0
        if worked - self._worked_seconds >= _SOME_WORK_SECONDS:
            self._worked_seconds, self._worked_at = worked, time.monotonic()
        return time.monotonic() - self._worked_at

    def look(self) -> Message | None:
        """Waits a moment for the next message, and checks the memory of the process."""
        message = self.process.receive(_LOOK_SECONDS)
        if message is not None:
            self._worked_at = time.monotonic()
        usage = self.process.usage
        if usage is not None:
            self.peak_bytes = max(self.peak_bytes, usage.peak)
        at_work = message is None or message.kind == "Progress"
        if at_work and usage is not None and usage.resident > self._memory_bytes:
            self.over = True
            self.process.kill()
        return message
