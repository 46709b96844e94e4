"""What a file's partition values say: whether it can match, between which moments its rows lie, and identity values."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from pyiceberg.conversions import to_json
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import expression_evaluator, inclusive_projection, manifest_evaluator
from pyiceberg.manifest import ManifestFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform, MonthTransform, YearTransform
from pyiceberg.typedef import Record
from pyiceberg.types import PrimitiveType
from pyiceberg.utils.datetime import datetime_to_micros

from backfill.planning.files import PartitionValues, TimestampColumn

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
    manifest_may_match: Callable[[ManifestFile], bool]

    def values(self, partition: Record) -> PartitionValues:
        """What a partition tells about its rows."""
        identity: dict[str, object] = {}
        lower, upper = None, None
        for position, field in enumerate(self.spec.fields):
            value = partition[position]
            if isinstance(field.transform, IdentityTransform):
                identity[str(field.source_id)] = self._json(field, value)
            span = _span_us(field, value, self.column) if field.source_id == self.column.field_id else None
            if span is not None:
                lower = span[0] if lower is None else max(lower, span[0])
                upper = span[1] if upper is None else min(upper, span[1])
        bounds = None if lower is None or upper is None else (lower, upper)
        return PartitionValues(json.dumps(identity, sort_keys=True), bounds)

    def _json(self, field: PartitionField, value: Any) -> object:
        source = self.schema._lazy_id_to_field.get(field.source_id)
        if value is None or source is None or not isinstance(source.field_type, PrimitiveType):
            return None
        return cast(object, to_json(source.field_type, value))


def spec_reader(
    metadata: TableMetadata, schema: Schema, spec_id: int, expression: BooleanExpression, column: TimestampColumn
) -> SpecReader:
    """How to read partitions of one of a table's specs."""
    spec = metadata.specs()[spec_id]
    projected = inclusive_projection(schema, spec)(expression)
    partition_schema = Schema(*spec.partition_type(schema).fields)
    return SpecReader(
        spec,
        schema,
        column,
        expression_evaluator(partition_schema, projected, case_sensitive=True),
        manifest_evaluator(spec, schema, projected),
    )


def _span_us(field: PartitionField, value: Any, column: TimestampColumn) -> tuple[int, int] | None:
    """The least and greatest timestamp a partition value of the timestamp column stands for."""
    if value is None:
        return None
    match field.transform:
        case IdentityTransform():
            return column.ticks.floor_us(value), column.ticks.floor_us(value)
        case HourTransform():
            return value * _HOUR_US, (value + 1) * _HOUR_US - 1
        case DayTransform():
            return value * _DAY_US, (value + 1) * _DAY_US - 1
        case MonthTransform():
            return _month_us(value), _month_us(value + 1) - 1
        case YearTransform():
            return _month_us(value * _MONTHS_PER_YEAR), _month_us((value + 1) * _MONTHS_PER_YEAR) - 1
        case _:
            return None


def _month_us(months: int) -> int:
    """The first moment of a month, counted from January 1970."""
    year, month = divmod(months, _MONTHS_PER_YEAR)
    return datetime_to_micros(datetime(1970 + year, month + 1, 1))
