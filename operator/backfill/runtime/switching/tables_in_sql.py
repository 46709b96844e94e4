"""Tables that an SQL text reads: views take their places, where Spark's parser finds them."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    full_name,
    is_temporary_view,
    kind_of,
    name_parts,
    parsed,
    quoted,
    with_name,
    with_variables,
)
from backfill.runtime.switching.batch_function import not_the_function
from backfill.runtime.switching.stream_reader import Tables

_WRITTEN = {"DeleteFromTable", "MergeIntoTable", "UpdateTable"}
"""Statements whose first part is the table that they change."""
_NAMED = {"SubqueryAlias", "UnresolvedSubqueryColumnAliases"}
"""What is above a table's name if the text gives its rows another one."""
_TAKES_NO_ALIAS = re.compile(r"\btable\s*\(?\s*$", re.IGNORECASE)
"""What is before a name that is all of a ``TABLE`` clause."""
_SAMPLED = re.compile(r"\s*tablesample\b", re.IGNORECASE)
_NO_PART = re.compile(r"/\*.*?\*/|--[^\n]*\n|[\s`]", re.DOTALL)
"""What may be within a name, and is no part of it."""
_COMPUTED = re.compile(r"identifier\s*\(", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class TableName:
    """The name of a table that an SQL text reads."""

    parts: tuple[str, ...]
    place: slice
    """Where the text has it."""
    takes_alias: bool
    """Whether the text gives the rows no other name, and may."""


def reading_views(original: Callable[..., DataFrame], tables: Tables) -> Callable[..., DataFrame]:
    """``spark.sql`` that reads some tables as ``spark.table`` does."""

    @wraps(original)
    def sql(
        self: SparkSession,
        sqlQuery: str,  # noqa: N803 - Spark's interface
        args: Any = None,
        **kwargs: Any,
    ) -> DataFrame:
        if not tables.may_be_in(sqlQuery, args):
            return original(self, sqlQuery, args, **kwargs)

        def view(parts: tuple[str, ...]) -> tuple[str, ...] | None:
            name = tables.name_of(".".join(full_name(self, parts)))
            if name is not None and not is_temporary_view(self, quoted(name)):
                rows = tables.frame(self, name)
                assert rows is not None  # it has a name
                rows.createOrReplaceTempView(quoted(name))
            return None if name is None else tuple(name.split("."))

        with formatted(self, sqlQuery, kwargs) as given:
            with not_the_function():
                text = with_variables(self, given) if "${" in given else given
                try:
                    text = with_views(text, self, view, args)
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


def with_views(
    text: str,
    spark: SparkSession,
    view: Callable[[tuple[str, ...]], tuple[str, ...] | None],
    values: Any = None,
) -> str:
    """The text with views in place of tables. A view has the full name of its table as one word.

    Args:
        text: with no variables in place of names.
        spark: whose parser reads it.
        view: the parts of a table's full name; None to leave the table as it is.
        values: of the text's parameters.

    Raises:
        ParseException: the parser cannot read it, as with parameters in some places.
    """
    nodes = list(_with_kind_above(parsed(spark, text)))
    tables = {each.place.start: each for each in _tables_read(text, nodes, spark, values)}
    found = {start: view(each.parts) for start, each in tables.items()}
    full = {start: name for start, name in found.items() if name is not None}
    if not full:
        return text
    last_parts = Counter(
        name[-1].lower()
        for name in {
            full.get(start, each.parts) for start, each in tables.items() if each.takes_alias
        }
    )
    new: dict[int, tuple[slice, str]] = {}
    aliases: dict[tuple[str, ...], str] = {}
    for start, name in full.items():
        table, as_view = tables[start], quoted(".".join(name))
        if table.takes_alias:
            alone = last_parts[name[-1].lower()] == 1
            aliases[name] = quoted(table.parts[-1]) if alone else as_view
            as_view = f"{as_view} AS {aliases[name]}"
        new[start] = table.place, as_view
    for changed in _changed(nodes):  # whose columns have its name
        aliases = {name: alias for name, alias in aliases.items() if name[-1] != changed[-1]}
    if any(f".{_plain(name[-1])}." in _plain(text) for name in aliases):
        new |= {place.start: (place, column) for place, column in _columns(text, nodes, aliases)}
    for place, words in (new[start] for start in sorted(new, reverse=True)):
        text = text[: place.start] + words + text[place.stop :]
    return text


def _tables_read(
    text: str, nodes: Sequence[tuple[JavaObject, str]], spark: SparkSession, values: Any
) -> Iterator[TableName]:
    """The tables by whose names a parsed plan reads rows, but for those of which it chooses a
    snapshot or an option, and those that it defines itself. The same place may come twice.
    """
    own = {
        str(each._1()).lower()
        for node, _ in nodes
        if kind_of(node) == "UnresolvedWith"
        for each in elements(node.cteRelations())
    }
    for node, above in nodes:
        place, parts = _place(node), _parts(node, spark, values)
        if parts is None or place is None or (len(parts) == 1 and parts[0].lower() in own):
            continue
        if _COMPUTED.match(text[place]) or _is_name(text[place], parts):
            before, after = text[: place.start], text[place.stop :]
            takes_alias = above not in _NAMED and not _TAKES_NO_ALIAS.search(before)
            yield TableName(parts, place, takes_alias and not _SAMPLED.match(after))


def _parts(node: JavaObject, spark: SparkSession, values: Any) -> tuple[str, ...] | None:
    """The name of the table that a node of a parsed plan reads; None if it is no such node."""
    if kind_of(node) == "UnresolvedRelation" and node.options().isEmpty():
        name = node.multipartIdentifier()
        return None if node.isStreaming() else tuple(map(str, elements(name)))
    if kind_of(node) != "PlanWithUnresolvedIdentifier":
        return None
    if kind_of(with_name(spark, node, "any")) != "UnresolvedRelation":
        return None
    computed = node.identifierExpr()
    if kind_of(computed) == "NamedParameter" and isinstance(values, Mapping):
        name = values.get(str(computed.name()))
        return name_parts(spark, name) if isinstance(name, str) else None
    return name_parts(spark, str(computed.eval(None))) if computed.foldable() else None


def _columns(
    text: str, nodes: Sequence[tuple[JavaObject, str]], aliases: Mapping[tuple[str, ...], str]
) -> Iterator[tuple[slice, str]]:
    """The columns, and all columns of a table (``t.*``), that are written with more than the last
    part of a table's name, where they are and with its alias.
    """
    for node, _ in nodes:
        pending = elements(node.expressions())
        while pending:
            each = pending.pop()
            pending += children_of(each)
            match kind_of(each):
                case "UnresolvedAttribute":
                    parts = tuple(map(str, elements(each.nameParts())))
                case "UnresolvedStar" if each.target().isDefined():
                    parts = (*map(str, elements(each.target().get())), "*")
                case _:
                    continue
            place = _place(each)
            if place is None or not _is_name(text[place], parts):
                continue
            for name, alias in aliases.items():
                length = next((n for n in range(len(name), 1, -1) if _begins(parts, name[-n:])), 0)
                if length:
                    below = (each if each == "*" else quoted(each) for each in parts[length:])
                    yield place, ".".join((alias, *below))
                    break


def _begins(parts: tuple[str, ...], name: tuple[str, ...]) -> bool:
    """Whether the name of a column begins with that of a table."""
    return len(parts) > len(name) and all(
        one.lower() == other.lower() for one, other in zip(parts, name, strict=False)
    )


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


def _changed(nodes: Sequence[tuple[JavaObject, str]]) -> Iterator[tuple[str, ...]]:
    """The tables that the statements in a parsed plan change, and give no other name."""
    for node, _ in nodes:
        if kind_of(node) in _WRITTEN:
            table = children_of(node)[0]
            if kind_of(table) == "UnresolvedRelation":
                yield tuple(map(str, elements(table.multipartIdentifier())))


def _place(node: JavaObject) -> slice | None:
    start, stop = node.origin().startIndex(), node.origin().stopIndex()
    return slice(start.get(), stop.get() + 1) if start.isDefined() and stop.isDefined() else None


def _is_name(text: str, parts: tuple[str, ...]) -> bool:
    """Whether a text is no more than a name, as Spark does not always say."""
    return _plain(text) == _plain(".".join(parts))


def _plain(text: str) -> str:
    return _NO_PART.sub("", text).lower()
