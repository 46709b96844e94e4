"""Joins of streams whose keys may be null on both sides.

A stream finds matching rows by the bytes of their keys, so null matches null, unless Spark has
removed rows without a key before. A batch job matches them only by ``<=>``.
"""

from collections.abc import Iterator

from py4j.java_gateway import JavaObject
from pyspark.sql import SparkSession

from backfill.runtime.catalyst import Catalyst, conjuncts, elements, kind_of, nodes_of, pruned

_FILTERED = {
    "Cross": (0, 1),
    "Inner": (0, 1),
    "LeftOuter": (1,),
    "LeftSemi": (0, 1),
    "RightOuter": (0,),
}
"""The sides, 0 and 1, from which Spark removes rows that have no value in a column of the keys,
because they match nothing.
"""


class NullKeys:
    """Those of the joins of streams in a captured plan, which is an analyzed one."""

    def __init__(self, plan: JavaObject, spark: SparkSession):
        self._plan = plan
        self._spark = spark
        self._catalyst = Catalyst(spark)
        self._streamed: list[tuple[JavaObject, JavaObject]] | None = None

    def matched(self, join: JavaObject, bound: JavaObject) -> JavaObject:
        """A join that gives over batch rows what it gives as a stream.

        Args:
            join: as in the captured plan.
            bound: the same one over batch rows.
        """
        if str(join.joinType().toString()) == "LeftAnti":  # Spark does not stream it
            return bound
        simple = self._catalyst.simplified(join)
        pairs = self._keys(simple)
        if not any(_may_be_null(join, *pair) for pair in pairs):
            return bound
        streamed = self._as_streamed(join)
        keys = [] if streamed is None else self._keys(streamed)
        if streamed is None or len(pairs) != len(keys):
            return bound
        known = [each for side in _sides(streamed) for each in _not_null(side)]
        null = [
            set(pair) for pair, each in zip(pairs, keys, strict=True) if _null_in_both(each, known)
        ]
        if not null:
            return bound
        parts = [
            self._catalyst.equal_or_both_null(*elements(part.children()))
            if kind_of(part) == "EqualTo" and set(elements(part.children())) in null
            else part
            for part in conjuncts(simple.condition().get())
        ]
        columns = [side.outputSet() for side in _sides(join)]
        filtered = [
            each for each in known if any(each.references().subsetOf(side) for side in columns)
        ]
        return self._catalyst.join_where(bound, [*parts, *filtered])

    def _keys(self, join: JavaObject) -> list[tuple[JavaObject, JavaObject]]:
        keys = self._catalyst.equal_keys(join)
        return [] if keys is None else keys[0]

    def _as_streamed(self, join: JavaObject) -> JavaObject | None:
        """A join with the conditions that Spark adds and moves; None if it leaves it out."""
        if self._streamed is None:
            joins = _joins(self._plan)
            streamed = _joins(pruned(self._plan, self._spark))
            self._streamed = list(zip(joins, streamed, strict=False))
            if len(joins) != len(streamed):
                self._streamed = []
        return next((other for one, other in self._streamed if one == join), None)


def _joins(plan: JavaObject) -> list[JavaObject]:
    """From above and from the left."""
    return [each for each in nodes_of(plan) if kind_of(each) == "Join" and each.isStreaming()]


def _sides(join: JavaObject) -> tuple[JavaObject, JavaObject]:
    return join.left(), join.right()


def _may_be_null(join: JavaObject, left: JavaObject, right: JavaObject) -> bool:
    """Whether rows without both of these keys might get to a join."""
    filtered = _FILTERED.get(str(join.joinType().toString()), ())
    pair = left, right
    if any(kind_of(pair[side]) == "AttributeReference" for side in filtered):
        return False
    return bool(left.nullable() and right.nullable())


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
