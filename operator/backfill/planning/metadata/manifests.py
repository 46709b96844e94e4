"""Reads the manifests of a pinned snapshot into columns,
one manifest at a time, without what cannot match.

Manifests are skipped by their partition summaries. Entries are skipped by their partition
(evaluated once for each distinct one), by the bounds of the timestamp column and, if there is a
filter, by the metrics of other columns. Entries are read as PyIceberg's generic records and
discarded at once, since an entry takes some ten kilobytes as objects.
"""

import struct
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial, reduce
from itertools import pairwise
from threading import Lock
from typing import Any, BinaryIO, cast

import numpy as np
import pyarrow as pa
from pyiceberg.avro.file import AvroFile
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, Or
from pyiceberg.expressions.visitors import _InclusiveMetricsEvaluator, extract_field_ids
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    MANIFEST_ENTRY_SCHEMAS,
    DataFile,
    ManifestContent,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import Record
from pyiceberg.types import IntegerType, LongType, TimestampNanoType
from pyiceberg.utils.schema_conversion import LOGICAL_FIELD_TYPE_MAPPING

from backfill.api.errors import InvalidPlanInput, Problem, first_line
from backfill.iceberg.library_errors import says_later
from backfill.iceberg.timestamp_units import GREATEST_US, LEAST_US
from backfill.planning.metadata.delete_files import (
    DeleteIndex,
    DeletesError,
    deletes_not_applied,
    unpartitioned,
)
from backfill.planning.metadata.ingestion_watermark import latest_us, written_us
from backfill.planning.metadata.partitions import SpecReader, spec_reader
from backfill.planning.metadata.pinning import PinnedTable
from backfill.planning.metadata.source_filter import in_range
from backfill.planning.missing_offsets import NO_BOUNDS
from backfill.planning.source_files import (
    UNKNOWN,
    ColumnRef,
    Int64s,
    PartitionValues,
    SourceFiles,
    column_ref,
    timestamp_column,
)

LOGICAL_FIELD_TYPE_MAPPING.setdefault(("timestamp-nanos", "long"), TimestampNanoType())
"""PyIceberg writes partitions of nanoseconds, but cannot read them."""

CALENDAR_US = 9_200_000_000_000_000
"""All moments that nanoseconds since 1970 can represent are within this, before and after."""
_NEAR_US = (86_400_000_000, 7 * 86_400_000_000)
"""Files are near a range if they are within its length of it, but at least and at most these."""
_KAFKA_COLUMNS = 2
"""Partition and offset."""
_READERS = 4
"""Threads that read manifests.
Decoding holds the interpreter's lock, but waiting for the object store does not.
"""
_MOST_ROWS = 1 << 40
"""More rows than any data file has. A greater number in a manifest is wrong."""
_MOST_BYTES = 1 << 60
"""More bytes than any file has, of which sums still fit into 64 bits."""
_INT_BYTES, _LONG_BYTES = 4, 8
"""Bytes of a bound. In a file from before an int was promoted to long, it has those of an int."""


@dataclass
class _Columns:
    """Data files of one manifest."""

    path: list[str] = field(default_factory=list)
    numbers: list[tuple[int, ...]] = field(default_factory=list)
    """For each file: bytes, rows, lower bound, upper bound, whether it has bounds, rows without a
    timestamp, partition, sequence number.
    """
    group_starts: list[list[int] | None] = field(default_factory=list)
    other_formats: list[str] = field(default_factory=list)
    without_timestamp: int = 0
    offsets: list[tuple[int, ...]] = field(default_factory=list)
    """Bounds of Kafka partition and offset, if the source names both columns."""
    offsets_near: list[tuple[int, ...]] = field(default_factory=list)
    """The same of files near the range, with the bounds of their timestamps."""


_NUMBERS, _OFFSETS, _OFFSETS_NEAR = 8, 5, 7


@dataclass(frozen=True)
class _Chunk:
    """Data files of one manifest, as arrays."""

    path: pa.StringArray
    numbers: np.ndarray[Any, np.dtype[np.int64]]
    group_starts: pa.ListArray
    offsets: Int64s


class _Partitions:
    """Distinct partitions of all specs. They are numbered in the order in which they are found,
    which differs between runs; the result does not depend on it.
    """

    def __init__(self, reader: Callable[[int], SpecReader]) -> None:
        self._reader = reader
        self._readers: dict[int, SpecReader] = {}
        self._lock = Lock()
        self._known: dict[tuple[object, ...], int] = {}
        self.values: list[PartitionValues] = []
        self.spec_ids: list[int] = []
        self.may_match: list[bool] = []
        self.may_pass_filter: list[bool] = []
        """Whether rows may satisfy the source's filter, whatever their timestamp."""

    def reader(self, spec_id: int) -> SpecReader:
        if spec_id not in self._readers:
            self._readers[spec_id] = self._reader(spec_id)
        return self._readers[spec_id]

    def number(self, spec_id: int, partition: Record) -> int:
        key = (spec_id, *partition._data)
        found = self._known.get(key)
        return self._add(key, spec_id, partition) if found is None else found

    def _add(self, key: tuple[object, ...], spec_id: int, partition: Record) -> int:
        with self._lock:
            if key not in self._known:
                reader = self.reader(spec_id)
                self.values.append(reader.values(partition))
                self.spec_ids.append(spec_id)
                self.may_match.append(reader.may_match(partition))
                self.may_pass_filter.append(reader.may_pass_filter(partition))
                self._known[key] = len(self.values) - 1
            return self._known[key]


class ManifestScan:
    """A scan of the manifests of a pinned table.

    Args:
        pinned: the table.
        start_us, end_us: rows outside of [start, end) are not needed.
        on_progress: called with the number of manifests read, the number of manifests, and the
            number of data files found.
    """

    def __init__(
        self,
        pinned: PinnedTable,
        start_us: int,
        end_us: int,
        on_progress: Callable[[int, int, int], None] = lambda *_: None,
    ) -> None:
        self._pinned = pinned
        self._range = (start_us, end_us)
        self._progress = on_progress
        self.column = timestamp_column(pinned.source, pinned.schema)
        expression = self._arrived_in(start_us, end_us)
        self._reader = partial(
            spec_reader,
            pinned.table.metadata,
            pinned.schema,
            row_filter=pinned.row_filter,
            column=self.column,
        )
        self._partitions = _Partitions(
            lambda spec_id: self._reader(spec_id=spec_id, expression=expression)
        )
        self._kafka_columns = _kafka_columns(pinned)
        self._metrics_may_match = _metrics_evaluator(pinned)
        self._deletes = DeleteIndex()
        self._unpartitioned = unpartitioned(pinned.table)
        self._data: list[ManifestFile] = []
        self._skipped: list[ManifestFile] = []
        self._sees_after = False
        committed_us = written_us(pinned.table.metadata, pinned.snapshot)
        self._latest_us = min(latest_us(committed_us, pinned.source), CALENDAR_US)
        near_us = min(max(end_us - start_us, _NEAR_US[0]), _NEAR_US[1])
        self._near = (start_us - near_us, min(end_us + near_us, self._latest_us))
        self._offsets_near: list[Int64s] = []
        self.without_timestamp = 0
        """Number of rows in files in which, by their metrics, no row has a timestamp."""

    def read(self) -> SourceFiles:
        """All data files that may hold rows of the range.

        Raises:
            InvalidPlanInput: there are too many equality deletes, or files in another format than
                Parquet, or a manifest cannot be read.
        """
        manifests = self._manifests()
        io = self._pinned.table.io
        data = [manifest for manifest in manifests if manifest.content == ManifestContent.DATA]
        for manifest in manifests:
            if manifest.content == ManifestContent.DELETES and not self._pinned.source.keep_deleted:
                self._read_deletes(io, manifest)
        chunks: list[_Chunk] = []
        other_formats: list[str] = []
        met = 0
        for done, columns in enumerate(self._in_order(io, data), start=1):
            met += len(columns.path)
            other_formats += columns.other_formats
            self.without_timestamp += columns.without_timestamp
            chunks.append(_chunk(columns))
            self._offsets_near.append(_near_columns(columns.offsets_near))
            self._progress(done, len(data), met)
        self._refuse_other_formats(other_formats)
        return self._assemble(chunks)

    def rows_after(self) -> bool:
        """Whether the table has rows from the end of the range on that can have arrived by then, by
        the metadata of files that may satisfy the source's filter. To be asked after :meth:`read`.
        """
        return self._sees_after or (self._range[1] < self._latest_us and self._look_after())

    def offset_bounds(self) -> Iterator[Int64s]:
        """Bounds of Kafka partition and offset of all files, manifest by manifest. To be used after
        :meth:`read`.
        """
        for manifest in self._data:
            entries = self._entries(self._pinned.table.io, manifest)
            found = [self._offsets_of(entry) for entry, _ in entries]
            yield np.array(found, np.int64).reshape(-1, _OFFSETS).T

    def offsets_near(self) -> Iterator[Int64s]:
        """The same of files near the range that have no rows of it, and the least and greatest
        timestamps: what :meth:`read` has met, and then from manifests that it has skipped.
        """
        yield from self._offsets_near
        (start, end), near = self._range, self._near
        sides = [(near[0], start), (end, max(near[1], end))]
        expression = reduce(Or, (self._arrived_in(*side) for side in sides))
        readers = {
            spec_id: self._reader(spec_id=spec_id, expression=expression)
            for spec_id in {manifest.partition_spec_id for manifest in self._skipped}
        }
        chosen = (
            manifest
            for manifest in self._skipped
            if readers[manifest.partition_spec_id].manifest_may_match(manifest)
        )
        with ThreadPoolExecutor(_READERS) as pool:
            yield from pool.map(self._read_offsets_near, chosen)

    def _arrived_in(self, start_us: int, end_us: int) -> BooleanExpression:
        """Rows of the source with a timestamp in [start, end), as far as metadata has it."""
        column, wanted = self.column, self._pinned.row_filter
        if column.key is not None:  # neither partitions nor statistics know the values of one key
            return wanted
        return And(in_range(column.name, column.ticks, start_us, end_us), wanted)

    def _read_offsets_near(self, manifest: ManifestFile) -> Int64s:
        entries = self._entries(self._pinned.table.io, manifest)
        return _near_columns(
            [each for entry, _ in entries for each in self._offsets_if_near(entry)]
        )

    def _offsets_if_near(self, entry: DataFile) -> Iterator[tuple[int, ...]]:
        """Those of a file that has no rows of the range, if it is near."""
        lower, upper = self._bounds(entry)
        if lower is None or upper is None or len(self._kafka_columns) < _KAFKA_COLUMNS:
            return
        lower_us, upper_us = self.column.ticks.floor_us(lower), self.column.ticks.floor_us(upper)
        before = self._near[0] <= upper_us < self._range[0]
        if before or self._range[1] <= lower_us < self._near[1]:
            yield (*self._offsets_of(entry), lower_us, upper_us)

    def _offsets_of(self, entry: DataFile) -> tuple[int, ...]:
        """Bounds of partition and offset, and number of rows."""
        values, rows = entry._data, max(_rows(entry), 0)
        lower, upper, nulls = values[10] or {}, values[11] or {}, values[8] or {}
        bounds = [
            _number(side.get(column.field_id))
            for column in self._kafka_columns
            for side in (lower, upper)
        ]
        exact = all(nulls.get(column.field_id) == 0 for column in self._kafka_columns)
        known = [bound for bound in bounds if bound is not None]
        if not exact or len(known) < len(bounds):
            return (NO_BOUNDS, NO_BOUNDS, 0, 0, rows)
        return (*known, rows)

    def _look_after(self) -> bool:
        """Reads manifests that were skipped until one has rows from after the range."""
        expression = self._arrived_in(self._range[1], self._latest_us)
        readers: dict[int, SpecReader] = {}
        io = self._pinned.table.io
        for manifest in self._skipped:
            spec_id = manifest.partition_spec_id
            if spec_id not in readers:
                readers[spec_id] = self._reader(spec_id=spec_id, expression=expression)
            if not readers[spec_id].manifest_may_match(manifest):
                continue
            for entry, _ in self._entries(io, manifest):
                self._note_outside(entry, self._partitions.number(spec_id, entry._data[3]))
                if self._sees_after:
                    return True
        return False

    def _note_outside(self, entry: DataFile, partition: int) -> None:
        """Notes whether a file that is not read has rows from after the range."""
        if self._sees_after or not self._partitions.may_pass_filter[partition]:
            return
        lower, _ = self._bounds(entry)
        if lower is not None:
            lower_us = self.column.ticks.floor_us(lower)
        else:
            span = self._partitions.values[partition].range_us
            if span is None:
                return
            lower_us = span[0]
        if self._range[1] <= lower_us < self._latest_us and self._metrics_may_match(entry):
            self._sees_after = True

    def _manifests(self) -> list[ManifestFile]:
        try:
            listed = self._listed()
        except (OSError, ValueError) as error:
            raise self._unreadable(str(self._pinned.snapshot.manifest_list), error) from error
        chosen = []
        self._data = [each for each in listed if each.content == ManifestContent.DATA]
        for manifest in listed:
            if self._partitions.reader(manifest.partition_spec_id).manifest_may_match(manifest):
                chosen.append(manifest)
            elif manifest.content == ManifestContent.DATA:
                self._skipped.append(manifest)
        return chosen

    def _listed(self) -> list[ManifestFile]:
        io, appends = self._pinned.table.io, self._pinned.appends
        if appends is None:
            return self._pinned.snapshot.manifests(io)
        return [manifest for each in appends for manifest in manifests_of(each, io)]

    def _in_order(self, io: FileIO, manifests: list[ManifestFile]) -> Iterator[_Columns]:
        with ThreadPoolExecutor(_READERS) as pool:
            yield from pool.map(partial(self._read_data, io), manifests)

    def _read_data(self, io: FileIO, manifest: ManifestFile) -> _Columns:
        columns = _Columns()
        for entry, sequence in self._entries(io, manifest):
            self._take(columns, entry, sequence, manifest.partition_spec_id)
        return columns

    def _take(self, columns: _Columns, entry: DataFile, sequence: int, spec_id: int) -> None:
        values = entry._data
        partition = self._partitions.number(spec_id, values[3])
        if not self._partitions.may_match[partition]:
            self._note_outside(entry, partition)
            columns.offsets_near += self._offsets_if_near(entry)
            return
        rows, nulls = _rows(entry), _nulls(entry, self.column.field_id)
        counted = rows != UNKNOWN
        # if the number of rows is wrong, no metric is relied on: the footer has the right ones
        lower, upper = self._bounds(entry) if counted else (None, None)
        if counted and nulls == rows and (lower is None or upper is None):
            columns.without_timestamp += rows
            return
        bounded = lower is not None and upper is not None
        lower_us = self.column.ticks.floor_us(lower) if lower is not None else LEAST_US
        upper_us = self.column.ticks.floor_us(upper) if upper is not None else GREATEST_US
        if (
            lower_us >= self._range[1]
            or upper_us < self._range[0]
            or (counted and not self._metrics_may_match(entry))
        ):
            self._note_outside(entry, partition)
            columns.offsets_near += self._offsets_if_near(entry)
            return
        if str(values[2]).upper() != "PARQUET":
            columns.other_formats.append(f"{values[1]} ({str(values[2]).lower()})")
        columns.path.append(values[1])
        columns.numbers.append(
            (
                min(values[5] or 0, _MOST_BYTES),
                rows,
                lower_us,
                upper_us,
                bounded,
                nulls,
                partition,
                sequence,
            )
        )
        columns.group_starts.append(_row_group_starts(values[13], values[5]))
        if len(self._kafka_columns) == _KAFKA_COLUMNS:
            columns.offsets.append(self._offsets_of(entry))

    def _bounds(self, entry: DataFile) -> tuple[int | None, int | None]:
        """The least and greatest timestamp of a file; None for those that its metrics lack."""
        lower, upper = self._bound(entry._data[10]), self._bound(entry._data[11])
        wrong = lower is not None and upper is not None and lower > upper
        return (None, None) if wrong else (lower, upper)

    def _bound(self, bounds: Mapping[int, bytes] | None) -> int | None:
        value = bounds.get(self.column.field_id) if bounds else None
        known = (
            (_INT_BYTES, _LONG_BYTES)
            if isinstance(self.column.kind, (IntegerType, LongType))
            else (_LONG_BYTES,)
        )
        return (
            int.from_bytes(value, "little", signed=True) if value and len(value) in known else None
        )

    def _read_deletes(self, io: FileIO, manifest: ManifestFile) -> None:
        spec_id = manifest.partition_spec_id
        partitioned = spec_id not in self._unpartitioned
        for entry, sequence in self._entries(io, manifest):
            partition = self._partitions.number(spec_id, entry.partition)
            self._deletes.add(entry, sequence, partition, partitioned=partitioned)

    def _entries(self, io: FileIO, manifest: ManifestFile) -> Iterator[tuple[DataFile, int]]:
        """Entries of the files that are read, with their sequence numbers."""
        try:
            for added, file, sequence in live_entries(manifest, io):
                if added or self._pinned.appends is None:
                    yield file, sequence
        except (OSError, ValueError) as error:
            raise self._unreadable(manifest.manifest_path, error) from error

    def _assemble(self, chunks: list[_Chunk]) -> SourceFiles:
        numbers = np.concatenate(
            [np.empty((0, _NUMBERS), np.int64), *(chunk.numbers for chunk in chunks)]
        )
        path = pa.chunked_array([chunk.path for chunk in chunks], pa.string()).combine_chunks()
        starts = pa.chunked_array(
            [chunk.group_starts for chunk in chunks], pa.list_(pa.int64())
        ).combine_chunks()
        offsets = np.concatenate(
            [np.empty((0, _OFFSETS), np.int64), *(chunk.offsets for chunk in chunks)]
        )
        chunks.clear()
        partition, sequence = numbers[:, 6].astype(np.int32), numbers[:, 7].copy()
        try:
            deletes, delete_sets = self._deletes.assign(
                path, sequence, partition, self._pinned.schema
            )
        except DeletesError as error:
            raise deletes_not_applied(self._pinned.field, self._pinned.source, error) from error
        return SourceFiles(
            source=self._pinned.source,
            column=self.column,
            kafka_columns=self._kafka_columns,
            mapping=self._pinned.table.name_mapping(),
            open=partial(open_file, self._pinned.table.io),
            path=path,
            file_bytes=numbers[:, 0].copy(),
            rows=numbers[:, 1].copy(),
            lower_us=numbers[:, 2].copy(),
            upper_us=numbers[:, 3].copy(),
            bounded=numbers[:, 4].astype(np.bool_),
            nulls=numbers[:, 5].copy(),
            spec_id=np.array(self._partitions.spec_ids, np.int32)[partition],
            partition=partition,
            partitions=self._partitions.values,
            group_starts=starts,
            deletes=deletes,
            delete_sets=delete_sets,
            offset_bounds=offsets.T.copy() if len(offsets) == len(path) else None,
        )

    def _refuse_other_formats(self, files: list[str]) -> None:
        if files:
            raise InvalidPlanInput(
                Problem(
                    f"{self._pinned.field}.table",
                    f"table {self._pinned.source.table} has files in the range that are not"
                    f" Parquet: {files[0]}{f' and {len(files) - 1:,} more' if files[1:] else ''}",
                    "rewrite them as Parquet (write.format.default=parquet, then"
                    " rewrite_data_files)",
                )
            )

    def _unreadable(self, path: str, error: Exception) -> InvalidPlanInput:
        return InvalidPlanInput(
            Problem(
                f"{self._pinned.field}.table",
                f"metadata file {path} of {self._pinned.source.table} cannot be read:"
                f" {first_line(error)}",
                "check the store's credentials; if the file is gone, choose a newer snapshot",
                may_pass=says_later(error),
                unavailable=says_later(error),
            )
        )


def live_entries(manifest: ManifestFile, io: FileIO) -> Iterator[tuple[bool, DataFile, int]]:
    """The files of a manifest that are still there: whether its snapshot has added them, and their
    sequence numbers, which are those of the manifest if they have none.
    """
    path = io.new_input(manifest.manifest_path)
    with AvroFile[Record](path, MANIFEST_ENTRY_SCHEMAS[3], {2: DataFile}) as entries:
        for entry in entries:
            status, snapshot, sequence, _, file = entry._data
            added = status == ManifestEntryStatus.ADDED
            if status != ManifestEntryStatus.DELETED:
                yield (
                    added and snapshot in {None, manifest.added_snapshot_id},
                    file,
                    manifest.sequence_number if sequence is None else sequence,
                )


def manifests_of(snapshot: Snapshot, io: FileIO) -> list[ManifestFile]:
    """The manifests that a snapshot has added."""
    return [
        manifest
        for manifest in snapshot.manifests(io)
        if manifest.added_snapshot_id == snapshot.snapshot_id
    ]


def _kafka_columns(pinned: PinnedTable) -> tuple[ColumnRef, ...]:
    names = (pinned.source.kafka_partition_column, pinned.source.kafka_offset_column)
    return tuple(column_ref(pinned.schema, name) for name in names if name is not None)


def _metrics_evaluator(pinned: PinnedTable) -> Callable[[DataFile], bool]:
    expression: BooleanExpression = pinned.row_filter
    if isinstance(expression, AlwaysTrue):
        return lambda entry: bool(entry._data[4])
    evaluator = _InclusiveMetricsEvaluator(pinned.schema, expression)
    used = extract_field_ids(evaluator.expr)

    def may_match(entry: DataFile) -> bool:
        counts = [each or {} for each in entry._data[7:10]]  # of values, nulls and NaN
        if any(not 0 <= each.get(column, 0) <= _MOST_ROWS for each in counts for column in used):
            return True  # where -1 stands for unknown, all values would seem to be null
        try:
            return bool(evaluator.eval(entry))
        except (ValueError, TypeError, ArithmeticError, struct.error):
            return True  # written with another type, before the column had its present one

    return may_match


def _row_group_starts(offsets: list[int] | None, file_bytes: int) -> list[int] | None:
    """The offsets of row groups; None if they cannot be right. Some writers leave invalid ones,
    which readers have to ignore.
    """
    if (
        not offsets
        or offsets[-1] >= file_bytes
        or any(later <= earlier for earlier, later in pairwise(offsets))
    ):
        return None
    return offsets


def _number(bound: bytes | None) -> int | None:
    """The bound of a column of integers."""
    known = bound is not None and len(bound) in {_INT_BYTES, _LONG_BYTES}
    return int.from_bytes(bound, "little", signed=True) if known and bound else None


def _rows(entry: DataFile) -> int:
    """Number of rows of a data file, by its manifest; :data:`UNKNOWN` if that cannot be right.
    Files without rows are not worth an entry: where one says so, the file may have some.
    """
    rows = int(entry._data[4] or 0)  # some writers have it nullable
    return rows if 0 < rows <= _MOST_ROWS else UNKNOWN


def _nulls(entry: DataFile, column: int) -> int:
    """Number of rows in which a column is null; :data:`UNKNOWN` if it is missing or wrong."""
    nulls = (entry._data[8] or {}).get(column, UNKNOWN)
    return nulls if 0 <= nulls <= (entry._data[4] or 0) else UNKNOWN


def _chunk(columns: _Columns) -> _Chunk:
    return _Chunk(
        pa.array(columns.path, pa.string()),
        np.array(columns.numbers, np.int64).reshape(-1, _NUMBERS),
        pa.array(columns.group_starts, pa.list_(pa.int64())),
        np.array(columns.offsets, np.int64).reshape(-1, _OFFSETS),
    )


def _near_columns(found: list[tuple[int, ...]]) -> Int64s:
    return np.array(found, np.int64).reshape(-1, _OFFSETS_NEAR).T


def open_file(io: FileIO, path: str) -> BinaryIO:
    """Opens a file of a table for random access."""
    return cast(BinaryIO, io.new_input(path).open())
