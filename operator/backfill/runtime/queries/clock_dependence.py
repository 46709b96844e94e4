"""Whether the result of a query depends on when it runs, because it compares with the clock."""

from collections.abc import Iterator

from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame

from backfill.runtime.catalyst import (
    analyzed,
    children_of,
    clock_pattern,
    elements,
    id_of,
    kind_of,
    nodes_of,
)

_CLOCKS = {
    "CurrentBatchTimestamp": "current_timestamp()",
    "CurrentDate": "current_date()",
    "CurrentTime": "current_time()",
    "CurrentTimestamp": "current_timestamp()",
    "LocalTimestamp": "localtimestamp()",
    "Now": "now()",
}
"""Spark's expressions for the current time, as users write them."""
_TIME_OF_STATE = {
    "FlatMapGroupsInPandasWithState": ("timeout", "ProcessingTimeTimeout"),
    "TransformWithStateInPandas": ("timeMode", "ProcessingTime"),  # in Spark 4.0
    "TransformWithStateInPySpark": ("timeMode", "ProcessingTime"),
}
"""Nodes with state of the program's own: which attribute says when its timers expire, and its value
if they do by processing time.
"""
_COMPARISONS = {
    "EqualNullSafe",
    "EqualTo",
    "GreaterThan",
    "GreaterThanOrEqual",
    "In",
    "InSet",
    "LessThan",
    "LessThanOrEqual",
}


def comparison_with_clock(frame: DataFrame) -> str:
    """Where a query of this frame selects, joins or groups rows by the current time, or has timers
    of processing time, in words; empty if nowhere.

    A column that only records when a row was processed does not count. What functions of the
    program do cannot be seen.
    """
    plan = analyzed(frame)
    if any(map(_has_timers_by_clock, nodes_of(plan))):
        return "a processing-time timer"
    # below the whole plan: its text leaves out everything beyond the 25th column
    if not plan.containsPattern(clock_pattern(frame.sparkSession)):
        return ""
    nodes = list(nodes_of(plan))
    timed = _columns_by_clock(nodes)
    for node in nodes:
        for what, expression in (*_deciding(node), *_comparisons(node)):
            if found := _clock_in(expression, timed):
                return f"{found} in {what}"
    return ""


def _has_timers_by_clock(node: JavaObject) -> bool:
    attribute, by_clock = _TIME_OF_STATE.get(kind_of(node), ("", ""))
    return bool(attribute) and kind_of(getattr(node, attribute)()) == by_clock


def _columns_by_clock(nodes: list[JavaObject]) -> dict[int, str]:
    """IDs of columns that are computed from the current time, and how."""
    named = [
        each for node in nodes for each in elements(node.expressions()) if kind_of(each) == "Alias"
    ]
    united = [columns for node in nodes if kind_of(node) == "Union" for columns in _united(node)]
    timed: dict[int, str] = {}
    before = -1
    while before < len(timed):  # a column may be computed from another one
        before = len(timed)
        for column in named:
            if id_of(column) not in timed and (found := _clock_in(column, timed)):
                timed[id_of(column)] = found
        for given, columns in united:
            if (
                given not in timed
                and (source := next((each for each in columns if each in timed), None)) is not None
            ):
                timed[given] = timed[source]
    return timed


def _united(union: JavaObject) -> Iterator[tuple[int, list[int]]]:
    """IDs of a union's columns, each with those of its children's columns at the same position."""
    outputs = [elements(child.output()) for child in children_of(union)]
    for column, *columns in zip(elements(union.output()), *outputs, strict=True):
        yield id_of(column), [id_of(each) for each in columns]


def _deciding(node: JavaObject) -> Iterator[tuple[str, JavaObject]]:
    """Expressions by which a node decides which rows belong to the result, or belong together."""
    match kind_of(node):
        case "Filter":
            yield "a filter", node.condition()
        case "Join" if node.condition().isDefined():
            yield "a join condition", node.condition().get()
        case "Aggregate":
            yield from (("a grouping key", each) for each in elements(node.groupingExpressions()))
        case "Deduplicate" | "DeduplicateWithinWatermark":
            yield from (("a deduplication key", each) for each in elements(node.keys()))
        case "EventTimeWatermark":
            yield "a watermark column", node.eventTime()


def _comparisons(node: JavaObject) -> Iterator[tuple[str, JavaObject]]:
    """Other comparisons in a node: in conditions of aggregates,
    or in columns such as whether a row is late.
    """
    pending = elements(node.expressions())
    while pending:
        each = pending.pop()
        if kind_of(each) in _COMPARISONS:
            yield "a comparison", each
        else:
            pending += children_of(each)


def _clock_in(expression: JavaObject, timed: dict[int, str]) -> str:
    pending = [expression]
    while pending:
        each = pending.pop()
        kind = kind_of(each)
        if kind in _CLOCKS:
            return _CLOCKS[kind]
        if kind == "AttributeReference" and id_of(each) in timed:
            return timed[id_of(each)]
        pending += children_of(each)
    return ""
