"""Reads Parquet footers for what manifests lack: row groups, and the timestamps in each of them.
Where not even footers have it, timestamps are read from the rows.
"""

import json
import os
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import BinaryIO, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import InputStream
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import NameMapping

from backfill.api.errors import first_line
from backfill.iceberg.file_columns import (
    Columns,
    WrittenField,
    columns_of,
    has_field_ids,
    misfits,
    misfits_of,
    names_without_ids,
    part_of,
    path_to,
    without_ids,
)
from backfill.iceberg.library_errors import says_later
from backfill.iceberg.missing_columns import partition_values
from backfill.iceberg.timestamp_units import GREATEST_US, LEAST_US, Ticks
from backfill.planning.plan import PlannedFile
from backfill.planning.source_files import (
    UNKNOWN,
    ColumnRef,
    Int64s,
    RowGroup,
    SourceFiles,
    TimestampColumn,
)

_READERS = 16
"""Threads that read. Most of the time they wait for two or three small requests for each footer."""
_BATCH = 512
"""Footers in progress at a time. Each takes a few kilobytes per row group."""
_BATCH_ROWS, _BATCH_MAPS = 1_000_000, 65_536
"""Timestamps that are read at a time; fewer with maps, of which all keys and values are read."""
_FAR = 2**63 - 1
_UNITS = {"milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}
_REWRITE = "rewrite the file in the table's schema (rewrite_data_files), then start a new Backfill"


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Why a data file cannot be read, in a phrase that names it."""

    reason: str
    fix: str = ""
    """What to do, if the file itself is fine."""
    unavailable: bool = False
    """Whether only its store is unavailable for a moment."""
    if_used: bool = False
    """Whether it can be read by a query that does not use the column which does not fit."""

    @classmethod
    def because(cls, path: str, error: Exception) -> Self:
        """A file that an error of its store, or of its content, keeps from being read."""
        return cls(f"{path} cannot be read: {first_line(error)}", unavailable=says_later(error))


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
        if path in files.groups_in_maps:
            return files.groups_in_maps[path]
        try:
            with files.open(path) as stream:
                metadata = pq.read_metadata(stream)
            rows = int(files.rows[row])
            problem = miscounted(path, metadata, None, None if rows == UNKNOWN else rows)
            schema = metadata.schema.to_arrow_schema()
            problem = problem or unidentified(path, schema, mapped=files.mapping is not None)
            columns = columns_of(schema, files.mapping)
            found = path_to(columns, files.column.field_id)
            problem = problem or unfit_columns(path, schema, [files.column], [found])
            if problem:
                return problem
            if found is None:
                return tuple(
                    _without_column(metadata, files.column, columns, files.arrival_without(row))
                )
            if files.column.key is None:
                return tuple(_with_column(metadata, found[-1].leaf, files.column.ticks))
            with files.open(path) as stream:
                groups = tuple(_with_map(open_parquet(stream), files.column, found))
            files.groups_in_maps[path] = groups
            return groups
        except (OSError, pa.ArrowException) as error:
            return Unreadable.because(path, error)

    remaining = iter(rows)
    with ThreadPoolExecutor(_READERS) as pool:
        while batch := list(islice(remaining, _BATCH)):
            yield from pool.map(read, batch)


def unreadable_files(
    open_file: Callable[[str], BinaryIO],
    files: Iterable[PlannedFile],
    schema: Schema,
    needed: Schema,
    mapping: NameMapping | None,
) -> Iterator[Unreadable]:
    """Files that are missing, truncated, not Parquet, or cannot be read with a schema of their
    table. ``needed`` has the columns that are read in any case.
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
                problem = miscounted(path, parquet.metadata, file.row_groups, file.rows)
                given = partition_values(schema, file.partition)
                problem = problem or unfit(path, parquet.schema_arrow, needed, mapping, given)
                if problem is not None:
                    return problem
                other = unfit(path, parquet.schema_arrow, schema, mapping, given)
                return None if other is None else replace(other, if_used=True)
        except (OSError, pa.ArrowException) as error:
            return Unreadable.because(path, error)

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
    nameless = without_ids(schema.fields, list(file)) if has_field_ids(file) else ()
    found = chain(misfits(schema.fields, columns_of(file, mapping), given), nameless)
    return problem or _misfit(path, found)


def unfit_columns(
    path: str,
    file: pa.Schema,
    columns: Sequence[ColumnRef],
    found: Sequence[tuple[WrittenField, ...] | None],
) -> Unreadable | None:
    """Why some columns, which :func:`path_to` has looked for in a file with this Arrow schema,
    cannot be read; None if they can.
    """
    nameless = set(names_without_ids(file)) if has_field_ids(file) else set()

    def of(column: ColumnRef, to: tuple[WrittenField, ...] | None) -> Iterator[str]:
        if to:
            yield from misfits_of(column.kind, to[-1], column.name)
        elif column.name in nameless:
            yield f"has no field id for column {column.name}"

    return _misfit(path, chain.from_iterable(map(of, columns, found)))


def _misfit(path: str, misfits: Iterator[str]) -> Unreadable | None:
    first = next(misfits, None)
    return None if first is None else Unreadable(f"{path} {first}", _REWRITE)


def miscounted(
    path: str, found: pq.FileMetaData, row_groups: int | None, rows: int | None
) -> Unreadable | None:
    """Why a file cannot be the one that was planned; None if it can. The numbers of row groups and
    rows are those of its manifest, or None if they are from its footer.
    """
    if row_groups not in (None, found.num_row_groups):
        wrong = f"{found.num_row_groups:,} row groups, but its manifest says {row_groups:,}"
    elif rows not in (None, found.num_rows):
        wrong = f"{found.num_rows:,} rows, but its manifest says {rows:,}"
    else:
        return None
    fix = "rewrite the file (rewrite_data_files), then start a new Backfill"
    return Unreadable(f"{path} has {wrong}", fix)


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
        nulls = UNKNOWN
        if statistics is not None and statistics.has_null_count:
            nulls = statistics.null_count
        if not 0 <= nulls <= group.num_rows:  # some writers put a wrong number
            nulls = UNKNOWN
        lower, upper = None, None
        if statistics is not None and ticks is not None and statistics.has_min_max:
            lower, upper = ticks.floor_us(statistics.min_raw), ticks.floor_us(statistics.max_raw)
        yield RowGroup(group.num_rows, _compressed(group), lower, upper, nulls)


def _with_map(
    file: pq.ParquetFile, column: TimestampColumn, to: Sequence[WrittenField]
) -> Iterator[RowGroup]:
    """The row groups of a file whose timestamps are in a map. Statistics of a map are of the values
    of all of its keys, so the timestamps are read.
    """
    for number in range(file.num_row_groups):
        group, moments = (
            file.metadata.row_group(number),
            moments_of(file, [number], column, to),
        )
        yield RowGroup(
            rows=group.num_rows,
            bytes=_compressed(group),
            lower_us=int(moments.min()) if len(moments) else None,
            upper_us=int(moments.max()) if len(moments) else None,
            nulls=group.num_rows - len(moments),
        )


def read_moments(
    files: SourceFiles, row: int, groups: Sequence[int] | None = None
) -> tuple[Int64s, int] | Unreadable | None:
    """The timestamps in some or all row groups of a file of a source, as :func:`moments_of`, and
    the number of rows with and without one. None if the file lacks the column, or has it in another
    type, which is said when files are checked.
    """
    path, column = files.path[row].as_py(), files.column
    try:
        with files.open(path) as stream:
            file = open_parquet(stream)
            schema = file.schema_arrow
            to = path_to(columns_of(schema, files.mapping), column.field_id)
            if to is None or unfit_columns(path, schema, [column], [to]):
                return None
            chosen = range(file.num_row_groups) if groups is None else groups
            rows = sum(file.metadata.row_group(each).num_rows for each in chosen)
            return moments_of(file, chosen, column, to), rows
    except (OSError, pa.ArrowException) as error:
        return Unreadable.because(path, error)


def moments_of(
    file: pq.ParquetFile, groups: Sequence[int], column: TimestampColumn, to: Sequence[WrittenField]
) -> Int64s:
    """The timestamps in some row groups of a file, in microseconds, of the rows that have one."""
    names, moments = column.path_in(to), [np.empty(0, np.int64)]
    at_a_time = _BATCH_ROWS if column.key is None else _BATCH_MAPS
    for batch in file.iter_batches(at_a_time, groups, [".".join(part.name for part in to)]):
        values = part_of(batch.column(0), names[1:])
        is_timestamp = pa.types.is_timestamp(values.type)
        ticks = Ticks(values.type.unit) if is_timestamp else column.ticks
        known = values.drop_null().cast(pa.int64()).to_numpy()
        least, greatest = ticks.first_at(LEAST_US), ticks.first_at(GREATEST_US)
        moments.append(ticks.floor_all_us(np.clip(known, max(least, -_FAR), min(greatest, _FAR))))
    return np.concatenate(moments)


def _ticks(column: pq.ColumnSchema, declared: Ticks) -> Ticks | None:
    """The unit of a column's timestamps; None for INT96, whose statistics are meaningless."""
    if column.physical_type not in ("INT64", "INT32"):
        return None
    logical = json.loads(column.logical_type.to_json())
    return Ticks(_UNITS[logical["timeUnit"]]) if logical["Type"] == "Timestamp" else declared


def _compressed(group: pq.RowGroupMetaData) -> int:
    return sum(group.column(i).total_compressed_size for i in range(group.num_columns))
