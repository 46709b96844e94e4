"""Expressions on values of any type: digests, equality and text.

Values are equal as users of tables understand it: null equals null, NaN equals NaN, zero equals
negative zero, and maps are equal if they have the same entries in any order. Decimals, timestamps
and bytes are compared exactly. Spark cannot compare maps, and its hash does not distinguish a null
in a row or list from nothing; so every value is first brought into a form in which it can.
"""

from collections.abc import Iterable
from datetime import timedelta
from decimal import ROUND_FLOOR, Context, Decimal

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from backfill.api.quantities import parse_duration, to_us
from backfill.runtime.source.json_values import JSON_OPTIONS

MOST_CHARACTERS = 200
"""Longest text of a value in a sample."""
_WHOLE = "decimal(20, 0)"
"""Holds any integer."""
_DIGITS = 18
"""Most digits after the point that a tolerance has."""


def parts(value: Column, kind: DataType) -> tuple[Column, ...]:
    """What Spark can hash of a value: rows and lists say which parts are null and how long they
    are, and maps are sorted lists. Values are equal if all their parts are.
    """
    match kind:
        case StructType():
            inner = (parts(value.getField(each.name), each.dataType) for each in kind)
            return (F.isnull(value), *(part for each in inner for part in each))
        case ArrayType():
            made = F.transform(value, lambda each: canonical(each, kind.elementType))
            return (_length(value), made)
        case MapType():
            entries = F.transform(
                F.map_entries(value),
                lambda each: F.struct(
                    canonical(each.getField("key"), kind.keyType),
                    canonical(each.getField("value"), kind.valueType),
                ),
            )
            return (_length(value), F.array_sort(entries))
        case _:
            return (F.isnull(value), value)


def canonical(value: Column, kind: DataType) -> Column:
    """A value in a form that Spark can hash and compare: a row of its :func:`parts`."""
    return F.struct(*parts(value, kind))


def digest(number: int, parts: Iterable[Column]) -> Column:
    """A hash of 64 bits of the parts of values, independent of those of other numbers."""
    return F.xxhash64(F.lit(number), *parts)


def near(one: Column, other: Column, kind: DataType, tolerance: str) -> Column:
    """Whether two values differ by no more than a tolerance; equal ones are near, too."""
    equal = one.eqNullSafe(other)
    match kind:
        case TimestampType():
            apart = F.abs(F.unix_micros(one) - F.unix_micros(other)) <= _us(tolerance)
        case DateType():
            apart = F.abs(F.datediff(one, other)) * F.lit(86_400_000_000) <= _us(tolerance)
        case FloatType() | DoubleType():
            difference = F.abs(one.cast("double") - other.cast("double"))
            apart = difference <= F.lit(float(tolerance))
        case DecimalType():
            apart = F.abs(one - other) <= F.lit(_floor(tolerance, kind.scale))
        case _:
            apart = F.abs(one.cast(_WHOLE) - other.cast(_WHOLE)) <= F.lit(_floor(tolerance, 0))
    return equal | F.coalesce(apart, F.lit(False))


def short(value: Column, kind: DataType) -> Column:
    """A value as it is shown: where it may be long, as text that is cut. Null stays null."""
    match kind:
        case BinaryType():
            written = F.lower(F.hex(F.substring(value, 1, MOST_CHARACTERS)))
        case StructType() | ArrayType() | MapType():
            written = F.to_json(value, {**JSON_OPTIONS, "ignoreNullFields": "false"})
        case StringType():
            written = value
        case _:
            return value
    cut = F.concat(F.substring(written, 1, MOST_CHARACTERS), F.lit("…"))
    return F.when(F.length(written) > MOST_CHARACTERS, cut).otherwise(written)


def _length(value: Column) -> Column:
    return F.when(value.isNull(), F.lit(-1)).otherwise(F.size(value))


def _floor(tolerance: str, digits: int) -> Decimal:
    """A tolerance for values with this many digits after the point. Their differences have no more
    digits, so that none is between it and the given one.
    """
    unit = Decimal(1).scaleb(-min(digits, _DIGITS))
    return Decimal(tolerance).quantize(unit, ROUND_FLOOR, Context(prec=2 * _DIGITS))


def _us(tolerance: str) -> int:
    duration: timedelta = parse_duration(tolerance)
    return to_us(duration)
