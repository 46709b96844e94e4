"""Which columns of a query's results follow from its rows alone, whatever other rows are read with
them and in whatever order.
"""

import re
from collections.abc import Iterator
from enum import IntEnum

from py4j.java_gateway import JavaObject

from backfill.runtime.batch.split_frames import PLANNED_ROWS
from backfill.runtime.batch.time_expressions import all_expressions
from backfill.runtime.catalyst import children_of, elements, id_of, kind_of
from backfill.runtime.queries.logical_plan import HAND_ON_COLUMNS
from backfill.runtime.source.clock import is_source
from backfill.runtime.source.record_columns import OFFSET
from backfill.runtime.spark_versions import MAPS_IN_ARROW

_EXACT = {
    "Average",
    "BitAndAgg",
    "BitOrAgg",
    "BitXorAgg",
    "BoolAnd",
    "BoolOr",
    "Count",
    "CountIf",
    "Max",
    "Min",
    "Sum",
}
"""Aggregates that do not depend on the order of rows, unless they add numbers with rounding."""
_ADDS = {"Average", "Sum"}
_HANDS_ON = HAND_ON_COLUMNS | {"EventTimeWatermark"}
_OTHER_EACH_TIME = {"AesEncrypt", "PythonUDF"}
"""Functions whose values need not follow from what they are given, although Spark takes them for
deterministic: encryption begins with random bytes unless the program gives some."""
_SUBQUERIES = {"Exists", "LateralSubquery", "ListQuery", "ScalarSubquery"}
_NOT_COMPARED = re.compile(r"\b(double|float|map|variant)\b")
"""Types of values that are rounded, or that cannot be hashed."""
_LOOK_ALIKES = re.compile(r"\bcollate\b")
"""Types of values that may be equal and yet differ: any of them stands for its group."""
_MADE_OF_NOTHING = {"OneRowRelation", "Range"}
"""Nodes that give the same rows in every program."""
_GIVEN_BY_PROGRAM = {"ExternalRDD", "LocalRelation", "LogicalRDD"}
"""Nodes with rows that the program has made before it started its query."""


class Lasting(IntEnum):
    """How long the inputs of a query that are not sources of the backfill stay the same."""

    JOB = 0
    """Every job asks a database or a catalog anew."""
    ATTEMPT = 1
    """As long as the driver lives: it has listed files, or the program has made rows."""
    RUN = 2
    """Until the run has ended: nothing is read, or tables in pinned snapshots."""


class _RowsVary(Exception):  # noqa: N818 - not an error: it is an answer
    """Which rows there are does not follow from the rows that are read."""


def certain_columns(plan: JavaObject, clock: JavaObject) -> list[JavaObject]:
    """The columns of a result that follow from the rows it depends on and can be compared; none if
    not even the number of results does.

    Args:
        plan: the analyzed plan of a query.
        clock: Spark's pattern of expressions for the current time.
    """
    try:
        uncertain = _Columns(clock).uncertain(plan)
    except _RowsVary:
        return []
    return [
        column
        for column in elements(plan.output())
        if id_of(column) not in uncertain
        and not _NOT_COMPARED.search(str(column.dataType().catalogString()))
    ]


def lasting(plan: JavaObject) -> Lasting:
    """How long a query with this analyzed plan finds the same in what is not its sources."""
    found, pending = Lasting.RUN, [plan]
    while pending:
        node = pending.pop()
        if is_source(node) or _is_pinned(node):
            continue
        below = [*children_of(node), *elements(node.subqueries())]
        pending += below
        if not below:
            found = min(found, _lasting_leaf(node))
    return found


def _lasting_leaf(leaf: JavaObject) -> Lasting:
    kind = kind_of(leaf)
    if kind in _MADE_OF_NOTHING:
        return Lasting.RUN
    listed = (
        kind == "LogicalRelation"
        and kind_of(leaf.relation()) == "HadoopFsRelation"
        and kind_of(leaf.relation().location()) == "InMemoryFileIndex"
    )
    return Lasting.ATTEMPT if listed or kind in _GIVEN_BY_PROGRAM else Lasting.JOB


def _is_pinned(node: JavaObject) -> bool:
    """Whether a node gives the rows of a static table in the snapshot that the plan has pinned."""
    return kind_of(node) in MAPS_IN_ARROW and node.functionExpr().name() == PLANNED_ROWS


class _Columns:
    def __init__(self, clock: JavaObject):
        self._clock = clock

    def uncertain(self, node: JavaObject) -> set[int]:
        """IDs of a node's columns that may have other values."""
        if is_source(node):
            return {id_of(column) for column in elements(node.output()) if column.name() == OFFSET}
        children = children_of(node)
        if not children or _is_pinned(node):
            return set()
        below = set[int]().union(*map(self.uncertain, children))
        match kind_of(node):
            case "Project":
                return self._among(elements(node.projectList()), below)
            case "Aggregate":
                self._must_be_certain(elements(node.groupingExpressions()), below)
                given = elements(node.aggregateExpressions())
                return self._among(given, below) | _with_look_alikes(given)
            case "Filter" | "Generate" | "Join":
                self._must_be_certain(elements(node.expressions()), below)
                return below
            case "Distinct":
                self._must_be_certain(elements(node.output()), below)
                return below | _with_look_alikes(elements(node.output()))
            case "Deduplicate" | "DeduplicateWithinWatermark":
                self._must_be_certain(elements(node.keys()), below)
                keys = {id_of(key) for key in elements(node.keys())}
                others = {id_of(column) for column in elements(node.output())} - keys
                return others | _with_look_alikes(elements(node.keys()))
            case "Union":
                return set(_of_union(node, below))
            case "Expand":
                values = [elements(each) for each in elements(node.projections())]
                doubtful = [[self._doubtful(value, below) for value in each] for each in values]
                columns = zip(elements(node.output()), zip(*doubtful, strict=True), strict=True)
                return {id_of(column) for column, each in columns if any(each)}
            case "Sample":
                raise _RowsVary
            case kind if kind in _HANDS_ON:
                return below
        return {id_of(column) for column in elements(node.output())}

    def _among(self, columns: list[JavaObject], below: set[int]) -> set[int]:
        return {id_of(column) for column in columns if self._doubtful(column, below)}

    def _must_be_certain(self, expressions: list[JavaObject], below: set[int]) -> None:
        if any(self._doubtful(each, below) for each in expressions):
            raise _RowsVary

    def _doubtful(self, expression: JavaObject, below: set[int]) -> bool:
        if not expression.deterministic() or expression.containsPattern(self._clock):
            return True
        pending = [expression]
        while pending:
            each = pending.pop()
            kind = kind_of(each)
            if kind in _OTHER_EACH_TIME:
                return True
            if kind == "AttributeReference" and id_of(each) in below:
                return True
            if kind in _SUBQUERIES and self._varies(each.plan()):
                return True
            if kind == "AggregateExpression" and not _exact(each.aggregateFunction()):
                return True
            pending += children_of(each)
        return False

    def _varies(self, subquery: JavaObject) -> bool:
        """Whether what a plan within an expression gives may be something else."""
        uncertain = self.uncertain(subquery)
        return any(id_of(column) in uncertain for column in elements(subquery.output()))


def _exact(function: JavaObject) -> bool:
    kind = kind_of(function)
    # an average of whole numbers adds them as doubles
    rounded = kind in _ADDS and _NOT_COMPARED.search(str(function.dataType().catalogString()))
    return kind in _EXACT and not rounded


def _with_look_alikes(columns: list[JavaObject]) -> set[int]:
    """IDs of those columns that are made of values of which equal ones may differ."""
    return {
        id_of(column)
        for column in columns
        for each in all_expressions(column)
        if _LOOK_ALIKES.search(str(each.dataType().catalogString()))
    }


def _of_union(union: JavaObject, below: set[int]) -> Iterator[int]:
    given = [elements(child.output()) for child in children_of(union)]
    for column, *columns in zip(elements(union.output()), *given, strict=True):
        if any(id_of(each) in below for each in columns):
            yield id_of(column)
