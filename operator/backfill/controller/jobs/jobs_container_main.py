"""The program of the operator's second container,
which starts and ends job processes for the operator.

The operator and its jobs are thereby as separate as containers are: another user, another file
system without the service account's token, other processes, own limits. The container runs ``python
-m backfill.controller.jobs.jobs_container_main SOCKET``.

There is one connection between the two. This process makes it when it starts, before there is any
job, and no job can make it in its place, since the operator listens only while there is none. Over
it, the operator sends two sockets for each job. One is passed to the job's process, which
communicates with the operator directly, so that credentials and messages never pass through here.
The other is for what must be known of the process from outside; when the operator closes it, or
ends, the process is killed.

This process ends with its connection, and the kubelet starts it again. That also ends everything
that jobs may have left running.
"""

import argparse
import logging
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from backfill.api.redaction import Redactor, secrets_of_environment
from backfill.controller.jobs.framing import Frames
from backfill.controller.jobs.isolation import adopt_orphans, keep_memory_private, landlock_version
from backfill.controller.jobs.process import ConfinedChild

_LOG = logging.getLogger(__name__)
_LOOK_SECONDS = 0.05
_RETRY_SECONDS = 0.5
OWN_IDENTITY, NO_IDENTITY = b"1", b"0"
"""Sent with the sockets of a job: whether its process gets the environment variables that open the
operator's own catalogs.
"""


def main(arguments: Sequence[str]) -> int:
    """Serves the operator until it ends.

    The exit status is 0, since the container is to be started again.
    """
    parser = argparse.ArgumentParser(
        prog="python -m backfill.controller.jobs.jobs_container_main",
        description="Runs jobs for the operator.",
    )
    parser.add_argument("socket", type=Path, help="where the operator listens: its --jobs-socket")
    path = parser.parse_args(arguments).socket
    keep_memory_private()
    adopt_orphans()
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s"
    )
    # the first process of a container has no default action for it
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if not landlock_version():
        _LOG.warning(
            "this node's kernel has no Landlock: a job that is made to run foreign code could"
            " interfere with other jobs in this container; make namespaces that are not trusted"
            " plan in pods (planning.runIn: Pod)"
        )
    with connect(path) as operator:
        _LOG.info("connected to the operator")
        # the operator ends its jobs in time, and a job must not end all others
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, lambda *_: None)
        host = JobHost()
        try:
            host.serve(operator)
        finally:
            host.close()
    _LOG.info("the operator is gone")
    return 0


def connect(path: Path) -> socket.socket:
    """A connection to the operator, as soon as it listens."""
    said = False
    while True:
        operator = socket.socket(socket.AF_UNIX)
        try:
            operator.connect(str(path))
        except OSError as error:
            operator.close()
            if not said:
                _LOG.info("waiting for the operator to listen on %s (%s)", path, error)
            said = True
            time.sleep(_RETRY_SECONDS)
        else:
            return operator


class JobHost:
    """The processes of jobs, and everything that they start."""

    def __init__(self) -> None:
        self._hidden = Redactor(secrets_of_environment(os.environ))
        self._processes: set[int] = set()
        self._lock = threading.Lock()
        """Held while a process is started or ended,
        since until then it is a child that is not recorded.
        """

    def serve(self, operator: socket.socket) -> None:
        """Starts processes until the operator ends."""
        while True:
            try:
                content, descriptors, _, _ = socket.recv_fds(operator, 1, 2)
            except OSError:
                return
            if not content:
                return
            control, connection = (socket.socket(fileno=each) for each in descriptors)
            arguments = (Frames(control), control, connection, content == OWN_IDENTITY)
            threading.Thread(target=self._run, args=arguments, name="job", daemon=True).start()

    def close(self) -> None:
        """Ends all processes."""
        with self._lock:
            self._processes.clear()
            self._end_orphans()

    def _run(
        self, frames: Frames, control: socket.socket, connection: socket.socket, own_identity: bool
    ) -> None:
        """One process, from its start to its end."""
        try:
            with connection, self._lock:
                process = ConfinedChild(connection, own_identity)
                self._processes.add(process.pid)
        except OSError as error:
            end = {"ended": f"it could not be started: {error}", "printed": ""}
        else:
            self._watch(process, frames, control)
            with self._lock:
                how = process.ended() or "it was asked to end"
                process.close()
                self._processes.discard(process.pid)
                self._end_orphans()
            end = {"ended": how, "printed": self._hidden.text(process.printed)}
        with suppress(OSError):
            frames.send(end)
        frames.close()

    def _watch(self, process: ConfinedChild, frames: Frames, control: socket.socket) -> None:
        """Reports on the process until it has ended,
        or until the operator ends it or has ended itself.
        """
        with suppress(OSError):
            while process.ended() is None:
                if usage := process.usage:
                    frames.send(asdict(usage))
                if select.select([control], [], [], _LOOK_SECONDS)[0]:
                    return

    def _end_orphans(self) -> None:
        """Ends children that are no job's process: those that jobs have left running. Their own
        children are found the next time.
        """
        while orphans := set(_children()) - self._processes:
            for orphan in orphans:
                with suppress(ProcessLookupError, ChildProcessError):
                    os.kill(orphan, signal.SIGKILL)
                    os.waitpid(orphan, 0)


def _children() -> Iterator[int]:
    own = os.getpid()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == own:
                yield int(stat.parent.name)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
