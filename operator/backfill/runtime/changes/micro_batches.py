"""Writes what a micro-batch changes into the result's branch, each micro-batch exactly once.

In output mode ``update``, Spark gives rows to no sink that Python can define, only to
``foreachBatch``. Changed rows are just added, in a directory for each batch: before the branch is
read, ``newest.py`` keeps the newest of each key. So a batch costs what it changes, however large
the result is.
"""

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from backfill.outputs.staging import Holds, StagedBatch
from backfill.runtime.batch.span_writing import write
from backfill.runtime.sink import SinkSettings, SinkWriter


def redirect_changes(
    writer: DataStreamWriter, sink: SinkSettings, holds: Holds
) -> DataStreamWriter:
    """Makes a stream writer stage what its micro-batches hold."""

    def stage(rows: DataFrame, batch_id: int) -> None:
        """Adds the rows of a micro-batch, with or without any, unless the batch is there. They are
        computed even then: a stream's state needs it.
        """
        branch = SinkWriter(sink, changes_of=batch_id if holds == "Changes" else None)
        written, _ = write(rows, branch)
        files = [file for each in written for file in each.files]
        outside = sum(each.rows_outside_window for each in written)
        branch.stage(StagedBatch(sink.query, batch_id, files, branch.spec_id, outside, holds=holds))

    return writer.foreachBatch(stage)
