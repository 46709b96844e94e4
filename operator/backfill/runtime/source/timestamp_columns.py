"""Finds columns of a source's frame, and converts timestamps."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    DataType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from backfill.api.errors import InvalidPlanInput, Problem
from backfill.api.field_types import map_and_key


def column_of(frame: DataFrame, name: str) -> tuple[Column, DataType]:
    """A column and its type, by name, with dots for nested ones, or of a map by its key.

    Raises:
        InvalidPlanInput: there is no such column.
    """
    found = find_column(frame.schema, name)
    if found is None:
        message = (
            f"there is no column {name} in the input; its columns are {', '.join(frame.columns)}"
        )
        raise InvalidPlanInput(Problem("spec.sources", message, "correct the column's name"))
    path, kind = found
    return F.col(".".join(f"`{part.replace('`', '``')}`" for part in path)), kind


def find_column(struct: StructType, name: str) -> tuple[list[str], DataType] | None:
    """The path to a column, and its type. A dot may lead into a struct, or be part of a name. The
    path to ``map['key']`` ends with the key.
    """
    for place in places_of(name, struct.names):
        field = struct.fields[place]
        if len(field.name) == len(name):
            return [field.name], field.dataType
        if isinstance(field.dataType, StructType):
            below = find_column(field.dataType, name[len(field.name) + 1 :])
            if below is not None:
                return [field.name, *below[0]], below[1]
    in_map = map_and_key(name)
    found = None if in_map is None else find_column(struct, in_map[0])
    if in_map is None or found is None:
        return None
    path, kind = found
    if not isinstance(kind, MapType) or not isinstance(kind.keyType, StringType):
        return None
    return [*path, in_map[1]], kind.valueType


def places_of(column: str, names: Sequence[str]) -> list[int]:
    """Which of these are names of a column, or of a struct in which it may be. Names that differ
    only in case count where none is the same, as for the sink and for Spark.
    """
    begins = [
        (place, name, column[: len(name)])
        for place, name in enumerate(names)
        if column[len(name) : len(name) + 1] in {"", "."}
    ]
    exactly = [place for place, name, begin in begins if begin == name]
    return exactly or [place for place, name, begin in begins if begin.lower() == name.lower()]


def microseconds(value: Column, kind: DataType, unit: str | None = None) -> Column:
    """A timestamp in microseconds since the epoch, whatever the session's time zone. ``unit`` is
    the unit of a number.
    """
    if isinstance(kind, TimestampType):
        return F.unix_micros(value)
    if isinstance(kind, TimestampNTZType):
        since_epoch = value - F.lit("1970-01-01").cast("timestamp_ntz")
        return (since_epoch.cast("decimal(20, 6)") * 1_000_000).cast("bigint")
    if unit == "ns":
        exact = value.cast("decimal(20, 0)")  # the quotient of two longs would be a double
        return F.floor(exact / 1_000).cast("bigint")
    return value.cast("bigint") * {"s": 1_000_000, "ms": 1_000, "us": 1}[unit or "us"]
