"""Turns a source's ``filter`` and ``regions`` into one expression, for planning and for reading."""

import difflib
from collections.abc import Callable
from functools import partial

from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    GreaterThanOrEqual,
    In,
    LessThan,
    NotIn,
    NotNull,
    Or,
)
from pyiceberg.expressions.literals import Literal, LongLiteral
from pyiceberg.expressions.parser import parse
from pyiceberg.expressions.visitors import bind, extract_field_ids, rewrite_not
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.types import IcebergType
from pyparsing import ParseException

from backfill.api.errors import Problem
from backfill.api.source import Source
from backfill.iceberg.timestamp_units import Ticks
from backfill.planning.plan import SourceInput


def check_filters(source: Source, schema: Schema, field: str) -> list[Problem]:
    """The problems of a source's filters, for a table with this schema."""
    problems: list[Problem] = []
    if source.filter:
        problems += _problems(
            source.filter, partial(parse, source.filter), schema, source.table, f"{field}.filter"
        )
    if source.regions is not None:
        column, values = source.regions.column, source.regions.in_
        text = f"{column} in ({', '.join(values)})"
        problems += _problems(
            text, lambda: In(term=column, literals=values), schema, source.table, f"{field}.regions"
        )
    return problems


def row_filter(source: SourceInput) -> BooleanExpression:
    """The filter of a planned source: rows are read if all its filters are true for them.

    As in SQL, a comparison with null is neither true nor false, even if it is negated; only ``is
    null`` finds nulls. PyIceberg follows that for ``!=``, but not for ``not in``.
    """
    whole: BooleanExpression = parse(source.row_filter) if source.row_filter else AlwaysTrue()
    if source.region_column is not None and source.regions is not None:
        whole = And(whole, In(term=source.region_column, literals=source.regions))
    return _without_nulls(rewrite_not(whole))


def columns_read(source: SourceInput, schema: Schema) -> Schema:
    """The columns of a planned source that are read whatever the application uses: those of time,
    filters and Kafka's partition and offset. Of structs, only the needed fields.
    """
    kafka = (source.kafka_partition_column, source.kafka_offset_column)
    wanted = row_filter(source)
    filtered = (
        set()
        if isinstance(wanted, AlwaysTrue)
        else extract_field_ids(bind(schema, wanted, case_sensitive=True))
    )
    ids = {schema.find_field(name).field_id for name in kafka if name is not None}
    return prune_columns(schema, {source.timestamp_field_id, *ids, *filtered})


def in_range(column: str, ticks: Ticks, start_us: int, end_us: int) -> BooleanExpression:
    """Rows with a timestamp in [start, end), exact in the column's own unit."""
    literal = _Nanoseconds if ticks.unit == "ns" else LongLiteral
    from_start = GreaterThanOrEqual(term=column, value=literal(ticks.first_at(start_us)))
    return And(from_start, LessThan(term=column, value=literal(ticks.first_at(end_us))))


class _Nanoseconds(LongLiteral):
    """A literal for nanosecond timestamps, which PyIceberg cannot convert others to."""

    def to(self, type_var: IcebergType) -> Literal[int]:
        return self


def _without_nulls(expression: BooleanExpression) -> BooleanExpression:
    match expression:
        case And():
            return And(_without_nulls(expression.left), _without_nulls(expression.right))
        case Or():
            return Or(_without_nulls(expression.left), _without_nulls(expression.right))
        case NotIn():
            return And(NotNull(term=expression.term), expression)
    return expression


def _problems(
    text: str, make: Callable[[], BooleanExpression], schema: Schema, table: str, where: str
) -> list[Problem]:
    try:
        expression = make()
    except ParseException as error:
        fix = (
            "use a form such as region == 'us-east-1' and level in (1, 2), and quote unusual column"
            ' names, as in "data-center"'
        )
        return [
            Problem(
                where,
                f"{text!r} is not a filter that PyIceberg can parse: syntax error at character"
                f" {error.column}",
                fix,
            )
        ]
    except (ValueError, TypeError) as error:
        return [
            Problem(
                where,
                f"{text!r} is not a filter: {error}",
                "use a form such as region == 'us-east-1'",
            )
        ]
    try:
        bind(schema, rewrite_not(expression), case_sensitive=True)
    except (ValueError, TypeError) as error:
        return [
            Problem(
                where, f"{text!r} is not valid for table {table}: {error}", _columns(text, schema)
            )
        ]
    return []


def _columns(text: str, schema: Schema) -> str:
    """The columns whose names are most similar to unknown words of a filter, or else all columns,
    with their types.
    """
    words = "".join(
        character if character.isalnum() or character in "_." else " " for character in text
    ).split()
    names = list(schema._name_to_id)
    strange = [word for word in words if word not in names]
    near = dict.fromkeys(
        match
        for word in strange
        for match in difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    )
    if near:
        return f"did you mean {' and '.join(near)}?"
    types = {name: schema.find_type(name) for name in sorted(names)[:20]}
    shown = (f"{name} ({kind})" if kind.is_primitive else name for name, kind in types.items())
    return f"the table's columns are: {', '.join(shown)}"
