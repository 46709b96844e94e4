"""Queries that pass on columns of one source unchanged, maybe fewer or under other names. Their
rows can be written by the tasks that read them.
"""

from collections.abc import Callable
from dataclasses import dataclass

from py4j.java_gateway import JavaObject

from backfill.runtime.batch.rebind_plan import NOTHING_IN_A_BATCH
from backfill.runtime.catalyst import (
    children_of,
    conjuncts,
    elements,
    id_of,
    ids_and_names,
    kind_of,
)
from backfill.runtime.source.clock import is_source, source_of, topic_of
from backfill.runtime.source.record_columns import RECORD_COLUMNS

_NAMES_ONLY = {"SubqueryAlias", "View"}


@dataclass(frozen=True, slots=True)
class HandedOn:
    """What a query gives of a source."""

    source: str
    columns: tuple[str, ...]
    """The source's columns, in the order of the query's."""
    names: tuple[str, ...]
    """The names that the query gives them."""
    present: tuple[str, ...] = ()
    """Columns of the source: rows in which one of these is null are left out."""


def handed_on(
    plan: JavaObject,
    through: Callable[[JavaObject], bool] = lambda cast: False,
    *,
    of_records: bool = False,
    filtered: bool = False,
) -> HandedOn | None:
    """What a query passes on; None if it computes anything, or may do so.

    Args:
        plan: analyzed.
        through: says which casts change nothing.
        of_records: also of a source that the query reads as records of Kafka, if it uses only the
            table's columns of it. Their types are then those of the table.
        filtered: also if it leaves out rows in which some columns are null.
    """
    names = tuple(str(column.name()) for column in elements(plan.output()))
    wanted = [_Part(id_of(column)) for column in elements(plan.output())]
    present: list[_Part] = []
    node = plan
    while not is_source(node):
        if kind_of(node) == "Project":
            inside = {id_of(each): each for each in elements(node.projectList())}
            below = [
                _part(inside[each.column], each.fields, through) for each in (*wanted, *present)
            ]
            parts = [each for each in below if each is not None]
            if len(parts) < len(below):
                return None
            wanted, present = parts[: len(wanted)], parts[len(wanted) :]
        elif filtered and kind_of(node) == "Filter":
            for condition in conjuncts(node.condition()):
                is_there = kind_of(condition) == "IsNotNull"
                part = _part(condition.child(), (), through) if is_there else None
                if part is None:
                    return None
                present.append(part)
        elif kind_of(node) not in NOTHING_IN_A_BATCH | _NAMES_ONLY:
            return None
        (node,) = children_of(node)
    given = dict(ids_and_names(node.output()))
    columns = tuple(given[each.column] for each in wanted)
    there = tuple(dict.fromkeys(given[each.column] for each in present))
    read = {*columns, *there}
    made = topic_of(node) is not None and (not of_records or RECORD_COLUMNS.keys() & read)
    if made or any(each.fields for each in (*wanted, *present)):
        return None
    return HandedOn(source_of(node), columns, names, there)


@dataclass(frozen=True, slots=True)
class _Part:
    """A column, or a field in it."""

    column: int
    """Its id."""
    fields: tuple[int, ...] = ()
    """The way to the field, by places in structs."""


def _part(
    expression: JavaObject, fields: tuple[int, ...], through: Callable[[JavaObject], bool]
) -> _Part | None:
    """What a selected expression, or a field in it, is a part of; None if it is computed."""
    while (kind := kind_of(expression)) != "AttributeReference":
        if kind == "Alias" or (kind == "Cast" and not fields and through(expression)):
            expression = expression.child()
        elif kind == "GetStructField":
            fields = (int(expression.ordinal()), *fields)
            expression = expression.child()
        elif kind == "CreateNamedStruct" and fields:
            expression = expression.valExprs().apply(fields[0])
            fields = fields[1:]
        else:
            return None
    return _Part(id_of(expression), fields)
