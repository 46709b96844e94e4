"""Rows as a file holds them, turned into the columns Spark was promised: by field id, promoted, filled where absent.

Follows Iceberg's rules for schema evolution and column projection. Arrays whose type already fits are passed on as they
are; the rest is rebuilt from the same buffers as far as Arrow allows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema, promote
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType, UUIDType

from backfill.api.errors import InvalidPlanInput, Problem

_HEX_OF_BYTE = np.array([list(f"{value:02x}".encode()) for value in range(256)], np.uint8)
_UUID_GROUPS = ((0, 4), (4, 6), (6, 8), (8, 10), (10, 16))


@dataclass(frozen=True)
class Projection:
    """From the rows of one file to those of the table."""

    wanted: Schema
    """The schema that is read."""
    written: Schema
    """The file's schema, its fields with the ids they have in the table."""
    target: pa.Schema
    """The Arrow types Spark expects, in the order of ``wanted``."""
    constants: Mapping[int, Any]
    """For columns that the file does not have: their value, by field id. The others are null."""
    columns: frozenset[str] | None = None
    """The top-level columns that matter, the others are null; None is all."""

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a batch that was read from the file.

        Raises:
            InvalidPlanInput: a required column is neither in the file nor has a default.
        """
        columns = []
        written = self.written.as_struct()
        for field, target in zip(self.wanted.fields, self.target.types, strict=True):
            if self.columns is not None and field.name not in self.columns:
                columns.append(pa.nulls(batch.num_rows, target))
                continue
            found = _same_field(written, field)
            array = None if found is None else batch.column(found.name)
            columns.append(self._field(field, found, array, target, batch.num_rows))
        return pa.RecordBatch.from_arrays(columns, schema=self.target)

    def _field(
        self, field: NestedField, written: NestedField | None, array: pa.Array | None, target: pa.DataType, rows: int
    ) -> pa.Array:
        if written is None or array is None:
            return self._absent(field, target, rows)
        return self._array(array, field.field_type, written.field_type, target)

    def _absent(self, field: NestedField, target: pa.DataType, rows: int) -> pa.Array:
        value = self.constants.get(field.field_id)
        if value is not None:
            constant = pa.array([value], schema_to_pyarrow(field.field_type, include_field_ids=False))
            return pa.repeat(_primitive(constant, field.field_type, target)[0], rows)
        if field.required:
            message = f"a file of the table does not have the column {field.name}, which is required and has no default"
            raise InvalidPlanInput(Problem("spec.sources", message, "rewrite the table's old files or make the column optional"))
        return pa.nulls(rows, target)

    def _array(self, array: pa.Array, wanted: IcebergType, written: IcebergType, target: pa.DataType) -> pa.Array:
        if isinstance(wanted, StructType) and isinstance(written, StructType):
            return self._struct(array, wanted, written, target)
        if isinstance(wanted, ListType) and isinstance(written, ListType):
            offsets, part = _layout(array)
            values = self._array(part(array.values), wanted.element_type, written.element_type, target.value_type)
            return pa.ListArray.from_arrays(offsets, values, type=target, mask=_nulls(array))
        if isinstance(wanted, MapType) and isinstance(written, MapType):
            offsets, part = _layout(array)
            keys = self._array(part(array.keys), wanted.key_type, written.key_type, target.key_type)
            values = self._array(part(array.items), wanted.value_type, written.value_type, target.item_type)
            return pa.MapArray.from_arrays(offsets, keys, values, type=target, mask=_nulls(array))
        if written != wanted:
            promote(written, wanted)  # raises where Iceberg does not allow it
        return _primitive(array, wanted, target)

    def _struct(self, array: pa.StructArray, wanted: StructType, written: StructType, target: pa.StructType) -> pa.Array:
        children = []
        for number, field in enumerate(wanted.fields):
            found = _same_field(written, field)
            child = None if found is None else array.field(found.name)
            children.append(self._field(field, found, child, target.field(number).type, len(array)))
        return pa.StructArray.from_arrays(children, fields=list(target), mask=_nulls(array))


def _same_field(struct: StructType, field: NestedField) -> NestedField | None:
    return next((candidate for candidate in struct.fields if candidate.field_id == field.field_id), None)


def _nulls(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _layout(array: pa.ListArray) -> tuple[pa.Array, Any]:
    """The offsets of a list or map counted from its own first element, and a function that cuts its children to match.

    Batches are slices of larger arrays, whose children are not sliced with them.
    """
    if pa.types.is_fixed_size_list(array.type):
        array = array.cast(pa.list_(array.type.value_field))
    offsets = array.offsets.to_numpy()
    first, length = int(offsets[0]), int(offsets[-1] - offsets[0])
    return pa.array((offsets - first).astype(np.int32)), lambda children: children.slice(first, length)


def _primitive(array: pa.Array, wanted: IcebergType, target: pa.DataType) -> pa.Array:
    if array.type == target:
        return array
    if isinstance(wanted, UUIDType):
        return _uuid_strings(array)
    if pa.types.is_timestamp(array.type) and array.type.unit == "ns":
        array = pc.floor_temporal(array, unit="microsecond")  # a cast would round moments before 1970 up
    return array.cast(target)


def _uuid_strings(array: pa.Array) -> pa.Array:
    """UUIDs of 16 bytes as text with dashes."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    dense = array.fill_null(bytes(16)) if array.null_count else array
    start = dense.offset * 16
    raw = np.frombuffer(dense.buffers()[1], np.uint8)[start : start + len(dense) * 16].reshape(-1, 16)
    text = np.full((len(dense), 36), ord("-"), np.uint8)
    for group, (first, last) in enumerate(_UUID_GROUPS):
        digits = _HEX_OF_BYTE[raw[:, first:last]].reshape(len(dense), -1)
        text[:, 2 * first + group : 2 * last + group] = digits
    strings = pa.StringArray.from_buffers(
        len(dense), pa.py_buffer(np.arange(0, 36 * len(dense) + 1, 36, dtype=np.int32)), pa.py_buffer(text)
    )
    return pc.if_else(array.is_valid(), strings, None) if array.null_count else strings
