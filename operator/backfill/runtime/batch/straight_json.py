"""``from_json`` over a value that this package's own ``to_json`` has made, without the text.

An unmodified Kafka program parses the JSON text of records, which for a backfill was written from
the table's columns a moment before. In the captured plan the struct that the text is written from
is passed on beside it, and ``from_json`` becomes a struct of its fields, wherever that is the same
value for sure: for types whose text gives the value back, ``from_json`` without options, and nodes
that pass on rows one by one. Everything else keeps its JSON.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from py4j.java_gateway import JavaObject
from pyspark.sql import SparkSession

from backfill.runtime.catalyst import (
    Catalyst,
    children_of,
    corrupt_record_column,
    elements,
    field_names,
    id_of,
    kind_of,
)
from backfill.runtime.queries.logical_plan import HAND_ON_COLUMNS
from backfill.runtime.source.clock import is_source
from backfill.runtime.source.json_values import is_json_value

_ITSELF = {
    "bigint",
    "boolean",
    "date",
    "double",
    "float",
    "int",
    "smallint",
    "string",
    "timestamp",
    "timestamp_ntz",
    "tinyint",
}
"""Types whose values are read back as they were written. Decimals are as well."""
_WHOLE_NUMBERS = ["tinyint", "smallint", "int", "bigint"]
_ROW_BY_ROW = HAND_ON_COLUMNS | {"EventTimeWatermark", "Filter"}
"""Nodes that pass on all columns of their child."""
_ROW = "__row"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Value:
    """A column with the JSON text of a struct."""

    row: JavaObject
    """The column with the struct."""
    text: bool
    """As a string; else as bytes."""


_Values = Mapping[int, _Value]
"""By the id of the column."""


def without_json(plan: JavaObject, spark: SparkSession) -> JavaObject:
    """The same query of a stream, without text that is written only to be parsed.

    ``plan`` is analyzed; so is what is returned, with the same columns. It is ``plan`` itself where
    another version of Spark does not let it be changed: then it only takes longer.
    """
    try:
        return _Straight(spark).whole(plan)
    except Exception:
        _log.warning(
            "the JSON text of records could not be skipped: it is written and parsed again, which"
            " takes longer",
            exc_info=True,
        )
        return plan


class _Straight:
    def __init__(self, spark: SparkSession):
        self._catalyst = Catalyst(spark)
        self._corrupt = corrupt_record_column(spark)
        self._parsed_some = False
        """Whether a struct takes the place of text that is parsed."""
        self._legacy_times = str(spark.conf.get("spark.sql.legacy.timeParserPolicy")) == "LEGACY"

    def whole(self, node: JavaObject) -> JavaObject:
        """A node with the columns that it had."""
        found, values = self._node(node)
        if not values:
            return found
        return self._catalyst.project(elements(node.output()), found)

    def _node(self, node: JavaObject) -> tuple[JavaObject, _Values]:
        """A node, and its columns with text of which the struct is there as well."""
        children = children_of(node)
        if is_source(node) or not children or not node.isStreaming() or self._legacy_times:
            return node, {}
        kind = kind_of(node)
        if kind == "Project":
            return self._select(node)
        if kind not in _ROW_BY_ROW:
            return self._catalyst.with_children(node, [self.whole(child) for child in children]), {}
        child, values = self._node(children[0])
        if kind == "Filter":
            condition = self._expression(node.condition(), values)
            return self._catalyst.filter(condition, child), values
        return self._catalyst.with_children(node, [child]), values

    def _select(self, node: JavaObject) -> tuple[JavaObject, _Values]:
        child, values = self._node(node.child())
        columns, rows = [], {}
        given: dict[int, _Value] = {}
        for column in elements(node.projectList()):
            inner = column.child() if kind_of(column) == "Alias" else column
            value = _value_of(inner, values)
            if kind_of(inner) == "Cast" and is_json_value(inner.child()):
                row = self._catalyst.alias(inner.child().child(), _ROW)
                value = _Value(row.toAttribute(), text=False)
                rows[id_of(row)] = row
            if value is None:
                columns.append(self._expression(column, values))
                continue
            columns.append(column)
            given[id_of(column)] = value
            rows.setdefault(id_of(value.row), value.row)
        project = self._catalyst.project([*columns, *rows.values()], child)
        return self._catalyst.collapsed(project) if self._parsed_some else project, given

    # Expressions

    def _expression(self, expression: JavaObject, values: _Values) -> JavaObject:
        if not values:
            return expression
        if kind_of(expression) == "JsonToStructs":
            struct = self._parsed(expression, values)
            if struct is not None:
                return struct
        return self._catalyst.with_operands(
            expression, lambda operand: self._expression(operand, values)
        )

    def _parsed(self, parse: JavaObject, values: _Values) -> JavaObject | None:
        """What ``from_json`` gives; None where that is not known."""
        value = _value_of(parse.child(), values)
        if value is None or not value.text or not parse.options().isEmpty():
            return None
        wanted = parse.schema()
        if wanted.typeName() != "struct" or self._corrupt in field_names(wanted):
            return None
        struct = self._struct(value.row, wanted, parse.timeZoneId())
        self._parsed_some |= struct is not None
        return struct

    def _struct(self, row: JavaObject, wanted: JavaObject, zone: JavaObject) -> JavaObject | None:
        names, given = field_names(wanted), field_names(row.dataType())
        have = {name: place for place, name in enumerate(given)}
        if len(set(names)) < len(names) or len(have) < len(given):
            return None
        parts = []
        for name, field in zip(names, wanted.fields(), strict=True):
            part = (
                self._field(self._catalyst.field(row, have[name]), field, zone)
                if name in have
                else self._catalyst.null(field.dataType())
            )
            if part is None:
                return None
            parts.append((name, part))
        return self._catalyst.struct(parts)

    def _field(self, value: JavaObject, field: JavaObject, zone: JavaObject) -> JavaObject | None:
        """A value as it is when its text is parsed as a field's type."""
        kind, wanted = value.dataType(), field.dataType()
        have, want = str(kind.simpleString()), str(wanted.simpleString())
        if have == want == "string":
            return self._catalyst.valid_string(value)
        if have == want and (have in _ITSELF or have.startswith("decimal(")):
            return value
        wider = have in _WHOLE_NUMBERS and want in _WHOLE_NUMBERS[_WHOLE_NUMBERS.index(have) :]
        if wider or (have, want) == ("timestamp_ntz", "timestamp"):
            return self._catalyst.cast(value, wanted, zone)
        if kind.typeName() == "struct" and wanted.typeName() == "struct":
            struct = self._struct(value, wanted, zone)
            return None if struct is None else self._catalyst.or_null(value, struct)
        return None


def _value_of(expression: JavaObject, values: _Values) -> _Value | None:
    """The JSON text that an expression passes on, perhaps as a string of its bytes."""
    kind = kind_of(expression)
    if kind == "AttributeReference":
        return values.get(id_of(expression))
    if kind == "Cast" and expression.dataType().simpleString() == "string":
        value = _value_of(expression.child(), values)
        return None if value is None else _Value(value.row, text=True)
    return None
