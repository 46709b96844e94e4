"""What the logical plan of a query says about where its rows come from and what identifies them."""

import json
from collections.abc import Iterator
from typing import Literal, NamedTuple

from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame

from backfill.protocol.survey_result import SurveyedColumn, SurveyedWatermark
from backfill.runtime.batch.time_expressions import all_expressions
from backfill.runtime.catalyst import analyzed, children_of, elements, id_of, kind_of, nodes_of
from backfill.runtime.queries.logical_plan import HAND_ON_COLUMNS, session_window

INPUT = "backfill.input"
"""Option of a stream with the name of the input that it stands for."""
_ROW_BY_ROW = HAND_ON_COLUMNS | {"EventTimeWatermark", "Filter", "Project"}
_WINDOWS = ("spark.timeWindow", "spark.sessionWindow")
_TIMES = {"timestamp", "timestamp_ntz", "date"}
_CUTS = {"Substring", "SubstringIndex"}
"""Expressions that take a part of a value."""


class Decoded(NamedTuple):
    """How a query decodes the values of an input's records, as the fields of its survey."""

    value: Literal["Json", "Avro"]
    fields: dict[str, str]
    avro_schema: str | None
    framed: bool


class QueryPlan:
    """The plan of one query over unread streams."""

    def __init__(self, frame: DataFrame):
        self._plan = analyzed(frame)
        self._nodes = list(nodes_of(self._plan))
        self._made = {
            id_of(each): each.child()
            for node in self._nodes
            for each in elements(node.expressions())
            if kind_of(each) == "Alias"
        }
        """What columns are computed from, by their identity."""
        self._unread = {
            id_of(each): str(each.name())
            for node in self._nodes
            if kind_of(node) == "Project" and _input_of(node.child()) is not None
            for each in elements(node.projectList())
        }
        """Names of columns of inputs, by their identity."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs that it reads, each once."""
        return _inputs(self._plan)

    @property
    def decoded(self) -> dict[str, Decoded]:
        """By input, how the values of its records are decoded, where that can be seen."""
        found = {}
        for node in self._nodes:
            for each in (
                each for top in elements(node.expressions()) for each in all_expressions(top)
            ):
                if kind_of(each) in {"JsonToStructs", "FromAvro"}:
                    read = _inputs(node)
                    if len(read) == 1 and (how := self._decoded(each)) is not None:
                        found[read[0]] = how
        return found

    @property
    def watermarks(self) -> tuple[SurveyedWatermark, ...]:
        """Its watermarks, each once."""
        found = [
            SurveyedWatermark(
                column=str(node.eventTime().name()),
                delay_seconds=int(node.getDelayMs(node.delay())) / 1_000,
                inputs=_inputs(node),
                fields=tuple(dict.fromkeys(self._fields(node.eventTime().toAttribute()))),
            )
            for node in self._nodes
            if kind_of(node) == "EventTimeWatermark"
        ]
        return tuple(dict.fromkeys(sorted(found, key=lambda each: each.column)))

    @property
    def joins(self) -> tuple[str, ...]:
        """Its joins of streams and tables, in words."""
        return tuple(
            f"{str(node.joinType().toString()).lower()} join"
            + (
                f" on {_without_parentheses(str(node.condition().get().sql()).replace('`', ''))}"
                if node.condition().isDefined()
                else ""
            )
            for node in self._nodes
            if kind_of(node) == "Join" and node.isStreaming()
        )

    @property
    def sessions(self) -> bool:
        """Whether it has session windows."""
        return any(session_window(node) is not None for node in self._nodes)

    @property
    def columns(self) -> tuple[SurveyedColumn, ...]:
        """The columns of its result, with a time window's start and end."""
        event_times = {
            id_of(node.eventTime().toAttribute())
            for node in self._nodes
            if kind_of(node) == "EventTimeWatermark"
        }
        found = []
        for column in elements(self._plan.output()):
            ways = self._ways(column)
            kind = str(column.dataType().simpleString())
            if _is_window(column):
                found.append(
                    SurveyedColumn(
                        name=f"{column.name()}.start", type="timestamp", is_event_time=True
                    )
                )
                continue
            is_event_time = kind in _TIMES and any(
                way.field == "start" if _is_window(way.column) else id_of(way.column) in event_times
                for way in ways
                if way.column is not None
            )
            found.append(
                SurveyedColumn(name=str(column.name()), type=kind, is_event_time=is_event_time)
            )
        return tuple(found)

    @property
    def groups(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What the last aggregation or deduplication groups rows by, in words, and the columns of
        the result with these values; the latter are empty if some of them are not in the result.
        """
        node = self._plan
        while kind_of(node) in _ROW_BY_ROW:
            node = node.child()
        match kind_of(node):
            case "Aggregate":
                grouping = elements(node.groupingExpressions())
            case "Deduplicate" | "DeduplicateWithinWatermark":
                grouping = elements(node.keys())
            case "Distinct":
                grouping = elements(node.output())
            case _:
                return (), ()
        words = tuple(str(each.sql()).replace("`", "") for each in grouping)
        keys = [self._column_of(each) for each in grouping]
        return words, tuple(each for each in keys if each) if all(keys) else ()

    def _column_of(self, group: JavaObject) -> str | None:
        """The column of the result that has the value that rows are grouped by. Of a window, its
        start or its end.
        """
        ends = None
        for column in elements(self._plan.output()):
            for way in self._ways(column):
                if not _is_same(way, group):
                    continue
                if way.field is None:
                    return f"{column.name()}{'.start' if _is_window(group) else ''}"
                if way.field == "start":
                    return str(column.name())
                ends = str(column.name())
        return ends

    def _ways(self, column: JavaObject) -> "Iterator[_Way]":
        """What a column is, in the order in which it was passed on from below; also where it is the
        field of another one.
        """
        expression, field = column, None
        while True:
            kind = kind_of(expression)
            if kind == "Alias":
                expression = expression.child()
            elif kind == "AttributeReference":
                yield _Way(expression, expression, field)
                made = self._made.get(id_of(expression))
                if made is None:
                    return
                expression = made
            elif kind == "GetStructField" and field is None:
                field = str(expression.extractFieldName())
                expression = expression.child()
            else:
                yield _Way(expression, None, field)
                return

    def _fields(self, expression: JavaObject, path: tuple[str, ...] = ()) -> Iterator[str]:
        """The fields of records that a value is computed from, nested ones with dots."""
        match kind_of(expression):
            case "AttributeReference" if id_of(expression) in self._unread:
                yield ".".join((self._unread[id_of(expression)], *path))
            case "AttributeReference":
                made = self._made.get(id_of(expression))
                if made is not None:
                    yield from self._fields(made, path)
            case "Alias":
                yield from self._fields(expression.child(), path)
            case "GetStructField":
                name = str(expression.extractFieldName())
                yield from self._fields(expression.child(), (name, *path))
            case "JsonToStructs" | "FromAvro":
                if path:
                    yield ".".join(path)
            case _:
                for child in children_of(expression):
                    yield from self._fields(child)

    def _decoded(self, expression: JavaObject) -> Decoded | None:
        kind = expression.dataType()
        if kind.typeName() != "struct":
            return None
        described = json.loads(str(kind.json()))["fields"]
        fields = {each["name"]: _type_name(each["type"]) for each in described}
        framed = any(kind_of(each) in _CUTS for each in self._below(expression.child()))
        if kind_of(expression) == "JsonToStructs":
            return Decoded("Json", fields, None, framed)
        return Decoded("Avro", fields, str(expression.replacement().jsonFormatSchema()), framed)

    def _below(self, expression: JavaObject) -> Iterator[JavaObject]:
        """An expression and all that it is computed from."""
        for each in all_expressions(expression):
            yield each
            if kind_of(each) == "AttributeReference" and id_of(each) in self._made:
                yield from self._below(self._made[id_of(each)])


class _Way(NamedTuple):
    """Something that a column is."""

    expression: JavaObject
    column: JavaObject | None
    """The same, if it is a column."""
    field: str | None
    """Field of it that the column is."""


def _is_same(way: _Way, group: JavaObject) -> bool:
    """Whether a column is the value that rows are grouped by, or the edge of that window."""
    if way.field is not None and not _is_window(group):
        return False
    if kind_of(group) == "AttributeReference":
        return way.column is not None and id_of(way.column) == id_of(group)
    return bool(way.expression.semanticEquals(group))


def _inputs(plan: JavaObject) -> tuple[str, ...]:
    found = {_input_of(node) for node in nodes_of(plan)}
    return tuple(sorted(each for each in found if each is not None))


def _input_of(node: JavaObject) -> str | None:
    """The name of the input that a leaf stands for."""
    if kind_of(node) != "StreamingRelationV2":
        return None
    name = node.extraOptions().get(INPUT)
    return None if name is None else str(name)


def _is_window(column: JavaObject | None) -> bool:
    if column is None or kind_of(column) != "AttributeReference":
        return False
    return column.dataType().typeName() == "struct" and any(
        column.metadata().contains(each) for each in _WINDOWS
    )


def _without_parentheses(text: str) -> str:
    """A text without the pair of parentheses around all of it."""
    if not text.startswith("("):
        return text
    depth = 0
    for place, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if not depth:
            return text[1:-1] if place == len(text) - 1 else text
    return text


def _type_name(described: object) -> str:
    return described if isinstance(described, str) else "nested"
