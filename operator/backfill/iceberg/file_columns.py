"""Finds the columns of a table in a data file:
by field id, or by the name mapping in files without ids.

Planning and runtime read files through this module only, so that neither finds a column that the
other does not. A timestamp in a file counts from 1970 in UTC, whatever the file says
(``isAdjustedToUTC``, or nothing for ``INT96``): Hive, Impala and Spark write instants in all these
ways, and Iceberg's own readers read them in this way.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as is_a
from pyiceberg.table.name_mapping import MappedField, NameMapping
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    GeographyType,
    GeometryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

_FIELD_ID = b"PARQUET:field_id"
_INT_BITS = 32
_UUID_BYTES = 16
ELEMENT, KEY, VALUE = 0, 0, 1
"""Keys of the parts of a list, and of a map."""


@dataclass(frozen=True, slots=True)
class WrittenField:
    """A column of a file, or a field, element, key or value within one."""

    name: str
    kind: pa.DataType
    leaf: int
    """Number of its first leaf column in the Parquet file."""
    parts: Mapping[int, "WrittenField"]
    """Fields of a struct by field id; of a list :data:`ELEMENT`;
    of a map :data:`KEY` and :data:`VALUE`.
    """


Columns = Mapping[int, WrittenField]
"""The columns of a file that belong to the table, by field id."""


def has_field_ids(schema: pa.Schema) -> bool:
    """Whether a file identifies its columns by field ids."""
    return any(_id_of(field) is not None for field in schema)


def columns_of(schema: pa.Schema, mapping: NameMapping | None) -> Columns:
    """The columns of a file with this Arrow schema. One without an id, its own or from the mapping,
    does not belong to the table.
    """
    return _fields(schema, 0, None if has_field_ids(schema) else tuple(mapping or ()))


def path_to(columns: Columns, field_id: int) -> tuple[WrittenField, ...] | None:
    """The column and the fields below it that lead to a field,
    including the field; None if the file lacks it.
    """
    for found_id, written in columns.items():
        if found_id == field_id:
            return (written,)
        below = path_to(written.parts, field_id) if is_a.is_struct(written.kind) else None
        if below is not None:
            return (written, *below)
    return None


def part_of(column: pa.Array, names: Iterable[str]) -> pa.Array:
    """What names lead to within a column: fields of structs, and values of maps by their keys. It
    is null where a struct or map above it is, and where a map lacks the key.
    """
    for name in names:
        column = (
            _value_at(column, name) if is_a.is_map(column.type) else pc.struct_field(column, [name])
        )
    return column


def _value_at(maps: pa.MapArray, key: str) -> pa.Array:
    """The value of each map at a key; of several, the first, as in Spark."""
    offsets = maps.offsets.to_numpy()
    begin = int(offsets[0])
    keys = maps.keys.slice(begin, int(offsets[-1]) - begin).cast(pa.string())
    same = np.flatnonzero(pc.equal(keys, key).to_numpy(zero_copy_only=False)) + begin
    first = np.append(same, offsets[-1])[np.searchsorted(same, offsets[:-1])]
    there = (first < offsets[1:]) & maps.is_valid().to_numpy(zero_copy_only=False)
    return maps.items.take(pa.array(first, mask=~there))


def names_of(columns: Columns, field_ids: Container[int]) -> list[str]:
    """The columns that are one of these fields, or contain it."""
    return [
        written.name
        for field_id, written in columns.items()
        if _holds(field_id, written, field_ids)
    ]


def without_ids(
    fields: Iterable[NestedField], written: Sequence[pa.Field], parent: str = ""
) -> Iterator[str]:
    """Fields of a table that a file seems to have, but without their field ids: a phrase for each.

    Read by ids alone, they would be null. ``written`` are the fields of a file that has ids.
    """
    known = {_id_of(field): field for field in written}
    nameless = {field.name for field in written if _id_of(field) is None}
    for field in fields:
        name, found = f"{parent}{field.name}", known.get(field.field_id)
        if found is not None:
            yield from _without_ids_below(field.field_type, found.type, name)
        elif field.name in nameless or (parent and nameless and len(known) == 1):
            yield f"has no field id for column {name}"


def _without_ids_below(wanted: IcebergType, kind: pa.DataType, name: str) -> Iterator[str]:
    match wanted:
        case StructType() if is_a.is_struct(kind):
            yield from without_ids(wanted.fields, list(kind), f"{name}.")
        case ListType() if _is_list(kind):
            yield from _without_ids_below(wanted.element_type, kind.value_type, f"{name}.element")
        case MapType() if is_a.is_map(kind):
            yield from _without_ids_below(wanted.key_type, kind.key_type, f"{name}.key")
            yield from _without_ids_below(wanted.value_type, kind.item_type, f"{name}.value")


def names_without_ids(written: Iterable[pa.Field], parent: str = "") -> Iterator[str]:
    """The columns of a file, and the fields of its structs, that have no field id."""
    for field in written:
        name = f"{parent}{field.name}"
        if _id_of(field) is None:
            yield name
        if is_a.is_struct(field.type):
            yield from names_without_ids(field.type, f"{name}.")


def misfits(
    fields: Iterable[NestedField], columns: Columns, given: Container[int] = (), parent: str = ""
) -> Iterator[str]:
    """Why a file with these columns cannot be read as the table's fields;
    a phrase for each, none if it can.

    ``given`` are ids of fields whose value is in the file's partition.
    """
    for field in fields:
        name, found = f"{parent}{field.name}", columns.get(field.field_id)
        if found is not None:
            yield from misfits_of(field.field_type, found, name, given)
        elif field.required and field.field_id not in given and field.initial_default is None:
            yield f"has no column {name}, which is required and has no default"


def misfits_of(
    wanted: IcebergType, found: WrittenField, name: str, given: Container[int] = ()
) -> Iterator[str]:
    """The same for one field, whose name in the table is ``name``."""
    kind, parts = found.kind, found.parts
    match wanted:
        case _ if is_a.is_null(kind):
            return
        case StructType() if is_a.is_struct(kind):
            yield from misfits(wanted.fields, parts, given, f"{name}.")
        case ListType() if _is_list(kind):
            yield from misfits_of(wanted.element_type, parts[ELEMENT], f"{name}.element", given)
        case MapType() if is_a.is_map(kind):
            yield from misfits_of(wanted.key_type, parts[KEY], f"{name}.key", given)
            yield from misfits_of(wanted.value_type, parts[VALUE], f"{name}.value", given)
        case _ if not wanted.is_primitive or not _fits(kind, wanted):
            shown = "a struct" if is_a.is_struct(kind) else kind
            yield (
                f"has {shown} in column {name}, but the table has"
                f" {'a struct' if wanted.is_struct else wanted}"
            )


def _fits(kind: pa.DataType, wanted: IcebergType) -> bool:
    """Whether values of a primitive type in a file can be read as those of the table's type, by
    Iceberg's rules of promotion.
    """
    fits = _FITS.get(type(wanted))
    return fits is not None and bool(fits(kind, wanted))


def _is_list(kind: pa.DataType) -> bool:
    return bool(is_a.is_list(kind) or is_a.is_large_list(kind) or is_a.is_fixed_size_list(kind))


def _is_text_or_bytes(kind: pa.DataType, wanted: object) -> bool:
    text = is_a.is_string(kind) or is_a.is_large_string(kind) or is_a.is_string_view(kind)
    return bool(
        text or is_a.is_binary(kind) or is_a.is_large_binary(kind) or is_a.is_binary_view(kind)
    )


def _is_moment(kind: pa.DataType, wanted: object) -> bool:
    return bool(is_a.is_timestamp(kind))


def _has_bytes(kind: pa.DataType, count: int) -> bool:
    return bool(is_a.is_fixed_size_binary(kind) and kind.byte_width == count)


_FITS: Mapping[type[IcebergType], Callable[[Any, Any], bool]] = {
    BooleanType: lambda kind, wanted: is_a.is_boolean(kind),
    IntegerType: lambda kind, wanted: is_a.is_integer(kind) and kind.bit_width <= _INT_BITS,
    LongType: lambda kind, wanted: is_a.is_integer(kind),
    FloatType: lambda kind, wanted: is_a.is_float16(kind) or is_a.is_float32(kind),
    DoubleType: lambda kind, wanted: is_a.is_floating(kind),
    DecimalType: (
        lambda kind, wanted: (
            is_a.is_decimal(kind)
            and kind.scale == wanted.scale
            and kind.precision <= wanted.precision
        )
    ),
    DateType: lambda kind, wanted: is_a.is_date32(kind),
    TimeType: lambda kind, wanted: is_a.is_time(kind),
    TimestampType: _is_moment,
    TimestamptzType: _is_moment,
    TimestampNanoType: _is_moment,
    TimestamptzNanoType: _is_moment,
    UUIDType: lambda kind, wanted: isinstance(kind, pa.UuidType) or _has_bytes(kind, _UUID_BYTES),
    FixedType: lambda kind, wanted: _has_bytes(kind, len(wanted)),
    StringType: _is_text_or_bytes,
    BinaryType: _is_text_or_bytes,
    GeometryType: _is_text_or_bytes,
    GeographyType: _is_text_or_bytes,
    UnknownType: lambda kind, wanted: True,  # it is null, whatever is there
}
"""Whether a type in a file can be read as one of the table."""


def _holds(field_id: int, written: WrittenField, field_ids: Container[int]) -> bool:
    if field_id in field_ids:
        return True
    return is_a.is_struct(written.kind) and any(
        _holds(each, part, field_ids) for each, part in written.parts.items()
    )


def _id_of(field: pa.Field) -> int | None:
    identifier = (field.metadata or {}).get(_FIELD_ID)
    return None if identifier is None else int(identifier)


def _fields(
    fields: Iterable[pa.Field], leaf: int, mapping: Sequence[MappedField] | None
) -> dict[int, WrittenField]:
    """Fields from a first leaf on. ``mapping`` is the name mapping; None in a file with ids."""
    found: dict[int, WrittenField] = {}
    for field in fields:
        mapped = next((each for each in mapping or () if field.name in each.names), None)
        field_id = (
            mapped.field_id if mapped is not None else _id_of(field) if mapping is None else None
        )
        if field_id is not None:
            found.setdefault(
                field_id, _written(field, leaf, mapped.fields if mapped is not None else None)
            )
        leaf += _leaves(field.type)
    return found


def _written(field: pa.Field, leaf: int, mapping: Sequence[MappedField] | None) -> WrittenField:
    kind = field.type.value_type if is_a.is_dictionary(field.type) else field.type
    if isinstance(kind, pa.BaseExtensionType) and not isinstance(kind, pa.UuidType):
        kind = kind.storage_type  # such as JSON in a string
    parts: dict[int, WrittenField] = {}
    if is_a.is_struct(kind):
        parts = _fields(kind, leaf, mapping)
    elif _is_list(kind):
        parts = {ELEMENT: _written(kind.value_field, leaf, _part(mapping, "element"))}
    elif is_a.is_map(kind):
        value_leaf = leaf + _leaves(kind.key_type)
        key, value = _part(mapping, "key"), _part(mapping, "value")
        parts = {
            KEY: _written(kind.key_field, leaf, key),
            VALUE: _written(kind.item_field, value_leaf, value),
        }
    return WrittenField(field.name, kind, leaf, parts)


def _part(mapping: Sequence[MappedField] | None, name: str) -> Sequence[MappedField] | None:
    """The mapping of the names below an element, key or value."""
    return (
        None
        if mapping is None
        else next((each.fields for each in mapping if name in each.names), ())
    )


def _leaves(kind: pa.DataType) -> int:
    """Number of leaf columns of a type in Parquet."""
    if isinstance(kind, pa.BaseExtensionType):
        return _leaves(kind.storage_type)
    if is_a.is_struct(kind):
        return sum(_leaves(field.type) for field in kind)
    if _is_list(kind):
        return _leaves(kind.value_type)
    return _leaves(kind.key_type) + _leaves(kind.item_type) if is_a.is_map(kind) else 1
