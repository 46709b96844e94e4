"""How the values of a column were changed, where nearly all of them were changed in the same way:
multiplied, shifted in time, taken from another column.

A correction is meant to differ from production. Which changes are possible is found in a few pairs
of rows; in how many of all pairs one holds is then counted together with everything else. Numbers
and times are multiplied and subtracted as decimals that cannot overflow, and nothing is divided.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any, Final, Literal

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    StringType,
    StructType,
    TimestampType,
)

from backfill.runtime.comparison.value_expressions import short

ChangeKind = Literal[
    "factor", "offset", "shift", "rounding", "column", "text", "becameNull", "wasNull"
]
MOST_PAIRS: Final = 32
"""Pairs of rows in which changes are looked for."""
_MOST_COLUMNS = 30
_MOST_OF_A_COLUMN = 3
_MANY = 10
"""So many pairs are evidence of any change. Fewer equal ones have a factor whatever their values,
and two counts may each be one more by chance.
"""
_DIGITS = 28
"""Digits of a decimal that can be multiplied with a part of a fraction: Spark has 38."""
_MOST_PART = 10**9
_MOST_FLOAT = 1e300
_UNITS = (2, 10, 60, 100, 1_000, 3_600, 1_000_000)
"""Factors that are recognized even if one side was rounded."""
_LEAST_ROUNDED = 10
"""So large must a rounded number be to say something, in units of its last digit."""
_TINY: Final = {DoubleType: (1e-9, 10**6), FloatType: (1e-6, 10**3)}
"""By type, the relative difference of values that are the same but for rounding, and the greatest
denominator that a factor may then have."""
_SECOND, _DAY = 1_000_000, 86_400
_MEASURED = (
    StringType,
    IntegralType,
    DecimalType,
    DoubleType,
    FloatType,
    TimestampType,
    DateType,
)


@dataclass(frozen=True, slots=True)
class Change:
    """A way in which the values of a column may have been changed."""

    column: str
    kind: ChangeKind
    amount: Fraction = Fraction(0)
    """What the other side's value is multiplied with, or what is added to it; seconds for times."""
    source: str = ""
    """Column of the other side that has the result's values."""
    exact: bool = True
    """Whether numbers were compared without a tolerance."""


Values = Mapping[str, Any]
"""The measures of a row, by column."""


def measure(value: Column, kind: DataType) -> Column:
    """A value as changes are looked for in it; of other types, only whether it is null."""
    match kind:
        case TimestampType():
            return F.unix_micros(value)
        case DateType():
            return F.unix_date(value)
        case _ if isinstance(kind, _MEASURED):
            return short(value, kind)
        case _:
            return F.when(value.isNotNull(), F.lit(0))


def possible_changes(
    pairs: Sequence[tuple[Values, Values, Sequence[str]]], schema: StructType
) -> list[Change]:
    """Changes that hold for at least half of some pairs, of each column that differs.

    Args:
        pairs: the measures of both rows, and the columns in which they differ.
    """
    times = Counter(name for *_, differs in pairs for name in differs)
    found: list[Change] = []
    for name, differing in times.most_common(_MOST_COLUMNS):
        rows = [(ours, theirs) for ours, theirs, differs in pairs if name in differs]
        held: dict[Change, list[Any]] = {}
        for ours, theirs in rows:
            for change in _of_values(name, ours[name], theirs[name], schema[name].dataType):
                held.setdefault(change, []).append(ours[name])
        for source in _sources(name, schema):
            taken = [ours[name] for ours, theirs in rows if _same(ours[name], theirs[source])]
            held[Change(name, "column", source=source)] = taken
        likely = sorted(held.items(), key=lambda each: -len(each[1]))
        found += [
            change
            for change, values in likely[:_MOST_OF_A_COLUMN]
            if 2 * len(values) >= differing and _is_evidence(change, values)
        ]
    return found


def _is_evidence(change: Change, values: Sequence[Any]) -> bool:
    if change.kind in {"text", "becameNull", "wasNull", "rounding"}:
        return True
    return len(values) >= _MANY or (change.kind != "offset" and len({*values}) > 1)


def _sources(name: str, schema: StructType) -> Iterator[str]:
    """Columns whose values a column may have: those of the same type that are measured."""
    kind = schema[name].dataType
    if isinstance(kind, _MEASURED):
        yield from (each.name for each in schema if each.dataType == kind and each.name != name)


def _same(ours: Any, theirs: Any) -> bool:
    return ours is not None and bool(ours == theirs)


def _of_values(name: str, ours: Any, theirs: Any, kind: DataType) -> Iterator[Change]:
    if ours is None or theirs is None:
        yield Change(name, "becameNull" if ours is None else "wasNull")
        return
    match kind:
        case TimestampType():
            yield Change(name, "shift", Fraction(ours - theirs, _SECOND))
        case DateType():
            yield Change(name, "shift", Fraction((ours - theirs) * _DAY))
        case StringType():
            if _folded(ours) == _folded(theirs):
                yield Change(name, "text")
        case DoubleType() | FloatType():
            if math.isfinite(ours) and math.isfinite(theirs):
                yield from _of_floats(name, ours, theirs, _TINY[type(kind)][1])
        case DecimalType() if kind.scale > _DIGITS:
            pass
        case IntegralType() | DecimalType():
            one, other = Fraction(ours), Fraction(theirs)
            if one and other and _is_small(one / other):
                yield Change(name, "factor", one / other)
            yield from _of_rounded(name, one, other, _last_digit(kind))
            if abs(one - other) < 10 ** (_DIGITS - getattr(kind, "scale", 0)):
                yield Change(name, "offset", one - other)


def _of_rounded(name: str, ours: Fraction, theirs: Fraction, unit: Fraction) -> Iterator[Change]:
    small, large = sorted((ours, theirs), key=abs)
    factor = next((each for each in _UNITS if abs(small * each - large) < each * unit), None)
    if factor is not None and abs(small) >= _LEAST_ROUNDED * unit:
        amount = Fraction(factor) if large is ours else Fraction(1, factor)
        yield Change(name, "factor", amount, exact=False)


def _last_digit(kind: DataType) -> Fraction:
    return Fraction(1, 10 ** getattr(kind, "scale", 0))


def _of_floats(name: str, ours: float, theirs: float, most: int) -> Iterator[Change]:
    if ours and theirs:
        ratio = Fraction(ours) / Fraction(theirs)
        factor = (
            ratio.limit_denominator(most)
            if abs(ratio) >= 1
            else 1 / (1 / ratio).limit_denominator(most)
        )
        if factor == 1:
            yield Change(name, "rounding", Fraction(1), exact=False)
        elif _is_small(factor):
            yield Change(name, "factor", factor, exact=False)
    if abs(ours - theirs) < _MOST_FLOAT:
        yield Change(name, "offset", Fraction(f"{ours - theirs:.6g}"), exact=False)


def _is_small(factor: Fraction) -> bool:
    return max(abs(factor.numerator), factor.denominator) < _MOST_PART


def _folded(text: str) -> str:
    return text.strip(" ").lower()


def holds(
    change: Change, ours: Callable[[str], Column], theirs: Callable[[str], Column], kind: DataType
) -> Column:
    """Whether a change makes the value of a row from that of the other side; null may mean no.

    Args:
        ours, theirs: give the value of a column.
    """
    one, other = ours(change.column), theirs(change.source or change.column)
    match change.kind:
        case "becameNull":
            return one.isNull() & other.isNotNull()
        case "wasNull":
            return one.isNotNull() & other.isNull()
        case "column":
            return one == other
        case "text":
            return F.lower(F.trim(one)) == F.lower(F.trim(other))
    if isinstance(kind, (DoubleType, FloatType)):
        return _nearly(change, one.cast("double"), other.cast("double"), _TINY[type(kind)][0])
    one, other = _exact(one, kind), _exact(other, kind)
    if change.kind == "factor":
        parts = (change.amount.denominator, change.amount.numerator)
        times, of_other = (F.lit(Decimal(part)) for part in parts)
        if change.exact:
            return one * times == other * of_other
        near = _decimal(max(parts) * _last_digit(kind))
        return (one != 0) & (F.abs(one * times - other * of_other) < near)
    unit = _SECOND if isinstance(kind, TimestampType) else Fraction(1, _DAY)
    amount = change.amount * (unit if change.kind == "shift" else 1)
    return one - other == _decimal(amount)


def _nearly(change: Change, one: Column, other: Column, tiny: float) -> Column:
    amount = F.lit(float(change.amount))
    if change.kind == "offset":
        size, expected = F.greatest(F.abs(one), F.abs(other)), other + amount
    else:
        size, expected = F.abs(one), other * amount
    # everything would be near infinity and NaN, and NaN is the greatest number
    return (size < math.inf) & (size > 0) & (F.abs(one - expected) <= size * tiny)


def _exact(value: Column, kind: DataType) -> Column:
    """A number or time as a decimal of few digits; null if it has more."""
    match kind:
        case TimestampType():
            value = F.unix_micros(value)
        case DateType():
            value = F.unix_date(value)
        case DecimalType() if kind.precision <= _DIGITS:
            return value
        case DecimalType():
            most = Decimal(10) ** (_DIGITS - kind.scale)
            fits = (value < most) & (value > -most)  # of 38 digits, Spark's abs rounds some away
            return F.when(fits, value.cast(DecimalType(_DIGITS, kind.scale)))
    return value.cast("decimal(20, 0)")


def _decimal(amount: Fraction) -> Column:
    """A fraction of few decimal digits, exactly."""
    return F.lit(Context(prec=80).divide(Decimal(amount.numerator), Decimal(amount.denominator)))
