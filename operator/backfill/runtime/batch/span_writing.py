"""Writes the rows of a batch or a span into data files of the output's table: by tasks, and
committed by the driver's own process.
"""

import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from backfill.outputs.staging import StagedBatch
from backfill.runtime.batch.batch_sources import Leaves
from backfill.runtime.batch.pass_through import HandedOn
from backfill.runtime.batch.spans import Span
from backfill.runtime.batch.split_frames import ArrowFunction
from backfill.runtime.catalyst import observed
from backfill.runtime.sink import SinkWriter, WrittenFiles, staged_batch

_COLUMN = "written"
_RESULT = f"{_COLUMN} binary"


def write(
    rows: DataFrame, sink: SinkWriter
) -> tuple[list[WrittenFiles], dict[str, dict[str, Any]]]:
    """Writes the rows of a DataFrame; what each task has written comes with the task's result, so
    that a task that is run again counts once. And what was observed on the way, by name.

    Raises:
        Exception: Spark's own, with what failed in a task.
    """
    # mapInArrow takes the names of columns for expressions, in which a dot leads to a field
    numbered = rows.toDF(*map(str, range(len(rows.columns))))
    tasks = numbered.mapInArrow(_task(sink, rows.columns), _RESULT)
    return _written(tasks), observed(tasks)


def write_handed_on(
    leaves: Leaves, steps: range, rows: HandedOn, sink: SinkWriter
) -> list[WrittenFiles]:
    """The same for rows that need not pass through the JVM, by the tasks that read them.

    Raises:
        Exception: Spark's own, with what failed in a task.
    """
    tasks = leaves.results(
        rows.source,
        steps,
        columns=rows.columns,
        function=_task(sink, list(rows.names)),
        result=_RESULT,
    )
    return _written(tasks)


def _written(tasks: DataFrame) -> list[WrittenFiles]:
    return [pickle.loads(row[_COLUMN]) for row in tasks.collect()]


def batch_of(query: str, span: Span, spec_id: int, written: list[WrittenFiles]) -> StagedBatch:
    """What a span adds to the branch."""
    return staged_batch(query, span.steps[-1], spec_id, written, first=span.steps[0])


def _task(sink: SinkWriter, names: list[str]) -> ArrowFunction:
    def write_task(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = pickle.dumps(sink.write(batch.rename_columns(names) for batch in rows))
        yield pa.RecordBatch.from_arrays([pa.array([files], pa.binary())], names=[_COLUMN])

    return write_task
