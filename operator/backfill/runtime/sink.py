"""The streaming sink ``backfill_iceberg``: writes rows of the window into the result's branch, each
micro-batch exactly once.

Tasks write data files and send their descriptions to the driver, which commits those of a batch
together. If Spark does not know whether a commit has happened, it calls it again with the same
batch ID; a batch that is in the branch is skipped. Files of failed tasks and aborted batches are
not removed at once, since a commit whose answer was lost may refer to them: unreferenced files are
removed after the run.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from backfill.api.base import Model
from backfill.api.errors import Problem, UnsupportedProgram
from backfill.api.output import Output
from backfill.api.spec import Window
from backfill.iceberg.catalogs import open_catalog
from backfill.iceberg.open_tables import Catalogs
from backfill.outputs.column_conversion import fit, mismatches, only, zone_mismatches
from backfill.outputs.data_files import DataFileWriter, layout
from backfill.outputs.result_names import Result
from backfill.outputs.staging import Staged, StagedBatch, read_staged, stage_batch
from backfill.outputs.window_rows import Stretch, WindowRows, window_rows
from backfill.runtime.session_conf import session_zone
from backfill.runtime.settings import RuntimeSettings
from backfill.runtime.source.garbage_collection import exempt_from_collection

SINK_FORMAT = "backfill_iceberg"
LEFT_OUT = "__backfill_left_out_"
"""Begins the names of columns that no table gets: a query has them only to keep its state as it is
without this sink.
"""
_OPTION = "settings"
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

    @property
    def result(self) -> Result:
        """The result that is written."""
        owner = (self.namespace, self.backfill, self.uid)
        return Result(*owner, self.plan_id, self.output.name, self.kept_in)


def redirect(writer: DataStreamWriter, sink: SinkSettings) -> DataStreamWriter:
    """Makes a stream writer write into an output's branch."""
    writer._df.sparkSession.dataSource.register(BackfillIceberg)
    return writer.format(SINK_FORMAT).option(_OPTION, sink.model_dump_json(by_alias=True))


def sink_settings(
    frame: DataFrame, settings: RuntimeSettings, output: Output, query_name: str
) -> SinkSettings:
    """What writes the rows of a DataFrame into an output's branch.

    Raises:
        BadInput: the table is not there, or the rows do not fit it.
    """
    table = Catalogs().load_table(output.table, "spec.outputs")
    check_schema(frame.schema, table, output, session_zone(frame.sparkSession))
    return settings_for(table, settings, output, query_name)


def settings_for(
    table: Table, settings: RuntimeSettings, output: Output, query_name: str
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
    )


def check_schema(rows: StructType, table: Table, output: Output, zone: str | None) -> None:
    """Checks that rows of a DataFrame can be written into an output's table. ``zone`` is the time
    zone of their session; None for UTC.

    Raises:
        UnsupportedProgram: with every column that is missing, unknown or of another type.
    """
    columns = to_arrow_schema(rows, timezone="UTC")
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


class BackfillIceberg(DataSource):
    """The data source of the format ``backfill_iceberg``.

    It can only be written, and only by a stream.
    """

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return SINK_FORMAT

    def streamWriter(self, schema: StructType, overwrite: bool) -> "SinkWriter":
        """The writer of one micro-batch."""
        return SinkWriter(SinkSettings.model_validate_json(self.options[_OPTION]))


@dataclass(frozen=True, slots=True)
class WrittenFiles(WriterCommitMessage):
    """What one task has written."""

    files: list[DataFile]
    rows_outside_window: int
    rows_open: int = 0
    """Rows of the window that are left out because they may still change."""


class SinkWriter(DataSourceStreamArrowWriter):
    """Writes one micro-batch.

    It is created in the driver, sent to the tasks, and commits in the driver.
    """

    def __init__(
        self,
        settings: SinkSettings,
        stretch: Stretch | None = None,
        *,
        changes_of: int | None = None,
    ):
        """With a ``stretch``, only its results are written. ``changes_of`` is the micro-batch whose
        changed rows are written: into a directory of its own, and with those that may leave the
        window or come into it by a later change.
        """
        self._settings = settings
        table = _open(settings.output.table)
        if settings.schema_id not in table.schemas() or settings.spec_id not in table.specs():
            table.refresh()
        directory = (
            settings.result.staging_directory(table.metadata)
            if changes_of is None
            else settings.result.batch_directory(table.metadata, changes_of)
        )
        self._layout: TableMetadata = layout(
            table.metadata, settings.schema_id, settings.spec_id, directory
        )
        self._schema: Schema = self._layout.schema()
        self._by_stretch = stretch is not None
        given = settings.window if stretch is None else stretch.given
        rows, keys = window_rows(self._schema, settings.output, given), settings.output.keys
        whole = changes_of is not None and rows is not None and not rows.fixed_by(keys)
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
        files = DataFileWriter(self._layout, _open(self._settings.output.table).io)
        exempt_from_collection(SINK_FORMAT)
        outside = left_open = 0
        try:
            for batch in iterator:
                # first, since what is left out need not fit: it may be made of some rows only
                times = None if self._time is None else fit(batch, self._time)
                given = _those(batch, times, self._given)
                files.add(fit(given, self._schema))
                if self._open is not None:
                    left_open += _those(batch, times, self._open).num_rows
                if not self._by_stretch:  # else neighbours would count them as well
                    outside += batch.num_rows - given.num_rows
            return WrittenFiles(files.close(), outside, left_open)
        except BaseException:
            files.discard()
            raise

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Adds the batch to the branch, unless the branch has it."""
        written = [message for message in messages if isinstance(message, WrittenFiles)]
        files = [file for message in written for file in message.files]
        outside = sum(message.rows_outside_window for message in written)
        self.stage(
            StagedBatch(self._settings.query, batchId, files, self._settings.spec_id, outside)
        )

    def stage(self, batch: StagedBatch) -> bool:
        """Adds what was written to the branch, unless it is there. Returns whether it did."""
        table = _open(self._settings.output.table).refresh()
        return stage_batch(table, self._settings.result, batch)

    def staged(self) -> Staged | None:
        """How far the result has come.

        Raises:
            BadInput: the branch holds something else.
        """
        table = _open(self._settings.output.table).refresh()
        return read_staged(table.metadata, self._settings.result)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Does nothing; see the description of the module."""


def _those(
    rows: pa.RecordBatch, times: pa.RecordBatch | None, which: WindowRows | None
) -> pa.RecordBatch:
    """The rows that belong to a stretch of time, by their times; None is all time."""
    if times is None or which is None:
        return rows
    mask = which.mask(times)
    return rows if pc.all(mask).as_py() else rows.filter(mask)


def _open(name: str) -> Table:
    """A table, cached for some minutes, because Spark's
    Python workers are reused for other tasks and batches.
    """
    return _opened(name, int(time.monotonic() // _REOPEN_SECONDS))


@lru_cache(maxsize=16)
def _opened(name: str, period: int) -> Table:
    catalog, _, identifier = name.partition(".")
    return open_catalog(catalog).load_table(identifier)
