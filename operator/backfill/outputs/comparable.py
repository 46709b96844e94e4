"""Checks that an output's rows can be compared with production as its ``validate`` asks."""

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
from backfill.iceberg.tables import near

_NUMBERS = (IntegerType, LongType, FloatType, DoubleType, DecimalType)
_TIMES = (TimestampType, TimestamptzType, DateType)
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
                message = f"table {output.table} has no column {column} at the top of its rows"
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
                f"column {each.name} of {output.table} holds values of type {strange}, which"
                " cannot be compared",
                f"add {each.name} to validate.ignore",
            )


def _misfit(kind: IcebergType, tolerance: str) -> tuple[str, str] | None:
    """What is wrong with a tolerance for a type, and the fix."""
    number = _NUMBER.fullmatch(tolerance) is not None
    if isinstance(kind, _TIMES):
        if number:
            return f"{tolerance!r} is not a duration", "write it as 500ms, 5s or 1d"
        try:
            parse_duration(tolerance)
        except ValueError:  # the form was checked where it was read
            return f"{tolerance!r} is longer than ten years", "give a shorter duration"
        return None
    if isinstance(kind, _NUMBERS):
        return None if number else (f"{tolerance!r} is not a number", "write it as 0.01")
    return f"values of type {kind} are equal or not", "leave the tolerance out"


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
