"""One process beside the controller for what takes longer than a turn, so that releases and the screen go on meanwhile."""

import multiprocessing
import os
import signal
import sys
import traceback
from dataclasses import replace
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from backfill.api.errors import BackfillError
from backfill.controller.jobs import Job, JobState

_LOG_MODE = 0o644


class Worker:
    """Does one job at a time. The process is started with the first job and kept for the next ones."""

    def __init__(self, log: Path):
        """``log`` takes what the process prints: it must not disturb the screen."""
        self._log = log
        self._process: BaseProcess | None = None
        self._connection: Connection | None = None
        self._state: JobState | None = None

    @property
    def state(self) -> JobState | None:
        """The job under way or done last, as far as is known now."""
        while self._state is not None and self._state.phase == "Running" and self._receive():
            pass
        return self._state

    def start(self, job: Job) -> None:
        """Begins a job and abandons one that is under way."""
        if self.state is not None and self._state is not None and self._state.phase == "Running":
            self.close()
        if self._process is None or not self._process.is_alive():
            self._start_process()
        self._state = JobState(job, "Running")
        if self._connection is not None:
            self._connection.send(job)

    def cancel(self) -> None:
        """Abandons the job under way and forgets the last one."""
        if self._state is not None and self._state.phase == "Running":
            self.close()
        self._state = None

    def close(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _start_process(self) -> None:
        self.close()
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, self._log), name="backfill-worker", daemon=True)
        # Ctrl-C goes to every process of the terminal; it is the controller's to answer, even while this one starts.
        resource_tracker.ensure_running()  # would unblock signals on its own start
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        theirs.close()

    def _receive(self) -> bool:
        """Takes one message, if there is one."""
        if self._state is None or self._connection is None or not self._connection.poll():
            return False
        try:
            kind, value = self._connection.recv()
        except (EOFError, OSError):
            self.close()
            message = f"the worker process ended unexpectedly, possibly for lack of memory; see {self._log}"
            self._state = replace(self._state, phase="Failed", error=BackfillError(message))
            return True
        if kind == "progress":
            self._state = replace(self._state, progress=value)
        elif kind == "done":
            self._state = replace(self._state, phase="Done", result=value)
        else:
            self._state = replace(self._state, phase="Failed", error=value)
        return True


def _serve(connection: Connection, log: Path) -> None:
    """What the process does: a job after the other, until the controller is gone."""
    _print_to(log)
    while True:
        try:
            job: Job = connection.recv()
        except (EOFError, OSError):
            return
        try:
            answer: tuple[str, object] = ("done", job.run(lambda progress: connection.send(("progress", progress))))
        except BackfillError as error:
            answer = ("failed", error)
        except Exception as error:
            traceback.print_exc()
            answer = ("failed", BackfillError(f"{type(error).__name__}: {_first_line(error)} (details in {log})"))
        try:
            connection.send(answer)
        except OSError:
            return


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "")


def _print_to(log: Path) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, _LOG_MODE)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(descriptor, stream.fileno())
