"""Runs jobs in a process beside the controller, so that steps are released and the screen is
updated in the meantime.
"""

from pathlib import Path

from backfill.api.errors import BackfillError
from backfill.controller.jobs.any_job import Job, JobState
from backfill.controller.jobs.job_messages import failed, with_message
from backfill.controller.local.job_process import JobProcess, ProcessDied

_SHOWN_LINES = 20


class Worker:
    """Runs one job at a time. The process is started for the first job and kept for later ones."""

    def __init__(self, log: Path, *, kept: bool = True):
        """``log`` is the file for what the process prints, which must not disturb the screen. If it
        is not ``kept``, errors have the end of it.
        """
        self._log = log
        self._kept = kept
        self._process: JobProcess | None = None
        self._state: JobState | None = None

    @property
    def state(self) -> JobState | None:
        """The job in progress, or the last one."""
        while self._running and self._receive():
            pass
        return self._state

    def start(self, job: Job) -> None:
        """Starts a job. A job in progress is abandoned."""
        self.cancel()
        if self._process is None or not self._process.alive:
            self.close()
            self._process = JobProcess(self._log)
        self._state = JobState(job, "Running")
        try:
            self._process.send(job)
        except ProcessDied as death:
            self._fail(self._state, death)

    def cancel(self) -> None:
        """Abandons the job in progress and forgets the last one."""
        if self.state is not None and self._running:
            self.close()
        self._state = None

    def close(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._process.close()
            self._process = None

    @property
    def _running(self) -> bool:
        return self._state is not None and self._state.phase == "Running"

    def _receive(self) -> bool:
        """Takes one message; False if there is none."""
        if self._state is None or self._process is None:
            return False
        try:
            message = self._process.receive()
        except ProcessDied as death:
            self._fail(self._state, death)
            return True
        if message is None:
            return False
        self._state = with_message(self._state, message, self._details())
        return True

    def _fail(self, state: JobState, death: ProcessDied) -> None:
        self.close()
        self._state = failed(state, BackfillError(f"{death}; see {self._details()}"))

    def _details(self) -> str:
        if self._kept or not self._log.exists():
            return str(self._log)
        lines = self._log.read_text(errors="replace").splitlines()[-_SHOWN_LINES:]
        return "\n".join(["what the process printed:", *lines])
