"""Joins of streams whose keys may be null on both sides.

A stream finds matching rows by the bytes of their keys, so null matches null, unless Spark has
removed rows without a key before. A batch job matches them only by ``<=>``.
"""

from collections.abc import Iterator

from py4j.java_gateway import JavaObject
from pyspark.sql import SparkSession

from backfill.runtime.catalyst import (
    Catalyst,
    children_of,
    conjuncts,
    elements,
    kind_of,
    nodes_of,
    pruned,
)


def with_null_keys(plan: JavaObject, spark: SparkSession) -> JavaObject:
    """An analyzed plan of a stream whose joins give the same as those of a batch job. Itself if
    they already do.
    """
    joins = _joins(plan)
    if not joins:
        return plan
    streamed = _joins(pruned(plan, spark))
    if len(joins) != len(streamed):  # Spark leaves one out
        return plan
    catalyst = Catalyst(spark)
    found = list(zip(joins, streamed, strict=True))

    def changed(node: JavaObject) -> JavaObject:
        new = catalyst.with_operands(node, changed)
        same = next((other for join, other in found if join == node), None)
        return new if same is None else _matching(catalyst, node, same, new)

    return changed(plan)


def _matching(
    catalyst: Catalyst, join: JavaObject, streamed: JavaObject, new: JavaObject
) -> JavaObject:
    """A join with conditions by which null matches null where it does in the stream.

    Args:
        streamed: the join with the conditions that Spark adds and moves.
        new: the join over sides that may be changed.
    """
    if str(join.joinType().toString()) == "LeftAnti":  # Spark does not stream it
        return new
    simple = catalyst.simplified(join)
    pairs, keys = _keys(catalyst, simple), _keys(catalyst, streamed)
    if len(pairs) != len(keys):
        return new
    known = [each for side in (streamed.left(), streamed.right()) for each in _not_null(side)]
    null = [set(pair) for pair, each in zip(pairs, keys, strict=True) if _null_in_both(each, known)]
    if not null:
        return new
    parts = [
        catalyst.equal_or_both_null(*children_of(part))
        if kind_of(part) == "EqualTo" and set(children_of(part)) in null
        else part
        for part in conjuncts(simple.condition().get())
    ]
    columns = [side.outputSet() for side in (join.left(), join.right())]
    filtered = [each for each in known if any(each.references().subsetOf(side) for side in columns)]
    return catalyst.join_where(new, [*parts, *filtered])


def _joins(plan: JavaObject) -> list[JavaObject]:
    """The joins of two streams, in an order that Spark does not change."""
    return [
        each
        for each in nodes_of(plan)
        if kind_of(each) == "Join" and all(side.isStreaming() for side in children_of(each))
    ]


def _keys(catalyst: Catalyst, join: JavaObject) -> list[tuple[JavaObject, JavaObject]]:
    found = catalyst.equal_keys(join)
    return [] if found is None else found[0]


def _null_in_both(keys: tuple[JavaObject, JavaObject], known: list[JavaObject]) -> bool:
    values = [each.child() for each in known]
    return all(
        key.nullable() and not any(value.semanticEquals(key) for value in values) for key in keys
    )


def _not_null(side: JavaObject) -> Iterator[JavaObject]:
    """The conditions by which values are not null in any row."""
    for each in elements(side.constraints().toSeq()):
        if kind_of(each) == "IsNotNull":
            yield each
