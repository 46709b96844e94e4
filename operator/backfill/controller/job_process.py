"""A process of its own for jobs: the controller's end of it.

Tables are opened there and never in the controller. So a job can take memory and be ended at any moment, and what one
Backfill may know (the environment the process was started with) no other one sees.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Literal

from backfill.api.errors import BackfillError
from backfill.controller.jobs import Job, JobState, Used
from backfill.planning.progress import PlanningProgress

_MODULE = "backfill.controller.job_main"


@dataclass(frozen=True, slots=True)
class Message:
    """What the process tells of its job."""

    kind: Literal["Progress", "Done", "Failed", "Broken", "OutOfMemory"]
    """``Failed``: by a deliberate error. ``Broken``: by any other. The last four end the job."""
    progress: PlanningProgress | None = None
    result: object = None
    error: BackfillError | None = None
    cause: str = ""
    """What broke it, in one line."""
    used: Used | None = None
    """At the end, where nobody can look at the process from outside."""


class ProcessDied(Exception):  # noqa: N818 - what became of the process
    """The process ended without an answer. ``str()`` says how, for people."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What a process holds of the machine's memory, in bytes."""

    resident: int
    peak: int


class JobProcess:
    """Takes one job after the other. It ends when the controller is gone, after the job under way."""

    def __init__(self, log: Path, environment: Mapping[str, str] | None = None, memory_bytes: int | None = None):
        """Starts it; that costs a fifth of a second, and with the first job another second for its libraries.

        Args:
            log: takes what the process prints.
            environment: variables beside the controller's own.
            memory_bytes: what it is to get by with. The kernel only stops a leap far above that, see ``job_main``;
                whoever reads the messages also looks at :attr:`memory`.
        """
        ours, theirs = socket.socketpair()
        arguments = [str(theirs.fileno()), *([str(memory_bytes)] if memory_bytes else [])]
        with theirs, log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", _MODULE, *arguments],
                env={**os.environ, **(environment or {}), "PYTHONPATH": os.pathsep.join(path or os.curdir for path in sys.path)},
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C goes to every process of the terminal; it is the controller's to answer
            )
        self._connection = Connection(ours.detach())

    @property
    def alive(self) -> bool:
        """Whether it can take a job."""
        return self._process.poll() is None

    @property
    def memory(self) -> Memory | None:
        """What it holds now and held at most; None where that can not be told."""
        try:
            status = Path(f"/proc/{self._process.pid}/status").read_text()
        except OSError:
            return None
        kilobytes = {line[:5]: int(line.split()[1]) for line in status.splitlines() if line.startswith(("VmRSS", "VmHWM"))}
        if not kilobytes:
            return None  # it has ended
        return Memory(kilobytes["VmRSS"] * 1024, kilobytes["VmHWM"] * 1024)

    def send(self, job: Job) -> None:
        """Gives it a job.

        Raises:
            ProcessDied: there is nobody to take it.
        """
        try:
            self._connection.send(job)
        except OSError:
            raise self._died() from None

    def receive(self, timeout_seconds: float = 0.0) -> Message | None:
        """Its next message; None when there is none within the time.

        Raises:
            ProcessDied: there will be none.
        """
        try:
            if not self._connection.poll(timeout_seconds):
                return None
            message: Message = self._connection.recv()
        except (EOFError, OSError):
            raise self._died() from None
        return message

    def kill(self) -> None:
        """Ends it at once. May be called from any thread, while another one waits for a message."""
        self._process.kill()

    def close(self) -> None:
        """Ends it at once and lets go of everything."""
        self.kill()
        self._process.wait()
        self._connection.close()

    def _died(self) -> ProcessDied:
        self.kill()
        status = self._process.wait()
        how = f"killed by signal {-status}, possibly for lack of memory" if status < 0 else f"exit status {status}"
        return ProcessDied(f"the process that did the job ended unexpectedly ({how})")


def told(state: JobState, message: Message, details: str) -> JobState:
    """A job's state after a message. ``details``: where a person finds what the process printed."""
    state = replace(state, used=message.used)
    match message.kind:
        case "Progress":
            return replace(state, progress=message.progress)
        case "Done":
            return replace(state, phase="Done", result=message.result)
        case "Failed":
            return failed(state, message.error or BackfillError(message.cause))
        case "OutOfMemory":
            return failed(state, BackfillError(f"there is not enough memory for the job (details in {details})"))
        case "Broken":
            return failed(state, BackfillError(f"{message.cause} (details in {details})"))


def failed(state: JobState, error: BackfillError) -> JobState:
    """The state of a job that failed."""
    return replace(state, phase="Failed", error=error)
