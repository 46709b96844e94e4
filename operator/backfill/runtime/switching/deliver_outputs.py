"""Delivers staged batches to the application's own sinks: each batch is given to the function of
the query, or written by its sink, as production's query would have done it. At least once, with the
same number and the same rows each time, which is what Spark promises of ``foreachBatch``.
"""

import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby
from typing import Any

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from backfill.api.base import Model
from backfill.api.errors import Problem, ResultLost, RunFailed, UnsupportedProgram, first_line
from backfill.api.output import Delivery, Output
from backfill.iceberg.open_tables import Catalogs
from backfill.iceberg.table_scan import scan_files
from backfill.outputs.delivered_batches import Batch, by_batch
from backfill.outputs.staging import branch_head, lost
from backfill.planning.plan import Split
from backfill.planning.rows.pinned_table import SourceTable
from backfill.protocol.driver_settings import SETTINGS_VARIABLE
from backfill.protocol.split_assignment import OutputDelivery
from backfill.runtime.batch.split_frames import arrow_frame
from backfill.runtime.batch.table_files import source_table, splits_of
from backfill.runtime.catalyst import active, quoted
from backfill.runtime.queries.failure_causes import cause_of, lines_of_program
from backfill.runtime.queries.run_state import ProductionSink, Run
from backfill.runtime.source.schemas import as_nullable, spark_schema
from backfill.runtime.spark_versions import to_arrow_schema
from backfill.runtime.switching.batch_function import DeliveredBatch, running
from backfill.runtime.switching.late_writes import PATIENCE_SECONDS
from backfill.runtime.switching.stream_matching import Target

_CHECKPOINT = "checkpointlocation"
_BATCH_ID = "streaming.sql.batchId"
"""The local property by which an object given to ``foreach`` learns the number of its batch."""
_TASK_BYTES = 8 * 2**20
"""Bytes of small files that a task reads, of batches that are delivered at once."""
_log = logging.getLogger(__name__)


class _Progress(Model):
    """How far the rows of an output are delivered, as it survives the driver."""

    batches: int = 0
    """Number of staged batches that were delivered or skipped."""
    rows: int = 0
    """Number of rows of those that were delivered."""
    last: int = -1
    """Number of the last of these batches."""


@dataclass(frozen=True, slots=True)
class Call:
    """Staged batches that are delivered at once."""

    batches: tuple[Batch, ...]

    @property
    def number(self) -> int:
        """The number that the application's code is given."""
        return self.batches[-1].number

    @property
    def rows(self) -> int:
        """How many rows they have."""
        return sum(batch.rows for batch in self.batches)


def deliver_outputs(run: Run) -> bool:
    """Delivers the rows of each output that is to be delivered, and records how far that is.

    Returns False if the run was asked to stop before all were delivered.

    Raises:
        ResultLost: the staged rows are not those that were approved.
        RunFailed: the application's function, or its sink, failed.
    """
    wanted = [output for output in run.settings.outputs if output.name in run.settings.deliver]
    return all(_Deliverer(run, output).deliver() for output in wanted)


class _Deliverer:
    """Delivers the rows of one output."""

    def __init__(self, run: Run, output: Output):
        self._run = run
        self._output = output
        self._sink: ProductionSink = run.sinks[output.name]
        self._place = run.settings.checkpoint_workspace.child("delivered")
        self._wish = output.publish.deliver or Delivery()
        self._patience_seconds = PATIENCE_SECONDS
        self._batches, self._splits, self._table, self._schema = self._staged()

    def deliver(self) -> bool:
        """Returns False if it was stopped before the end."""
        run, progress, interval = self._run, self._recorded(), self._wish.batch_interval
        self._report(progress)
        left = [batch for batch in self._batches if batch.number > progress.last]
        skipped = self._skipped()
        began, delivered = time.monotonic(), 0
        for call in calls(
            left,
            run.tracker.header.step_starts_us,
            None if interval is None else interval // timedelta(microseconds=1),
        ):
            if run.stopping.is_set() or self._waits(began, delivered):
                return False
            wanted = Call(tuple(each for each in call.batches if each.number not in skipped))
            if self._sink.output_mode == "complete":  # the last one has the whole result
                wanted = Call(wanted.batches[-1:])
            if wanted.batches:
                self._give(wanted, call.number)
                delivered += wanted.rows
            progress = _Progress(
                batches=progress.batches + len(call.batches),
                rows=progress.rows + wanted.rows,
                last=call.number,
            )
            self._place.write(self._file, progress.model_dump_json(by_alias=True).encode())
            self._report(progress)
        self._report(progress, done=True)
        return True

    def _skipped(self) -> set[int]:
        numbers, known = {each.batch for each in self._wish.skip}, self._batches
        for unknown in sorted(numbers - {batch.number for batch in known}):
            _log.warning("output %s has no batch %s to skip", self._output.name, unknown)
        return numbers

    def _waits(self, began: float, delivered: int) -> bool:
        """Waits until the limit of rows permits the next batch. Returns whether the run was asked
        to stop meanwhile.
        """
        limit = self._wish.max_rows_per_second
        if limit is None:
            return False
        due = began + delivered / limit - time.monotonic()
        return due > 0 and self._run.stopping.wait(due)

    def _give(self, call: Call, number: int) -> None:
        """Gives rows to the application's code, and waits for what that does in threads."""
        sink, session = self._sink, self._sink.frame.sparkSession
        frame = self._frame(call)
        batch = DeliveredBatch(frame, sink.called)
        try:
            with (
                running(batch),
                active(session),
                _numbered(frame, number),
                _as_in_production(),
            ):
                sink.call(frame, number)
                if not batch.parts.close(self._patience_seconds, self._run.over):
                    self._patience_seconds /= 2
        except BaseException as error:  # also of a function that ends the process
            lines = "\n".join(lines_of_program(error))
            raise RunFailed(
                f"{sink.called} failed for batch {number} of output {self._output.name}:"
                f" {type(error).__name__}: {cause_of(error)}\n{lines}".rstrip()
            ) from error

    def _frame(self, call: Call) -> DataFrame:
        """The rows of batches, with the columns of the query."""
        files = [file for batch in call.batches for file in batch.files]
        tasks = [
            tuple(split for file in group for split in self._splits[file.file_path])
            for group in _packed(files, alone=len(call.batches) == 1)
        ]
        rows = arrow_frame(self._sink.frame.sparkSession, self._table, tasks, self._schema)
        return _restored(rows, self._sink.frame.schema)

    def _staged(self) -> tuple[list[Batch], dict[str, list[Split]], SourceTable, StructType]:
        """The batches, the splits of each file, and the table with its columns.

        Raises:
            ResultLost: they are not what was approved.
        """
        output, run = self._output, self._run
        result = run.settings.result(output.name)
        table = Catalogs().load_table(output.table, "spec.outputs")
        head = branch_head(table.metadata, result)
        if head is None:
            raise lost(output.table, result)
        if head.snapshot_id != run.settings.deliver[output.name]:
            raise ResultLost(
                f"branch {result.branch} of {output.table} was changed after the result of output"
                f" {output.name} was approved: delete the Backfill and create it again"
            )
        tasks = list(scan_files(table, head.snapshot_id))
        splits = {task.file.file_path: list(splits_of(table, output.name, task)) for task in tasks}
        found = source_table(table, output, None, head.snapshot_id)
        batches = by_batch((task.file for task in tasks), result)
        return batches, splits, found, spark_schema(table.schema(), output.table)

    def _recorded(self) -> _Progress:
        try:
            return _Progress.model_validate_json(self._place.read(self._file))
        except FileNotFoundError:
            return _Progress()

    @property
    def _file(self) -> str:
        return f"{self._output.name}.json"

    def _report(self, progress: _Progress, *, done: bool = False) -> None:
        self._run.delivered(
            OutputDelivery(
                output=self._output.name,
                batches=len(self._batches),
                delivered=progress.batches,
                rows=progress.rows,
                last_batch=progress.last if progress.last >= 0 else None,
                done=done,
            )
        )


def calls(
    batches: Sequence[Batch], step_starts_us: Sequence[int], interval_us: int | None
) -> list[Call]:
    """The batches that are delivered at once: those of each interval; None joins none.

    Args:
        step_starts_us: when the history of each step begins.
    """
    if interval_us is None:
        return [Call((batch,)) for batch in batches]
    last = len(step_starts_us) - 1

    def part(batch: Batch) -> int:
        # the flush, after the last step, has what that leaves open
        return (step_starts_us[min(batch.number, last)] - step_starts_us[0]) // interval_us

    return [Call(tuple(group)) for _, group in groupby(batches, part)]


def _packed(files: Sequence[DataFile], *, alone: bool) -> list[list[DataFile]]:
    """The files of each task, in their order. Each file of a single batch is a task, as it was when
    it was written, so that the number of a partition always means the same rows.
    """
    if alone:
        return [[file] for file in files]
    tasks: list[list[DataFile]] = []
    size = _TASK_BYTES
    for file in files:
        if size + file.file_size_in_bytes > _TASK_BYTES:
            tasks.append([])
            size = 0
        tasks[-1].append(file)
        size += file.file_size_in_bytes
    return tasks


def _restored(rows: DataFrame, schema: StructType) -> DataFrame:
    """Rows of the table with the columns of the query."""
    return rows.select(
        [
            F.col(quoted(each.name)).cast(as_nullable(each.dataType)).alias(each.name)
            for each in schema
        ]
    )


def columns_of_table(frame: DataFrame) -> pa.Schema:
    """The columns of a table for the rows of a DataFrame. None of them is required."""
    schema = as_nullable(frame.schema)
    assert isinstance(schema, StructType)
    return to_arrow_schema(schema)


def check_restored(frame: DataFrame, output: Output) -> None:
    """Checks that rows of a DataFrame can be had again from the table of an output.

    Raises:
        UnsupportedProgram: the table does not keep them as they are.
    """
    table = Catalogs().load_table(output.table, "spec.outputs")
    session, kept = frame.sparkSession, spark_schema(table.schema(), output.table)
    if lacks := [name for name in frame.schema.names if name not in kept.names]:
        message = f"{output.table} lacks columns of output {output.name}: {', '.join(lacks)}"
        fix = "if rows are staged already, change the query back; else add the columns to the table"
        raise UnsupportedProgram(Problem("spec.outputs", message, fix))
    empty = session.createDataFrame([], kept)
    for column in frame.schema:
        try:
            _restored(empty, StructType([column]))
        except PySparkException as error:
            message = (
                f"column {column.name} ({column.dataType.simpleString()}) of output {output.name}"
                f" cannot be staged in {output.table} as it is: {first_line(error)}"
            )
            fix = "cast, rename or drop the column before writeStream"
            raise UnsupportedProgram(Problem("spec.outputs", message, fix)) from error


@contextmanager
def _numbered(frame: DataFrame, number: int) -> Iterator[None]:
    context = frame.sparkSession.sparkContext
    context.setLocalProperty(_BATCH_ID, str(number))
    try:
        yield
    finally:
        context.setLocalProperty(_BATCH_ID, None)  # type: ignore[arg-type]


@contextmanager
def _as_in_production() -> Iterator[None]:
    """Without the variable by which programs leave out effects in a backfill."""
    settings = os.environ.pop(SETTINGS_VARIABLE, None)
    try:
        yield
    finally:
        if settings is not None:
            os.environ[SETTINGS_VARIABLE] = settings


def for_each_row(writer: Any, frame: DataFrame, _number: int) -> None:
    """What ``foreach`` does with the rows of a batch."""
    rows: Any = DataStreamWriter._construct_foreach_function(writer)
    frame.rdd.mapPartitionsWithIndex(rows).count()


def write_batch(target: Target, options: Mapping[str, Any], frame: DataFrame, _number: int) -> None:
    """What a sink of Spark does with a batch."""
    writer = frame.write.mode("append")
    if target.format is not None:
        writer = writer.format(target.format)
    left_out = {_CHECKPOINT, *(("path", "table") if target.table else ())}
    given = {key: value for key, value in options.items() if key.lower() not in left_out}
    writer = writer.options(**given)
    if target.to_table:
        writer.saveAsTable(str(target.table))
    else:
        writer.save(target.table)
