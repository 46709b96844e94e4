"""The columns that an application sees: a table's schema in Spark's types."""

from collections.abc import Callable

from pyiceberg.schema import Schema
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
from pyspark.sql import types as spark

from backfill.api.errors import InvalidPlanInput, Problem

_PRIMITIVES: dict[type[IcebergType], Callable[[], spark.DataType]] = {
    BooleanType: spark.BooleanType,
    IntegerType: spark.IntegerType,
    LongType: spark.LongType,
    FloatType: spark.FloatType,
    DoubleType: spark.DoubleType,
    DateType: spark.DateType,
    TimeType: spark.StringType,  # Spark has a type for it, but does not support it here
    TimestampType: spark.TimestampNTZType,
    TimestamptzType: spark.TimestampType,
    TimestampNanoType: spark.TimestampNTZType,
    TimestamptzNanoType: spark.TimestampType,
    StringType: spark.StringType,
    UUIDType: spark.StringType,
    BinaryType: spark.BinaryType,
    FixedType: spark.BinaryType,
    GeometryType: spark.BinaryType,
    GeographyType: spark.BinaryType,
    UnknownType: spark.StringType,
}


def spark_schema(schema: Schema, table: str) -> spark.StructType:
    """The columns of a table as Spark's Iceberg reader returns them: nanoseconds become
    microseconds, UUIDs and times of day become strings. What that reader lacks: geometries and
    geographies are bytes (WKB), and columns of an unknown type are strings, all of them null.

    All are nullable, as in Spark's streaming sources.

    Raises:
        InvalidPlanInput: columns have types that Spark lacks; all of them are named.
    """
    problems: list[Problem] = []
    fields = _fields(schema.fields, "", table, problems)
    if problems:
        raise InvalidPlanInput(problems)
    return spark.StructType(fields)


def refuse_names_alike(schema: spark.StructType, table: str) -> None:
    """Checks that Spark can distinguish the columns of a table where it ignores case.

    Raises:
        InvalidPlanInput: names differ only in case; all of them are named.
    """
    alike: dict[str, list[str]] = {}
    for name in schema.names:
        alike.setdefault(name.lower(), []).append(name)
    if found := [" and ".join(names) for names in alike.values() if len(names) > 1]:
        message = f"columns of {table} differ only in case: {', '.join(found)}"
        fix = 'set spark.sql.caseSensitive: "true" in overrides.sparkConf, or rename a column'
        raise InvalidPlanInput(Problem("spec.sources", message, fix))


def with_moments(schema: spark.StructType) -> spark.StructType:
    """A schema in which timestamps without a time zone are moments in UTC.

    Spark accepts no others as event time.
    """
    return spark.StructType(
        [spark.StructField(field.name, _moment(field.dataType), field.nullable) for field in schema]
    )


def _moment(kind: spark.DataType) -> spark.DataType:
    match kind:
        case spark.TimestampNTZType():
            return spark.TimestampType()
        case spark.StructType():
            return with_moments(kind)
        case spark.ArrayType():
            return spark.ArrayType(_moment(kind.elementType), kind.containsNull)
        case spark.MapType():
            return spark.MapType(
                _moment(kind.keyType), _moment(kind.valueType), kind.valueContainsNull
            )
    return kind


def as_nullable(kind: spark.DataType) -> spark.DataType:
    """A type all of whose parts may be null."""
    match kind:
        case spark.StructType():
            return spark.StructType(
                [spark.StructField(field.name, as_nullable(field.dataType)) for field in kind]
            )
        case spark.ArrayType():
            return spark.ArrayType(as_nullable(kind.elementType))
        case spark.MapType():
            return spark.MapType(as_nullable(kind.keyType), as_nullable(kind.valueType))
    return kind


def _fields(
    fields: tuple[NestedField, ...], parent: str, table: str, problems: list[Problem]
) -> list[spark.StructField]:
    return [
        spark.StructField(
            field.name,
            _type(field.field_type, f"{parent}{field.name}", table, problems),
            nullable=True,
        )
        for field in fields
    ]


def _type(kind: IcebergType, column: str, table: str, problems: list[Problem]) -> spark.DataType:
    match kind:
        case StructType():
            return spark.StructType(_fields(kind.fields, f"{column}.", table, problems))
        case ListType():
            return spark.ArrayType(_type(kind.element_type, f"{column}.element", table, problems))
        case MapType():
            key = _type(kind.key_type, f"{column}.key", table, problems)
            return spark.MapType(key, _type(kind.value_type, f"{column}.value", table, problems))
        case DecimalType():
            return spark.DecimalType(kind.precision, kind.scale)
    made = _PRIMITIVES.get(type(kind))
    if made is None:
        message = f"column {column} of {table} has the type {kind}, which Spark does not support"
        problems.append(
            Problem("spec.sources", message, "read a snapshot or a table without this column")
        )
        return spark.NullType()
    return made()
