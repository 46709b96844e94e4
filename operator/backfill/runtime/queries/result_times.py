"""The origin of a result's time, by the query's logical plan: the edge of a time window, or a
column of a join.

If the plan is not understood, there is no origin, and nothing can be concluded.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame

from backfill.runtime.catalyst import analyzed, children_of, elements, id_of, kind_of

JoinSide = Literal["left", "right"]
_OUTER: dict[str, tuple[JoinSide, ...]] = {
    "LeftOuter": ("left",),
    "RightOuter": ("right",),
    "FullOuter": ("left", "right"),
}
_SAME_MOMENT = {
    "Alias",
    "Cast",
    "KnownNullable",
    "PreciseTimestampConversion",
    "UnixMicros",
    "UnixMillis",
    "UnixSeconds",
}
"""Expressions that keep the moment of their only child, perhaps in another type."""


@dataclass(frozen=True, slots=True)
class WindowEdge:
    """The result's time is the start or the end of the time window that it was aggregated by."""

    edge: Literal["start", "end"]


@dataclass(frozen=True, slots=True)
class JoinedColumns:
    """The result's time is a column of the streaming join's input. For each side: the column that
    it is taken from if the other side is null.
    """

    columns: dict[JoinSide, str]


Origin = WindowEdge | JoinedColumns


@dataclass(frozen=True, slots=True)
class Shape:
    """The relevant properties of a query's plan."""

    aggregations: int
    """Number of streaming aggregations."""
    joins: int
    """Number of joins of two streams."""
    waiting: tuple[JoinSide, ...]
    """The sides whose rows an outer join keeps without a
    partner until none can come any more, of all joins.
    """
    timed: bool
    """Whether results have a time. Without one, all of them count as the window's."""
    origin: Origin | None
    """Origin of that time; None if it is not understood."""


def shape(frame: DataFrame, column: str | None) -> Shape:
    """The properties of a query's plan. ``column`` is the column of the result's time, with dots
    for nested ones.
    """
    root = analyzed(frame)
    nodes = list(_nodes(root))
    joins = [
        node
        for node in nodes
        if kind_of(node) == "Join" and node.left().isStreaming() and node.right().isStreaming()
    ]
    aggregations = [node for node in nodes if kind_of(node) == "Aggregate" and node.isStreaming()]
    waiting = {side for join in joins for side in _OUTER.get(join.joinType().toString(), ())}
    # of a union, only rows of its first child can be followed
    united = any(
        kind_of(node) == "Union" and any(_is_stateful(each) for each in _nodes(node))
        for node in nodes
    )
    origin = (
        None
        if column is None or united
        else _Tracer(nodes, joins, aggregations).origin(root, column)
    )
    sides: tuple[JoinSide, ...] = ("left", "right")
    return Shape(
        len(aggregations),
        len(joins),
        tuple(side for side in sides if side in waiting),
        column is not None,
        origin,
    )


class _Tracer:
    def __init__(
        self, nodes: list[JavaObject], joins: list[JavaObject], aggregations: list[JavaObject]
    ):
        self._given = {
            id_of(column): column
            for node in nodes
            if kind_of(node) in {"Project", "Aggregate"}
            for column in elements(
                node.projectList() if kind_of(node) == "Project" else node.aggregateExpressions()
            )
            if kind_of(column) == "Alias"
        }
        grouped = (
            each for node in aggregations[:1] for each in elements(node.groupingExpressions())
        )
        self._windows = {
            id_of(each)
            for each in grouped
            if kind_of(each) == "AttributeReference" and _is_window(each)
        }
        inputs: dict[JoinSide, JavaObject] = (
            {"left": joins[0].left(), "right": joins[0].right()} if len(joins) == 1 else {}
        )
        self._inputs = {
            side: {id_of(each): each for each in elements(plan.output())}
            for side, plan in inputs.items()
        }

    def origin(self, root: JavaObject, column: str) -> Origin | None:
        """The origin of a column of the result."""
        name, *path = column.split(".")
        found = [each for each in elements(root.output()) if each.name() == name]
        return self._follow(found[0], tuple(path)) if len(found) == 1 else None

    def _follow(self, expression: JavaObject, path: tuple[str, ...]) -> Origin | None:
        kind = kind_of(expression)
        if kind in _SAME_MOMENT:
            return (
                self._follow(expression.child(), path)
                if kind != "Cast" or _keeps_the_moment(expression)
                else None
            )
        if kind == "GetStructField":
            field = expression.childSchema().fieldNames()[expression.ordinal()]
            return self._follow(expression.child(), (field, *path))
        if kind == "Coalesce" and not path:
            return self._first_of(children_of(expression))
        return self._named(expression, path) if kind == "AttributeReference" else None

    def _named(self, column: JavaObject, path: tuple[str, ...]) -> Origin | None:
        number = id_of(column)
        if number in self._windows:
            return (
                WindowEdge("start")
                if path == ("start",)
                else WindowEdge("end")
                if path == ("end",)
                else None
            )
        for side, inputs in self._inputs.items():
            if number in inputs:
                return self._joined(side, inputs, number) if not path else None
        given = self._given.get(number)
        return self._follow(given, path) if given is not None else None

    def _joined(self, side: JoinSide, inputs: dict[int, JavaObject], number: int) -> Origin | None:
        name = str(inputs[number].name())
        alone = sum(each.name().lower() == name.lower() for each in inputs.values()) == 1
        in_time = inputs[number].dataType().simpleString() in {"timestamp", "timestamp_ntz"}
        return JoinedColumns({side: name}) if alone and in_time else None

    def _first_of(self, choices: list[JavaObject]) -> Origin | None:
        """The origin of the first choice. On the other side of the join, its columns are null."""
        columns: dict[JoinSide, str] = {}
        for choice in choices:
            origin = self._follow(choice, ())
            if not isinstance(origin, JoinedColumns) or columns.keys() & origin.columns.keys():
                return None
            columns |= origin.columns
        return JoinedColumns(columns)


def _keeps_the_moment(cast: JavaObject) -> bool:
    """Whether a cast keeps the moment. One to or from a time without a zone depends on the
    session's zone; one to a date truncates.
    """
    before, after = (str(each.dataType().simpleString()) for each in (cast.child(), cast))
    return before == after or (before, after) == ("timestamp", "bigint")


def _is_window(column: JavaObject) -> bool:
    return bool(column.dataType().simpleString().startswith("struct<start:timestamp"))


def _is_stateful(node: JavaObject) -> bool:
    return kind_of(node) in {"Aggregate", "Join"} and bool(node.isStreaming())


def _nodes(plan: JavaObject) -> Iterator[JavaObject]:
    """The nodes of a plan, from the result down."""
    pending = [plan]
    while pending:
        node = pending.pop(0)
        yield node
        pending += children_of(node)
