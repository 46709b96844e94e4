"""Writes what a micro-batch gives into the result's branch, each micro-batch exactly once.

A query that changes rows it has written just adds the changed ones, in a directory for each batch:
before the branch is read, :mod:`backfill.runtime.changes.newest_rows` keeps the newest of each key.
So a batch costs what it changes, however large the result is.
"""

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from backfill.outputs.staging import OF_BATCHES, Holds
from backfill.runtime.batch.span_writing import write
from backfill.runtime.queries.step_gate import StepGate
from backfill.runtime.sink import SinkSettings, SinkWriter, staged_batch


def redirect(
    writer: DataStreamWriter, sink: SinkSettings, gate: StepGate, holds: Holds = "Rows"
) -> DataStreamWriter:
    """Makes a stream writer stage what its micro-batches hold, as steps are released."""

    branch_of_rows = None if holds in OF_BATCHES else SinkWriter(sink)

    def stage(rows: DataFrame, batch_id: int) -> None:
        """Adds the rows of a micro-batch, with or without any, unless the batch is there. They are
        computed even then: a stream's state needs it.
        """
        with gate.open(rows.sparkSession, batch_id):
            branch = branch_of_rows or SinkWriter(sink, batch=batch_id, holds=holds)
            written, _ = write(rows, branch)
            branch.stage(staged_batch(sink.query, batch_id, branch.spec_id, written, holds=holds))

    return writer.foreachBatch(stage)
