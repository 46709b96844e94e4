"""The child process that runs the jobs of a local run, one after the other, and the controller's
end of it.

The two exchange as JSON what :mod:`~backfill.controller.jobs.codec` makes of jobs and messages. The
process ends when the controller does.
"""

import json
import os
import subprocess
import sys
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from backfill.api.errors import BackfillError
from backfill.controller.jobs.any_job import Job
from backfill.controller.jobs.codec import job_of, job_parts, message_of, message_parts
from backfill.controller.jobs.job_messages import Message

_LAST_SECONDS = 2.0


class ProcessDied(Exception):  # noqa: N818 - what became of the process
    """The process ended before its job did. ``str()`` says how."""


class JobProcess:
    """The process, as the controller sees it."""

    def __init__(self, log: Path):
        """Starts it: a fifth of a second; its first job takes another second to load libraries.

        ``log`` is the file for what it prints.
        """
        self._job: Job | None = None
        self._messages, theirs = Pipe()
        with theirs, log.open("ab") as output:
            self._process = self._start(theirs, output.fileno())

    @staticmethod
    def _start(connection: Connection, output: int) -> "subprocess.Popen[bytes]":
        import_path = os.pathsep.join(path or os.curdir for path in sys.path)
        return subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, str(connection.fileno())],
            env={**os.environ, "PYTHONPATH": import_path},
            pass_fds=(connection.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            # Ctrl-C is sent to all processes of a terminal, and the controller responds to it
            start_new_session=True,
        )

    @property
    def alive(self) -> bool:
        """Whether it can take a job."""
        return self._process.poll() is None

    def send(self, job: Job) -> None:
        """Sends it a job.

        Raises:
            ProcessDied: it has ended.
        """
        self._job = job
        try:
            _send(self._messages, job_parts(job))
        except OSError:
            raise self._died() from None

    def receive(self) -> Message | None:
        """Its next message; None if there is none yet.

        Raises:
            ProcessDied: there will be no more.
        """
        if self._job is None or not self._messages.poll():
            return None
        try:
            return message_of(self._job, _receive(self._messages))
        except (EOFError, OSError, BackfillError):
            raise self._died() from None

    def close(self) -> None:
        """Kills it and releases everything."""
        self._process.kill()
        self._process.wait()
        self._messages.close()

    def _died(self) -> ProcessDied:
        try:
            status = self._process.wait(_LAST_SECONDS)  # how it ends by itself says more
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        how = (
            f"killed by signal {-status}, possibly for lack of memory"
            if status < 0
            else f"exit status {status}"
        )
        return ProcessDied(f"the process of the job ended unexpectedly ({how})")


def _send(connection: Connection, parts: dict[str, Any]) -> None:
    connection.send_bytes(json.dumps(parts).encode())


def _receive(connection: Connection) -> Any:
    return json.loads(connection.recv_bytes())


def serve(connection: Connection) -> None:
    """Runs jobs until the controller ends."""
    from backfill.controller.jobs.run_job import run_job
    from backfill.iceberg.answer_limits import bound_answers

    bound_answers()
    while True:
        try:
            job = job_of(_receive(connection))

            def tell(message: Message, job: Job = job) -> None:
                _send(connection, message_parts(job, message))

            tell(run_job(job, lambda progress: tell(Message("Progress", progress=progress))))
        except (EOFError, OSError):
            return


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])))
