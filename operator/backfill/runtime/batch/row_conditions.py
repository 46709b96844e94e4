"""A source's row filter as a condition of Spark's, where both mean the same."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from decimal import Decimal
from functools import reduce
from typing import Any

from pyiceberg.expressions import BooleanExpression, BoundTerm
from pyiceberg.expressions.literals import Literal
from pyiceberg.expressions.visitors import BoundBooleanExpressionVisitor, visit
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)
from pyspark.sql import Column
from pyspark.sql import functions as F

from backfill.runtime.source.row_selection import path_of


class UntranslatableError(Exception):
    """A filter on values that Spark compares otherwise, or does not have."""


def row_condition(expression: BooleanExpression, schema: Schema, *, moments: bool) -> Column:
    """For which rows a bound filter is true, as a condition on the table's columns.

    Args:
        moments: whether timestamps without a zone are moments in UTC in the frame.

    Raises:
        UntranslatableError: a column has a type that Spark compares otherwise: NaN, for one, is a
            number like any other there.
    """
    return visit(expression, _Conditions(schema, moments))


def column_at_path(path: Iterable[str]) -> Column:
    """A column, or a field within structs."""
    return F.col(".".join(f"`{part.replace('`', '``')}`" for part in path))


def literal_of(kind: IcebergType, value: Any, *, moments: bool) -> Column:
    """A value of a column, as Iceberg keeps it.

    Raises:
        UntranslatableError: Spark compares values of this type otherwise, or a moment without a
            zone lies outside of the calendar.
    """
    match kind:
        case BooleanType() | StringType():
            return F.lit(value)
        case IntegerType() | LongType():
            return F.lit(value).cast("bigint")
        case DateType():
            return F.date_from_unix_date(F.lit(value))
        case DecimalType():
            return F.lit(Decimal(value)).cast(f"decimal({kind.precision}, {kind.scale})")
        case TimestamptzType():
            return F.timestamp_micros(F.lit(value).cast("bigint"))
        case TimestampType() if moments:
            return F.timestamp_micros(F.lit(value).cast("bigint"))
        case TimestampType():
            return _without_zone(value)
    raise UntranslatableError(kind)


def _without_zone(value_us: int) -> Column:
    try:
        text = str(datetime(1970, 1, 1) + timedelta(microseconds=value_us))
    except OverflowError as error:
        raise UntranslatableError(value_us) from error
    return F.lit(text).cast("timestamp_ntz")


class _Conditions(BoundBooleanExpressionVisitor[Column]):
    def __init__(self, schema: Schema, moments: bool):
        self._struct = schema.as_struct()
        self._moments = moments

    def visit_in(self, term: BoundTerm, literals: set[Any]) -> Column:
        return reduce(
            Column.__or__, [self._column(term) == self._value(term, each) for each in literals]
        )

    def visit_not_in(self, term: BoundTerm, literals: set[Any]) -> Column:
        return ~self.visit_in(term, literals)

    def visit_is_nan(self, term: BoundTerm) -> Column:
        raise UntranslatableError(term)

    def visit_not_nan(self, term: BoundTerm) -> Column:
        raise UntranslatableError(term)

    def visit_is_null(self, term: BoundTerm) -> Column:
        return self._column(term).isNull()

    def visit_not_null(self, term: BoundTerm) -> Column:
        return self._column(term).isNotNull()

    def visit_equal(self, term: BoundTerm, literal: Literal[Any]) -> Column:
        return self._column(term) == self._value(term, literal)

    def visit_not_equal(self, term: BoundTerm, literal: Literal[Any]) -> Column:
        return self._column(term) != self._value(term, literal)

    def visit_greater_than_or_equal(self, term: BoundTerm, literal: Literal[Any]) -> Column:
        return self._column(term) >= self._value(term, literal)

    def visit_greater_than(self, term: BoundTerm, literal: Literal[Any]) -> Column:
        return self._column(term) > self._value(term, literal)

    def visit_less_than(self, term: BoundTerm, literal: Literal[Any]) -> Column:
        return self._column(term) < self._value(term, literal)

    def visit_less_than_or_equal(self, term: BoundTerm, literal: Literal[Any]) -> Column:
        return self._column(term) <= self._value(term, literal)

    def visit_starts_with(self, term: BoundTerm, literal: Literal[Any]) -> Column:
        return self._column(term).startswith(self._value(term, literal))

    def visit_not_starts_with(self, term: BoundTerm, literal: Literal[Any]) -> Column:
        return ~self.visit_starts_with(term, literal)

    def visit_true(self) -> Column:
        return F.lit(True)

    def visit_false(self) -> Column:
        return F.lit(False)

    def visit_not(self, child_result: Column) -> Column:
        return ~child_result

    def visit_and(self, left_result: Column, right_result: Column) -> Column:
        return left_result & right_result

    def visit_or(self, left_result: Column, right_result: Column) -> Column:
        return left_result | right_result

    def _column(self, term: BoundTerm) -> Column:
        return column_at_path(path_of(self._struct, term.ref().field.field_id) or [])

    def _value(self, term: BoundTerm, value: Any) -> Column:
        plain = value.value if isinstance(value, Literal) else value
        return literal_of(term.ref().field.field_type, plain, moments=self._moments)
