"""What a plan's expressions say of times: how a value follows from a column, and how far apart a
condition keeps two columns.

Only expressions that are listed here are understood. How far one moves a time is asked of Spark
(:mod:`backfill.runtime.batch.moved_times`), and a rule that an answer contradicts does not count.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from py4j.java_gateway import JavaObject

from backfill.runtime.batch.moved_times import DAY_US, SECOND_US, TIME_TYPES, Moments
from backfill.runtime.batch.time_reach import SAME, TimeRange
from backfill.runtime.catalyst import children_of, elements, field_of, id_of, kind_of

Path = tuple[str, ...]
ColumnKey = tuple[int, Path]
"""A column by its identity, and the names of the fields that lead to a value within it."""
Paths = Mapping[int, Iterable[Path]]
"""By the identity of a column, the values within it of which something is known."""

_TRANSPARENT = {"Alias", "KnownNotNull", "KnownNullable"}
_SAME_NUMBER = {"MicrosToTimestamp", "PreciseTimestampConversion", "UnixMicros"}
"""Expressions of times as microseconds, and back."""
_ONE_OF = {"CaseWhen", "Coalesce", "Greatest", "If", "Least"}
"""Expressions that give one of several values."""
_REPLACED = {"DatetimeSub", "Nvl", "ParseToDate", "ParseToTimestamp"}
"""Expressions that Spark replaces by others."""
_SHIFTS = {
    "DateAdd": 0,
    "DateSub": 0,
    "TimestampAdd": 1,
    "TimeAdd": 0,  # the next one up to Spark 4.0
    "TimestampAddInterval": 0,
    "TimestampAddYMInterval": 0,
}
"""Expressions that add to a time, and which of their two operands the time is."""
_PERIODS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": SECOND_US,
    "MINUTE": 60 * SECOND_US,
    "HOUR": 3_600 * SECOND_US,
    "DAY": DAY_US,
    "DD": DAY_US,
    "WEEK": 7 * DAY_US,
    "MON": 31 * DAY_US,
    "MONTH": 31 * DAY_US,
    "MM": 31 * DAY_US,
    "QUARTER": 92 * DAY_US,
    "YEAR": 366 * DAY_US,
    "YYYY": 366 * DAY_US,
    "YY": 366 * DAY_US,
}
"""The longest that units last by the calendar, in microseconds."""
_LESS = {"LessThan": 1, "LessThanOrEqual": 0}
_GREATER = {"GreaterThan": 1, "GreaterThanOrEqual": 0}
"""Comparisons, and the least difference that they allow, in microseconds."""
_WINDOWS = ("spark.timeWindow", "spark.sessionWindow")
"""Marks of columns that Spark has made: windows of rows whose time is not null."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """A column that a value may follow from."""

    key: ColumnKey
    moved: TimeRange = SAME
    """Where the value is, seen from the column's."""
    total: bool = True
    """Whether the value is null only where the column's is."""

    def then(self, moved: TimeRange, total: bool = True) -> "Alternative":
        """A value that is moved further, and may be null more often unless ``total``."""
        return Alternative(self.key, self.moved.then(moved), self.total and total)


@dataclass(frozen=True, slots=True)
class Value:
    """What an expression's value follows from."""

    alternatives: dict[Path, list[Alternative]] = field(default_factory=dict)
    """By the fields of a structure; those that are not understood are left out. What is always
    null has no alternatives."""
    length_us: int | None = None
    """How long a time window is, in microseconds."""

    @property
    def is_null(self) -> bool:
        """Whether there is never a value."""
        return self.alternatives == {(): []}


@dataclass(frozen=True, slots=True)
class Constraint:
    """How far apart two columns are wherever a condition is true. None of them is null there."""

    first: ColumnKey
    second: ColumnKey
    apart: TimeRange
    """Where the second one's value is, seen from the first one's."""

    def reverse(self) -> "Constraint":
        """The same, seen from the second one."""
        return Constraint(self.second, self.first, self.apart.reverse())


@dataclass(frozen=True, slots=True)
class _Linear:
    """A number that follows from one column: a time in microseconds or in whole seconds."""

    column: Alternative
    in_seconds: bool


@dataclass(frozen=True, slots=True)
class _Difference:
    """One time less another one."""

    first: Alternative
    second: Alternative
    """What is subtracted."""
    unit_us: int
    inexact_us: int
    """How much the difference may differ from that of the times."""


class Expressions:
    """Follows the expressions over one node's columns."""

    def __init__(self, moments: Moments, nulls: frozenset[int]):
        """``nulls`` are columns that are always null."""
        self._moments = moments
        self._nulls = nulls

    def value(self, expression: JavaObject, known: Paths, *, window: bool = False) -> Value:
        """What a value follows from.

        Args:
            expression: of any type.
            known: for structures that are passed on.
            window: whether Spark has made it of a time for ``window``, as the column's mark says.
        """
        kind = kind_of(expression)
        if kind in _TRANSPARENT:
            return self.value(expression.child(), known, window=window)
        if kind == "AttributeReference":
            return self.column(id_of(expression), known)
        if kind == "AggregateExpression":
            return Value({(): [Alternative((extreme_id(expression), ()))]})
        if kind == "GetStructField":
            return self._field(expression, known)
        if kind == "CreateNamedStruct":
            return self._window(expression) if window else self._structure(expression, known)
        if expression.foldable():
            return Value({(): []}) if expression.eval(None) is None else Value()
        if kind in _ONE_OF:
            return self._one_of(_choices(expression, kind), known)
        found = self._scalar(expression, kind)
        return Value() if found is None else Value({(): found})

    def column(self, number: int, known: Paths) -> Value:
        """What the value of a column follows from."""
        if number in self._nulls:
            return Value({(): []})
        paths = {(), *known.get(number, ())}
        return Value({path: [Alternative((number, path))] for path in paths})

    def constraints(self, condition: JavaObject) -> list[Constraint]:
        """How far apart columns are where a condition is true."""
        kind = kind_of(condition)
        if kind == "And":
            return [
                *self.constraints(condition.left()),
                *self.constraints(condition.right()),
            ]
        if kind == "Between":
            value = condition.input()
            return [
                *self._at_most(condition.lower(), value, 0),
                *self._at_most(value, condition.upper(), 0),
            ]
        if kind in _LESS:
            return self._at_most(condition.left(), condition.right(), _LESS[kind])
        if kind in _GREATER:
            return self._at_most(condition.right(), condition.left(), _GREATER[kind])
        if kind == "EqualTo":
            left, right = condition.left(), condition.right()
            if left.dataType().typeName() == "struct":
                return self._same_structures(left, right)
            return [*self._at_most(left, right, 0), *self._at_most(right, left, 0)]
        return []

    # Values

    def _times(self, expression: JavaObject) -> list[Alternative] | None:
        return self.value(expression, {}).alternatives.get(())

    def _field(self, expression: JavaObject, known: Paths) -> Value:
        name = field_of(expression)
        if name is None:
            return Value()
        child = expression.child()
        of_child = self.value(child, known).alternatives
        if () in of_child:  # a column, or a field of one: the field need not be known
            of_child.setdefault(
                (name,),
                [
                    Alternative((each.key[0], (*each.key[1], name)), each.moved, each.total)
                    for each in of_child[()]
                ],
            )
        return Value({path[1:]: each for path, each in of_child.items() if path[:1] == (name,)})

    def _structure(self, expression: JavaObject, known: Paths) -> Value:
        """Nothing is known of fields with the same name."""
        names = [str(name.eval(None)) for name in elements(expression.nameExprs())]
        return Value(
            {
                (name, *path): each
                for name, value in zip(names, elements(expression.valExprs()), strict=True)
                if names.count(name) == 1
                for path, each in self.value(value, known).alternatives.items()
            }
        )

    def _window(self, expression: JavaObject) -> Value:
        """The start and end of the window that a time is in. Of a sliding window's some may be
        others: a filter above leaves them out.
        """
        start, end = elements(expression.valExprs())
        times = [*_converted_times(start), *_converted_times(end)]
        if not times or not all(each.semanticEquals(times[0]) for each in times):
            return Value()
        kind = str(times[0].dataType().simpleString())
        starts, ends = (
            self._moments.moved(partial(self._of_time, edge), kind, kind, None)
            for edge in (start, end)
        )
        if starts is None or ends is None:
            return Value()
        lengths = {last - first for (_, first), (_, last) in zip(starts, ends, strict=True)}
        if len(lengths) != 1:
            return Value()
        (length,) = lengths
        moved = [after - before for before, after in starts]
        least, greatest = min(moved), max(moved)
        if -length < least and greatest <= 0:
            least, greatest = 1 - length, 0
        else:  # whatever is between the moments that were tried: windows slide by less
            least, greatest = least - length, greatest + length
        alternatives = self._times(times[0])
        if alternatives is None:
            return Value({}, length)
        return Value(
            {
                (name,): [
                    each.then(TimeRange.of(least + far, greatest + far)) for each in alternatives
                ]
                for name, far in (("start", 0), ("end", length))
            },
            length,
        )

    def _of_time(self, edge: JavaObject, moment: JavaObject) -> JavaObject:
        """The edge of the window that a moment is in."""
        children = children_of(edge)
        if not children:
            return edge
        if _converts_time(edge):
            return self._moments.with_children(edge, [moment])
        return self._moments.with_children(
            edge, [self._of_time(child, moment) for child in children]
        )

    def _scalar(self, expression: JavaObject, kind: str) -> list[Alternative] | None:
        if kind in _SAME_NUMBER:
            return self._times(expression.children().apply(0))
        if kind in _REPLACED:
            return self._times(expression.replacement())
        if kind in {"Add", "Subtract"}:
            found = self._sum(expression, kind)
            return None if found is None else self._moved_by(*found)
        if kind in _SHIFTS:
            return self._shift(expression, _SHIFTS[kind])
        if kind == "Cast":
            return self._cast(expression)
        if kind == "TruncTimestamp":
            zone = _zone(expression, expression.timestamp())
            period = self._period(expression.format())
            leap = self._moments.leap(zone, period)
            return self._through(expression, 1, 1 - period - leap, leap, zone)
        if kind == "TruncDate":
            period = self._period(expression.format())
            return self._through(expression, 0, DAY_US - period, 0, None)
        return None

    def _one_of(self, choices: list[JavaObject], known: Paths) -> Value:
        """Of fields, those of which something is known in all choices."""
        values = [self.value(each, known) for each in choices]
        there = [each.alternatives for each in values if not each.is_null]
        if not there:
            return Value({(): []})
        return Value(
            {
                path: [
                    alternative.then(SAME, total=False)
                    for alternatives in there
                    for alternative in alternatives[path]
                ]
                for path in set.intersection(*map(set, there))
            }
        )

    def _sum(self, expression: JavaObject, kind: str) -> tuple[JavaObject, int] | None:
        """A whole number and a constant that is added to it."""
        if str(expression.dataType().simpleString()) != "bigint":
            return None
        left, right = expression.left(), expression.right()
        if kind == "Add" and left.foldable():
            left, right = right, left
        amount = right.eval(None) if right.foldable() else None
        if not isinstance(amount, int) or left.foldable():
            return None
        return left, amount if kind == "Add" else -amount

    def _moved_by(self, expression: JavaObject, amount: int) -> list[Alternative] | None:
        alternatives = self._times(expression)
        moved = TimeRange.of(amount, amount)
        return None if alternatives is None else [each.then(moved) for each in alternatives]

    def _period(self, unit: JavaObject) -> float:
        """How long a unit of the calendar is at most."""
        name = unit.eval(None) if unit.foldable() else None
        return math.inf if name is None else _PERIODS.get(str(name).upper(), math.inf)

    def _cast(self, cast: JavaObject) -> list[Alternative] | None:
        before, after = (str(each.dataType().simpleString()) for each in (cast.child(), cast))
        if before == after and before in TIME_TYPES:
            return self._times(cast.child())
        zone = _zone(cast, None)
        least, greatest = (0, 0) if zone is None else self._moments.offsets(zone)
        to_local, to_date = (least, greatest), (1 - DAY_US, 0)
        moved = {
            ("timestamp", "timestamp_ntz"): to_local,
            ("timestamp_ntz", "timestamp"): (-greatest, -least),
            ("timestamp", "date"): (least + to_date[0], greatest + to_date[1]),
            ("timestamp_ntz", "date"): to_date,
            ("date", "timestamp_ntz"): (0, 0),
            ("date", "timestamp"): (-greatest, -least),
        }.get((before, after))
        return None if moved is None else self._through(cast, 0, *moved, zone)

    def _through(
        self,
        expression: JavaObject,
        operand: int,
        least: float,
        greatest: float,
        zone: str | None,
    ) -> list[Alternative] | None:
        """Of a function that moves a time by so much, and never by more, as far as can be seen."""
        children = children_of(expression)
        moved = self._moved(expression, children, operand, zone)
        alternatives = self._times(children[operand])
        if alternatives is None or moved is None or not math.isfinite(least):
            return None
        if not all(least <= each <= greatest for each in moved):
            return None
        return [each.then(TimeRange.of(least, greatest)) for each in alternatives]

    def _shift(self, expression: JavaObject, operand: int) -> list[Alternative] | None:
        """Of a sum with one of some constants: by their own lengths where these are constant, else
        by the shortest and longest that were seen and what else the calendar may do.
        """
        children = children_of(expression)
        amounts = self._constants(children[1 - operand])
        alternatives = self._times(children[operand])
        if not amounts or alternatives is None:
            return None
        zone = _zone(expression, children[operand])
        ranges = []
        for amount in amounts:
            operands = [children[operand], amount]
            if operand:
                operands.reverse()
            moved = self._moved(expression, operands, operand, zone)
            if moved is None:
                return None
            ranges.append(self._widened(min(moved), max(moved), zone))
        least, greatest = min(each[0] for each in ranges), max(each[1] for each in ranges)
        total = bool(children[1 - operand].foldable())
        return [each.then(TimeRange.of(least, greatest), total) for each in alternatives]

    def _constants(self, expression: JavaObject) -> list[JavaObject] | None:
        """The constants of which an expression is one; None where it may be something else."""
        if expression.foldable():
            return [expression]
        kind = kind_of(expression)
        if kind in {"Cast", "UnaryMinus"}:
            inner = self._constants(expression.child())
            return inner and [self._moments.with_children(expression, [each]) for each in inner]
        if kind not in {"CaseWhen", "Coalesce", "If"}:
            return None
        found = []
        for choice in _choices(expression, kind):
            constants = self._constants(choice)
            if constants is None:
                return None
            found += constants
        return found

    def _widened(self, least: int, greatest: int, zone: str | None) -> tuple[int, int]:
        if least == greatest:
            return least, greatest
        spread = self._moments.spread(zone)
        slack = spread if greatest - least <= 2 * spread else DAY_US + spread
        return least - slack, greatest + slack

    def _moved(
        self, expression: JavaObject, children: list[JavaObject], operand: int, zone: str | None
    ) -> set[int] | None:
        given, result = (
            str(each.dataType().simpleString()) for each in (children[operand], expression)
        )
        if given not in TIME_TYPES or result not in TIME_TYPES:
            return None

        def function(moment: JavaObject) -> JavaObject:
            operands = [moment if n == operand else each for n, each in enumerate(children)]
            return self._moments.with_children(expression, operands)

        pairs = self._moments.moved(function, given, result, zone)
        return None if pairs is None else {after - before for before, after in pairs}

    # Conditions

    def _at_most(self, less: JavaObject, greater: JavaObject, least_us: int) -> list[Constraint]:
        """``less`` is at most ``greater``, and ``least_us`` before it at least."""
        if greater.foldable():
            return self._difference_at_most(less, greater, 1)
        if less.foldable():
            return self._difference_at_most(greater, less, -1)
        one, other = self._linear(less), self._linear(greater)
        if one is None or other is None or one.in_seconds != other.in_seconds:
            return []
        # greater.column + its shift >= less.column + its shift + least_us
        apart = one.column.moved.then(TimeRange.of(least_us, math.inf)).then(
            other.column.moved.reverse()
        )
        return [Constraint(one.column.key, other.column.key, apart)]

    def _difference_at_most(
        self, difference: JavaObject, constant: JavaObject, sign: int
    ) -> list[Constraint]:
        """A difference of times is at most (for the sign 1) or at least (for -1) a constant."""
        found, amount = self._difference(difference), constant.eval(None)
        if found is None or not isinstance(amount, int):
            return []
        limit = amount * found.unit_us + sign * found.inexact_us
        between = TimeRange.of(-math.inf, limit) if sign > 0 else TimeRange.of(limit, math.inf)
        apart = found.second.moved.then(between).then(found.first.moved.reverse())
        return [Constraint(found.second.key, found.first.key, apart)]

    def _difference(self, expression: JavaObject) -> _Difference | None:
        kind = kind_of(expression)
        if kind not in {"DateDiff", "Subtract", "SubtractTimestamps"}:
            return None
        one, other = (self._linear(each) for each in children_of(expression))
        if one is None or other is None or one.in_seconds != other.in_seconds:
            return None
        if kind == "DateDiff":
            return _Difference(one.column, other.column, DAY_US, 0)
        if kind == "Subtract":
            unit = SECOND_US if one.in_seconds else 1
            return _Difference(one.column, other.column, unit, 0)
        zone = _zone(expression, expression.children().apply(0))
        return _Difference(one.column, other.column, 1, self._moments.spread(zone))

    def _linear(self, expression: JavaObject) -> _Linear | None:
        """What follows from a single column."""
        kind = kind_of(expression)
        if kind in {"Add", "Subtract"} and (found := self._sum(expression, kind)):
            number, amount = found
            inner = self._linear(number)
            if inner is not None and inner.in_seconds:
                moved = TimeRange.of(amount * SECOND_US, amount * SECOND_US)
                return _Linear(inner.column.then(moved), True)
        if (seconds := self._seconds(expression, kind)) is not None:
            return seconds
        alternatives = self._times(expression)
        return (
            _Linear(alternatives[0], False)
            if alternatives is not None and len(alternatives) == 1
            else None
        )

    def _seconds(self, expression: JavaObject, kind: str) -> _Linear | None:
        """A time in whole seconds: rounded down, or by ``unix_timestamp`` towards 1970."""
        if kind not in {"Cast", "UnixSeconds", "UnixTimestamp"}:
            return None
        time = expression.children().apply(0)
        types = str(time.dataType().simpleString()), str(expression.dataType().simpleString())
        if types != ("timestamp", "bigint"):
            return None
        alternatives = self._times(time)
        if alternatives is None or len(alternatives) != 1:
            return None
        up = SECOND_US - 1 if kind == "UnixTimestamp" else 0
        return _Linear(alternatives[0].then(TimeRange.of(1 - SECOND_US, up)), True)

    def _same_structures(self, left: JavaObject, right: JavaObject) -> list[Constraint]:
        one, other = self._times(left), self._times(right)
        if not one or not other or len(one) != 1 or len(other) != 1:
            return []
        # structures are the same, too, where both have a null in the same field
        windows = _is_window(left) or _is_window(right)
        return [
            Constraint(
                (one[0].key[0], (*one[0].key[1], str(mine.name()))),
                (other[0].key[0], (*other[0].key[1], str(theirs.name()))),
                SAME,
            )
            for mine, theirs in zip(
                elements(left.dataType()), elements(right.dataType()), strict=True
            )
            if windows or not (mine.nullable() and theirs.nullable())
        ]


def extreme_id(expression: JavaObject) -> int:
    """What distinguishes an aggregate function's value from columns, which have no negative ids."""
    return -1 - int(expression.resultId().id())


def all_expressions(expression: JavaObject) -> Iterator[JavaObject]:
    """An expression and all below it."""
    yield expression
    for child in children_of(expression):
        yield from all_expressions(child)


def impurity(expression: JavaObject, clock: JavaObject) -> str:
    """The part of an expression whose value is chance, or depends on the clock or on how rows are
    distributed; empty without one. ``clock`` is Spark's mark of expressions of the time of day.
    """
    if expression.deterministic() and not expression.containsPattern(clock):
        return ""
    below = (impurity(child, clock) for child in children_of(expression))
    return next((found for found in below if found), str(expression.toString()))


def _choices(expression: JavaObject, kind: str) -> list[JavaObject]:
    """The values of which an expression gives one; null may be another one."""
    if kind == "If":
        return [expression.trueValue(), expression.falseValue()]
    if kind == "CaseWhen":
        values = [branch._2() for branch in elements(expression.branches())]
        otherwise = expression.elseValue()
        return [*values, otherwise.get()] if otherwise.isDefined() else values
    return children_of(expression)


def _is_window(expression: JavaObject) -> bool:
    return kind_of(expression) == "AttributeReference" and any(
        expression.metadata().contains(each) for each in _WINDOWS
    )


def _converted_times(expression: JavaObject) -> Iterator[JavaObject]:
    """The time that a window's edge is computed from, wherever it is there."""
    return (each.child() for each in all_expressions(expression) if _converts_time(each))


def _converts_time(expression: JavaObject) -> bool:
    return kind_of(expression) == "PreciseTimestampConversion" and (
        str(expression.child().dataType().simpleString()) in TIME_TYPES
    )


def _zone(expression: JavaObject, time: JavaObject | None) -> str | None:
    """The zone whose calendar an expression goes by; None for times without a zone."""
    if time is not None and str(time.dataType().simpleString()) != "timestamp":
        return None
    if not hasattr(expression, "timeZoneId"):
        return None
    zone = expression.timeZoneId()
    return str(zone.get()) if zone.isDefined() else None
