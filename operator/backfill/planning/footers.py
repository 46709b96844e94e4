"""Reads Parquet footers for what manifests do not say: row groups and the timestamps in each of them."""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from backfill.api.errors import first_line
from backfill.planning.files import UNKNOWN, ColumnRef, TimestampColumn
from backfill.planning.plan import PlannedFile
from backfill.planning.timestamps import Ticks

_READERS = 16
"""Threads: reading a footer is waiting for two or three small requests."""
_BATCH = 512
"""Footers under way at a time; each is a few kilobytes per row group."""
_UNITS = {"milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}
_FIELD_ID = b"PARQUET:field_id"


@dataclass(frozen=True, slots=True)
class RowGroup:
    """One row group, with the timestamps in it."""

    rows: int
    bytes: int
    """Compressed bytes."""
    lower_us: int | None
    """None where the footer does not tell, or where no row has a timestamp."""
    upper_us: int | None
    nulls: int
    """Rows without a timestamp, or :data:`backfill.planning.files.UNKNOWN`."""

    @property
    def empty(self) -> bool:
        """Whether no row has a timestamp."""
        return self.nulls == self.rows


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Why a data file can not be read, in a phrase that names it."""

    reason: str
    fix: str = ""
    """What to do, where nothing is wrong with the file itself."""


def read_footers(
    open_file: Callable[[str], BinaryIO], paths: Iterable[str], column: TimestampColumn
) -> Iterator[tuple[RowGroup, ...] | Unreadable]:
    """The row groups of each file, in the order of ``paths``; in the place of a file that can not be read, the reason."""

    def read(path: str) -> tuple[RowGroup, ...] | Unreadable:
        try:
            with open_file(path) as file:
                metadata = pq.read_metadata(file)
            schema = metadata.schema.to_arrow_schema()
            problem = unidentified(path, schema, mapped=column.names is not None)
            return problem or _row_groups(metadata, column_path(schema, column), column)
        except (OSError, pa.ArrowException) as error:
            return Unreadable(f"{path} can not be read: {first_line(error)}")

    remaining = iter(paths)
    with ThreadPoolExecutor(_READERS) as pool:
        while batch := list(islice(remaining, _BATCH)):
            yield from pool.map(read, batch)


def unreadable_files(open_file: Callable[[str], BinaryIO], files: Iterable[PlannedFile], *, mapped: bool) -> Iterator[Unreadable]:
    """Which of these files are gone, cut off, no Parquet, :func:`unidentified`, or :func:`miscounted`."""

    def check(file: PlannedFile) -> Unreadable | None:
        path, length = file.path, file.bytes
        try:
            with open_file(path) as stream:
                found = stream.seek(0, os.SEEK_END)
                if found != length:
                    return Unreadable(f"{path} has {found:,} bytes where the table says {length:,}")
                stream.seek(0)
                metadata = pq.read_metadata(stream)
                problem = unidentified(path, metadata.schema.to_arrow_schema(), mapped=mapped)
                return problem or miscounted(path, metadata.num_row_groups, file.row_groups)
        except (OSError, pa.ArrowException) as error:
            return Unreadable(f"{path} can not be read: {first_line(error)}")

    with ThreadPoolExecutor(_READERS) as pool:
        yield from filter(None, pool.map(check, files))


def unidentified(path: str, schema: pa.Schema, *, mapped: bool) -> Unreadable | None:
    """Why nothing tells which columns of the table a file has; None where its field ids do, or the table's name mapping
    (``mapped``)."""
    if mapped or any(_FIELD_ID in (field.metadata or {}) for field in schema):
        return None
    return Unreadable(
        f"{path} has no field ids, and the table no name mapping",
        "set the table property schema.name-mapping.default, which says what the columns of such files are",
    )


def miscounted(path: str, found: int, planned: int | None) -> Unreadable | None:
    """Why the row groups of a plan are not those of the file; None where they are, or where its footer told them."""
    if planned is None or planned == found:
        return None
    return Unreadable(
        f"{path} has {found} row groups where its manifest says {planned}",
        "rewrite the file (rewrite_data_files), then start a new Backfill",
    )


def column_path(schema: pa.Schema, column: ColumnRef) -> str | None:
    """Where a column is in a file, nested ones with dots: by its field id, or by a mapped name in a file without field ids."""
    by_id: dict[int, str] = {}
    names: set[str] = set()
    pending = [(field, field.name) for field in schema]
    while pending:
        field, path = pending.pop()
        names.add(path)
        identifier = (field.metadata or {}).get(_FIELD_ID)
        if identifier is not None:
            by_id[int(identifier)] = path
        if pa.types.is_struct(field.type):
            pending += [(child, f"{path}.{child.name}") for child in field.type]
    if by_id:
        return by_id.get(column.field_id)
    return next((name for name in column.names or () if name in names), None)


def _row_groups(metadata: pq.FileMetaData, path: str | None, column: TimestampColumn) -> tuple[RowGroup, ...]:
    position = next((i for i in range(metadata.num_columns) if metadata.schema.column(i).path == path), None)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    if position is None:
        return tuple(_without_column(group, column.initial_us) for group in groups)
    ticks = _ticks(metadata.schema.column(position), column.ticks)
    return tuple(_with_column(group, position, ticks) for group in groups)


def _without_column(group: pq.RowGroupMetaData, initial_us: int | None) -> RowGroup:
    """A file older than the column: its rows have the column's initial default, or no timestamp."""
    nulls = group.num_rows if initial_us is None else 0
    return RowGroup(group.num_rows, _compressed(group), initial_us, initial_us, nulls)


def _with_column(group: pq.RowGroupMetaData, position: int, ticks: Ticks | None) -> RowGroup:
    statistics = group.column(position).statistics
    nulls = statistics.null_count if statistics is not None and statistics.has_null_count else UNKNOWN
    if statistics is None or ticks is None or not statistics.has_min_max:
        return RowGroup(group.num_rows, _compressed(group), None, None, nulls)
    lower, upper = ticks.floor_us(statistics.min_raw), ticks.floor_us(statistics.max_raw)
    return RowGroup(group.num_rows, _compressed(group), lower, upper, nulls)


def _ticks(column: pq.ColumnSchema, declared: Ticks) -> Ticks | None:
    """How the file counts; None for INT96, whose statistics mean nothing."""
    if column.physical_type not in ("INT64", "INT32"):
        return None
    logical = json.loads(column.logical_type.to_json())
    return Ticks(_UNITS[logical["timeUnit"]]) if logical["Type"] == "Timestamp" else declared


def _compressed(group: pq.RowGroupMetaData) -> int:
    return sum(group.column(i).total_compressed_size for i in range(group.num_columns))
