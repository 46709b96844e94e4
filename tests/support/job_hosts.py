"""The container for jobs as a process beside the test: the same program, with nothing but its own
process to keep it apart.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from backfill.controller.manager.jobs_container_client import JobsContainer
from waiting import PATIENCE_SECONDS

PROGRAM = "backfill.controller.jobs.jobs_container_main"


class HostedPlace(JobsContainer):
    """Listens, and starts the container's program once; ``restart`` does what the kubelet does."""

    def __init__(
        self, *, program: str = PROGRAM, user: int | None = None, start: bool = True
    ) -> None:
        # pytest's are too long for a socket's path
        self.directory = Path(tempfile.mkdtemp(prefix="jobs-"))
        self.directory.chmod(0o755)
        self.path = self.directory / "socket"
        super().__init__(self.path, user)
        self._command = (sys.executable, "-P", "-m", program, str(self.path))
        self.hosts: list[subprocess.Popen[bytes]] = []
        if start:
            self.restart()

    def restart(self, **variables: str) -> None:
        """Starts the program with more variables, and it waits until it can connect."""
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | variables
        self.hosts.append(subprocess.Popen(self._command, env=environment))

    def close(self) -> None:
        super().close()
        for host in self.hosts:
            try:
                host.wait(PATIENCE_SECONDS)  # it ends by itself when the operator is gone
            except subprocess.TimeoutExpired:
                host.kill()
                host.wait()
        shutil.rmtree(self.directory, ignore_errors=True)
