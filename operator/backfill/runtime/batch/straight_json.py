"""``from_json`` over a value that this package's own ``to_json`` has made, without the text.

An unmodified Kafka program parses the JSON text of records, which for a backfill was written from
the table's columns a moment before. In the captured plan the struct that the text is written from
is handed on beside it, and ``from_json`` becomes a struct of its fields, wherever that is the same
value for sure: for types whose text gives the value back, ``from_json`` without options, and nodes
that hand on rows one by one. Everything else keeps its JSON.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from py4j.java_gateway import JavaObject
from pyspark.sql import SparkSession

from backfill.runtime.queries.logical_plan import HAND_ON_COLUMNS, elements, id_of, kind_of
from backfill.runtime.source.json_values import JSON_OPTIONS

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
"""Nodes that hand on all columns of their child."""
_ROW = "__row"


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

    ``plan`` is analyzed; so is what is returned, with the same columns.
    """
    return _Straight(spark).whole(plan)


class _Straight:
    def __init__(self, spark: SparkSession):
        jvm = spark._jvm
        assert jvm is not None  # not with Spark Connect
        self._jvm = jvm
        self._catalyst = jvm.org.apache.spark.sql.catalyst
        self._nothing = jvm.PythonUtils.toSeq([])
        self._none = jvm.scala.Option.apply(None)
        conf = spark._jsparkSession.sessionState().conf()
        self._corrupt = str(conf.columnNameOfCorruptRecord())
        self._legacy_times = str(spark.conf.get("spark.sql.legacy.timeParserPolicy")) == "LEGACY"

    def whole(self, node: JavaObject) -> JavaObject:
        """A node with the columns that it had."""
        found, values = self._node(node)
        if not values:
            return found
        return self._project(elements(node.output()), found)

    def _node(self, node: JavaObject) -> tuple[JavaObject, _Values]:
        """A node, and its columns with text of which the struct is there as well."""
        children = elements(node.children())
        if not children or not node.isStreaming() or self._legacy_times:
            return node, {}
        kind = kind_of(node)
        if kind == "Project":
            return self._select(node)
        if kind not in _ROW_BY_ROW:
            return self._with_children(node, [self.whole(child) for child in children]), {}
        child, values = self._node(children[0])
        if kind == "Filter":
            condition = self._expression(node.condition(), values)
            return self._catalyst.plans.logical.Filter(condition, child), values
        return self._with_children(node, [child]), values

    def _with_children(self, node: JavaObject, children: list[JavaObject]) -> JavaObject:
        return node.withNewChildren(self._seq(children))

    def _project(self, columns: list[JavaObject], child: JavaObject) -> JavaObject:
        return self._catalyst.plans.logical.Project(self._seq(columns), child)

    def _select(self, node: JavaObject) -> tuple[JavaObject, _Values]:
        child, values = self._node(node.child())
        columns, rows = [], {}
        given: dict[int, _Value] = {}
        for column in elements(node.projectList()):
            inner = column.child() if kind_of(column) == "Alias" else column
            value = _value_of(inner, values)
            if kind_of(inner) == "Cast" and _made_here(inner.child()):
                row = self._alias(inner.child().child())
                value = _Value(row.toAttribute(), text=False)
                rows[id_of(row)] = row
            if value is None:
                columns.append(self._expression(column, values))
                continue
            columns.append(column)
            given[id_of(column)] = value
            rows.setdefault(id_of(value.row), value.row)
        return self._project([*columns, *rows.values()], child), given

    def _alias(self, struct: JavaObject) -> JavaObject:
        expressions = self._catalyst.expressions
        number = expressions.NamedExpression.newExprId()
        return expressions.Alias(struct, _ROW, number, self._nothing, self._none, self._nothing)

    # Expressions

    def _expression(self, expression: JavaObject, values: _Values) -> JavaObject:
        if not values:
            return expression
        if kind_of(expression) == "JsonToStructs":
            struct = self._parsed(expression, values)
            if struct is not None:
                return struct
        children = elements(expression.children())
        new = [self._expression(child, values) for child in children]
        if all(one is other for one, other in zip(children, new, strict=True)):
            return expression
        return expression.withNewChildren(self._seq(new))

    def _parsed(self, parse: JavaObject, values: _Values) -> JavaObject | None:
        """What ``from_json`` gives; None where that is not known."""
        value = _value_of(parse.child(), values)
        if value is None or not value.text or not parse.options().isEmpty():
            return None
        wanted = parse.schema()
        if wanted.typeName() != "struct" or self._corrupt in list(wanted.fieldNames()):
            return None
        return self._struct(value.row, wanted, parse.timeZoneId())

    def _struct(self, row: JavaObject, wanted: JavaObject, zone: JavaObject) -> JavaObject | None:
        expressions = self._catalyst.expressions
        names = [str(field.name()) for field in wanted.fields()]
        if len(set(names)) < len(names):
            return None
        have = {str(field.name()): place for place, field in enumerate(row.dataType().fields())}
        if len(have) < len(row.dataType().fields()):
            return None
        strings = self._jvm.org.apache.spark.sql.types.DataTypes.StringType
        parts = []
        for name, field in zip(names, wanted.fields(), strict=True):
            part = (
                self._field(expressions.GetStructField(row, have[name], self._none), field, zone)
                if name in have
                else expressions.Literal.create(None, field.dataType())
            )
            if part is None:
                return None
            parts += [expressions.Literal.create(name, strings), part]
        return expressions.CreateNamedStruct(self._seq(parts))

    def _field(self, value: JavaObject, field: JavaObject, zone: JavaObject) -> JavaObject | None:
        """A value as it is when its text is parsed as a field's type."""
        kind, wanted = value.dataType(), field.dataType()
        have, want = str(kind.simpleString()), str(wanted.simpleString())
        expressions = self._catalyst.expressions
        if have == want == "string":
            return self._valid(value)
        if have == want and (have in _ITSELF or have.startswith("decimal(")):
            return value
        wider = have in _WHOLE_NUMBERS and want in _WHOLE_NUMBERS[_WHOLE_NUMBERS.index(have) :]
        if wider or (have, want) == ("timestamp_ntz", "timestamp"):
            return expressions.Cast(value, wanted, zone, expressions.EvalMode.LEGACY())
        if kind.typeName() == "struct" and wanted.typeName() == "struct":
            struct = self._struct(value, wanted, zone)
            if struct is None:
                return None
            null = expressions.Literal.create(None, struct.dataType())
            return expressions.If(expressions.IsNull(value), null, struct)
        return None

    def _valid(self, value: JavaObject) -> JavaObject:
        """A string as text gives it back: bytes that are no UTF-8 are replaced, as Java does it."""
        expressions, types = self._catalyst.expressions, self._jvm.org.apache.spark.sql.types
        as_bytes = expressions.Cast(
            value, types.DataTypes.BinaryType, self._none, expressions.EvalMode.LEGACY()
        )
        charset = expressions.Literal.create("UTF-8", types.DataTypes.StringType)
        replaced = expressions.StringDecode(as_bytes, charset, False, True)
        return expressions.If(expressions.IsValidUTF8(value), value, replaced)

    def _seq(self, items: list[JavaObject]) -> JavaObject:
        return self._jvm.PythonUtils.toSeq(items)


def _value_of(expression: JavaObject, values: _Values) -> _Value | None:
    """The JSON text that an expression hands on, perhaps as a string of its bytes."""
    kind = kind_of(expression)
    if kind == "AttributeReference":
        return values.get(id_of(expression))
    if kind == "Cast" and expression.dataType().simpleString() == "string":
        value = _value_of(expression.child(), values)
        return None if value is None else _Value(value.row, text=True)
    return None


def _made_here(expression: JavaObject) -> bool:
    """Whether it writes JSON as this package does."""
    if kind_of(expression) != "StructsToJson":
        return False
    options = expression.options()
    return int(options.size()) == len(JSON_OPTIONS) and all(
        options.contains(name) and str(options.apply(name)) == value
        for name, value in JSON_OPTIONS.items()
    )
