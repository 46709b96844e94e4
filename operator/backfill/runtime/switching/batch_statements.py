"""Writes within a function of ``foreachBatch`` that Spark has a plan of: SQL statements and merges.

Of merges, only those can be redirected that put each row in the place of the one with the same
keys: the branch then keeps the newest row of each key.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame, SparkSession

from backfill.runtime.catalyst import (
    Catalyst,
    analyzed,
    conjuncts,
    elements,
    kind_of,
    unresolved_function,
)

_EQUAL = {"=", "==", "<=>"}
_NOT_BY_COLUMNS = "joins by something other than equality of columns with the same names"
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
            return _merge(plan, plan.sourceTable())
        case "UnresolvedWith":
            found = statement_of(plan.child(), spark)
            if found is not None:
                rows = Catalyst(spark).with_children(plan, [found.rows])
                return replace(found, rows=rows)
    return None


def merge_of(plan: JavaObject, rows: DataFrame) -> Statement:
    """The same for the plan of ``mergeInto``, in which the DataFrame may not be analyzed yet."""
    return _merge(plan, analyzed(rows))


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


def _merge(plan: JavaObject, rows: JavaObject) -> Statement:
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
    keys: tuple[str, ...] = ()
    problem = f"does something other than {_UPSERT}"
    if upserts:
        keys, problem = _keys(plan.mergeCondition(), (plan.targetTable(), rows))
    return Statement(_table(plan.targetTable()), rows, "MERGE", keys=keys, problem=problem)


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


def _keys(
    condition: JavaObject, merged: tuple[JavaObject, JavaObject]
) -> tuple[tuple[str, ...], str]:
    """The columns by which a merge compares the table with the rows that are merged, each with one
    of the same name; or why its condition is anything else.
    """
    tables = [_names(each) for each in merged]
    keys = []
    for part in conjuncts(condition):
        sides = _compared(part)
        if len(sides) != 2 or sides[0].name.lower() != sides[1].name.lower():
            return (), _NOT_BY_COLUMNS
        may_be_of = [side.may_be_of(tables) for side in sides]
        for side, found in zip(sides, may_be_of, strict=True):
            if not found:
                return (), (
                    f"joins by {side}, which does not begin with the name or alias of the table or"
                    " of the rows that are merged: a field within a column cannot be a key"
                )
        if sides[0] == sides[1] or len(set.union(*may_be_of)) == 1:
            return (), _NOT_BY_COLUMNS
        keys.append(sides[0].name)
    return tuple(keys), ""


def _names(plan: JavaObject) -> set[tuple[str, ...]]:
    """What the columns of a table, or of a query in its place, may have before their names."""
    if plan.resolved():
        return {_lower(each.qualifier()) for each in elements(plan.output())}
    match kind_of(plan):
        case "SubqueryAlias":
            return {(str(plan.alias()).lower(),)}
        case "UnresolvedRelation":
            return {_lower(plan.multipartIdentifier())}
    return set()


def _lower(parts: JavaObject) -> tuple[str, ...]:
    return tuple(str(part).lower() for part in elements(parts))


class _Side(NamedTuple):
    """A column in a comparison."""

    qualifier: tuple[str, ...]
    """What is before its name: a table, or the column that it is a field of."""
    name: str
    is_column: bool
    """Whether it is known to be no field of another one."""

    def __str__(self) -> str:
        return ".".join((*self.qualifier, self.name))

    def may_be_of(self, tables: Sequence[set[tuple[str, ...]]]) -> set[int]:
        """Those of several tables, by their names, of which it may be a column. What comes first in
        a name may be left out.
        """
        given = tuple(part.lower() for part in self.qualifier)
        return {
            number
            for number, names in enumerate(tables)
            if self.is_column or any(name[-len(given) :] == given for name in names)
        }


def _compared(part: JavaObject) -> list[_Side]:
    """Two columns that are compared; fewer if it is anything but that."""
    equal = kind_of(part) in {"EqualTo", "EqualNullSafe"} or unresolved_function(part) in _EQUAL
    sides = [_side(each) for each in elements(part.children())] if equal else []
    return [side for side in sides if side is not None]


def _side(expression: JavaObject) -> _Side | None:
    match kind_of(expression):
        case "UnresolvedAttribute":
            *before, name = map(str, elements(expression.nameParts()))
            return _Side(tuple(before), name, is_column=not before)
        case "AttributeReference":
            qualifier = tuple(map(str, elements(expression.qualifier())))
            return _Side(qualifier, str(expression.name()), is_column=True)
    return None
