"""Ways in which values may have been changed are found in any pairs of rows."""

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as spark

from backfill.runtime.comparison.value_changes import Change, possible_changes
from cases import cases

WHOLE = st.integers(-(2**63), 2**63 - 1)
KINDS: dict[str, tuple[spark.DataType, st.SearchStrategy[Any]]] = {
    "whole": (spark.LongType(), WHOLE),
    "other": (spark.LongType(), WHOLE),
    "double": (spark.DoubleType(), st.floats()),
    "float": (spark.FloatType(), st.floats(width=32)),
    "paid": (
        spark.DecimalType(38, 6),
        st.decimals(places=6, min_value=-(10**31), max_value=10**31),
    ),
    "tiny": (spark.DecimalType(38, 30), st.decimals(places=30, min_value=-1, max_value=1)),
    "at": (spark.TimestampType(), WHOLE),
    "day": (spark.DateType(), st.integers(-(2**31), 2**31 - 1)),
    "text": (spark.StringType(), st.text()),
    "tags": (spark.ArrayType(spark.StringType()), st.just(0)),
}
SCHEMA = spark.StructType([spark.StructField(name, kind) for name, (kind, _) in KINDS.items()])
ROW = st.fixed_dictionaries({name: st.none() | values for name, (_, values) in KINDS.items()})


@given(st.lists(st.tuples(ROW, ROW, st.lists(st.sampled_from([*KINDS]), unique=True)), max_size=5))
def test_any_values_have_a_few_changes_or_none(pairs: list[Any]) -> None:
    found = possible_changes(pairs, SCHEMA)
    assert {each.column for each in found} <= {name for *_, differs in pairs for name in differs}
    for each in found:
        assert float(each.amount) is not None, "it is a number for Spark"


def changes(kind: spark.DataType, *pairs: tuple[Any, Any]) -> list[Change]:
    """What may have been done to the values of a column, by its values on both sides."""
    schema = spark.StructType([spark.StructField("c", kind)])
    return possible_changes([({"c": ours}, {"c": theirs}, ["c"]) for ours, theirs in pairs], schema)


LONG, DOUBLE = spark.LongType(), spark.DoubleType()
HALF = Change("c", "factor", Fraction(1, 2))
ROUNDING = Change("c", "rounding", Fraction(1), exact=False)


@cases(
    ("kind", "pairs", "expected"),
    {
        "nothing differs": (LONG, [], []),
        "halved": (LONG, [(2, 4), (3, 6)], [HALF]),
        "one pair": (LONG, [(2, 4)], []),
        "the same pair a few times": (LONG, [(2, 4)] * 9, []),
        "the same pair many times": (
            LONG,
            [(2, 4)] * 10,
            [HALF, Change("c", "offset", Fraction(-2))],
        ),
        "halved in half of them": (LONG, [(2, 4), (3, 6), (5, 6), (9, 8)], [HALF]),
        "halved in fewer": (LONG, [(2, 4), (3, 6), (5, 6), (9, 8), (9, 7)], []),
        "one more, a few times": (LONG, [(5, 4), (9, 8), (7, 6)], []),
        "zero": (LONG, [(0, 4), (0, 6)], []),
        "rounded floats": (DOUBLE, [(0.1 + 0.2, 0.3), (0.7 + 0.1, 0.8)], [ROUNDING]),
        "a tiny factor": (DOUBLE, [(2e-15, 2e6), (3e-15, 3e6)], []),
        "infinite": (DOUBLE, [(math.inf, 1.0), (math.nan, 2.0), (-math.inf, math.inf)], []),
        "a difference that is no number": (
            DOUBLE,
            [(1.797695e308, -1.0), (-1.797695e308, 2.0)],
            [],
        ),
    },
)
def test_a_change_needs_evidence(
    kind: spark.DataType, pairs: list[tuple[Any, Any]], expected: list[Change]
) -> None:
    assert changes(kind, *pairs) == expected


def test_truncated_seconds_are_milliseconds_but_small_numbers_are_no_evidence() -> None:
    rounded = Change("c", "factor", Fraction(1, 1_000), exact=False)
    assert changes(LONG, (12, 12_345), (77, 77_001)) == [rounded]
    assert changes(LONG, (77, 77_000), (78, 78_000))[0] == Change("c", "factor", Fraction(1, 1_000))
    assert changes(LONG, (1, 1_345), (7, 7_001)) == []
    cents = spark.DecimalType(9, 2)
    assert changes(cents, (Decimal("6.18"), Decimal("12.35")), (Decimal("1"), Decimal("2.01"))) == [
        Change("c", "factor", Fraction(1, 2), exact=False)
    ]
