"""Reads Parquet footers for what manifests do not say: row groups and the timestamps in each of
them.
"""

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

from backfill.iceberg.failures import reason
from backfill.iceberg.timestamps import Ticks
from backfill.iceberg.values import partition_values
from backfill.iceberg.written import (
    Columns,
    Written,
    columns_of,
    has_field_ids,
    misfits,
    misfits_of,
    path_to,
)
from backfill.planning.files import UNKNOWN, ColumnRef, SourceFiles
from backfill.planning.plan import PlannedFile

_READERS = 16
"""Threads: reading a footer is waiting for two or three small requests."""
_BATCH = 512
"""Footers under way at a time; each is a few kilobytes per row group."""
_UNITS = {"milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}
_REWRITE = "rewrite the file in the table's schema (rewrite_data_files), then start a new Backfill"


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
    """Why a data file cannot be read, in a phrase that names it."""

    reason: str
    fix: str = ""
    """What to do, where nothing is wrong with the file itself."""


def open_parquet(stream: BinaryIO | InputStream, *, pre_buffer: bool = False) -> pq.ParquetFile:
    """A data file to read rows of. Its INT96 timestamps are microseconds: as nanoseconds only some
    three centuries fit.
    """
    return pq.ParquetFile(stream, pre_buffer=pre_buffer, coerce_int96_timestamp_unit="us")


def read_footers(
    files: SourceFiles, rows: Iterable[int]
) -> Iterator[tuple[RowGroup, ...] | Unreadable]:
    """The row groups of some files of a source, in their order; in the place of a file that cannot
    be read, the reason.
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
    """Which of these files are gone, cut off, no Parquet, or cannot be read in a schema of their
    table.
    """

    def check(file: PlannedFile) -> Unreadable | None:
        path, length = file.path, file.bytes
        try:
            with open_file(path) as stream:
                found = stream.seek(0, os.SEEK_END)
                if found != length:
                    return Unreadable(f"{path} has {found:,} bytes where the table says {length:,}")
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
    """Why nothing tells which columns of the table a file has; None where its field ids do, or the
    table's name mapping (``mapped``).
    """
    if mapped or has_field_ids(schema):
        return None
    return Unreadable(
        f"{path} has no field ids, and the table no name mapping",
        "set the table property schema.name-mapping.default, which says what the columns of such"
        " files are",
    )


def unfit(
    path: str, file: pa.Schema, schema: Schema, mapping: NameMapping | None, given: Container[int]
) -> Unreadable | None:
    """Why a file with this Arrow schema cannot be read in a schema of its table; None where it can.

    ``given`` are ids of fields that have a value of the file's partition.
    """
    problem = unidentified(path, file, mapped=mapping is not None)
    return problem or _misfit(path, misfits(schema.fields, columns_of(file, mapping), given))


def unfit_columns(
    path: str, columns: Sequence[ColumnRef], found: Sequence[tuple[Written, ...] | None]
) -> Unreadable | None:
    """Why some columns, found in a file by :func:`path_to`, cannot be read; None where they can."""
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
    """Why the row groups of a plan are not those of the file; None where they are, or where its
    footer told them.
    """
    if planned is None or planned == found:
        return None
    return Unreadable(
        f"{path} has {found} row groups where its manifest says {planned}",
        "rewrite the file (rewrite_data_files), then start a new Backfill",
    )


def _without_column(
    metadata: pq.FileMetaData, column: ColumnRef, columns: Columns, moment_us: int | None
) -> Iterator[RowGroup]:
    """The row groups of a file that lacks the arrival column: all rows arrived at ``moment_us``
    then, except where the struct that the column is in is null, or not there either.
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
    """How the file counts; None for INT96, whose statistics mean nothing."""
    if column.physical_type not in ("INT64", "INT32"):
        return None
    logical = json.loads(column.logical_type.to_json())
    return Ticks(_UNITS[logical["timeUnit"]]) if logical["Type"] == "Timestamp" else declared


def _compressed(group: pq.RowGroupMetaData) -> int:
    return sum(group.column(i).total_compressed_size for i in range(group.num_columns))
