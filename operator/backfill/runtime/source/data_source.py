"""The Iceberg source: a Python data source of Spark whose offset is the number of steps read.

A micro-batch is exactly one step, so a batch that is run again reads the same rows. The agent's
release file says what may be read; the plan has tables, splits and bounds. The driver plans each
source in a separate process.
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructField, StructType

from backfill.api.errors import PlanCorrupt, RunFailed
from backfill.api.spec import OrderingPolicy
from backfill.planning.plan import PlanHeader, SourceInput, Split, read_header, read_splits
from backfill.planning.rows.pinned_table import SourceTable, load_source_table
from backfill.planning.workspace import Workspace
from backfill.runtime.settings import RuntimeSettings
from backfill.runtime.source.garbage_collection import exempt_from_collection
from backfill.runtime.source.record_columns import RECORD_COLUMNS, RecordColumns
from backfill.runtime.source.release_file import read_release, release_path
from backfill.runtime.source.row_rate_limit import paced
from backfill.runtime.source.task_packing import pack_by_bytes, pack_by_kafka_partition
from backfill.runtime.source.timestamp_columns import column_of, microseconds
from backfill.runtime.source.used_columns import read_used_columns, used_columns_path

_OBSERVED_PREFIX = "backfill.source."
_frames = count()


if TYPE_CHECKING:
    import pyarrow as pa

SOURCE_FORMAT = "backfill_source"
_POLL_SECONDS = 0.02
_EVENLY = 0.1
"""Part of a rate that tasks share evenly, whatever rows they are expected to have."""


class BackfillSource(DataSource):
    """One source of a plan. Options: ``source``, its name; ``scratch``, the driver's directory with
    released steps and used columns; ``topic``, if rows must have the columns of Kafka records
    (:mod:`backfill.runtime.source.record_columns`); ``rate``, the most rows of all sources that are
    read in a second, if there is a limit.
    """

    plan: ClassVar[Workspace]
    """Directory of the plan. Set in the class that :func:`register_source` makes."""
    tables: ClassVar[Mapping[str, SourceTable]] = {}
    """The tables of the plan by source. Set in the same class."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return SOURCE_FORMAT

    def streamReader(self, schema: StructType) -> "StepReader":
        """Reads the steps of the plan.

        ``schema`` is that of the table, from :func:`source_frame`.
        """
        options = self.options
        return StepReader(
            self.tables[options["source"]],
            self.plan,
            options["scratch"],
            schema,
            options.get("topic"),
            rate=int(options["rate"]) if "rate" in options else None,
        )


@dataclass(frozen=True)
class StepPartition(InputPartition):
    """What one task reads of a step."""

    table: SourceTable
    splits: tuple[Split, ...]
    target: "pa.Schema"
    by_offset: bool
    """Whether to sort rows by Kafka partition and offset."""
    columns: frozenset[str] | None = None
    """The columns to read; None for all."""
    record: RecordColumns | None = None
    """The columns of Kafka records, if they are needed."""
    rows_per_second: float | None = None
    """Most rows that are read in a second; None if there is no limit."""


def _expected_rows(split: Split) -> int:
    """Rows that a task reads of a split. In ``Strict`` order several tasks read it, each those of
    its own offsets.
    """
    return sum(each.end - each.start for each in split.offsets) or split.rows


class StepReader(DataSourceStreamReader):
    """Reads one step after the other as they are released, and after the last one an empty step,
    the flush, in which the watermark of the last step takes effect.
    """

    def __init__(
        self,
        table: SourceTable,
        plan: Workspace,
        scratch: str,
        schema: StructType,
        topic: str | None,
        *,
        rate: int | None = None,
    ):
        self._table = table
        self._source = table.source.name
        self._plan = plan
        self._release_file = release_path(scratch)
        self._columns_file = used_columns_path(scratch, self._source)
        self._schema = schema
        self._topic = topic
        self._rate = rate

    def initialOffset(self) -> dict[str, Any]:
        """No step has been read."""
        return self._offset(0)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The offset after the next step, once it is released;
        ``start`` if nothing more will be released.

        It waits here instead of returning that there is nothing new. Otherwise a step could be
        released between the calls for two sources of a query, and its batch would read different
        steps of them.

        Raises:
            RunFailed: the driver that has called this no longer runs; nothing else would end this
                process.
        """
        driver = os.getppid()
        step, steps = self._step(start), self._header.steps
        while step <= steps:
            release = read_release(self._release_file)
            if release.released >= min(step + 1, steps):
                return self._offset(step + 1)
            if release.stop:
                break
            if os.getppid() != driver:
                raise RunFailed(f"the driver ended while {self._source} was waiting for a release")
            time.sleep(_POLL_SECONDS)
        return start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of the step between two offsets;
        none for the flush, and for steps without rows of this source.
        """
        step, next_step = self._step(start), self._step(end)
        if step in (next_step, self._header.steps):
            return []
        if next_step != step + 1:
            raise PlanCorrupt(
                f"a batch of {self._source} from step {step} to {next_step}:"
                " a batch is one step, never more"
            )
        splits, tasks = read_splits(self._plan, step, self._source), self._header.inputs.parallelism
        strict = self._header.inputs.policy is OrderingPolicy.STRICT
        columns = read_used_columns(self._columns_file)
        packed = pack_by_kafka_partition(splits, tasks) if strict else pack_by_bytes(splits, tasks)
        return [
            StepPartition(
                self._table,
                part,
                self._target,
                strict,
                columns,
                self._record_columns(step, task),
                rate,
            )
            for task, (part, rate) in enumerate(zip(packed, self._rates(step, packed), strict=True))
        ]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The rows of a task."""
        from backfill.runtime.source.split_reading import read_in_offset_order, read_split

        assert isinstance(partition, StepPartition)
        exempt_from_collection(SOURCE_FORMAT)
        table, splits, target, columns = (
            partition.table,
            partition.splits,
            partition.target,
            partition.columns,
        )
        if partition.by_offset:
            rows = read_in_offset_order(table, splits, target, columns)
        else:
            rows = (
                batch for split in splits for batch in read_split(table, split, target, columns)
            )
        if partition.rows_per_second is not None:
            rows = paced(rows, partition.rows_per_second)
        return rows if partition.record is None else partition.record.added_to(rows)

    def _rates(self, step: int, tasks: Sequence[Sequence[Split]]) -> list[float | None]:
        """What each task may read in a second, so that all tasks of a step together need as long as
        its rows of all sources may take. A part of the rate is shared evenly: rows of time slices
        are estimates, and a task with far more of them than expected would not end.
        """
        if self._rate is None:
            return [None] * len(tasks)
        expected = [sum(map(_expected_rows, splits)) for splits in tasks]
        sources = self._header.sources
        mine = sum(each.step_rows[step] for each in sources if each.name == self._source)
        of_source = self._rate * (1 - _EVENLY) * mine / max(self._header.rows_of_step(step), 1)
        even = self._rate * _EVENLY / len(sources) / max(len(tasks), 1)
        return [of_source * rows / max(sum(expected), 1) + even for rows in expected]

    def _record_columns(self, step: int, task: int) -> RecordColumns | None:
        return None if self._topic is None else RecordColumns.of(self._topic, step, task)

    def _offset(self, step: int) -> dict[str, Any]:
        return {"source": self._source, "step": step}

    def _step(self, offset: dict[str, Any]) -> int:
        if offset["source"] != self._source:
            raise PlanCorrupt(
                f"the checkpoint has the source {offset['source']}, but the application now reads"
                f" {self._source}: the order of its sources has changed"
            )
        return int(offset["step"])

    @cached_property
    def _header(self) -> PlanHeader:
        return read_header(self._plan)

    @cached_property
    def _target(self) -> "pa.Schema":
        columns = [
            field
            for field in self._schema
            if self._topic is None or field.name not in RECORD_COLUMNS
        ]
        return to_arrow_schema(StructType(columns), timezone="UTC")


def register_source(spark: SparkSession, settings: RuntimeSettings) -> None:
    """Registers the format in a session, for the plan of these settings.

    Raises:
        InvalidPlanInput: a table no longer exists, was replaced, or has lost the snapshot.
    """
    # Spark pickles a class that is in no module with everything that it holds. Options would be
    # printed in query plans, but what opens a table's files may contain credentials. This way, the
    # sources' processes need neither PyIceberg nor its catalogs.
    plan = settings.plan_workspace
    spark.dataSource.register(
        type("PlannedSource", (BackfillSource,), {"plan": plan, "tables": planned_tables(plan)})
    )


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
    register_source(spark, settings)
    table = planned_tables(settings.plan_workspace)[source]
    schema = source_schema(table, with_record=topic is not None)
    options = {"source": source, "scratch": settings.scratch}
    if topic is not None:
        options["topic"] = topic
    if settings.max_rows_per_second is not None:
        options["rate"] = str(settings.max_rows_per_second)
    frame = spark.readStream.format(SOURCE_FORMAT).schema(schema).options(**options).load()
    return frame.observe(
        observed_name(source),
        F.count(F.lit(1)).alias("rows"),
        *_observed_times(frame, table.source),
    )


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
