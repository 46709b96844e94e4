"""The sources of a plan as streaming DataFrames, step by step. The agent says what may be read, the
plan has tables, splits and bounds.
"""

from collections.abc import Callable, Iterator
from functools import cache
from itertools import count
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from backfill.api.spec import OrderingPolicy
from backfill.planning.plan import PlanHeader, SourceInput, read_header
from backfill.planning.rows.pinned_table import SourceTable, load_source_table
from backfill.planning.workspace import Workspace
from backfill.runtime.settings import RuntimeSettings
from backfill.runtime.source.clock import Ticks, clock, reader_of_ticks
from backfill.runtime.source.garbage_collection import exempt_from_collection
from backfill.runtime.source.record_columns import RECORD_COLUMNS, RecordColumns
from backfill.runtime.source.row_rate_limit import paced
from backfill.runtime.source.step_tasks import StepTask
from backfill.runtime.source.timestamp_columns import column_of, microseconds
from backfill.runtime.spark_versions import to_arrow_schema

_OBSERVED_PREFIX = "backfill.source."
_frames = count()


if TYPE_CHECKING:
    import pyarrow as pa


def source_frame(
    spark: SparkSession, settings: RuntimeSettings, source: str, topic: str | None = None
) -> DataFrame:
    """A source of the plan as a streaming DataFrame with all columns of its table; with ``topic``,
    also what Kafka adds.

    Timestamps without a time zone are moments in UTC, so that they can be event times; with
    ``topic`` they stay as they are, since a record's text does not say a zone that the table does
    not have.

    What a batch really read of it comes with the query's progress, as the observed metrics
    ``rows``, ``min_us`` and ``max_us`` (arrival time).

    Raises:
        InvalidPlanInput: the table is gone, is another one, has lost the snapshot, or has columns
            Spark cannot represent.
    """
    header = read_header(settings.plan_workspace)
    table = planned_tables(settings.plan_workspace)[source]
    schema = source_schema(table, with_record=topic is not None)
    names, tasks = [each.name for each in header.inputs.sources], header.inputs.parallelism
    place = names.index(source)
    ticks = clock(spark, source, place, tasks, topic)
    read = reader_of_ticks(source, place, tasks, task_reader(header, table, schema, topic))
    frame = ticks.mapInArrow(read, schema)
    return frame.observe(
        observed_name(source),
        F.count(F.lit(1)).alias("rows"),
        *_observed_times(frame, table.source),
    )


def task_reader(
    header: PlanHeader, table: SourceTable, schema: StructType, topic: str | None
) -> Callable[[StepTask, int, int, frozenset[str] | None], Ticks]:
    """What a task does.

    How to open a table's files may hold credentials. What a function closes over is sent to Python
    workers only; anything else of a query is printed in its plan and in Spark's event log.
    """
    columns = [field for field in schema if topic is None or field.name not in RECORD_COLUMNS]
    target = to_arrow_schema(StructType(columns))
    by_offset = header.inputs.policy is OrderingPolicy.STRICT

    def read(
        task: StepTask, step: int, number: int, columns: frozenset[str] | None
    ) -> "Iterator[pa.RecordBatch]":
        from backfill.runtime.source.split_reading import read_in_offset_order, read_split

        exempt_from_collection("stream")
        if by_offset:
            rows = read_in_offset_order(table, task.splits, target, columns)
        else:
            rows = (
                batch
                for split in task.splits
                for batch in read_split(table, split, target, columns)
            )
        if task.rows_per_second is not None:
            rows = paced(rows, task.rows_per_second)
        return rows if topic is None else RecordColumns.of(topic, step, number).added_to(rows)

    return read


@cache
def planned_tables(plan: Workspace) -> dict[str, SourceTable]:
    """The tables of a plan by source, loaded once.

    Raises:
        InvalidPlanInput: a table no longer exists, was replaced, or has lost the snapshot.
        BackfillError: a catalog does not answer.
    """
    return {source.name: load_source_table(source) for source in read_header(plan).inputs.sources}


def source_schema(table: SourceTable, *, with_record: bool) -> StructType:
    """The columns of a source's frame; ``with_record`` adds those of Kafka records.

    Raises:
        InvalidPlanInput: columns have types that Spark lacks.
    """
    from pyiceberg.schema import Schema

    from backfill.runtime.source.schemas import spark_schema, with_moments

    schema = spark_schema(Schema.model_validate_json(table.schema_json), table.source.table)
    if not with_record:
        return with_moments(schema)
    added = (StructField(name, kind) for name, kind in RECORD_COLUMNS.items())
    return StructType([*schema, *added])


def _observed_times(frame: DataFrame, source: SourceInput) -> list[Column]:
    arrived, kind = column_of(frame, source.timestamp_column)
    return [
        microseconds(F.min(arrived), kind, source.timestamp_unit).alias("min_us"),
        microseconds(F.max(arrived), kind, source.timestamp_unit).alias("max_us"),
    ]


def observed_name(source: str) -> str:
    """A name for the metrics of one frame of a source:
    ``rows``, ``min_us`` and ``max_us`` of what was read.

    It is different for each frame, since Spark refuses a query in which two are equal.
    """
    return f"{_OBSERVED_PREFIX}{next(_frames)}.{source}"


def source_observed(name: str) -> str | None:
    """The source that a metric belongs to; None for a metric of the program."""
    return (
        name.removeprefix(_OBSERVED_PREFIX).partition(".")[2]
        if name.startswith(_OBSERVED_PREFIX)
        else None
    )
