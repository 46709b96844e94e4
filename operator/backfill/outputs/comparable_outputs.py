"""Checks that an output's rows can be compared as its ``validate`` asks, and finds the types to
compare those of two tables in.
"""

import re
from collections.abc import Iterator

from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from backfill.api.errors import Problem
from backfill.api.output import Output
from backfill.api.quantities import parse_duration
from backfill.iceberg.open_tables import near

_NUMBERS = (IntegerType, LongType, FloatType, DoubleType, DecimalType)
_TIMES = (TimestampType, TimestamptzType, DateType)
_MOMENTS = (TimestampType, TimestamptzType)
_MOST_DIGITS = 38
_EXACT = (BooleanType, StringType, UUIDType, FixedType, BinaryType, TimeType)
_NUMBER = re.compile(r"[\d.]+", re.ASCII)


def check_comparison(schema: Schema, output: Output, field: str) -> Iterator[Problem]:
    """The problems of ``validate`` that the table shows."""
    wanted, names = output.validate_, [each.name for each in schema.fields]
    if wanted is None:
        return
    named = (("keys", wanted.keys), ("ignore", wanted.ignore), ("tolerance", wanted.tolerance))
    for place, columns in named:
        for column in columns:
            if column not in names:
                message = f"table {output.table} has no top-level column {column}"
                yield Problem(f"{field}.validate.{place}", message, near(column, names))
    for each in schema.fields:
        if each.name in wanted.tolerance:
            tolerance = wanted.tolerance[each.name]
            if problem := _misfit(each.field_type, tolerance):
                where = f"{field}.validate.tolerance"
                yield Problem(where, f"{each.name}: {problem[0]}", problem[1])
        if each.name not in wanted.ignore and (strange := _incomparable(each.field_type)):
            yield Problem(
                f"{field}.validate",
                f"column {each.name} of {output.table} contains values of type {strange}, which"
                " cannot be compared",
                f"add {each.name} to validate.ignore",
            )


def check_columns(schema: Schema, theirs: Schema, output: Output, field: str) -> Iterator[Problem]:
    """The columns that are compared, and that the reference of the output lacks or has with values
    that cannot be compared.
    """
    wanted, reference = output.validate_, output.reference
    if wanted is None or reference is None:
        return
    known = {each.name: each.field_type for each in theirs.fields}
    for each in schema.fields:
        if each.name in wanted.ignore:
            continue
        is_key = each.name in output.compared_keys
        remedy = (
            "use keys that both tables have" if is_key else f"add {each.name} to validate.ignore"
        )
        if each.name not in known:
            message = (
                f"{reference.table} has no top-level column {each.name}, which {output.table} has"
            )
            yield Problem(f"{field}.validate.reference.table", message, remedy)
        elif _common(each.field_type, known[each.name]) is None:
            message = (
                f"column {each.name} is a {known[each.name]} in {reference.table} and a"
                f" {each.field_type} in {output.table}, which cannot be compared"
            )
            yield Problem(f"{field}.validate.reference.table", message, remedy)


def compared_schema(ours: Schema, theirs: Schema) -> Schema:
    """The columns that both tables have with values that can be compared, in types that hold the
    values of both.
    """
    known = {each.name: each.field_type for each in theirs.fields}
    return Schema(
        *(
            _retyped(each, kind)
            for each in ours.fields
            if each.name in known
            and (kind := _common(each.field_type, known[each.name])) is not None
        )
    )


def _common(one: IcebergType, other: IcebergType) -> IcebergType | None:
    """A type that holds the values of both exactly; None if there is none."""
    if one == other:
        return one
    match one, other:
        case (StructType(), StructType()):
            return _common_struct(one, other)
        case (ListType(), ListType()):
            element = _common(one.element_type, other.element_type)
            if element is None:
                return None
            return ListType(one.element_id, element, element_required=False)
        case (MapType(), MapType()):
            key, value = (
                _common(one.key_type, other.key_type),
                _common(one.value_type, other.value_type),
            )
            if key is None or value is None:
                return None
            return MapType(one.key_id, key, one.value_id, value, value_required=False)
        case (DecimalType(), DecimalType()):
            scale = max(one.scale, other.scale)
            digits = scale + max(one.precision - one.scale, other.precision - other.scale)
            return DecimalType(digits, scale) if digits <= _MOST_DIGITS else None
        case (IntegerType() | LongType(), IntegerType() | LongType()):
            return LongType()
        case (FloatType() | DoubleType(), FloatType() | DoubleType()):
            return DoubleType()
    return TimestamptzType() if isinstance(one, _MOMENTS) and isinstance(other, _MOMENTS) else None


def _common_struct(one: StructType, other: StructType) -> IcebergType | None:
    """Spark finds the fields of a row by their place when it converts them."""
    if len(one.fields) != len(other.fields):
        return None
    fields = []
    for ours, theirs in zip(one.fields, other.fields, strict=True):
        kind = _common(ours.field_type, theirs.field_type)
        if kind is None or ours.name != theirs.name:
            return None
        fields.append(_retyped(ours, kind))
    return StructType(*fields)


def _retyped(field: NestedField, kind: IcebergType) -> NestedField:
    return NestedField(field.field_id, field.name, kind, required=False)


def _misfit(kind: IcebergType, tolerance: str) -> tuple[str, str] | None:
    """What is wrong with a tolerance for a type, and the fix."""
    number = _NUMBER.fullmatch(tolerance) is not None
    if isinstance(kind, _TIMES):
        if number:
            return f"{tolerance!r} is not a duration", "use a form such as 500ms, 5s or 1d"
        try:
            parse_duration(tolerance)
        except ValueError:  # the form was checked where it was read
            return f"{tolerance!r} is longer than ten years", "use a shorter duration"
        return None
    if isinstance(kind, _NUMBERS):
        return None if number else (f"{tolerance!r} is not a number", "use a form such as 0.01")
    return f"a tolerance does not apply to values of type {kind}", "remove the tolerance"


def _incomparable(kind: IcebergType) -> str:
    """The first type in a type of which values cannot be compared exactly; empty if none."""
    match kind:
        case StructType():
            parts = tuple(each.field_type for each in kind.fields)
        case ListType():
            parts = (kind.element_type,)
        case MapType():
            parts = (kind.key_type, kind.value_type)
        case _:
            return "" if isinstance(kind, (*_NUMBERS, *_TIMES, *_EXACT)) else str(kind)
    return next(filter(None, map(_incomparable, parts)), "")
