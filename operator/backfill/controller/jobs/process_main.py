"""The program of a job process: it runs one job after the other until the controller ends.

The controller starts it as ``python -m backfill.controller.jobs.process_main SOCKET``. It imports
nothing heavy before it has a job. The first job comes with its limits and, if it is for somebody
else, with catalogs: credentials are neither in the environment nor in an argument, where other
processes could read them.
"""

import logging
import os
import resource
import socket
import sys
import threading
import warnings
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Final

from backfill.api.catalog_properties import GivenCatalog
from backfill.api.errors import BackfillError, ServerUnavailable
from backfill.api.redaction import Redactor, redactor
from backfill.controller.jobs.any_job import Job, OnProgress
from backfill.controller.jobs.codec import job_of, message_parts
from backfill.controller.jobs.framing import Frames
from backfill.controller.jobs.isolation import confine_to_files, keep_memory_private
from backfill.controller.jobs.job_messages import Message, redacted
from backfill.iceberg.library_errors import reason, says_later, trace

RESERVED_BYTES: Final = 256 * 2**20
"""Addresses that allocators and threads reserve and may never use: 90 MiB in a job with the
environment of :class:`~backfill.controller.jobs.process.ConfinedChild`. The kernel's limit includes
them. It stops what grows between two checks of the memory that is really used. The container's own
limit has room for as much in each of its jobs.
"""
_STACK_BYTES = 2 * 2**20
"""Stack of each thread, instead of 8 MiB."""
_LARGEST_FILE = 2**30
"""Largest file of a confined process, which must not fill the disk of the operator's pod."""


def main() -> None:
    """Serves the controller at the other end of the socket.

    Its home directory is its working directory.
    """
    keep_memory_private()
    threading.stack_size(_STACK_BYTES)
    frames = Frames(socket.socket(fileno=int(sys.argv[1])))
    hidden: Redactor | None = None
    while True:
        try:
            order = frames.receive()
            if order.get("memory"):
                _limit(resource.RLIMIT_DATA, int(order["memory"]) + RESERVED_BYTES)
            if order.get("confinement"):
                hidden = _confine(order["confinement"])
            _work_in_time()
            job = job_of(order)
            end = do(job, _telling(frames, job))
            frames.send(message_parts(job, redacted(end, hidden) if hidden else end))
        except (EOFError, OSError):
            return


def do(job: Job, on_progress: OnProgress) -> Message:
    """Runs a job and returns how it has ended. Unexpected errors are printed."""
    try:
        return Message("Done", result=job.run(on_progress))
    except BackfillError as error:
        return Message("Failed", error=error)
    except MemoryError as error:
        _print_trace(error)
        return Message("OutOfMemory")
    except Exception as error:
        _print_trace(error)
        if says_later(error):
            return Message("Failed", error=ServerUnavailable(reason(error)))
        return Message("Broken", cause=f"{type(error).__name__}: {reason(error)}")


def _telling(frames: Frames, job: Job) -> OnProgress:
    return lambda progress: frames.send(message_parts(job, Message("Progress", progress=progress)))


def _confine(parts: dict[str, Any]) -> Redactor:
    """Sets the limits of this process.

    Those of the kernel come first, before anything of the job is used.

    Returns the redactor for the secrets of this process. The controller need not know those in its
    environment.
    """
    _limit(resource.RLIMIT_FSIZE, _LARGEST_FILE)
    directories = tuple(Path(directory) for directory in parts["directories"])
    listener = socket.create_server(("127.0.0.1", 0))  # afterwards no socket may listen
    confine_to_files(writable=(Path.cwd(), *directories))
    from backfill.iceberg.catalogs import work_for_others
    from backfill.iceberg.store_relay import listen_on

    listen_on(listener)
    _keep_libraries_quiet()
    catalogs = {
        name: GivenCatalog(given["properties"], given["own"])
        for name, given in parts["catalogs"].items()
    }
    addresses = tuple(ip_network(network) for network in parts["addresses"])
    work_for_others(catalogs, directories, addresses, tuple(parts["refused"]))
    return redactor(catalogs, os.environ)


def _keep_libraries_quiet() -> None:
    """Silences libraries, because what they log,
    warn of or raise in threads may repeat the answer of a server.
    """
    logging.getLogger().addHandler(logging.NullHandler())
    logging.getLogger("backfill").addHandler(logging.StreamHandler())
    warnings.simplefilter("ignore")
    threading.excepthook = lambda failed: _print_trace(failed.exc_value)


def _print_trace(error: BaseException | None) -> None:
    if error is not None:
        sys.stderr.write(trace(error))


def _work_in_time() -> None:
    from backfill.iceberg.catalogs import work_in_time

    work_in_time()


def _limit(what: int, most: int) -> None:
    hard = resource.getrlimit(what)[1]
    resource.setrlimit(
        what, (most, most) if hard == resource.RLIM_INFINITY else (min(most, hard),) * 2
    )


if __name__ == "__main__":
    main()
