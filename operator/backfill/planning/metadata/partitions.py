"""Evaluates a file's partition values: whether it can match, the bounds of its timestamps, and
identity values.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy as np
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import (
    expression_evaluator,
    inclusive_projection,
    manifest_evaluator,
)
from pyiceberg.manifest import ManifestFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    YearTransform,
)
from pyiceberg.typedef import Record

from backfill.iceberg.missing_columns import partition_text
from backfill.iceberg.timestamp_units import bounded_us
from backfill.planning.source_files import PartitionValues, TimestampColumn

_HOUR_US = 3_600_000_000
_DAY_US = 24 * _HOUR_US
_MONTHS_PER_YEAR = 12


@dataclass(frozen=True)
class SpecReader:
    """Reads partitions of one partition spec, for one expression on rows."""

    spec: PartitionSpec
    schema: Schema
    column: TimestampColumn
    may_match: Callable[[Record], bool]
    may_pass_filter: Callable[[Record], bool]
    """Whether rows may satisfy the source's filter alone."""
    manifest_may_match: Callable[[ManifestFile], bool]

    def values(self, partition: Record) -> PartitionValues:
        """What a partition says about its rows."""
        identity: dict[int, Any] = {}
        lower, upper = None, None
        for position, field in enumerate(self.spec.fields):
            value = partition[position]
            if isinstance(field.transform, IdentityTransform):
                identity[field.source_id] = value
            span = (
                _span_us(field, value, self.column)
                if field.source_id == self.column.field_id
                else None
            )
            if span is not None:
                lower = span[0] if lower is None else max(lower, span[0])
                upper = span[1] if upper is None else min(upper, span[1])
        bounds = None if lower is None or upper is None else (lower, upper)
        numbers = {
            field_id: value
            for field_id, value in identity.items()
            if value is None or isinstance(value, int)
        }
        return PartitionValues(partition_text(self.schema, identity), bounds, numbers)


def spec_reader(
    metadata: TableMetadata,
    schema: Schema,
    spec_id: int,
    *,
    expression: BooleanExpression,
    row_filter: BooleanExpression,
    column: TimestampColumn,
) -> SpecReader:
    """The reader for one of a table's partition specs, for an expression that implies the source's
    filter.
    """
    spec = metadata.specs()[spec_id]
    project = inclusive_projection(schema, spec)
    partition_schema = Schema(*spec.partition_type(schema).fields)

    def evaluator(projected: BooleanExpression) -> Callable[[Record], bool]:
        evaluate = expression_evaluator(partition_schema, projected, case_sensitive=True)
        return lambda partition: evaluate(Record(*map(_as_literal, partition._data)))

    projected = project(expression)
    return SpecReader(
        spec,
        schema,
        column,
        evaluator(projected),
        evaluator(project(row_filter)),
        manifest_evaluator(spec, schema, projected),
    )


def _as_literal(value: Any) -> Any:
    """A partition value in the form of a filter's literals: bytes for a UUID."""
    return value.bytes if isinstance(value, UUID) else value


def _span_us(field: PartitionField, value: Any, column: TimestampColumn) -> tuple[int, int] | None:
    """The least and greatest timestamp for a partition value of the timestamp column."""
    if value is None:
        return None
    match field.transform:
        case IdentityTransform():
            return column.ticks.floor_us(value), column.ticks.floor_us(value)
        case HourTransform():
            return _span(value * _HOUR_US, (value + 1) * _HOUR_US)
        case DayTransform():
            return _span(value * _DAY_US, (value + 1) * _DAY_US)
        case MonthTransform():
            return _span(_month_us(value), _month_us(value + 1))
        case YearTransform():
            return _span(
                _month_us(value * _MONTHS_PER_YEAR), _month_us((value + 1) * _MONTHS_PER_YEAR)
            )
        case _:
            return None


def _span(start_us: int, end_us: int) -> tuple[int, int]:
    return bounded_us(start_us), bounded_us(end_us - 1)


def _month_us(months: int) -> int:
    """The first moment of a month, counted from January 1970,
    also outside the range of Python's calendar.
    """
    return int(np.datetime64(months, "M").astype("datetime64[D]").astype(np.int64)) * _DAY_US
