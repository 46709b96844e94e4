"""Starts the Python processes of tasks, in place of ``pyspark.daemon``, with everything loaded that
reading and writing needs.

Spark runs it once on each machine, and forks it for each process. Its own daemon has loaded
nothing, so that each process loads the same libraries again, which takes almost a second of
processor time; a task that reads and writes has two processes.
"""

import os
import sys
from contextlib import suppress
from importlib import import_module

from pyspark.daemon import manager

from backfill.runtime.source.garbage_collection import exempt_from_collection

_TASKS = "pyspark.worker"
"""What processes of tasks run. Others, which plan the reading of a source, need less."""
_LOADED = (_TASKS, "backfill.runtime.source.split_reading", "backfill.runtime.batch.span_writing")


def main(runs: str) -> None:
    """Serves Spark until it ends. ``runs`` is the module that the processes run."""
    if runs == _TASKS:
        for module in _LOADED:
            with suppress(Exception):  # a task that needs it fails with the same error
                import_module(module)
        os.register_at_fork(after_in_child=_draw_other_numbers)
        exempt_from_collection("daemon")
    manager()


def _draw_other_numbers() -> None:
    """Seeds NumPy's own generator again, as Python does with its own: pandas loads it, and
    otherwise functions of the program would draw the same random numbers in each process.
    """
    random = sys.modules.get("numpy.random")
    if random is not None:
        random.seed()


if __name__ == "__main__":
    main(sys.argv[1])
