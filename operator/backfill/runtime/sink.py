"""The sink: writes rows of the window into the result's branch, each batch exactly once.

Tasks write data files and send their descriptions to the driver, which commits those of a batch
together. A batch that Spark runs again has the same number, and one that is in the branch is
skipped. Files of failed tasks and batches are not removed at once, since a commit whose answer was
lost may refer to them: unreferenced files are removed after the run.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from backfill.api.base import Model
from backfill.api.errors import Problem, UnsupportedProgram
from backfill.api.output import Output
from backfill.api.spec import Window
from backfill.iceberg.catalogs import open_catalog
from backfill.iceberg.open_tables import Catalogs
from backfill.iceberg.unavailable_catalogs import answered
from backfill.outputs.column_conversion import fit, mismatches, only, zone_mismatches
from backfill.outputs.data_files import DataFileWriter, layout
from backfill.outputs.null_columns import Spellings, check_decoded
from backfill.outputs.result_names import Result
from backfill.outputs.staging import (
    Holds,
    Part,
    Staged,
    StagedBatch,
    part_of,
    read_staged,
    stage_batch,
)
from backfill.outputs.window_rows import Stretch, WindowRows, window_rows
from backfill.runtime.catalyst import columns_with_values
from backfill.runtime.session_conf import session_zone
from backfill.runtime.settings import RuntimeSettings
from backfill.runtime.source.garbage_collection import exempt_from_collection
from backfill.runtime.spark_versions import to_arrow_schema

LEFT_OUT = "__backfill_left_out_"
"""Begins the names of columns that no table gets: a query has them only to keep its state as it is
without this sink.
"""
_AWAY_SECONDS = 120.0
"""How long the catalog may be unavailable before the query fails."""
_REOPEN_SECONDS = 600.0
"""Seconds after which a table is loaded again. Credentials that a catalog issues with a table may
be valid for an hour or less.
"""


class SinkSettings(Model):
    """Everything that a sink needs, without credentials; these are in PyIceberg's configuration."""

    backfill: str
    """Name of the Backfill."""
    namespace: str
    """Namespace of the Backfill."""
    uid: str
    """Uid of the Backfill."""
    kept_in: str = ""
    """Which cluster or state directory the Backfill is stored in."""
    plan_id: str
    """ID of the plan."""
    query: str
    """Name of the query that writes."""
    output: Output
    """The output that it writes."""
    window: Window
    """The window. Rows outside are left out."""
    schema_id: int
    """ID of the table's schema when the query started, used until the query ends."""
    spec_id: int
    """ID of the table's partition spec when the query started."""
    columns: tuple[str, ...] = ()
    """Names of the columns that the query gives values, if they are known when it starts."""
    spellings: dict[str, tuple[int, str]] = {}
    """Names in the program that columns of its sources come near."""

    @property
    def result(self) -> Result:
        """The result that is written."""
        owner = (self.namespace, self.backfill, self.uid)
        return Result(*owner, self.plan_id, self.output.name, self.kept_in)


def sink_settings(
    frame: DataFrame,
    settings: RuntimeSettings,
    output: Output,
    query_name: str,
    spellings: Spellings = MappingProxyType({}),
) -> SinkSettings:
    """What writes the rows of a DataFrame into an output's branch.

    Args:
        spellings: names in the program that columns of its sources come near.

    Raises:
        BadInput: the table is not there, or the rows do not fit it.
    """
    table = Catalogs().load_table(output.table, "spec.outputs")
    check_schema(frame.schema, table, output, session_zone(frame.sparkSession))
    made = settings_for(table, settings, output, query_name, spellings)
    return made.model_copy(update={"columns": columns_with_values(frame)})


def settings_for(
    table: Table,
    settings: RuntimeSettings,
    output: Output,
    query_name: str,
    spellings: Spellings = MappingProxyType({}),
) -> SinkSettings:
    """What writes rows that fit an output's table into its branch."""
    return SinkSettings(
        backfill=settings.backfill,
        namespace=settings.namespace,
        uid=settings.uid,
        kept_in=settings.kept_in,
        plan_id=settings.plan_id,
        query=query_name,
        output=output,
        window=settings.window,
        schema_id=table.schema().schema_id,
        spec_id=table.spec().spec_id,
        spellings=dict(spellings),
    )


def check_schema(rows: StructType, table: Table, output: Output, zone: str | None) -> None:
    """Checks that rows of a DataFrame can be written into an output's table. ``zone`` is the time
    zone of their session; None for UTC.

    Raises:
        UnsupportedProgram: with every column that is missing, unknown or of another type.
    """
    columns = to_arrow_schema(rows)
    given = pa.schema([each for each in columns if not each.name.startswith(LEFT_OUT)])
    problems = mismatches(given, table.schema(), output.table)
    if zone is not None:
        problems += zone_mismatches(given, table.schema(), output.table, zone)
    problems += _without_time(rows, output)
    if problems:
        raise UnsupportedProgram(problems)


def _without_time(rows: StructType, output: Output) -> list[Problem]:
    """Rows without a time would all be outside of the window."""
    column = output.timestamp_column
    if column is None:
        return []
    names = {column.lower(), column.partition(".")[0].lower()}
    if names & {name.lower() for name in rows.names}:
        return []
    return [
        Problem(
            "spec.outputs",
            f"the rows for {output.table} do not have column {column}, the timestampColumn of"
            f" output {output.name}, so no row would be in the window",
            "add the column with select, even to records for Kafka, whose sink ignores it",
        )
    ]


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """What one task has written."""

    files: list[DataFile]
    rows_outside_window: int
    rows_open: int = 0
    """Rows of the window that are left out because they may still change."""
    rows: int = 0
    """Rows that the task was given."""
    rows_without_time: int = 0
    """Rows without a value of the ``timestampColumn``."""


def staged_batch(
    query: str,
    batch_id: int,
    spec_id: int,
    written: Sequence[WrittenFiles],
    *,
    first: int | None = None,
    holds: Holds = "Rows",
) -> StagedBatch:
    """What tasks have written, as a batch of a query. See :class:`StagedBatch`."""
    rows = sum(each.rows for each in written)
    without_time = sum(each.rows_without_time for each in written)
    return StagedBatch(
        query,
        batch_id,
        [file for each in written for file in each.files],
        spec_id,
        sum(each.rows_outside_window for each in written),
        first=first,
        holds=holds,
        rows_open=sum(each.rows_open for each in written),
        rows_without_time=rows if rows == without_time else 0,
    )


class SinkWriter:
    """Writes one batch. It is made in the driver, sent to the tasks, and commits in the driver."""

    def __init__(
        self,
        settings: SinkSettings,
        stretch: Stretch | None = None,
        *,
        batch: int | None = None,
        holds: Holds = "Rows",
    ):
        """With a ``stretch``, only its results are written. ``batch`` is the micro-batch that has a
        directory of its own. Of ``Changes``, rows are written, too, that may leave the window or
        come into it by a later change.
        """
        self._settings = settings
        self.decoding_is_known = False
        """Whether so much was staged that :meth:`stage` asks no more which columns were written."""
        table = copy(_open(settings.output.table))
        if settings.schema_id not in table.schemas() or settings.spec_id not in table.specs():
            table.refresh()
        directory = (
            settings.result.staging_directory(table.metadata)
            if batch is None
            else settings.result.batch_directory(table.metadata, batch)
        )
        self._layout: TableMetadata = layout(
            table.metadata, settings.schema_id, settings.spec_id, directory
        )
        self._schema: Schema = self._layout.schema()
        self._by_stretch = stretch is not None
        given = settings.window if stretch is None else stretch.given
        self._in_window = window_rows(self._schema, settings.output, settings.window)
        rows, keys = window_rows(self._schema, settings.output, given), settings.output.keys
        whole = holds == "Changes" and rows is not None and not rows.fixed_by(keys)
        self._given: WindowRows | None = None if whole else rows
        self._open: WindowRows | None = None
        if stretch is not None:
            self._open = window_rows(self._schema, settings.output, stretch.left_open)
        self._time: Schema | None = None if rows is None else only(self._schema, rows.path)

    @property
    def spec_id(self) -> int:
        """The partitioning that files are written with."""
        return self._settings.spec_id

    def write(self, iterator: Iterator[Any]) -> WrittenFiles:
        """Writes the rows of one task."""
        task = TaskContext.get()
        files = DataFileWriter(
            self._layout,
            _open(self._settings.output.table).io,
            task=0 if task is None else task.partitionId(),
        )
        exempt_from_collection("sink")
        outside = left_open = rows = timeless = 0
        try:
            for batch in iterator:
                # first, since what is left out need not fit: it may be made of some rows only
                times = None if self._time is None else fit(batch, self._time)
                rows += batch.num_rows
                if times is not None and self._in_window is not None:
                    timeless += self._in_window.times(times).null_count
                given = _those(batch, times, self._given)
                files.add(fit(given, self._schema))
                if self._open is not None:
                    left_open += _those(batch, times, self._open).num_rows
                if not self._by_stretch:  # else neighbours would count them as well
                    outside += batch.num_rows - given.num_rows
            return WrittenFiles(files.close(), outside, left_open, rows, timeless)
        except BaseException:
            files.discard()
            raise

    def stage(self, batch: StagedBatch, columns: Iterable[str] = ()) -> bool:
        """Adds what was written to the branch, unless it is there. Returns whether it did.

        Args:
            columns: names of the columns that were written, if they are known only now.

        Raises:
            InvalidPlanInput: columns of the result's first rows are null in all of them.
        """
        table, settings = self._current(), self._settings
        self.decoding_is_known = self.decoding_is_known or check_decoded(
            table,
            settings.result,
            settings.output,
            self._in_window,
            batch,
            columns=columns or settings.columns,
            spellings=settings.spellings,
        )
        return stage_batch(table, settings.result, batch)

    def staged(self) -> Staged | None:
        """How far the result has come, by all queries that write it.

        Raises:
            BadInput: the branch holds something else.
        """
        table = self._current()
        return read_staged(table.metadata, self._settings.result)

    def part(self) -> Part | None:
        """How far the query has come; None if it has staged nothing.

        Raises:
            BadInput: the branch holds something else.
        """
        return part_of(self.staged(), self._settings.query)

    def _current(self) -> Table:
        return answered(lambda: copy(_open(self._settings.output.table)).refresh(), _AWAY_SECONDS)


def _those(
    rows: pa.RecordBatch, times: pa.RecordBatch | None, which: WindowRows | None
) -> pa.RecordBatch:
    """The rows that belong to a stretch of time, by their times; None is all time."""
    if times is None or which is None:
        return rows
    mask = which.mask(times)
    return rows if pc.all(mask).as_py() else rows.filter(mask)


def _open(name: str) -> Table:
    """A table, cached for some minutes, because Spark's Python workers are reused for other tasks
    and batches. What refreshes it uses a copy: a thread that was slower than others would take it
    back to what it was before.
    """
    return _opened(name, int(time.monotonic() // _REOPEN_SECONDS))


@lru_cache(maxsize=16)
def _opened(name: str, period: int) -> Table:
    catalog, _, identifier = name.partition(".")
    return open_catalog(catalog).load_table(identifier)
