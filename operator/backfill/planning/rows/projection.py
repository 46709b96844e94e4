"""Converts rows of a file into the columns that Spark expects:
by field id, promoted, and filled in if missing.

Follows Iceberg's rules for schema evolution and column projection. Arrays that already have the
expected type are passed on unchanged; others are built from the same buffers where Arrow allows it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.types import (
    IcebergType,
    ListType,
    MapType,
    NestedField,
    StructType,
    TimeType,
    UnknownType,
    UUIDType,
)

from backfill.iceberg.file_columns import ELEMENT, KEY, VALUE, Columns, WrittenField

_HEX_OF_BYTE = np.array([list(f"{value:02x}".encode()) for value in range(256)], np.uint8)
_UUID_GROUPS = ((0, 4), (4, 6), (6, 8), (8, 10), (10, 16))


@dataclass(frozen=True)
class Projection:
    """Converts rows of a file that :func:`backfill.iceberg.file_columns.misfits`
    has accepted into rows of the table.
    """

    wanted: Sequence[NestedField]
    """The columns to read, from the table's schema."""
    target: pa.Schema
    """The resulting columns and their Arrow types. Those that are not read are null."""
    columns: Columns
    """The columns of the file."""
    constants: Mapping[int, Any]
    """By field id, the values of columns that the file lacks; the others are null."""

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The converted rows of a batch of the file."""
        arrays = {field.name: self._top_level(field, batch) for field in self.wanted}
        return pa.RecordBatch.from_arrays(
            [
                arrays[each.name] if each.name in arrays else pa.nulls(batch.num_rows, each.type)
                for each in self.target
            ],
            schema=self.target,
        )

    def _top_level(self, field: NestedField, batch: pa.RecordBatch) -> pa.Array:
        written = self.columns.get(field.field_id)
        array = None if written is None else batch.column(written.name)
        return self._field(
            field, written, array, self.target.field(field.name).type, batch.num_rows
        )

    def _field(
        self,
        field: NestedField,
        written: WrittenField | None,
        array: pa.Array | None,
        target: pa.DataType,
        rows: int,
    ) -> pa.Array:
        if written is not None and array is not None:
            return self._array(array, field.field_type, written, target)
        value = self.constants.get(field.field_id)
        if value is None:
            return pa.nulls(rows, target)
        constant = pa.array([value], schema_to_pyarrow(field.field_type, include_field_ids=False))
        return pa.repeat(_primitive(constant, field.field_type, target)[0], rows)

    def _array(
        self, array: pa.Array, wanted: IcebergType, written: WrittenField, target: pa.DataType
    ) -> pa.Array:
        if isinstance(array, pa.ExtensionArray) and not isinstance(array, pa.UuidArray):
            array = array.storage
        if pa.types.is_null(array.type) or isinstance(wanted, UnknownType):
            return pa.nulls(len(array), target)
        match wanted:
            case StructType():
                return self._struct(array, wanted, written, target)
            case ListType():
                offsets, part = _layout(array)
                values = self._array(
                    part(array.values),
                    wanted.element_type,
                    written.parts[ELEMENT],
                    target.value_type,
                )
                large = pa.types.is_large_list(target)
                made = pa.LargeListArray if large else pa.ListArray
                offsets = offsets.cast(pa.int64()) if large else offsets
                return made.from_arrays(offsets, values, type=target, mask=_nulls(array))
            case MapType():
                offsets, part = _layout(array)
                keys = self._array(
                    part(array.keys), wanted.key_type, written.parts[KEY], target.key_type
                )
                values = self._array(
                    part(array.items), wanted.value_type, written.parts[VALUE], target.item_type
                )
                return pa.MapArray.from_arrays(
                    offsets, keys, values, type=target, mask=_nulls(array)
                )
        return _primitive(array, wanted, target)

    def _struct(
        self,
        array: pa.StructArray,
        wanted: StructType,
        written: WrittenField,
        target: pa.StructType,
    ) -> pa.Array:
        children = []
        for number, field in enumerate(wanted.fields):
            found = written.parts.get(field.field_id)
            child = None if found is None else array.field(found.name)
            children.append(self._field(field, found, child, target.field(number).type, len(array)))
        return pa.StructArray.from_arrays(children, fields=list(target), mask=_nulls(array))


def _nulls(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _layout(array: pa.ListArray) -> tuple[pa.Array, Any]:
    """The offsets of a list or map relative to its own first element, and a function that slices
    its children accordingly.

    Batches are slices of larger arrays, whose children are not sliced.
    """
    if pa.types.is_fixed_size_list(array.type):
        array = array.cast(pa.list_(array.type.value_field))
    offsets = array.offsets.to_numpy()
    first, length = int(offsets[0]), int(offsets[-1] - offsets[0])
    return pa.array((offsets - first).astype(np.int32)), lambda children: children.slice(
        first, length
    )


def _primitive(array: pa.Array, wanted: IcebergType, target: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if array.type == target:
        return array
    match wanted:
        case UUIDType():
            return (
                _uuid_strings(array)
                if pa.types.is_string(target)
                else pa.UuidArray.from_storage(target, array)
            )
        case TimeType():
            return array.cast(pa.time64("us")).cast(target)
    return _timestamps(array, target) if pa.types.is_timestamp(array.type) else array.cast(target)


def _timestamps(array: pa.Array, target: pa.TimestampType) -> pa.Array:
    """Timestamps in the target type. Whatever zone a file or the table names, the number counts
    from 1970 in UTC.
    """
    array = array.view(pa.timestamp(array.type.unit, target.tz))
    if array.type.unit == "ns" and target.unit != "ns":
        # a cast would round moments before 1970 up
        array = pc.floor_temporal(array, unit="microsecond")
    return array.cast(target)


def _uuid_strings(array: pa.Array) -> pa.Array:
    """UUIDs of 16 bytes as text with dashes."""
    if not len(array):
        return pa.array([], pa.string())
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    dense = array.fill_null(bytes(16)) if array.null_count else array
    start = dense.offset * 16
    raw = np.frombuffer(dense.buffers()[1], np.uint8)[start : start + len(dense) * 16].reshape(
        -1, 16
    )
    text = np.full((len(dense), 36), ord("-"), np.uint8)
    for group, (first, last) in enumerate(_UUID_GROUPS):
        digits = _HEX_OF_BYTE[raw[:, first:last]].reshape(len(dense), -1)
        text[:, 2 * first + group : 2 * last + group] = digits
    strings = pa.StringArray.from_buffers(
        len(dense),
        pa.py_buffer(np.arange(0, 36 * len(dense) + 1, 36, dtype=np.int32)),
        pa.py_buffer(text),
    )
    return pc.if_else(array.is_valid(), strings, None) if array.null_count else strings
