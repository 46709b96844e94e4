"""Reads Parquet footers for what manifests lack: row groups, and the timestamps in each of them."""

import json
import os
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import InputStream
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import NameMapping

from backfill.iceberg.file_columns import (
    Columns,
    WrittenField,
    columns_of,
    has_field_ids,
    misfits,
    misfits_of,
    path_to,
)
from backfill.iceberg.library_errors import reason
from backfill.iceberg.missing_columns import partition_values
from backfill.iceberg.timestamp_units import Ticks
from backfill.planning.plan import PlannedFile
from backfill.planning.source_files import UNKNOWN, ColumnRef, SourceFiles

_READERS = 16
"""Threads that read. Most of the time they wait for two or three small requests for each footer."""
_BATCH = 512
"""Footers in progress at a time. Each takes a few kilobytes per row group."""
_UNITS = {"milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}
_REWRITE = "rewrite the file in the table's schema (rewrite_data_files), then start a new Backfill"


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group, and the bounds of its timestamps."""

    rows: int
    bytes: int
    """Compressed size."""
    lower_us: int | None
    """None if the footer does not have it, or if no row has a timestamp."""
    upper_us: int | None
    nulls: int
    """Number of rows without a timestamp, or :data:`backfill.planning.source_files.UNKNOWN`."""

    @property
    def empty(self) -> bool:
        """Whether no row has a timestamp."""
        return self.nulls == self.rows


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Why a data file cannot be read, in a phrase that names it."""

    reason: str
    fix: str = ""
    """What to do, if the file itself is fine."""


def open_parquet(stream: BinaryIO | InputStream, *, pre_buffer: bool = False) -> pq.ParquetFile:
    """Opens a data file to read its rows. INT96 timestamps are read as microseconds, since
    nanoseconds cover only about three centuries.
    """
    return pq.ParquetFile(stream, pre_buffer=pre_buffer, coerce_int96_timestamp_unit="us")


def read_footers(
    files: SourceFiles, rows: Iterable[int]
) -> Iterator[tuple[RowGroup, ...] | Unreadable]:
    """The row groups of some files of a source, in the same order. For a file that cannot be read,
    the reason is in its place.
    """

    def read(row: int) -> tuple[RowGroup, ...] | Unreadable:
        path = files.path[row].as_py()
        try:
            with files.open(path) as stream:
                metadata = pq.read_metadata(stream)
            schema = metadata.schema.to_arrow_schema()
            problem = unidentified(path, schema, mapped=files.mapping is not None)
            columns = columns_of(schema, files.mapping)
            found = path_to(columns, files.column.field_id)
            problem = problem or unfit_columns(path, [files.column], [found])
            if problem:
                return problem
            if found is None:
                return tuple(
                    _without_column(metadata, files.column, columns, files.arrival_without(row))
                )
            return tuple(_with_column(metadata, found[-1].leaf, files.column.ticks))
        except (OSError, pa.ArrowException) as error:
            return Unreadable(f"{path} cannot be read: {reason(error)}")

    remaining = iter(rows)
    with ThreadPoolExecutor(_READERS) as pool:
        while batch := list(islice(remaining, _BATCH)):
            yield from pool.map(read, batch)


def unreadable_files(
    open_file: Callable[[str], BinaryIO],
    files: Iterable[PlannedFile],
    schema: Schema,
    mapping: NameMapping | None,
) -> Iterator[Unreadable]:
    """Files that are missing, truncated, not Parquet,
    or cannot be read with a schema of their table.
    """

    def check(file: PlannedFile) -> Unreadable | None:
        path, length = file.path, file.bytes
        try:
            with open_file(path) as stream:
                found = stream.seek(0, os.SEEK_END)
                if found != length:
                    return Unreadable(
                        f"{path} has {found:,} bytes, but the table's metadata says {length:,}"
                    )
                stream.seek(0)
                parquet = open_parquet(stream)
                problem = miscounted(path, parquet.num_row_groups, file.row_groups)
                given = partition_values(schema, file.partition)
                return problem or unfit(path, parquet.schema_arrow, schema, mapping, given)
        except (OSError, pa.ArrowException) as error:
            return Unreadable(f"{path} cannot be read: {reason(error)}")

    with ThreadPoolExecutor(_READERS) as pool:
        yield from filter(None, pool.map(check, files))


def unidentified(path: str, schema: pa.Schema, *, mapped: bool) -> Unreadable | None:
    """Why the columns of a file cannot be identified; None if they can, by field ids or by the
    table's name mapping (``mapped``).
    """
    if mapped or has_field_ids(schema):
        return None
    return Unreadable(
        f"{path} has no field ids, and the table has no name mapping",
        "set the table property schema.name-mapping.default, which maps the columns of such files"
        " to those of the table",
    )


def unfit(
    path: str, file: pa.Schema, schema: Schema, mapping: NameMapping | None, given: Container[int]
) -> Unreadable | None:
    """Why a file with this Arrow schema cannot be read with a schema of its table; None if it can.

    ``given`` are ids of fields whose value is in the file's partition.
    """
    problem = unidentified(path, file, mapped=mapping is not None)
    return problem or _misfit(path, misfits(schema.fields, columns_of(file, mapping), given))


def unfit_columns(
    path: str, columns: Sequence[ColumnRef], found: Sequence[tuple[WrittenField, ...] | None]
) -> Unreadable | None:
    """Why some columns, which :func:`path_to` has found in a file,
    cannot be read; None if they can.
    """
    pairs = zip(columns, found, strict=True)
    return _misfit(
        path,
        (
            misfit
            for column, to in pairs
            if to
            for misfit in misfits_of(column.kind, to[-1], column.name)
        ),
    )


def _misfit(path: str, misfits: Iterator[str]) -> Unreadable | None:
    first = next(misfits, None)
    return None if first is None else Unreadable(f"{path} {first}", _REWRITE)


def miscounted(path: str, found: int, planned: int | None) -> Unreadable | None:
    """Why the row groups of a plan cannot be those of the file; None if they can, or if they are
    from its footer.
    """
    if planned is None or planned == found:
        return None
    return Unreadable(
        f"{path} has {found} row groups, but its manifest says {planned}",
        "rewrite the file (rewrite_data_files), then start a new Backfill",
    )


def _without_column(
    metadata: pq.FileMetaData, column: ColumnRef, columns: Columns, moment_us: int | None
) -> Iterator[RowGroup]:
    """The row groups of a file that lacks the timestamp column. All its rows then have the
    timestamp ``moment_us``, except where the struct that holds the column is null, or missing, too.
    """
    if any(path_to(columns, parent) is None for parent in column.parents):
        moment_us = None
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        nulls = group.num_rows if moment_us is None else UNKNOWN if column.parents else 0
        yield RowGroup(group.num_rows, _compressed(group), moment_us, moment_us, nulls)


def _with_column(metadata: pq.FileMetaData, leaf: int, declared: Ticks) -> Iterator[RowGroup]:
    ticks = _ticks(metadata.schema.column(leaf), declared)
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        statistics = group.column(leaf).statistics
        nulls = (
            statistics.null_count
            if statistics is not None and statistics.has_null_count
            else UNKNOWN
        )
        lower, upper = None, None
        if statistics is not None and ticks is not None and statistics.has_min_max:
            lower, upper = ticks.floor_us(statistics.min_raw), ticks.floor_us(statistics.max_raw)
        yield RowGroup(group.num_rows, _compressed(group), lower, upper, nulls)


def _ticks(column: pq.ColumnSchema, declared: Ticks) -> Ticks | None:
    """The unit of a column's timestamps; None for INT96, whose statistics are meaningless."""
    if column.physical_type not in ("INT64", "INT32"):
        return None
    logical = json.loads(column.logical_type.to_json())
    return Ticks(_UNITS[logical["timeUnit"]]) if logical["Type"] == "Timestamp" else declared


def _compressed(group: pq.RowGroupMetaData) -> int:
    return sum(group.column(i).total_compressed_size for i in range(group.num_columns))
