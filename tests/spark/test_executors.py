"""Executors that come and go under a running application, with real ones: processes of a cluster on
this machine.
"""

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

import backfill
from waiting import PATIENCE_SECONDS

_PROGRAM = """
import time

from pyspark.sql import SparkSession

from backfill.runtime.agent.executor_requests import Executors

builder = SparkSession.builder.master("local-cluster[2,1,512]").config("spark.executor.memory", "512m")
builder.config("spark.ui.enabled", "false").config("spark.decommission.enabled", "true")
spark = builder.config("spark.storage.decommission.enabled", "true").getOrCreate()
context, executors = spark.sparkContext, Executors()


def until(count, target):
    deadline = time.monotonic() + 240
    while executors.follow(target) != count or len(registered()) != count:
        assert time.monotonic() < deadline, f"{registered()} instead of {count}"
        time.sleep(0.1)


def registered():
    return [each for each in context._jsc.sc().getExecutorIds().mkString(",").split(",") if each]


until(2, None)
first = registered()
computed = context.accumulator(0)
counts = context.parallelize(range(40), 4).map(lambda number: (computed.add(1), number % 7)).map(lambda pair: (pair[1], 1))
sums = counts.reduceByKey(lambda one, other: one + other, 4)
before = sorted(sums.collect())
until(1, 1)
after = sorted(sums.collect())
assert after == before, (before, after)
assert computed.value == 40, f"computed again: {computed.value}"
assert set(registered()) == {min(first, key=int)}, (first, registered())
until(2, 2)
assert len(set(registered()) & set(first)) == 1, (first, registered())
print("followed")
spark.stop()
"""


@pytest.mark.slow
def test_executors_go_and_come_while_the_application_runs_and_what_they_hold_is_not_computed_again(
    tmp_path: Path,
) -> None:
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    environment = {
        **os.environ,
        # workers start executors with its scripts
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_DIRS": str(tmp_path),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(Path(backfill.__file__).parents[1]),
    }
    command = [sys.executable, program]
    ended = subprocess.run(
        command,
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_SECONDS,
        check=False,
    )
    assert ended.stdout.splitlines()[-1:] == ["followed"], ended.stderr[-3000:]
