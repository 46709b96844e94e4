"""Converts the rows that an application writes to the columns of its output table: by name, and
widening types without loss.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StructType

from backfill.api.errors import BackfillError, Problem
from backfill.api.quantities import count


def mismatches(given: pa.Schema, table: Schema, table_name: str) -> list[Problem]:
    """Why rows with an Arrow schema cannot be written into a table: every column that is missing,
    unknown or of another type.
    """
    return list(_fields(list(given), list(schema_to_pyarrow(table)), "", table_name))


def zone_mismatches(given: pa.Schema, table: Schema, table_name: str, zone: str) -> list[Problem]:
    """Every column that has a time zone on one side only. If the session's time zone is not UTC,
    Spark would write other local times than are written here.
    """
    wanted = pa.struct(list(schema_to_pyarrow(table)))
    return [
        Problem(
            "",
            f"column {path} of {table_name} is a {_zoned(there)}, but the rows have a"
            f" {_zoned(here)}: production converts between them in the session's time zone {zone},"
            " this run in UTC",
            f"cast it in the application to a {_zoned(there)},"
            " or set spark.sql.session.timeZone to UTC",
        )
        for path, here, there in _timestamps(pa.struct(list(given)), wanted, "")
        if (here.tz is None) != (there.tz is None)
    ]


def fit(rows: pa.RecordBatch, table: Schema) -> pa.RecordBatch:
    """The rows with the table's columns, in its order and with its types. Missing columns are null.

    Raises:
        BackfillError: a required column has a null, or a value does not fit.
    """
    target = schema_to_pyarrow(table, include_field_ids=False)
    places = _places(rows.schema.names, list(target))
    columns = [_column(rows, *each) for each in zip(places, target, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=target)


def only(table: Schema, path: Sequence[str]) -> Schema:
    """The schema of a column alone or, with more names than one, of a field within one. It need not
    have a value.
    """
    return Schema(_only(table.as_struct(), path))


def _only(struct: StructType, path: Sequence[str]) -> NestedField:
    field = next(each for each in struct.fields if each.name == path[0])
    kind = field.field_type
    if isinstance(kind, StructType) and path[1:]:
        kind = StructType(_only(kind, path[1:]))
    return NestedField(field.field_id, field.name, kind, required=False)


def _fields(
    given: list[pa.Field], wanted: list[pa.Field], path: str, table: str
) -> Iterator[Problem]:
    names = [field.name.lower() for field in given]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield Problem(
            "",
            f"the rows for {table} have several columns named {path}{name}",
            "give them different names",
        )
    known = {field.name.lower() for field in wanted}
    for field in given:
        if field.name.lower() not in known:
            message = f"the rows have a column {path}{field.name} that table {table} does not have"
            yield Problem("", message, "leave it out with select, or add it to the table")
    places = _places([field.name for field in given], wanted)
    for place, field in zip(places, wanted, strict=True):
        if place is not None:
            yield from _types(given[place].type, field.type, f"{path}{field.name}", table)
        elif not field.nullable:
            message = (
                f"column {path}{field.name} of {table} is required, but the rows do not have it"
            )
            yield Problem("", message, "add it with select, or make it optional in the table")


def _types(given: pa.DataType, wanted: pa.DataType, path: str, table: str) -> Iterator[Problem]:
    if pa.types.is_struct(given) and pa.types.is_struct(wanted):
        yield from _fields(list(given.fields), list(wanted.fields), f"{path}.", table)
    elif not _widens(given, wanted):
        message = f"column {path} of {table} is a {wanted}, but the rows have a {given}"
        yield Problem("", message, "cast it in the application")


def _widens(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether every value of one type is also a value of another."""
    types = pa.types
    if given.equals(wanted) or types.is_null(given):
        return True
    if types.is_list(wanted) or types.is_large_list(wanted):
        return (types.is_list(given) or types.is_large_list(given)) and _widens_inside(
            given.value_type, wanted.value_type
        )
    if types.is_map(wanted):
        pairs = (
            [(given.key_type, wanted.key_type), (given.item_type, wanted.item_type)]
            if types.is_map(given)
            else []
        )
        return bool(pairs) and all(_widens_inside(one, other) for one, other in pairs)
    if any(kind(given) and kind(wanted) for kind in (types.is_signed_integer, types.is_floating)):
        return bool(given.bit_width <= wanted.bit_width)
    if types.is_decimal(given) and types.is_decimal(wanted):
        return bool(given.scale == wanted.scale and given.precision <= wanted.precision)
    if types.is_timestamp(given) and types.is_timestamp(wanted):
        return {"s": 0, "ms": 3, "us": 6, "ns": 9}[given.unit] <= {
            "s": 0,
            "ms": 3,
            "us": 6,
            "ns": 9,
        }[wanted.unit]
    text, binary = (
        (types.is_string, types.is_large_string),
        (
            types.is_binary,
            types.is_large_binary,
        ),
    )
    return any(
        any(kind(given) for kind in kinds) and any(kind(wanted) for kind in kinds)
        for kinds in (text, binary)
    )


def _widens_inside(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether the elements of lists and maps can be cast. Arrow does that, and takes fields of
    structs by their order.
    """
    if not pa.types.is_struct(given) or not pa.types.is_struct(wanted):
        return _widens(given, wanted)
    fields = list(zip(given.fields, wanted.fields, strict=False))
    same_names = given.num_fields == wanted.num_fields and all(
        one.name == other.name for one, other in fields
    )
    return same_names and all(_widens_inside(one.type, other.type) for one, other in fields)


def _timestamps(
    given: pa.DataType, wanted: pa.DataType, path: str
) -> Iterator[tuple[str, pa.DataType, pa.DataType]]:
    """The timestamps at the same places of two types, with their paths."""
    types = pa.types
    if types.is_struct(given) and types.is_struct(wanted):
        by_name = {field.name.lower(): field.type for field in given.fields}
        for field in wanted.fields:
            if field.name.lower() in by_name:
                yield from _timestamps(
                    by_name[field.name.lower()],
                    field.type,
                    f"{path}.{field.name}" if path else field.name,
                )
    elif types.is_map(given) and types.is_map(wanted):
        yield from _timestamps(given.key_type, wanted.key_type, f"{path}.key")
        yield from _timestamps(given.item_type, wanted.item_type, f"{path}.value")
    elif all(types.is_list(kind) or types.is_large_list(kind) for kind in (given, wanted)):
        yield from _timestamps(given.value_type, wanted.value_type, f"{path}.element")
    elif types.is_timestamp(given) and types.is_timestamp(wanted):
        yield path, given, wanted


def _zoned(kind: pa.TimestampType) -> str:
    """The name of a timestamp type in Spark."""
    return "timestamp_ntz" if kind.tz is None else "timestamp"


def _column(rows: pa.RecordBatch, place: int | None, field: pa.Field) -> pa.Array:
    array = (
        pa.nulls(rows.num_rows, field.type) if place is None else _cast(rows.column(place), field)
    )
    if not field.nullable and array.null_count:
        raise BackfillError(
            f"{field.name} is null in {count(array.null_count, 'row')}, but the output table"
            " requires it"
        )
    return array


def _cast(array: pa.Array, field: pa.Field) -> pa.Array:
    if pa.types.is_struct(array.type) and pa.types.is_struct(field.type):
        inner = list(field.type.fields)
        places = _places(array.type.names, inner)
        children = [_child(array, *each) for each in zip(places, inner, strict=True)]
        return pa.StructArray.from_arrays(
            children, fields=list(field.type.fields), mask=array.is_null()
        )
    if _has_required(field.type) and not pa.types.is_null(array.type):
        return _cast_elements(array, field)
    try:
        return array if array.type.equals(field.type) else array.cast(field.type)
    except pa.ArrowInvalid as error:
        raise BackfillError(
            f"a value of column {field.name} does not fit {field.type}: {error}"
        ) from error


def _cast_elements(array: pa.Array, field: pa.Field) -> pa.Array:
    """The same for lists and maps that hold structs with required fields."""
    kind, ends = field.type, array.offsets.to_numpy()
    within, offsets = slice(ends[0], ends[-1]), pa.array(ends - ends[0])
    if pa.types.is_map(kind):
        keys = _cast(array.keys[within], kind.key_field)
        items = _cast(array.items[within], kind.item_field)
        return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=array.is_null())
    large = pa.types.is_large_list(kind)
    made = pa.LargeListArray if large else pa.ListArray
    offsets = offsets.cast(pa.int64() if large else pa.int32())
    values = _cast(array.values[within], kind.value_field)
    return made.from_arrays(offsets, values, type=kind, mask=array.is_null())


def _has_required(kind: pa.DataType) -> bool:
    """Whether a type holds structs with required fields in lists or maps."""
    return any(map(_is_required_within, _elements(kind)))


def _is_required_within(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(not each.nullable or _is_required_within(each.type) for each in kind.fields)
    return _has_required(kind)


def _elements(kind: pa.DataType) -> list[pa.DataType]:
    if pa.types.is_map(kind):
        return [kind.key_type, kind.item_type]
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return [kind.value_type] if is_list else []


def _child(array: pa.StructArray, place: int | None, field: pa.Field) -> pa.Array:
    child = (
        pa.nulls(len(array), field.type)
        if place is None
        else _cast(pc.struct_field(array, [place]), field)
    )
    return child if field.nullable or not child.null_count else _filled(child, array, field)


def _filled(child: pa.Array, parents: pa.StructArray, field: pa.Field) -> pa.Array:
    """A required field of structs, with any value where the whole struct is null: Arrow writes no
    null there, and Spark gives one.
    """
    there = parents.is_valid()
    missing = pc.sum(pc.and_(there, child.is_null())).as_py()
    if missing:
        raise BackfillError(
            f"{field.name} is null inside a column in {count(missing, 'row')}, but the output"
            " table requires it"
        )
    if isinstance(child, pa.ExtensionArray):
        stored = pa.field(field.name, child.storage.type, nullable=False)
        return pa.ExtensionArray.from_storage(child.type, _filled(child.storage, parents, stored))
    anything = pa.array([None], pa.struct([field])).field(0)
    return pc.if_else(there, child, anything[0])


def _places(given: list[str], wanted: list[pa.Field]) -> list[int | None]:
    """Where each column is among those given: under its name or, without one, a name that differs
    only in case, as in Spark, and that is no other column's own.
    """
    own = {field.name for field in wanted}
    backwards = list(enumerate(given))[::-1]  # so that the first one of a name counts
    exactly = {name: place for place, name in backwards}
    otherwise = {name.lower(): place for place, name in backwards if name not in own}
    return [exactly.get(each.name, otherwise.get(each.name.lower())) for each in wanted]
