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
    children_of,
    conjuncts,
    elements,
    frame_of,
    kind_of,
    unresolved_function,
)
from backfill.runtime.spark_versions import replaces_some_rows

_EQUAL = {"=", "==", "<=>"}
_NOT_BY_COLUMNS = "joins by something other than equality of columns with the same names"
_UPDATES, _INSERTS = {"UpdateAction", "UpdateStarAction"}, {"InsertAction", "InsertStarAction"}
_OF_COLUMNS = {"UpdateAction", "InsertAction"}
"""Actions that name the columns that they set; the others set all columns of the rows."""
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
    replaces: bool = False
    """Whether its rows replace all others."""
    problem: str = ""
    """Why it cannot be redirected; empty if it can."""


def statement_of(plan: JavaObject, spark: SparkSession) -> Statement | None:
    """The statement that a parsed plan is, if it writes rows into one table; None otherwise."""
    match kind_of(plan):
        case "InsertIntoStatement":
            return _insert(plan)
        case "MergeIntoTable":
            return _merge(plan, plan.sourceTable(), spark)
        case "UnresolvedWith":
            found = statement_of(plan.child(), spark)
            if found is not None:
                rows = Catalyst(spark).with_children(plan, [found.rows])
                return replace(found, rows=rows)
    return None


def merge_of(plan: JavaObject, rows: DataFrame) -> Statement:
    """The same for the plan of ``mergeInto``, in which the DataFrame may not be analyzed yet."""
    return _merge(plan, analyzed(rows), rows.sparkSession)


def _insert(plan: JavaObject) -> Statement:
    columns = tuple(map(str, elements(plan.userSpecifiedCols())))
    problem = ""
    if replaces_some_rows(plan):
        problem = "replaces some rows"
    elif not plan.partitionSpec().isEmpty():
        problem = "inserts into a partition"
    return Statement(
        _table(plan.table()),
        plan.query(),
        "INSERT",
        by_position=not columns and not plan.byName(),
        columns=columns,
        replaces=bool(plan.overwrite()),
        problem=problem,
    )


def _merge(plan: JavaObject, rows: JavaObject, spark: SparkSession) -> Statement:
    matched, new, gone = (
        elements(actions)
        for actions in (
            plan.matchedActions(),
            plan.notMatchedActions(),
            plan.notMatchedBySourceActions(),
        )
    )
    keys: tuple[str, ...] = ()
    problem = f"does something other than {_UPSERT}, or the same with columns"
    kinds = [{_action(each) for each in actions} for actions in (matched, new)]
    if kinds[0] <= _UPDATES and kinds[1] <= _INSERTS and len(matched) == len(new) == 1 and not gone:
        keys, problem = _keys(plan.mergeCondition(), (plan.targetTable(), rows))
        if not problem and any(kind_of(each) in _OF_COLUMNS for each in (*matched, *new)):
            tables = [_names(each) for each in (plan.targetTable(), rows)]
            update, insert = (_Values(each, tables, rows, spark) for each in (*matched, *new))
            problem = _difference(update, insert, keys)
            rows = insert.row
    return Statement(_table(plan.targetTable()), rows, "MERGE", keys=keys, problem=problem)


def _action(action: JavaObject) -> str:
    """The kind of an action; with a condition, it is another one."""
    return "conditional" if action.condition().isDefined() else kind_of(action)


class _Values:
    """What an action of a merge sets the columns of a row to."""

    def __init__(
        self,
        action: JavaObject,
        tables: Sequence[set[tuple[str, ...]]],
        rows: JavaObject,
        spark: SparkSession,
    ):
        """``tables`` are the names of the table, and of the rows that are merged."""
        self._tables = tables
        self._rows = rows
        self._catalyst = Catalyst(spark)
        self._values: dict[str, JavaObject] = {}
        self.texts: dict[str, str]
        """By column in lower case, its value. That of a column of the rows is its name, whatever
        is before that.
        """
        self.fields: list[str] = []
        """What it sets and is no column of the table, such as a field within one."""
        if kind_of(action) in _OF_COLUMNS:
            for each in elements(action.assignments()):
                side = _side(each.key())
                if side is None or 0 not in side.may_be_of(tables):
                    self.fields.append(str(side or each.key().sql()))
                else:
                    self._values[side.name] = each.value()
            self.texts = {name.lower(): self._text(each) for name, each in self._values.items()}
        else:
            columns = elements(analyzed(frame_of(spark, rows)).output())
            self.texts = {str(each.name()).lower(): str(each.name()).lower() for each in columns}

    @property
    def row(self) -> JavaObject:
        """The rows that are merged, with these values for columns."""
        if not self._values:
            return self._rows
        columns = [self._catalyst.alias(value, name) for name, value in self._values.items()]
        return self._catalyst.project(columns, self._rows)

    @property
    def of_the_table(self) -> list[str]:
        """The columns whose values depend on the row that is in the table."""
        return [name for name, value in self._values.items() if self._reads_the_table(value)]

    def _reads_the_table(self, expression: JavaObject) -> bool:
        side = _side(expression)
        if side is not None:
            return side.may_be_of(self._tables) == {0}
        return any(map(self._reads_the_table, children_of(expression)))

    def _text(self, value: JavaObject) -> str:
        side = _side(value)
        of_rows = side is not None and 1 in side.may_be_of(self._tables)
        return side.name.lower() if side is not None and of_rows else str(value.sql())


def _difference(update: _Values, insert: _Values, keys: Sequence[str]) -> str:
    """Why a merge that sets columns does not put whole rows in the place of others; empty if it
    does.
    """
    if fields := update.fields + insert.fields:
        return f"sets {', '.join(fields)}, which is not a column of the table"
    if read := update.of_the_table:
        return f"computes {', '.join(read)} from the row that is in the table"
    known = {key.lower() for key in keys}
    if other := [key for key in keys if insert.texts.get(key.lower()) != key.lower()]:
        return f"inserts rows with other values of {', '.join(other)} than it compares"
    updated = {key: key for key in known} | update.texts
    if kept := [name for name in insert.texts if name not in updated]:
        return f"inserts {', '.join(kept)} but does not update it, so existing rows keep theirs"
    if missing := [name for name in updated if name not in insert.texts]:
        return f"updates {', '.join(missing)} but does not insert it"
    if differing := [name for name, text in insert.texts.items() if updated[name] != text]:
        return (
            f"sets {', '.join(differing)} to one value when it inserts and another when it updates"
        )
    return ""


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
    sides = [_side(each) for each in children_of(part)] if equal else []
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
