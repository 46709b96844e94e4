"""Asks a driver on this machine about an application: it runs the main program up to where its
queries start, writes one file, and ends.
"""

import sys
import tempfile
import time
from pathlib import Path

from backfill.api.errors import BackfillError, BadInput, Problem
from backfill.api.spark_application import Application
from backfill.controller.driver import Launch
from backfill.controller.local_driver.backend import LocalBackend

_POLL_SECONDS = 0.1


def ask(module: str, answer: str, application: Application, launch: Launch) -> bytes:
    """What a module of the runtime answers in a file of the channel.

    The workspace of the launch is on this machine. Nothing is written to tables.

    Raises:
        BadInput: the program cannot be run on this machine.
        BackfillError: the driver ended without an answer.
    """
    with tempfile.TemporaryDirectory(prefix="backfill-ask-") as directory:
        channel = Path(directory) / "channel"
        channel.mkdir()
        backend = LocalBackend(
            Path(directory) / "attempts",
            channel,
            application=application,
            overrides=launch.backfill.spec.overrides,
            command=(sys.executable, "-m", module),
        )
        if obstacles := backend.obstacles():
            raise BadInput(obstacles)
        backend.start(launch)
        try:
            while backend.observe(launch.attempt).alive:
                time.sleep(_POLL_SECONDS)
        finally:
            backend.kill(launch.attempt)
        file = channel / answer
        if not file.exists():
            tail = backend.log_tail(launch.attempt)
            raise BackfillError(
                "\n".join(["the application ended without reporting a result:", *tail])
            )
        return file.read_bytes()


def check_answered(reason: str, message: str) -> None:
    """Checks that the driver could answer.

    Raises:
        BadInput: the program does what a backfill cannot redirect.
        BackfillError: the program failed.
    """
    if reason == "UnsupportedProgram":
        raise BadInput([Problem("", line) for line in message.splitlines()])
    if reason:
        raise BackfillError(message)
