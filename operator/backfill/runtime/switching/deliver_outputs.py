"""Delivers staged batches to the application's own sinks: each batch is given to the function of
the query, or written by its sink, as production's query would have done it. At least once, with the
same number and the same rows each time, which is what Spark promises of ``foreachBatch``.
"""

import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import groupby
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from backfill.api.base import Model
from backfill.api.errors import ResultLost, RunFailed
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
from backfill.runtime.source.source_frame import source_schema
from backfill.runtime.switching.batch_function import DeliveredBatch, running

_CHECKPOINT = "checkpointlocation"
_BATCH_ID = "streaming.sql.batchId"
"""The local property by which an object given to ``foreach`` learns the number of its batch."""
_log = logging.getLogger(__name__)


class _Progress(Model):
    """How far the rows of an output are delivered, as it survives the driver."""

    batches: int = 0
    """Number of batches that were delivered or skipped."""
    rows: int = 0
    """Number of rows of those that were delivered."""
    last: int = -1
    """Number of the last of these batches."""


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
        self._batches, self._splits, self._table = self._staged()

    def deliver(self) -> bool:
        """Returns False if it was stopped before the end."""
        run, progress = self._run, self._recorded()
        self._report(progress)
        skipped = {each.batch for each in self._wish.skip}
        began, delivered = time.monotonic(), 0
        for batch in self._batches:
            if batch.number <= progress.last:
                continue
            if run.stopping.is_set() or self._waits(began, delivered):
                return False
            skip = batch.number in skipped
            if not skip:
                self._give(batch)
                delivered += batch.rows
            progress = _Progress(
                batches=progress.batches + 1,
                rows=progress.rows + (0 if skip else batch.rows),
                last=batch.number,
            )
            self._place.write(self._file, progress.model_dump_json(by_alias=True).encode())
            self._report(progress)
        return True

    def _waits(self, began: float, delivered: int) -> bool:
        """Waits until the limit of rows permits the next batch. Returns whether the run was asked
        to stop meanwhile.
        """
        limit = self._wish.max_rows_per_second
        if limit is None:
            return False
        due = began + delivered / limit - time.monotonic()
        return due > 0 and self._run.stopping.wait(due)

    def _give(self, batch: Batch) -> None:
        sink, session = self._sink, self._sink.frame.sparkSession
        frame = self._frame(batch)
        try:
            with (
                running(DeliveredBatch(frame, sink.called)),
                active(session),
                _numbered(frame, batch.number),
                _as_in_production(),
            ):
                sink.call(frame, batch.number)
        except Exception as error:
            lines = "\n".join(lines_of_program(error))
            raise RunFailed(
                f"{sink.called} failed for batch {batch.number} of output {self._output.name}:"
                f" {type(error).__name__}: {cause_of(error)}\n{lines}".rstrip()
            ) from error

    def _frame(self, batch: Batch) -> DataFrame:
        """The rows of a batch, with the columns of the query. Each file is a task, so that the
        number of a partition always means the same rows.
        """
        session, schema = self._sink.frame.sparkSession, self._sink.frame.schema
        tasks = [tuple(self._splits[file.file_path]) for file in batch.files]
        columns = source_schema(self._table, with_record=False)
        rows = arrow_frame(session, self._table, tasks, columns)
        return rows.select(
            [F.col(quoted(each.name)).cast(each.dataType).alias(each.name) for each in schema]
        )

    def _staged(self) -> tuple[list[Batch], dict[str, list[Split]], SourceTable]:
        """The batches, the splits of each file, and the table.

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
        interval = self._wish.batch_interval
        tasks = list(scan_files(table, head.snapshot_id))
        splits = {task.file.file_path: list(splits_of(table, output.name, task)) for task in tasks}
        batches = together(
            by_batch((task.file for task in tasks), result),
            run.tracker.header.step_starts_us,
            None if interval is None else interval // timedelta(microseconds=1),
        )
        return batches, splits, source_table(table, output, None, head.snapshot_id)

    def _recorded(self) -> _Progress:
        try:
            return _Progress.model_validate_json(self._place.read(self._file))
        except FileNotFoundError:
            return _Progress()

    @property
    def _file(self) -> str:
        return f"{self._output.name}.json"

    def _report(self, progress: _Progress) -> None:
        self._run.delivered(
            OutputDelivery(
                output=self._output.name,
                batches=len(self._batches),
                delivered=progress.batches,
                rows=progress.rows,
                last_batch=progress.last if progress.last >= 0 else None,
            )
        )


def together(
    batches: Sequence[Batch], step_starts_us: Sequence[int], interval_us: int | None
) -> list[Batch]:
    """The batches of each interval as one, with the number of the last of them; None joins none.

    Args:
        step_starts_us: when the history of each step begins.
    """
    if interval_us is None:
        return list(batches)
    last = len(step_starts_us) - 1

    def part(batch: Batch) -> int:
        # the flush, after the last step, has what that leaves open
        return (step_starts_us[min(batch.number, last)] - step_starts_us[0]) // interval_us

    groups = (list(group) for _, group in groupby(batches, part))
    return [
        Batch(group[-1].number, tuple(file for each in group for file in each.files))
        for group in groups
    ]


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


def write_batch(
    form: str | None,
    place: str | None,
    options: Mapping[str, Any],
    frame: DataFrame,
    _number: int,
) -> None:
    """What the sink of a format does with a batch in output mode append."""
    writer = frame.write.format(form or "").mode("append")
    given = {key: value for key, value in options.items() if key.lower() != _CHECKPOINT}
    writer.options(**given).save(place)
