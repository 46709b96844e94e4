"""Processes that are started before the first task of a source are those that run it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from backfill.runtime.source.warm_up import _read_nothing


def test_they_are_there_for_the_tasks_that_follow(spark: SparkSession) -> None:
    daemon = daemon_of_tasks(spark)
    before = children(daemon)
    _read_nothing(spark)
    assert daemon_of_tasks(spark) == daemon
    assert before <= children(daemon), "warming up has ended processes"


def daemon_of_tasks(spark: SparkSession) -> int:
    def parent(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in rows:
            yield pa.RecordBatch.from_pydict({"id": [os.getppid()]})

    (found,) = {row.id for row in spark.range(0, 2, 1, 2).mapInArrow(parent, "id long").collect()}
    return int(found)


def children(process: int) -> set[str]:
    return set(Path(f"/proc/{process}/task/{process}/children").read_text().split())
