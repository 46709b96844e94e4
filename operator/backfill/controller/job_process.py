"""A process of its own for jobs: the controller's end of it.

Tables are opened there and never in the controller. So a job can take memory and be ended at any moment, and what one
Backfill may know no other one sees.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backfill.api.catalogs import GivenCatalog
from backfill.api.errors import BackfillError
from backfill.controller.frames import Frames
from backfill.controller.job_codec import job_parts, message_of
from backfill.controller.jobs import Job
from backfill.controller.messages import Message
from backfill.planning.addresses import Network

_MODULE = "backfill.controller.job_main"
_LAST_SECONDS = 1.0
_NEEDED = frozenset(
    {
        *("PATH", "LANG", "TZ", "LD_LIBRARY_PATH", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "VIRTUAL_ENV"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
        *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy"),
    }
)
_NEEDED_BEGINNINGS = ("LC_", "ARROW_", "OMP_", "MALLOC_")
_WHERE_STORES_ARE = frozenset({"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_CA_BUNDLE"})
_OWN_BEGINNINGS = ("AWS_", "GOOGLE_", "AZURE_", "PYICEBERG_")
"""What catalogs and stores are found with that have no Secret: for jobs that open such a catalog. Nothing of Kubernetes, and no
option of the operator."""
_NO_IDENTITY = {"AWS_EC2_METADATA_DISABLED": "true", "KRB5CCNAME": "MEMORY:", "PGGSSENCMODE": "disable"}
"""For the other jobs: libraries do not ask the node who they are."""


@dataclass(frozen=True, slots=True)
class Confinement:
    """What a process may do that does a job for somebody who is not trusted with the controller."""

    catalogs: Mapping[str, GivenCatalog]
    """The catalogs it may open, by name; they go to it over the socket."""
    directories: tuple[Path, ...]
    """Where this machine's own files may be tables or workspaces."""
    home: Path
    """An empty directory for its own files, which nobody else uses."""
    addresses: tuple[Network, ...] = ()
    """Where it may connect to though these are the controller's surroundings, such as its loopback."""


class ProcessDied(Exception):  # noqa: N818 - what became of the process
    """The process ended without an answer. ``str()`` says how, for people."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What a process holds of the machine's memory, in bytes."""

    resident: int
    peak: int


class JobProcess:
    """Takes one job after the other. It ends when the controller is gone, after the job under way."""

    def __init__(self, log: Path, confinement: Confinement | None = None, memory_bytes: int | None = None):
        """Starts it; that costs a fifth of a second, and with the first job another second for its libraries.

        Args:
            log: takes what the process prints.
            confinement: without it the process is what the controller is: on a laptop both are the user's.
            memory_bytes: what it is to get by with. The kernel only stops a leap far above that, see ``job_main``;
                whoever reads the messages also looks at :attr:`memory`.
        """
        ours, theirs = socket.socketpair()
        self._job: Job | None = None
        with theirs, log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", _MODULE, str(theirs.fileno())],
                env=_environment(os.environ, confinement),
                cwd=confinement.home if confinement else None,
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C goes to every process of the terminal; it is the controller's to answer
            )
        self._frames = Frames(ours)
        self._begin = {"memory": memory_bytes, "confinement": _confinement_parts(confinement)}

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

    @property
    def cpu_seconds(self) -> float:
        """How long it has worked, in seconds of one core; zero where that cannot be known."""
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

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
        except (EOFError, OSError):
            raise self._died() from None
        if parts is None or self._job is None:
            return None
        try:
            return message_of(self._job, parts)
        except BackfillError as error:
            self.kill()
            self._process.wait()
            raise ProcessDied(str(error)) from None

    def kill(self) -> None:
        """Ends it at once. May be called from any thread, while another one waits for a message."""
        self._process.kill()

    def close(self) -> None:
        """Ends it at once and lets go of everything."""
        self.kill()
        self._process.wait()
        self._frames.close()

    def _died(self) -> ProcessDied:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_LAST_SECONDS)  # how it ends by itself says more
        self.kill()
        status = self._process.wait()
        how = f"killed by signal {-status}, possibly for lack of memory" if status < 0 else f"exit status {status}"
        return ProcessDied(f"the process that did the job ended unexpectedly ({how})")


def _environment(own: Mapping[str, str], confinement: Confinement | None) -> dict[str, str]:
    path = os.pathsep.join(path or os.curdir for path in sys.path)
    if confinement is None:
        return {**own, "PYTHONPATH": path}
    uses_own = any(catalog.own for catalog in confinement.catalogs.values())
    beginnings = (*_NEEDED_BEGINNINGS, *(_OWN_BEGINNINGS if uses_own else ()))
    needed = {name: value for name, value in own.items() if name in _NEEDED | _WHERE_STORES_ARE or name.startswith(beginnings)}
    return {
        **needed,
        **({} if uses_own else _NO_IDENTITY),
        "PYTHONPATH": path,
        "HOME": str(confinement.home),
        "TMPDIR": str(confinement.home),
    }


def _confinement_parts(confinement: Confinement | None) -> dict[str, Any] | None:
    if confinement is None:
        return None
    return {
        "home": str(confinement.home),
        "directories": [str(directory) for directory in confinement.directories],
        "addresses": [str(network) for network in confinement.addresses],
        "refused": [host for host in (os.environ.get("KUBERNETES_SERVICE_HOST"),) if host],
        "catalogs": {
            name: {"properties": dict(given.properties), "own": given.own} for name, given in confinement.catalogs.items()
        },
    }
