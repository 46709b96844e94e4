"""The command line with the fake driver in the place of Spark: everything else is the real
thing.

Commands and their job processes are forked from a process that has imported what they need, which
is most of what a command on a few rows computes.
"""

import functools
import multiprocessing
import os
import signal
import sys
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from backfill.cli.local import foreground_controller
from backfill.cli.main import main
from backfill.controller.local import job_process
from backfill.controller.local_driver.backend import LocalBackend
from waiting import PATIENCE_SECONDS

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    [
        "backfill.cli.local.commands",
        "backfill.cli.main",
        "backfill.controller.jobs.run_job",
        "backfill.outputs.cleanup",
        "backfill.outputs.publication",
        "backfill.outputs.undo_publication",
        "backfill.planning.planner",
        "pyiceberg.catalog.sql",
    ]
)


class Command:
    """A command in a process of its own."""

    def __init__(self, arguments: list[str], directory: Path, environment: dict[str, str]):
        said = directory / "said"
        said.mkdir(exist_ok=True)
        number = len(list(said.iterdir()))
        self._files = (said / f"{number}.out", said / f"{number}.err")
        for file in self._files:
            file.touch()
        self._process: BaseProcess = _FORKS.Process(
            target=_run, args=(arguments, directory, environment, self._files)
        )
        self._process.start()

    def send_signal(self, number: signal.Signals) -> None:
        """Sends it a signal if it has not ended."""
        if self._process.is_alive() and self._process.pid is not None:
            os.kill(self._process.pid, number)

    @property
    def printed(self) -> str:
        """What it has printed so far."""
        return self._files[0].read_text()

    def end(self) -> tuple[int, str, str]:
        """Waits for it. Its exit status, and what it printed."""
        self._process.join(PATIENCE_SECONDS)
        status = self._process.exitcode
        out, err = (file.read_text() for file in self._files)
        assert status is not None, f"it does not end: {out}{err}"
        return status, out, err


class _ForkedJobs:
    """A job process, as ``Popen`` shows it."""

    def __init__(self, connection: Connection, output: int):
        self._process = multiprocessing.get_context("fork").Process(
            target=_do_jobs, args=(connection, output), daemon=True
        )
        self._process.start()

    def poll(self) -> int | None:
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()

    def wait(self, timeout: float | None = None) -> int | None:
        self._process.join(timeout)
        return self._process.exitcode


def _run(
    arguments: list[str], directory: Path, environment: dict[str, str], files: tuple[Path, Path]
) -> None:
    from pyiceberg import catalog
    from pyiceberg.utils.config import Config

    os.environ.clear()
    os.environ.update(environment)
    catalog._ENV_CONFIG = Config()  # read from the environment when it was imported
    os.chdir(directory)
    for descriptor, file in enumerate(files, start=1):
        _write_to(file, descriptor)
    sys.argv = ["backfill", *arguments]
    job_process.JobProcess._start = staticmethod(_ForkedJobs)  # type: ignore[method-assign,assignment]
    command = (sys.executable, str(Path(__file__).with_name("fake_driver.py")))
    foreground_controller.LocalBackend = functools.partial(LocalBackend, command=command)  # type: ignore[misc,assignment]
    main()


def _do_jobs(connection: Connection, output: int) -> None:
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    # The controller's locks and connections are its own: they end with it.
    for descriptor in [int(each.name) for each in Path("/proc/self/fd").iterdir()]:
        if descriptor > 2 and descriptor != connection.fileno():
            # ignores that the descriptor of the list itself is closed by then
            os.closerange(descriptor, descriptor + 1)
    job_process.serve(connection)


def _write_to(file: Path, descriptor: int) -> None:
    opened = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(opened, descriptor)
    os.close(opened)
