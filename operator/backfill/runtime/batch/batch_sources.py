"""The sources of a batch query: all rows of a run of plan steps at once, in the columns that the
streaming source gives.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from backfill.planning.plan import Split, read_header
from backfill.runtime.batch.arrival_cells import (
    RESULT,
    TimeColumn,
    cells_in_tasks,
    cells_of_tasks,
    width_us,
)
from backfill.runtime.batch.arrival_lags import Cells
from backfill.runtime.batch.merged_splits import merged
from backfill.runtime.batch.rebind_plan import ARRIVAL
from backfill.runtime.batch.split_frames import (
    ArrowFunction,
    arrow_frame,
    arrow_frame_of_results,
)
from backfill.runtime.settings import RuntimeSettings
from backfill.runtime.source.record_columns import MOST_TASKS, RecordColumns
from backfill.runtime.source.source_frame import planned_tables, source_schema
from backfill.runtime.source.split_reading import counted
from backfill.runtime.source.step_tasks import planned_splits
from backfill.runtime.source.task_packing import pack_by_bytes
from backfill.runtime.source.timestamp_columns import column_of, find_column, microseconds

_TASK_BYTES = 32 * 2**20
"""About four seconds of a task: much more than starting it costs, and little enough that the last
task of a run does not keep the others waiting.
"""


def _count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = sum(batch.num_rows for batch in batches)
    yield pa.RecordBatch.from_arrays([pa.array([rows], pa.int64())], names=["rows"])


class Leaves:
    """Makes the batch DataFrames of a plan's sources."""

    def __init__(self, spark: SparkSession, settings: RuntimeSettings):
        self._spark = spark
        plan = settings.plan_workspace
        self._header = read_header(plan)
        self._splits = planned_splits(plan)
        self._tables = planned_tables(plan)

    def frame(
        self,
        source: str,
        steps: range,
        topic: str | None = None,
        columns: frozenset[str] | None = None,
    ) -> DataFrame:
        """The rows that streaming reads of a source in these consecutive steps, in no order.

        Columns, names and types are those of :func:`source_frame`. What Kafka adds, with ``topic``,
        is the same whenever the same run of steps is read; its offsets are unique in the run, and
        not those that streaming gives.

        Args:
            columns: the columns that matter, as :func:`columns_used` finds them; the others are
                null. None is all.

        Raises:
            InvalidPlanInput: columns of types that Spark does not have.
        """
        table = self._tables[source]
        tasks = self._tasks(self._splits.of_steps(steps, source))
        record = (
            None
            if topic is None
            else [RecordColumns.of(topic, steps.start, task) for task in range(len(tasks))]
        )
        schema = source_schema(table, with_record=topic is not None)
        return arrow_frame(self._spark, table, tasks, schema, columns=columns, record=record)

    def results(
        self,
        source: str,
        steps: range,
        *,
        columns: Sequence[str],
        function: ArrowFunction,
        result: str,
    ) -> DataFrame:
        """What a function gives for the rows of :meth:`frame`, called by the tasks that read them.

        Args:
            columns: in the order in which the function is given them.
            result: the columns that the function gives, as a DDL string.
        """
        table = self._tables[source]
        return arrow_frame_of_results(
            self._spark,
            table,
            self._tasks(self._splits.of_steps(steps, source)),
            source_schema(table, with_record=False),
            columns=columns,
            function=function,
            result=result,
        )

    def count(self, source: str, steps: range) -> int:
        """The number of rows of :meth:`frame`.

        Raises:
            Exception: Spark's own, with what failed in a task.
        """
        table = self._tables[source]
        known, uncounted = counted(table.source, self._splits.of_steps(steps, source))
        if not uncounted:
            return known
        counts = arrow_frame_of_results(
            self._spark,
            table,
            self._tasks(uncounted),
            source_schema(table, with_record=False),
            columns=(),
            function=_count,
            result="rows long",
        )
        return known + sum(int(row.rows) for row in counts.collect())

    def frame_with_arrivals(
        self, source: str, topic: str | None, columns: frozenset[str]
    ) -> DataFrame:
        """The rows of all steps, with the column ``ARRIVAL``."""
        table = self._tables[source]
        column = table.source.timestamp_column
        found = find_column(source_schema(table, with_record=False), column)
        assert found is not None, "planning has found it"
        rows = self.frame(source, range(self._header.steps), topic, columns | {found[0][0]})
        arrived, kind = column_of(rows, column)
        return rows.withColumn(ARRIVAL, microseconds(arrived, kind, table.source.timestamp_unit))

    def cells(self, source: str, event_column: str, present: Sequence[str]) -> Cells:
        """The rows of all steps by arrival and lag, where their event time is a column.

        Args:
            source: name of the source.
            event_column: the event time.
            present: only rows in which none of these columns is null count.

        Raises:
            Exception: Spark's own, with what failed in a task.
        """
        described = self._tables[source].source
        schema = source_schema(self._tables[source], with_record=False)
        arrived = find_column(schema, described.timestamp_column)
        assert arrived is not None, "planning has found it"
        path, _ = arrived
        arrival = TimeColumn(tuple(path), described.timestamp_unit)
        event, width = TimeColumn((event_column,)), width_us(self._header)
        columns = dict.fromkeys((event_column, path[0], *present))
        return cells_of_tasks(
            self.results(
                source,
                range(self._header.steps),
                columns=list(columns),
                function=cells_in_tasks(event, arrival, width, present),
                result=RESULT,
            )
        )

    def _tasks(self, splits: list[Split]) -> list[tuple[Split, ...]]:
        size = sum(split.bytes for split in splits)
        tasks = max(self._header.inputs.parallelism, -(-size // _TASK_BYTES))
        shared = merged(splits, max(size // tasks, 1))
        return pack_by_bytes(shared, min(tasks, MOST_TASKS // 2))
