"""Writes within a function of ``foreachBatch`` that Spark has a plan of: SQL statements and merges.

Of merges, only those can be redirected that put each row in the place of the one with the same
keys: the branch then keeps the newest row of each key.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from py4j.java_gateway import JavaObject
from pyspark.sql import SparkSession

from backfill.runtime.catalyst import Catalyst, elements, kind_of

_EQUAL = {"=", "==", "<=>"}
_UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement that writes the rows of a plan into a table."""

    table: str
    rows: JavaObject
    how: str
    """Its kind, for messages."""
    by_position: bool = False
    columns: tuple[str, ...] = ()
    """Names for the columns of its rows, in their order; empty to use their own."""
    keys: tuple[str, ...] = ()
    """Columns by which its rows replace others; empty if they are added."""
    problem: str = ""
    """Why it cannot be redirected; empty if it can."""


def statement_of(plan: JavaObject, spark: SparkSession) -> Statement | None:
    """The statement that a parsed plan is, if it writes rows into one table; None otherwise."""
    match kind_of(plan):
        case "InsertIntoStatement":
            return _insert(plan)
        case "MergeIntoTable":
            return _merge(plan)
        case "UnresolvedWith":
            found = statement_of(plan.child(), spark)
            if found is not None:
                rows = Catalyst(spark).with_children(plan, [found.rows])
                return replace(found, rows=rows)
    return None


def merge_of(plan: JavaObject) -> Statement:
    """The same for the plan of ``mergeInto``."""
    return _merge(plan)


def _insert(plan: JavaObject) -> Statement:
    columns = tuple(map(str, elements(plan.userSpecifiedCols())))
    replaces = plan.overwrite() or plan.replaceCriteriaOpt().isDefined()
    problem = (
        "replaces rows that earlier batches have written"
        if replaces
        else ""
        if plan.partitionSpec().isEmpty()
        else "inserts into a partition"
    )
    return Statement(
        _table(plan.table()),
        plan.query(),
        "INSERT",
        by_position=not columns and not plan.byName(),
        columns=columns,
        problem=problem,
    )


def _merge(plan: JavaObject) -> Statement:
    matched, new, gone = (
        elements(actions)
        for actions in (
            plan.matchedActions(),
            plan.notMatchedActions(),
            plan.notMatchedBySourceActions(),
        )
    )
    upserts = (
        [_action(each) for each in matched] == ["UpdateStarAction"]
        and [_action(each) for each in new] == ["InsertStarAction"]
        and not gone
    )
    keys = _keys(plan.mergeCondition())
    problem = ""
    if not upserts:
        problem = f"does something other than {_UPSERT}"
    elif not keys:
        problem = "joins by something other than equality of columns with the same names"
    return Statement(
        _table(plan.targetTable()), plan.sourceTable(), "MERGE", keys=keys, problem=problem
    )


def _action(action: JavaObject) -> str:
    """The kind of an action; with a condition, it is another one."""
    return "conditional" if action.condition().isDefined() else kind_of(action)


def _table(plan: JavaObject) -> str:
    """The name of the table that a statement writes, as it is written there."""
    while kind_of(plan) == "SubqueryAlias":
        plan = plan.child()
    return (
        ".".join(map(str, elements(plan.multipartIdentifier())))
        if kind_of(plan) == "UnresolvedRelation"
        else str(plan.simpleStringWithNodeId())
    )


def _keys(condition: JavaObject) -> tuple[str, ...]:
    """The columns that a condition compares, each with one of the same name; none if it does
    anything else.
    """
    names = [_column(part) for part in _conjuncts(condition)]
    return tuple(name for name in names if name) if all(names) else ()


def _conjuncts(condition: JavaObject) -> Iterator[JavaObject]:
    if kind_of(condition) == "And" or _function(condition) == "and":
        for part in elements(condition.children()):
            yield from _conjuncts(part)
    else:
        yield condition


def _column(part: JavaObject) -> str | None:
    """The name of the columns that are compared; None if it is no comparison of two that differ
    only in the table that they are of.
    """
    equal = kind_of(part) in {"EqualTo", "EqualNullSafe"} or _function(part) in _EQUAL
    sides = [_path(side) for side in elements(part.children())] if equal else []
    if len(sides) != 2 or not all(sides) or sides[0] == sides[1]:
        return None
    (*_, one), (*_, other) = sides
    return one if one.lower() == other.lower() else None


def _path(side: JavaObject) -> tuple[str, ...]:
    """The parts of a column's name; empty if it is something else."""
    if kind_of(side) == "UnresolvedAttribute":
        return tuple(map(str, elements(side.nameParts())))
    if kind_of(side) == "AttributeReference":
        return (*map(str, elements(side.qualifier())), str(side.name()))
    return ()


def _function(expression: JavaObject) -> str | None:
    """The name of a function that is not resolved yet: so are operators of columns."""
    if kind_of(expression) != "UnresolvedFunction":
        return None
    return str(elements(expression.nameParts())[-1]).lower()
