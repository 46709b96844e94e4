"""Selects the rows of a file that a split reads: not deleted or there twice, within its time slice
and its offsets, and accepted by the filter.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.expressions.visitors import bind, extract_field_ids, translate_column_names
from pyiceberg.io.pyarrow import expression_to_pyarrow, schema_to_pyarrow
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.types import FixedType, IcebergType, NestedField, StructType, UUIDType

from backfill.iceberg.file_columns import Columns, part_of
from backfill.iceberg.timestamp_units import ticks_of
from backfill.planning.plan import OffsetRange, Split
from backfill.planning.rows.pinned_table import OpenTable
from backfill.planning.rows.projection import Projection

Positions = npt.NDArray[np.int64]
RowCondition = Callable[[Mapping[int, pa.Array]], pa.Array]
"""Returns for each row whether it is read, given the columns that are looked at; null means no."""
_ROW = "row"
_UUID_BYTES = 16


class FieldValues:
    """Finds the values of some fields of a table in batches of one of its files, whatever name,
    unit or width they have there, and also if the file lacks them.
    """

    def __init__(
        self,
        schema: Schema,
        field_ids: Iterable[int],
        columns: Columns,
        constants: Mapping[int, Any],
    ):
        """``columns`` are those of the file, ``constants`` the values of those it lacks."""
        wanted = prune_columns(schema, {*field_ids}, select_full_types=True)
        self.fields: tuple[NestedField, ...] = wanted.fields
        """The columns that have the fields; of structs only the needed ones."""
        self.paths = {each: path_of(wanted.as_struct(), each) or [] for each in field_ids}
        """By field id, the names that lead to it."""
        target = schema_to_pyarrow(wanted, include_field_ids=False)
        self._project = Projection(self.fields, target, columns, constants)

    def of(self, batch: pa.RecordBatch) -> dict[int, pa.Array]:
        """The values of each field in the rows of a batch."""
        rows = self._project(batch)
        return {field_id: column_at(rows, path) for field_id, path in self.paths.items()}


class RowSelection:
    """Selects the rows of a split from batches of its file, before conversion.

    Rows are judged by their values in the table.
    """

    def __init__(
        self,
        table: OpenTable,
        split: Split,
        columns: Columns,
        constants: Mapping[int, Any],
    ):
        """``columns`` are those of the file, ``constants`` the values of those it lacks."""
        self.left_out: Positions | None = None
        """The sorted positions of rows in the file that are left out in any case."""
        self._ids: set[int] = set()
        self._conditions = [*self._time_slice(table, split), *self._offsets(table, split.offsets)]
        self._filter = self._row_filter(table)
        self._values = FieldValues(table.schema, self._ids, columns, constants)
        self.fields = self._values.fields
        """The columns of the table that are looked at."""
        source, paths = table.source, self._values.paths
        if source.timestamp_key is not None and source.timestamp_field_id in paths:
            paths[source.timestamp_field_id].append(source.timestamp_key)

    @property
    def field_ids(self) -> set[int]:
        """Ids of the top-level columns that are looked at."""
        return {field.field_id for field in self.fields}

    @property
    def takes_all(self) -> bool:
        """Whether every row is read."""
        return self.left_out is None and not self._conditions and self._filter is None

    def mask(self, batch: pa.RecordBatch, position: int) -> pa.BooleanArray | None:
        """For each row of a batch whether it is read, null meaning no; None if all are.

        ``position`` is the position of its first row in the file.
        """
        columns = self._values.of(batch)
        masks = [condition(columns) for condition in self._conditions]
        if self.left_out is not None:
            masks.append(_kept(self.left_out, position, batch.num_rows))
        if self._filter is not None:
            masks.append(_matching(columns, batch.num_rows, self._filter))
        return reduce(pc.and_, masks) if masks else None

    def _time_slice(self, table: OpenTable, split: Split) -> list[RowCondition]:
        if split.slice_start_us is None or split.slice_end_us is None:
            return []
        source = table.source
        ticks, arrival = (
            ticks_of(source.timestamp_type, source.timestamp_unit),
            source.timestamp_field_id,
        )
        start, end = ticks.first_at(split.slice_start_us), ticks.first_at(split.slice_end_us)
        self._ids.add(arrival)
        return [lambda columns: _between(columns[arrival].cast(pa.int64()), start, end)]

    def _offsets(self, table: OpenTable, ranges: Sequence[OffsetRange]) -> list[RowCondition]:
        if not ranges:
            return []
        partition, offset = kafka_field_ids(table)
        self._ids |= {partition, offset}

        def inside(columns: Mapping[int, pa.Array]) -> pa.Array:
            partitions, offsets = (
                columns[partition].cast(pa.int64()),
                columns[offset].cast(pa.int64()),
            )
            masks = [
                pc.and_(
                    pc.equal(partitions, each.partition), _between(offsets, each.start, each.end)
                )
                for each in ranges
            ]
            return reduce(pc.or_, masks)

        return [inside]

    def _row_filter(self, table: OpenTable) -> pc.Expression | None:
        if table.row_filter == AlwaysTrue():
            return None
        used = extract_field_ids(table.row_filter)
        self._ids |= used
        # In the expression, columns are named by their ids: names may have dots, which would be
        # taken for paths.
        flat = Schema(
            *(
                NestedField(each, _flat_name(each), _compared(table.schema.find_type(each)))
                for each in used
            )
        )
        return expression_to_pyarrow(
            bind(flat, translate_column_names(table.row_filter, flat), case_sensitive=True), flat
        )


def _compared(kind: IcebergType) -> IcebergType:
    """The type that values are compared as. PyArrow cannot compare UUIDs, but their bytes."""
    return FixedType(_UUID_BYTES) if isinstance(kind, UUIDType) else kind


def comparable(array: pa.Array) -> pa.Array:
    """Values that PyArrow can compare: of UUIDs their bytes."""
    return array.storage if isinstance(array, pa.UuidArray) else array


def _flat_name(field_id: int) -> str:
    return f"_{field_id}"


def _matching(columns: Mapping[int, pa.Array], rows: int, condition: pc.Expression) -> pa.Array:
    """For each row, whether a condition is true."""
    flat = pa.table(
        {
            _ROW: np.arange(rows),
            **{_flat_name(field_id): comparable(column) for field_id, column in columns.items()},
        }
    )
    mask = np.zeros(rows, np.bool_)
    mask[flat.filter(condition)[_ROW].to_numpy()] = True
    return pa.array(mask)


def kafka_field_ids(table: OpenTable) -> tuple[int, int]:
    """Field ids of the columns with a row's Kafka partition and offset."""
    source = table.source
    if source.kafka_partition_column is None or source.kafka_offset_column is None:
        raise ValueError(f"the plan has offsets for {source.name}, but not the columns they are in")
    partition, offset = (
        table.schema.find_field(name)
        for name in (source.kafka_partition_column, source.kafka_offset_column)
    )
    return partition.field_id, offset.field_id


def path_of(struct: StructType, field_id: int) -> list[str] | None:
    """The names that lead to a field through structs; None if there is no such field."""
    for field in struct.fields:
        if field.field_id == field_id:
            return [field.name]
        below = (
            path_of(field.field_type, field_id)
            if isinstance(field.field_type, StructType)
            else None
        )
        if below is not None:
            return [field.name, *below]
    return None


def column_at(batch: pa.RecordBatch, path: list[str]) -> pa.Array:
    """The column at a path of names, as in :func:`backfill.iceberg.file_columns.part_of`."""
    return part_of(batch.column(path[0]), path[1:])


def _between(values: pa.Array, start: int, end: int) -> pa.Array:
    """Whether start <= value < end, for bounds of any size."""
    least, greatest = -(2**63), 2**63 - 1
    if start > greatest or end <= least:
        return pa.repeat(pa.scalar(False), len(values))
    above = pc.greater_equal(values, max(start, least))
    return above if end > greatest else pc.and_(above, pc.less(values, end))


def _kept(left_out: Positions, position: int, rows: int) -> pa.Array:
    first, last = np.searchsorted(left_out, [position, position + rows])
    mask = np.ones(rows, np.bool_)
    mask[left_out[first:last] - position] = False
    return pa.array(mask)
