"""The process that Spark forks for each task."""

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

import backfill
from backfill.runtime.session_conf import resolved_conf
from backfill.runtime.settings import RuntimeSettings
from least_settings import LEAST_SETTINGS

MODULE = "spark.python.daemon.module"


@pytest.mark.parametrize(
    ("runs", "loaded"),
    [("pyspark.worker", True), ("pyspark.sql.worker.plan_data_source_read", False)],
)
def test_it_has_loaded_what_tasks_need_before_it_says_where_it_listens(
    runs: str, loaded: bool
) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "backfill.runtime.task_daemon", runs],
        env=os.environ | {"PYTHONPATH": str(Path(backfill.__file__).parents[1])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as daemon:
        assert daemon.stdin is not None
        assert daemon.stdout is not None
        (port,) = struct.unpack("!i", daemon.stdout.read(4))
        assert 0 < port < 65_536, "something was printed before"
        libraries = Path(f"/proc/{daemon.pid}/maps").read_text()
        assert ("libarrow" in libraries) is loaded
        daemon.stdin.close()
        daemon.wait()


FORK_TWICE = """
import os
from backfill.runtime import task_daemon

def fork_twice():
    for _ in range(2):
        if os.fork() == 0:
            import numpy, random
            print(numpy.random.randint(2**62), random.getrandbits(62), flush=True)
            os._exit(0)
        os.wait()

task_daemon.manager = fork_twice
task_daemon.main("pyspark.worker")
"""


def test_processes_do_not_draw_the_same_random_numbers() -> None:
    drawn = subprocess.run(
        [sys.executable, "-c", FORK_TWICE],
        env=os.environ | {"PYTHONPATH": str(Path(backfill.__file__).parents[1])},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout.split()
    assert len(drawn) == len(set(drawn)) == 4


@pytest.mark.parametrize(
    ("submitted", "module"),
    [
        ({}, "backfill.runtime.task_daemon"),
        ({"spark.submit.pyFiles": ""}, "backfill.runtime.task_daemon"),
        ({"spark.submit.pyFiles": "local:///libraries.zip"}, None),
        ({MODULE: "team.daemon"}, "team.daemon"),
    ],
)
def test_it_is_not_used_where_the_application_brings_libraries_or_a_daemon_of_its_own(
    submitted: dict[str, str], module: str | None
) -> None:
    settings = RuntimeSettings.model_validate(LEAST_SETTINGS)
    assert resolved_conf(submitted, {}, settings).get(MODULE) == module
