"""Tables that an SQL text reads: views take their places, where Spark's parser finds them."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any

from py4j.java_gateway import JavaObject
from pyspark.errors import ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.sql_formatter import SQLStringFormatter

from backfill.runtime.catalyst import (
    children_of,
    elements,
    is_temporary_view,
    kind_of,
    parsed,
    quoted,
    with_variables,
)
from backfill.runtime.switching.batch_function import not_the_function

_WRITTEN = {"DeleteFromTable", "MergeIntoTable", "UpdateTable"}
"""Statements whose first part is the table that they change."""
_WITHOUT_ALIAS = {"", "CacheTable", "Sample", "SubqueryAlias", "UnresolvedSubqueryColumnAliases"}
"""What is above a table's name after which none can be given: it has one, or must not have one."""


@dataclass(frozen=True, slots=True)
class TableName:
    """The name of a table that an SQL text reads."""

    parts: tuple[str, ...]
    place: slice
    """Where the text has it."""
    takes_alias: bool
    """Whether the text gives the rows no other name, and may."""


def reading_views(
    original: Callable[..., DataFrame], rows: Callable[[SparkSession, str], DataFrame | None]
) -> Callable[..., DataFrame]:
    """``spark.sql`` that reads some tables from elsewhere.

    Args:
        original: ``spark.sql``.
        rows: the rows of a table by the name that a text has for it; None if Spark reads it.
    """

    @wraps(original)
    def sql(
        self: SparkSession,
        sqlQuery: str,  # noqa: N803 - Spark's interface
        args: Any = None,
        **kwargs: Any,
    ) -> DataFrame:
        def view(written: str) -> str | None:
            name = written.replace("`", "")
            if is_temporary_view(self, quoted(name)):
                return name
            found = rows(self, written)
            if found is None:
                return None
            found.createOrReplaceTempView(quoted(name))
            return name

        with formatted(self, sqlQuery, kwargs) as given:
            with not_the_function():
                text = with_variables(self, given)
                try:
                    text = with_views(text, parsed(self, text), view)
                except ParseException:
                    text = given  # Spark will say so
            return original(self, text, args)

    return sql


@contextmanager
def formatted(spark: SparkSession, text: str, values: Mapping[str, Any]) -> Iterator[str]:
    """A text with values in place of names in braces, as PySpark puts them there: DataFrames are
    views meanwhile.
    """
    formatter = SQLStringFormatter(spark)
    try:
        yield formatter.format(text, **values) if values else text
    finally:
        formatter.clear()


def with_views(text: str, plan: JavaObject, view: Callable[[str], str | None]) -> str:
    """The text with views in place of tables.

    Args:
        text: with no variables in place of names.
        plan: what Spark's parser made of it.
        view: gives the name of the view for a table; None to leave the table as it is.
    """
    replaced: dict[int, tuple[slice, str]] = {}
    unnamed: dict[tuple[str, ...], str] = {}
    for table in tables_read(plan):
        name = view(".".join(map(quoted, table.parts)))
        if name is None:
            continue
        alias = quoted(table.parts[-1])
        if table.takes_alias:
            unnamed[table.parts] = alias
        new = f"{quoted(name)} AS {alias}" if table.takes_alias else quoted(name)
        replaced[table.place.start] = table.place, new
    if unnamed:  # its columns may be written with all of its name
        for parts, place in _columns(plan):
            for table_parts, alias in unnamed.items():
                below = parts[len(table_parts) :]
                if below and _same(parts[: len(table_parts)], table_parts):
                    rest = ".".join(part if part == "*" else quoted(part) for part in below)
                    replaced[place.start] = place, f"{alias}.{rest}"
    for place, new in (replaced[start] for start in sorted(replaced, reverse=True)):
        text = text[: place.start] + new + text[place.stop :]
    return text


def tables_read(plan: JavaObject) -> Iterator[TableName]:
    """The tables by whose names a parsed plan reads rows, but for those of which it chooses a
    snapshot or an option. The same place may come twice.
    """
    for node, above in _with_kind_above(plan):
        if kind_of(node) == "UnresolvedRelation" and node.options().isEmpty():
            place = _place(node)
            if place is not None and not node.isStreaming():
                parts = tuple(map(str, elements(node.multipartIdentifier())))
                yield TableName(parts, place, above not in _WITHOUT_ALIAS)


def _columns(plan: JavaObject) -> Iterator[tuple[tuple[str, ...], slice]]:
    """The names of columns in a parsed plan, with those of all columns of a table (``t.*``)."""
    for node, _ in _with_kind_above(plan):
        pending = elements(node.expressions())
        while pending:
            each = pending.pop()
            pending += children_of(each)
            match kind_of(each):
                case "UnresolvedAttribute":
                    parts = list(map(str, elements(each.nameParts())))
                case "UnresolvedStar" if each.target().isDefined():
                    parts = [*map(str, elements(each.target().get())), "*"]
                case _:
                    continue
            place = _place(each)
            if place is not None:
                yield tuple(parts), place


def _with_kind_above(plan: JavaObject) -> Iterator[tuple[JavaObject, str]]:
    """The nodes of a parsed plan, each with the kind of the one above it; not the tables that a
    statement changes.
    """
    pending = [(plan, "")]
    while pending:
        node, above = pending.pop()
        yield node, above
        kind = kind_of(node)
        below = children_of(node)[1 if kind in _WRITTEN else 0 :]
        # in which common table expressions and subqueries are
        pending += [(each, kind) for each in below + elements(node.innerChildren())]


def _place(node: JavaObject) -> slice | None:
    start, stop = node.origin().startIndex(), node.origin().stopIndex()
    return slice(start.get(), stop.get() + 1) if start.isDefined() and stop.isDefined() else None


def _same(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    return [part.lower() for part in one] == [part.lower() for part in other]
