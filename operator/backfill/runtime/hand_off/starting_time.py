"""From which time on a source reads live traffic whose rows have no Kafka offsets.

Every record that is older must be in the table. What the table shows of that is its newest row; a
margin covers how much further behind ingestion was in some partition.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyspark.sql.types import IntegralType, TimestampNTZType, TimestampType

from backfill.api.errors import InvalidPlanInput, Problem
from backfill.api.source import Source
from backfill.iceberg.open_tables import Catalogs
from backfill.iceberg.timestamp_units import ticks_of
from backfill.planning.metadata.ingestion_watermark import ingested, written_us
from backfill.planning.plan import SourceInput, Split, read_header
from backfill.planning.rows.pinned_table import SourceTable, load_source_table
from backfill.planning.rows.row_selection import column_at
from backfill.planning.workspace import Workspace
from backfill.runtime.hand_off.kafka_start_offsets import READERS, files_of
from backfill.runtime.source.schemas import spark_schema
from backfill.runtime.source.split_reading import read_split
from backfill.runtime.source.timestamp_columns import find_column
from backfill.runtime.spark_versions import to_arrow_schema


def starting_time_us(
    plan: Workspace, source: Source, field: str, margin_us: int, kept: Workspace
) -> int:
    """From which time on a source reads live traffic: ``margin_us`` before the newest row of
    history, and not before the start of history. ``field`` is the path of the source.

    A row cannot be newer than its commit: a later time is wrong and does not count. If all are, the
    time of the commit counts. Where ingestion says up to when it has written everything, that
    counts if it is less. All of it follows from the pinned snapshot, and is kept in ``kept`` for
    later attempts, which may not find the older snapshots any more.

    Raises:
        InvalidPlanInput: a file cannot be read, or the times of records are not in the table.
    """
    header = read_header(plan)
    name, start_us = f"_newest-{header.plan_id}-{source.name}.json", header.inputs.read_start_us
    if kept.exists(name):
        newest_us = int(kept.read_sealed(name))
    else:
        described = next(each for each in header.inputs.sources if each.name == source.name)
        files = files_of(plan, source.name, range(header.steps))
        newest_us = _newest_us(source, field, described, files, start_us)
        kept.write_sealed(name, str(newest_us).encode())
    return max(start_us, newest_us - margin_us)


def _newest_us(
    source: Source, field: str, described: SourceInput, files: list[Split], start_us: int
) -> int:
    """The newest time up to which the table may have everything; ``start_us`` if it has no rows."""
    if not files:
        return start_us
    times = _RecordTimes.of(source, field, load_source_table(described))
    committed_us, *through = _reached(described)
    rows = later = False
    with ThreadPoolExecutor(READERS) as pool:
        for some in _newest_first(files, committed_us):
            found = list(pool.map(lambda file: times.of_file(file, committed_us), some))
            known = [each.newest_us for each in found if each.newest_us is not None]
            if known:
                return min([max(known), *through])
            rows |= any(each.rows for each in found)
            later |= any(each.later for each in found)
            if rows and not later:
                fix = "fill in the column, or omit the field"
                raise times.problem("has no values in the newest rows", fix)
    return min([committed_us, *through]) if later else start_us


def _newest_first(files: list[Split], committed_us: int) -> Iterator[list[Split]]:
    """Those of the files that can have the newest row, and then some with the next older ones each
    time: bounds count deleted rows, too.

    Files that are newer than the commit say nothing of how far ingestion is.
    """
    timely = [file for file in files if file.lower_us <= committed_us] or files
    surely_us = max(file.lower_us for file in timely)
    timely = sorted(timely, key=lambda file: file.upper_us, reverse=True)
    first = sum(file.upper_us >= surely_us for file in timely)
    yield timely[:first]
    for begin in range(first, len(timely), READERS):
        yield timely[begin : begin + READERS]


def _reached(described: SourceInput) -> list[int]:
    """When the newest rows were committed, and up to when ingestion says that it has written
    everything.
    """
    table = Catalogs().load_source(described.table, "spec.sources")
    snapshot = table.snapshot_by_id(described.snapshot_id)
    assert snapshot is not None, "the table was loaded with this snapshot a moment ago"
    says, _ = ingested(table.metadata, snapshot, described)
    through = [] if says is None or says.newer_rows else [says.through_us]
    return [written_us(table.metadata, snapshot), *through]


@dataclass(frozen=True, slots=True)
class _Times:
    """The times in the rows of a file."""

    rows: bool
    """Whether there are rows."""
    newest_us: int | None
    """The newest one that is not later than the commit; None if there is none."""
    later: bool
    """Whether there are later ones."""


@dataclass(frozen=True)
class _RecordTimes:
    """The column of a table with the time of records, or what comes closest to it."""

    table: SourceTable
    field: str
    """Field of the resource that names it."""
    column: str
    path: tuple[str, ...]
    target: pa.Schema
    unit: str
    """Unit of a number."""

    @classmethod
    def of(cls, source: Source, field: str, table: SourceTable) -> Self:
        schema = Schema.model_validate_json(table.schema_json)
        columns = spark_schema(schema, source.table)
        own = source.kafka.timestamp_column
        field = f"{field}.timestampColumn" if own is None else f"{field}.kafka.timestampColumn"
        column = own or source.timestamp_column
        # as the application reads it: Kafka's own timestamps are in milliseconds
        unit = (source.timestamp_unit or "us") if own is None else "ms"
        path, kind = find_column(columns, column) or ([], None)
        target = to_arrow_schema(columns)
        found = cls(table, field, column, tuple(path), target, unit)
        if not isinstance(kind, TimestampType | TimestampNTZType | IntegralType):
            raise found.problem("contains no times", "set a column with the record timestamps")
        return found

    def of_file(self, split: Split, committed_us: int) -> _Times:
        """The times in the rows of a file."""
        rows, newest, later = False, None, False
        for batch in read_split(self.table, split, self.target, frozenset(self.path[:1])):
            rows |= batch.num_rows > 0
            times = column_at(batch, list(self.path))
            ticks = ticks_of("long", "us" if pa.types.is_timestamp(times.type) else self.unit)
            values = times.cast(pa.int64()).drop_null()
            timely = values.filter(pc.less(values, ticks.first_at(committed_us + 1)))
            later |= len(timely) < len(values)
            if len(timely):
                us = ticks.floor_us(pc.max(timely).as_py())
                newest = us if newest is None else max(newest, us)
        return _Times(rows, newest, later)

    def problem(self, message: str, fix: str) -> InvalidPlanInput:
        """What is wrong with it."""
        what = f"column {self.column} of {self.table.source.table} {message}"
        return InvalidPlanInput(Problem(self.field, what, fix))
