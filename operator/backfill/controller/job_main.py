"""What a job process runs: one job after the other, until the controller is gone.

The controller starts it as ``python -m backfill.controller.job_main SOCKET [MEMORY]``. It imports nothing heavy before it
has a job; what a catalog needs to know stands in its environment from the start, where PyIceberg looks once.
"""

import resource
import sys
import traceback
from multiprocessing.connection import Connection

from backfill.api.errors import BackfillError, first_line
from backfill.controller.job_process import Message
from backfill.controller.jobs import Job, OnProgress

_RESERVED_BYTES = 2 * 2**30
"""PyArrow's allocator and PyIceberg's threads reserve 1.3 GB of addresses that they may never fill, and a limit counts them:
the kernel's limit can only stop a leap that comes between two looks at what is really used."""


def main() -> None:
    """Serves the controller at the other end of the socket."""
    connection = Connection(int(sys.argv[1]))
    if len(sys.argv) > 2:
        limit = int(sys.argv[2]) + _RESERVED_BYTES
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    while True:
        try:
            job: Job = connection.recv()
            connection.send(do(job, lambda progress: connection.send(Message("Progress", progress=progress))))
        except (EOFError, OSError):
            return


def do(job: Job, on_progress: OnProgress) -> Message:
    """Does a job and says how it ended; what went wrong without being foreseen is printed."""
    try:
        return Message("Done", result=job.run(on_progress))
    except BackfillError as error:
        return Message("Failed", error=error)
    except MemoryError:
        traceback.print_exc()
        return Message("OutOfMemory")
    except Exception as error:
        traceback.print_exc()
        return Message("Broken", cause=f"{type(error).__name__}: {first_line(error)}")


if __name__ == "__main__":
    main()
