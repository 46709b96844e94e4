"""Values of columns that a data file lacks, in Iceberg's form: that of its partition, or else the
column's initial default.
"""

import json
from collections.abc import Mapping
from typing import Any

from pyiceberg.conversions import from_json, to_json
from pyiceberg.expressions.literals import literal
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    NestedField,
    PrimitiveType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
)

_COUNTED = (
    DateType,
    TimeType,
    TimestampType,
    TimestamptzType,
    TimestampNanoType,
    TimestamptzNanoType,
)
"""Stored as numbers: the text form of timestamps ends with the year 9999, and has no nanoseconds.
"""


def partition_text(schema: Schema, values: Mapping[int, Any]) -> str:
    """Identity values of a partition by source field id, in the form of
    :attr:`backfill.planning.plan.Split.partition`.

    Fields that are no longer in the schema are left out, since they are not read.
    """
    kinds = {
        field_id: schema.find_type(field_id)
        for field_id in values
        if field_id in schema._lazy_id_to_field
    }
    kept = {str(field_id): _stored(kind, values[field_id]) for field_id, kind in kinds.items()}
    return json.dumps(kept, sort_keys=True)


def partition_values(schema: Schema, text: str) -> dict[int, Any]:
    """The values of :func:`partition_text` by field id, None for null.

    Fields that the schema does not have are left out: it may be of some columns only.
    """
    stored = {int(key): value for key, value in json.loads(text).items()}
    return {
        field_id: _value(schema.find_type(field_id), value)
        for field_id, value in stored.items()
        if field_id in schema._lazy_id_to_field
    }


def initial_value(field: NestedField) -> Any:
    """The value in rows of files that are older than the column;
    None if it has no initial default.
    """
    return (
        None
        if field.initial_default is None
        else literal(field.initial_default).to(field.field_type).value
    )


def _stored(kind: Any, value: Any) -> object:
    if value is None or isinstance(kind, _COUNTED):
        return value
    return to_json(kind, value) if isinstance(kind, PrimitiveType) else None


def _value(kind: Any, stored: Any) -> Any:
    if stored is None or (isinstance(kind, _COUNTED) and isinstance(stored, int)):
        return stored
    return literal(from_json(kind, stored)).to(kind).value
