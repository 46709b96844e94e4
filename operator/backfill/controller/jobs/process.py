"""Processes for jobs, as the controller sees them.

Tables are opened there and never in the controller. So a job can use much memory and be killed at
any time, and no Backfill can see what another one may know.
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

from backfill.api.catalog_properties import GivenCatalog
from backfill.api.errors import BackfillError
from backfill.controller.jobs.any_job import Job
from backfill.controller.jobs.codec import job_parts, message_of
from backfill.controller.jobs.framing import Frames
from backfill.controller.jobs.job_messages import Message
from backfill.iceberg.allowed_addresses import Network

_MODULE = "backfill.controller.jobs.process_main"
_LAST_SECONDS = 1.0
PRINTED_BYTES = 32 * 1024
"""Most bytes that are kept of what a process printed."""
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
"""Makes libraries reserve few addresses that they do not use, also on nodes with many cores, so
that the kernel can limit the memory of a process; see ``process_main``.
"""
_WHERE_STORES_ARE = frozenset(
    {"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_CA_BUNDLE"}
)
_OWN_BEGINNINGS = ("AWS_", "GOOGLE_", "AZURE_", "PYICEBERG_")
"""Prefixes of environment variables that open catalogs and object stores without a Secret, for jobs
that use them. Nothing of Kubernetes, and no option of the operator.
"""
_NO_IDENTITY = {
    "AWS_EC2_METADATA_DISABLED": "true",
    "KRB5CCNAME": "MEMORY:",
    "PGGSSENCMODE": "disable",
}
"""For all other jobs: libraries must not ask the node for an identity."""


@dataclass(frozen=True, slots=True)
class Confinement:
    """What a process that runs a job for somebody untrusted may do."""

    catalogs: Mapping[str, GivenCatalog]
    """The catalogs that it may open, by name. They are sent over the socket."""
    directories: tuple[Path, ...]
    """Directories of this machine in which tables and workspaces may be."""
    addresses: tuple[Network, ...] = ()
    """Addresses that it may connect to although they are reachable only from the operator,
    such as its loopback.
    """

    @property
    def own_identity(self) -> bool:
        """Whether it opens a catalog of the operator, with the operator's identity."""
        return any(catalog.own for catalog in self.catalogs.values())


class ProcessDied(Exception):  # noqa: N818 - what became of the process
    """The process ended without an answer. ``str()`` says how."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process uses."""

    resident: int
    """Current memory, in bytes."""
    peak: int
    """Peak memory, in bytes."""
    cpu_seconds: float
    """CPU time, in seconds of one core."""


class Process(Protocol):
    """A process for jobs, wherever it runs."""

    printed: str
    """The end of what it printed, if that is not in a log; complete once it is closed."""

    @property
    def usage(self) -> Usage | None:
        """What it uses; None if that is unknown, as after its end."""

    def ended(self, timeout_seconds: float = 0.0) -> str | None:
        """How it has ended, in words; None if it has not ended within this time."""

    def kill(self) -> None:
        """Kills it. May be called from any thread."""

    def close(self) -> None:
        """Kills it and releases everything."""


class _Child:
    """A child process."""

    def __init__(self, process: "subprocess.Popen[bytes]"):
        self.printed = ""
        self._process = process

    @property
    def pid(self) -> int:
        """Its process ID."""
        return self._process.pid

    @property
    def usage(self) -> Usage | None:
        """What it uses; None if that is unknown, as after its end."""
        return _usage(self._process.pid)

    def ended(self, timeout_seconds: float = 0.0) -> str | None:
        """How it has ended, in words; None if it has not ended within this time."""
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
        """Kills it. May be called from any thread."""
        self._process.kill()

    def close(self) -> None:
        """Kills it and releases everything."""
        self.kill()
        self._process.wait()


class ChildProcess(_Child):
    """A child process with the environment of this one."""

    def __init__(self, connection: socket.socket, log: Path):
        """Starts it.

        That takes a fifth of a second, and the first job takes another second to load libraries.

        Args:
            connection: its end of the connection.
            log: file for what the process prints.
        """
        with log.open("ab") as output:
            super().__init__(
                _popen(connection, output.fileno(), {**os.environ, "PYTHONPATH": _import_path()})
            )


class ConfinedChild(_Child):
    """A child process for the job of somebody else. It has only those environment variables that
    jobs need, and a home directory of its own.
    """

    def __init__(self, connection: socket.socket, own_identity: bool):
        """Starts it.

        Args:
            connection: its end of the connection.
            own_identity: whether it gets the environment variables that open this machine's own
                catalogs and stores.
        """
        self._home = tempfile.TemporaryDirectory(prefix="backfill-job-", ignore_cleanup_errors=True)
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - it has no name by which the process could replace it
        home = Path(self._home.name)
        environment = _environment(os.environ, home, own_identity=own_identity)
        super().__init__(_popen(connection, self._output.fileno(), environment, home))

    def close(self) -> None:
        """Kills it and releases everything."""
        super().close()
        if not self._output.closed:
            with self._output:  # a job may have printed more than fits into memory
                self._output.seek(
                    -min(PRINTED_BYTES, self._output.seek(0, os.SEEK_END)), os.SEEK_END
                )
                self.printed = self._output.read(PRINTED_BYTES).decode(errors="replace")
        self._home.cleanup()


class JobProcess:
    """The connection to a process, which runs one job after the other. It ends after the job in
    progress if the controller ends.
    """

    def __init__(
        self,
        start: Callable[[socket.socket], Process],
        confinement: Confinement | None = None,
        memory_bytes: int | None = None,
    ):
        """Starts the process.

        Args:
            start: starts it with its end of the connection.
            confinement: its limits. Without them it may do what the controller may: on one machine,
                both belong to the user.
            memory_bytes: its memory limit. The kernel stops a leap a little above that, see
                ``process_main``; the reader of the messages also checks :attr:`usage`.
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
        """What it uses; None if that is unknown."""
        return self._process.usage

    @property
    def printed(self) -> str:
        """The end of what it printed, if that is not in a log; complete once it is closed."""
        return self._process.printed

    def send(self, job: Job) -> None:
        """Sends it a job.

        Raises:
            ProcessDied: the process has ended.
        """
        first, self._begin = self._begin, {}
        self._job = job
        try:
            self._frames.send({**first, **job_parts(job)})
        except OSError:
            raise self._died() from None

    def receive(self, timeout_seconds: float = 0.0) -> Message | None:
        """Its next message; None if there is none within this time.

        Raises:
            ProcessDied: there will be no more, or it sent something that is not a message of a job.
        """
        try:
            parts = self._frames.receive(timeout_seconds)
            if parts is None and self._process.ended() is not None:
                # its last messages, not those of other processes with its end of the socket
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
        """Kills it. May be called from any thread, also while another one waits for a message."""
        self._process.kill()

    def close(self) -> None:
        """Kills it and releases everything."""
        self._process.close()
        self._frames.close()

    def _died(self) -> ProcessDied:
        how = self._process.ended(_LAST_SECONDS)  # how it ends by itself says more
        if how is None:
            self.kill()
            how = self._process.ended(_LAST_SECONDS) or "the reason is unknown"
        return ProcessDied(f"the process of the job ended unexpectedly ({how})")


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
        # Ctrl-C is sent to all processes of a terminal, and the controller responds to it
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
