"""Queries that hand on columns of one source as they are, maybe fewer or under other names. Their
rows can be written by the tasks that read them.
"""

from collections.abc import Callable
from dataclasses import dataclass

from py4j.java_gateway import JavaObject

from backfill.runtime.batch.rebind import NOTHING_IN_A_BATCH
from backfill.runtime.catalyst import elements, id_of, kind_of
from backfill.runtime.queries.logical_plan import is_source, source_of, topic_of

_NAMES_ONLY = {"SubqueryAlias", "View"}


@dataclass(frozen=True, slots=True)
class HandedOn:
    """What a query gives of a source."""

    source: str
    columns: tuple[str, ...]
    """The source's columns, in the order of the query's."""
    names: tuple[str, ...]
    """The names that the query gives them."""


def handed_on(
    plan: JavaObject, through: Callable[[JavaObject], bool] = lambda cast: False
) -> HandedOn | None:
    """What a query hands on; None if it computes anything, or may do so. ``through`` says which
    casts are none.
    """
    names = tuple(str(column.name()) for column in elements(plan.output()))
    wanted = [id_of(column) for column in elements(plan.output())]
    node = plan
    while not is_source(node):
        if kind_of(node) == "Project":
            inside = {id_of(each): _renamed(each, through) for each in elements(node.projectList())}
            below = [inside[each] for each in wanted]
            if None in below:
                return None
            wanted = [each for each in below if each is not None]
        elif kind_of(node) not in NOTHING_IN_A_BATCH | _NAMES_ONLY:
            return None
        (node,) = elements(node.children())
    if topic_of(node) is not None:  # its rows are made of records
        return None
    given = {id_of(column): str(column.name()) for column in elements(node.output())}
    return HandedOn(source_of(node), tuple(given[each] for each in wanted), names)


def _renamed(expression: JavaObject, through: Callable[[JavaObject], bool]) -> int | None:
    """The identity of the column that a selected expression is; None if it is no column."""
    while (kind := kind_of(expression)) == "Alias" or (kind == "Cast" and through(expression)):
        expression = expression.child()
    return id_of(expression) if kind == "AttributeReference" else None
