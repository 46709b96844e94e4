"""Writes what a micro-batch changes into the result's branch, each micro-batch exactly once.

In output mode ``update``, Spark gives rows to no sink that Python can define, only to
``foreachBatch``. Changed rows are just added, in a directory for each batch: before the branch is
read, ``newest.py`` keeps the newest of each key. So a batch costs what it changes, however large
the result is.

For a function of ``foreachBatch`` that merges its rows into a table by keys, the same two calls do:
``stage_changes`` for the rows that it would merge, and ``keep_newest_rows`` once all batches are
committed.
"""

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from backfill.outputs.staging import Batch, Holds
from backfill.runtime.batch.writing import write
from backfill.runtime.sink import SinkSettings, SinkWriter


def redirect_changes(
    writer: DataStreamWriter, sink: SinkSettings, holds: Holds
) -> DataStreamWriter:
    """Makes a stream writer stage what its micro-batches hold."""

    def stage(rows: DataFrame, batch_id: int) -> None:
        stage_changes(rows, batch_id, sink, holds)

    return writer.foreachBatch(stage)


def stage_changes(
    rows: DataFrame, batch_id: int, sink: SinkSettings, holds: Holds = "Changes"
) -> bool:
    """Adds the rows of a micro-batch to the branch, unless the batch is there.

    Every micro-batch must be staged once, also without rows, and the number of a batch is that of
    its query. The rows are computed even if the batch is there: a stream's state needs it.

    Returns True if this call added them.

    Raises:
        BadInput: the branch holds something else.
        ResultLost: the branch, or a part of it, no longer exists.
        Exception: Spark's own, with what failed in a task.
    """
    writer = SinkWriter(sink, changes_of=batch_id if holds == "Changes" else None)
    written, _ = write(rows, writer)
    files = [file for each in written for file in each.files]
    outside = sum(each.rows_outside_window for each in written)
    batch = Batch(sink.query, batch_id, files, writer.spec_id, outside, holds=holds)
    return writer.stage(batch)
