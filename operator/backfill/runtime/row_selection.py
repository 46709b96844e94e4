"""Which rows of a file a split reads: those that are not deleted, in its time slice, in its offsets, and wanted by the filter."""

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.expressions.visitors import bind, extract_field_ids, translate_column_names
from pyiceberg.io.pyarrow import expression_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StructType

from backfill.planning.plan import OffsetRange, Split
from backfill.planning.timestamps import Ticks, ticks_of
from backfill.runtime.source_table import OpenTable

Positions = npt.NDArray[np.int64]
Condition = Callable[[pa.RecordBatch], pa.Array]
"""Says for each row whether it is read; null counts as no."""


class RowSelection:
    """Picks the rows of one split from batches of its file, as they are written there."""

    def __init__(self, table: OpenTable, split: Split, written: Schema, constants: Mapping[int, Any], deleted: Positions | None):
        """``written`` is the file's schema by field id, ``constants`` the values of columns it does not have,
        ``deleted`` the sorted positions of deleted rows in the file."""
        self._written = written
        self._constants = constants
        self._deleted = deleted
        self.field_ids: set[int] = set()
        """The fields of the file that are looked at."""
        self._conditions = [*self._time_slice(table, split), *self._offsets(table, split.offsets)]
        self._filter = self._row_filter(table)

    @property
    def takes_all(self) -> bool:
        """Whether no row can be left out."""
        return self._deleted is None and not self._conditions and self._filter is None

    def __call__(self, batch: pa.RecordBatch, position: int) -> pa.RecordBatch:
        """The rows of a batch that are read. ``position`` is the place of its first row in the file."""
        masks = [condition(batch) for condition in self._conditions]
        if self._deleted is not None:
            masks.append(_kept(self._deleted, position, batch.num_rows))
        if masks:
            mask = reduce(pc.and_, masks)
            if mask.true_count < batch.num_rows:
                batch = batch.filter(mask)
        if self._filter is not None:
            batch = _only_batch(pa.Table.from_batches([batch]).filter(self._filter))
        return batch

    def _time_slice(self, table: OpenTable, split: Split) -> list[Condition]:
        if split.slice_start_us is None or split.slice_end_us is None:
            return []
        source, start_us, end_us = table.source, split.slice_start_us, split.slice_end_us
        read = self._column(source.timestamp_field_id)

        def inside(batch: pa.RecordBatch) -> pa.Array:
            times = read(batch)
            ticks = Ticks(times.type.unit) if pa.types.is_timestamp(times.type) else ticks_of("long", source.timestamp_unit)
            return _between(times.cast(pa.int64()), ticks.first_at(start_us), ticks.first_at(end_us))

        return [inside]

    def _offsets(self, table: OpenTable, ranges: Sequence[OffsetRange]) -> list[Condition]:
        if not ranges:
            return []
        read_partition, read_offset = (self._column(field_id) for field_id in kafka_field_ids(table))

        def inside(batch: pa.RecordBatch) -> pa.Array:
            partitions, offsets = read_partition(batch).cast(pa.int64()), read_offset(batch).cast(pa.int64())
            masks = [pc.and_(pc.equal(partitions, each.partition), _between(offsets, each.start, each.end)) for each in ranges]
            return reduce(pc.or_, masks)

        return [inside]

    def _row_filter(self, table: OpenTable) -> pc.Expression | None:
        translated = translate_column_names(table.row_filter, self._written, projected_field_values=dict(self._constants))
        bound = bind(self._written, translated, case_sensitive=True)
        if bound == AlwaysTrue():
            return None
        self.field_ids |= extract_field_ids(bound)
        return expression_to_pyarrow(bound, self._written)

    def _column(self, field_id: int) -> Condition:
        """How to get the column of a field, at whatever depth, out of a batch of the file."""
        path = path_of(self._written.as_struct(), field_id)
        if path is None:
            value = self._constants.get(field_id)
            return lambda batch: pa.repeat(pa.scalar(value, pa.int64()), batch.num_rows)
        self.field_ids.add(field_id)
        return lambda batch: column_at(batch, path)


def kafka_field_ids(table: OpenTable) -> tuple[int, int]:
    """The field ids of the columns with a row's Kafka partition and offset."""
    source = table.source
    if source.kafka_partition_column is None or source.kafka_offset_column is None:
        raise ValueError(f"the plan has offsets for {source.name}, but not the columns they are in")
    partition, offset = (table.schema.find_field(name) for name in (source.kafka_partition_column, source.kafka_offset_column))
    return partition.field_id, offset.field_id


def path_of(struct: StructType, field_id: int) -> list[str] | None:
    """The names that lead to a field through structs; None if it is not there."""
    for field in struct.fields:
        if field.field_id == field_id:
            return [field.name]
        below = path_of(field.field_type, field_id) if isinstance(field.field_type, StructType) else None
        if below is not None:
            return [field.name, *below]
    return None


def column_at(batch: pa.RecordBatch, path: list[str]) -> pa.Array:
    """The column at a path of names; null where a struct above it is."""
    column = batch.column(path[0])
    return pc.struct_field(column, path[1:]) if len(path) > 1 else column


def top_level_names(struct: StructType, field_ids: set[int]) -> list[str]:
    """The top-level columns that hold some fields."""
    return [field.name for field in struct.fields if _holds(field, field_ids)]


def _holds(field: NestedField, field_ids: set[int]) -> bool:
    if field.field_id in field_ids:
        return True
    return isinstance(field.field_type, StructType) and any(_holds(child, field_ids) for child in field.field_type.fields)


def _between(values: pa.Array, start: int, end: int) -> pa.Array:
    """Whether start <= value < end, for bounds of any size."""
    least, greatest = -(2**63), 2**63 - 1
    if start > greatest or end <= least:
        return pa.repeat(pa.scalar(False), len(values))
    above = pc.greater_equal(values, max(start, least))
    return above if end > greatest else pc.and_(above, pc.less(values, end))


def _kept(deleted: Positions, position: int, rows: int) -> pa.Array:
    first, last = np.searchsorted(deleted, [position, position + rows])
    mask = np.ones(rows, np.bool_)
    mask[deleted[first:last] - position] = False
    return pa.array(mask)


def _only_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
