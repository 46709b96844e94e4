"""A process of its own for jobs: the controller's end of it.

Tables are opened there and never in the controller. So a job can take memory and be ended at any
moment, and what one Backfill may know no other one sees.
"""

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from backfill.api.catalogs import GivenCatalog
from backfill.api.errors import BackfillError
from backfill.controller.jobs.codec import job_parts, message_of
from backfill.controller.jobs.frames import Frames
from backfill.controller.jobs.job import Job
from backfill.controller.jobs.messages import Message
from backfill.iceberg.addresses import Network

_MODULE = "backfill.controller.jobs.process_main"
_LAST_SECONDS = 1.0
PRINTED_BYTES = 32 * 1024
"""The most that is kept of what a process printed."""
_NEEDED = frozenset(
    {
        *(
            "PATH",
            "LANG",
            "TZ",
            "LD_LIBRARY_PATH",
            "PYTHONDONTWRITEBYTECODE",
            "PYTHONUNBUFFERED",
            "VIRTUAL_ENV",
        ),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
        *(
            "HTTP_PROXY",
            "HTTPS_PROXY",
            "NO_PROXY",
            "ALL_PROXY",
            "http_proxy",
            "https_proxy",
            "no_proxy",
            "all_proxy",
        ),
    }
)
_NEEDED_BEGINNINGS = ("LC_", "ARROW_", "MALLOC_")
_FEW_RESERVATIONS = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "2",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": str(min(os.cpu_count() or 1, 4)),
}
"""Libraries take few addresses that they do not fill, on a node with many cores as well, so that
the kernel can limit what a process takes: see ``process_main``.
"""
_WHERE_STORES_ARE = frozenset(
    {"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_CA_BUNDLE"}
)
_OWN_BEGINNINGS = ("AWS_", "GOOGLE_", "AZURE_", "PYICEBERG_")
"""What catalogs and stores are found with that have no Secret: for jobs that open such a catalog.
Nothing of Kubernetes, and no option of the operator.
"""
_NO_IDENTITY = {
    "AWS_EC2_METADATA_DISABLED": "true",
    "KRB5CCNAME": "MEMORY:",
    "PGGSSENCMODE": "disable",
}
"""For the other jobs: libraries do not ask the node who they are."""


@dataclass(frozen=True, slots=True)
class Confinement:
    """What a process may do that does a job for somebody who is not trusted with the controller."""

    catalogs: Mapping[str, GivenCatalog]
    """The catalogs it may open, by name; they go to it over the socket."""
    directories: tuple[Path, ...]
    """Where this machine's own files may be tables or workspaces."""
    addresses: tuple[Network, ...] = ()
    """Where it may connect to though these are the controller's surroundings,
    such as its loopback.
    """

    @property
    def own_identity(self) -> bool:
        """Whether it opens a catalog of the operator's own, with the operator's identity."""
        return any(catalog.own for catalog in self.catalogs.values())


class ProcessDied(Exception):  # noqa: N818 - what became of the process
    """The process ended without an answer. ``str()`` says how, for people."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process has taken of the machine."""

    resident: int
    """The memory it holds now, in bytes."""
    peak: int
    """The most memory it held, in bytes."""
    cpu_seconds: float
    """How long it has worked, in seconds of one core."""


class Process(Protocol):
    """A process that was started for jobs, wherever it is."""

    printed: str
    """The end of what it printed into no log, known once it is closed."""

    @property
    def usage(self) -> Usage | None:
        """What it has taken; None where that is unknown, as of one that has ended."""

    def ended(self, timeout_seconds: float = 0.0) -> str | None:
        """How it has ended, in words; None if it has not within the time."""

    def kill(self) -> None:
        """Ends it at once. May be called from any thread."""

    def close(self) -> None:
        """Ends it at once and releases everything."""


class _Child:
    """A process beside this one."""

    def __init__(self, process: "subprocess.Popen[bytes]"):
        self.printed = ""
        self._process = process

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    @property
    def usage(self) -> Usage | None:
        """What it has taken; None where that is unknown, as of one that has ended."""
        return _usage(self._process.pid)

    def ended(self, timeout_seconds: float = 0.0) -> str | None:
        """How it has ended, in words; None if it has not within the time."""
        try:
            status = self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            return None
        return (
            f"killed by signal {-status}, possibly for lack of memory"
            if status < 0
            else f"exit status {status}"
        )

    def kill(self) -> None:
        """Ends it at once. May be called from any thread."""
        self._process.kill()

    def close(self) -> None:
        """Ends it at once and releases everything."""
        self.kill()
        self._process.wait()


class ChildProcess(_Child):
    """A process beside this one, with this one's environment."""

    def __init__(self, connection: socket.socket, log: Path):
        """Starts it; that costs a fifth of a second,
        and with the first job another second for its libraries.

        Args:
            connection: its end of the conversation.
            log: takes what the process prints.
        """
        with log.open("ab") as output:
            super().__init__(
                _popen(connection, output.fileno(), {**os.environ, "PYTHONPATH": _import_path()})
            )


class ConfinedChild(_Child):
    """A process beside this one for somebody else's job: it has what jobs need of the environment,
    and a home of its own.
    """

    def __init__(self, connection: socket.socket, own_identity: bool):
        """Starts it.

        Args:
            connection: its end of the conversation.
            own_identity: whether it has the variables with which this machine's own catalogs and
                stores are opened.
        """
        self._home = tempfile.TemporaryDirectory(prefix="backfill-job-", ignore_cleanup_errors=True)
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - it has no name by which the process could replace it
        home = Path(self._home.name)
        environment = _environment(os.environ, home, own_identity=own_identity)
        super().__init__(_popen(connection, self._output.fileno(), environment, home))

    def close(self) -> None:
        """Ends it at once and releases everything."""
        super().close()
        if not self._output.closed:
            with self._output:  # a job may have printed more than fits into memory
                self._output.seek(
                    -min(PRINTED_BYTES, self._output.seek(0, os.SEEK_END)), os.SEEK_END
                )
                self.printed = self._output.read(PRINTED_BYTES).decode(errors="replace")
        self._home.cleanup()


class JobProcess:
    """The conversation with a process, which takes one job after the other. It ends when the
    controller is gone, after the job under way.
    """

    def __init__(
        self,
        start: Callable[[socket.socket], Process],
        confinement: Confinement | None = None,
        memory_bytes: int | None = None,
    ):
        """Starts the process.

        Args:
            start: starts it with its end of the conversation.
            confinement: without it the process is what the controller is: on a laptop both are the
                user's.
            memory_bytes: what it is to get by with. The kernel stops a leap a little above that,
                see ``process_main``; whoever reads the messages also looks at :attr:`usage`.
        """
        ours, theirs = socket.socketpair()
        self._job: Job | None = None
        self._frames = Frames(ours)
        try:
            with theirs:
                self._process = start(theirs)
        except BaseException:
            self._frames.close()
            raise
        self._begin = {"memory": memory_bytes, "confinement": _confinement_parts(confinement)}

    @property
    def alive(self) -> bool:
        """Whether it can take a job."""
        return self._process.ended() is None

    @property
    def usage(self) -> Usage | None:
        """What it has taken; None where that is unknown."""
        return self._process.usage

    @property
    def printed(self) -> str:
        """The end of what it printed into no log, known once it is closed."""
        return self._process.printed

    def send(self, job: Job) -> None:
        """Gives it a job.

        Raises:
            ProcessDied: there is nobody to take it.
        """
        first, self._begin = self._begin, {}
        self._job = job
        try:
            self._frames.send({**first, **job_parts(job)})
        except OSError:
            raise self._died() from None

    def receive(self, timeout_seconds: float = 0.0) -> Message | None:
        """Its next message; None when there is none within the time.

        Raises:
            ProcessDied: there will be none, or it says what no job says.
        """
        try:
            parts = self._frames.receive(timeout_seconds)
            if parts is None and self._process.ended() is not None:
                # its last words; whoever else holds its end of the socket is not heard
                parts = self._frames.receive(0.0)
                if parts is None:
                    raise EOFError
        except (EOFError, OSError):
            raise self._died() from None
        if parts is None or self._job is None:
            return None
        try:
            return message_of(self._job, parts)
        except BackfillError as error:
            self.kill()
            self._process.ended(_LAST_SECONDS)
            raise ProcessDied(str(error)) from None

    def kill(self) -> None:
        """Ends it at once. May be called from any thread, while another one waits for a message."""
        self._process.kill()

    def close(self) -> None:
        """Ends it at once and lets go of everything."""
        self._process.close()
        self._frames.close()

    def _died(self) -> ProcessDied:
        how = self._process.ended(_LAST_SECONDS)  # how it ends by itself says more
        if how is None:
            self.kill()
            how = self._process.ended(_LAST_SECONDS) or "it did not say how"
        return ProcessDied(f"the process that did the job ended unexpectedly ({how})")


def _popen(
    connection: socket.socket, output: int, environment: dict[str, str], home: Path | None = None
) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-P", "-m", _MODULE, str(connection.fileno())],
        env=environment,
        cwd=home,
        pass_fds=(connection.fileno(),),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        # Ctrl-C goes to every process of the terminal; it is the controller's to answer
        start_new_session=True,
    )


def _usage(pid: int) -> Usage | None:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    kilobytes = {
        line[:5]: int(line.split()[1])
        for line in status.splitlines()
        if line.startswith(("VmRSS", "VmHWM"))
    }
    if not kilobytes:
        return None  # it has ended
    cpu_seconds = (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")
    return Usage(kilobytes["VmRSS"] * 1024, kilobytes["VmHWM"] * 1024, cpu_seconds)


def _import_path() -> str:
    return os.pathsep.join(path or os.curdir for path in sys.path)


def _environment(own: Mapping[str, str], home: Path, *, own_identity: bool) -> dict[str, str]:
    beginnings = (*_NEEDED_BEGINNINGS, *(_OWN_BEGINNINGS if own_identity else ()))
    needed = {
        name: value
        for name, value in own.items()
        if name in _NEEDED | _WHERE_STORES_ARE or name.startswith(beginnings)
    }
    return {
        **needed,
        **_FEW_RESERVATIONS,
        **({} if own_identity else _NO_IDENTITY),
        "PYTHONPATH": _import_path(),
        "HOME": str(home),
        "TMPDIR": str(home),
    }


def _confinement_parts(confinement: Confinement | None) -> dict[str, Any] | None:
    if confinement is None:
        return None
    return {
        "directories": [str(directory) for directory in confinement.directories],
        "addresses": [str(network) for network in confinement.addresses],
        "refused": [host for host in (os.environ.get("KUBERNETES_SERVICE_HOST"),) if host],
        "catalogs": {
            name: {"properties": dict(given.properties), "own": given.own}
            for name, given in confinement.catalogs.items()
        },
    }
