"""Filters: from a source's ``filter`` and ``regions`` to one expression, as text for the plan and bound for pruning."""

import difflib

from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, GreaterThanOrEqual, LessThan
from pyiceberg.expressions.literals import Literal, LongLiteral
from pyiceberg.expressions.parser import parse
from pyiceberg.expressions.visitors import bind, rewrite_not
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType
from pyparsing import ParseException

from backfill.api.backfill import Source
from backfill.api.errors import Problem
from backfill.planning.timestamps import Ticks


def parse_filter(source: Source, schema: Schema, field: str, problems: list[Problem]) -> tuple[str | None, BooleanExpression]:
    """A source's filters as PyIceberg's expression syntax and as an expression; mistakes are added to ``problems``."""
    texts = [(source.filter, f"{field}.filter")] if source.filter else []
    if source.regions is not None:
        values = ", ".join(_quoted(value) for value in source.regions.in_)
        texts.append((f"{source.regions.column} in ({values})", f"{field}.regions"))
    whole: BooleanExpression = AlwaysTrue()
    for text, where in texts:
        expression = _parse(text, schema, source.table, where, problems)
        whole = And(whole, expression) if expression is not None else whole
    if not texts:
        return None, whole
    return " and ".join(f"({text})" for text, _ in texts), whole


def in_range(column: str, ticks: Ticks, start_us: int, end_us: int) -> BooleanExpression:
    """Rows with a timestamp in [start, end), exact in the column's own unit."""
    literal = _Nanoseconds if ticks.unit == "ns" else LongLiteral
    from_start = GreaterThanOrEqual(term=column, value=literal(ticks.first_at(start_us)))
    return And(from_start, LessThan(term=column, value=literal(ticks.first_at(end_us))))


class _Nanoseconds(LongLiteral):
    """A literal for nanosecond timestamps, to which PyIceberg converts no other."""

    def to(self, type_var: IcebergType) -> Literal[int]:
        return self


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _parse(text: str, schema: Schema, table: str, where: str, problems: list[Problem]) -> BooleanExpression | None:
    try:
        expression = parse(text)
    except ParseException as error:
        fix = "write it like region == 'us-east-1' and level in (1, 2)"
        problems.append(Problem(where, f"{text!r} is not a filter PyIceberg can parse, from character {error.column} on", fix))
        return None
    except (ValueError, TypeError) as error:
        problems.append(Problem(where, f"{text!r} is not a filter: {error}", "write it like region == 'us-east-1'"))
        return None
    try:
        bind(schema, rewrite_not(expression), case_sensitive=True)
    except (ValueError, TypeError) as error:
        problems.append(Problem(where, f"{text!r} does not fit table {table}: {error}", _columns(text, schema)))
        return None
    return expression


def _columns(text: str, schema: Schema) -> str:
    """The columns that look most like words of a filter which are none, or else all of them with their types."""
    words = "".join(character if character.isalnum() or character in "_." else " " for character in text).split()
    names = list(schema._name_to_id)
    strange = [word for word in words if word not in names]
    near = dict.fromkeys(match for word in strange for match in difflib.get_close_matches(word, names, n=1, cutoff=0.6))
    if near:
        return f"did you mean {' and '.join(near)}?"
    types = {name: schema.find_type(name) for name in sorted(names)[:20]}
    return f"its columns are: {', '.join(f'{name} ({kind})' if kind.is_primitive else name for name, kind in types.items())}"
