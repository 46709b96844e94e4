"""How far expressions move a time: asked of Spark itself, at many moments.

An expression's only input is replaced by a variable, and Spark evaluates it for thousands of
moments at once, those around changes of the zone's clocks among them. Days of 23 and 25 hours,
months and leap years are Spark's own that way. Calendar types are compared as microseconds since
the epoch: timestamps without a zone and dates as if they were in UTC.
"""

import random
import struct
from collections.abc import Callable, Iterable
from functools import cache, cached_property

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

SECOND_US = 1_000_000
DAY_US = 86_400 * SECOND_US
TIME_TYPES = ("timestamp", "timestamp_ntz", "date")

_NULL = -(2**63)
_FIRST_US, _LAST_US = 0, 3_155_760_000 * SECOND_US
"""Half of the moments are at random in these hundred years since 1970."""
_RANDOM = 2_000
_EARLIEST_S, _LATEST_S = -10_000_000_000, 4_102_444_800
"""Between these, 1653 and 2100, changes of a zone's clocks count."""

Function = Callable[[JavaObject], JavaObject]
"""Makes an expression of the expression of its input."""


class Moments:
    """Evaluates expressions at many moments."""

    def __init__(self, spark: SparkSession):
        gateway, jvm = spark.sparkContext._gateway, spark._jvm
        assert gateway is not None  # in classic PySpark
        assert jvm is not None
        self._gateway, self._jvm = gateway, jvm
        self._known: dict[str, list[tuple[int, int]] | None] = {}
        self.offsets = cache(self._offsets)
        self._transitions = cache(self._find_transitions)
        self._variable = cache(self._make_variable)

    def moved(
        self, function: Function, given: str, result: str, zone: str | None
    ) -> list[tuple[int, int]] | None:
        """Pairs of a moment and what a function of it gives, in microseconds. None where it gives
        null or fails for some moment.

        Args:
            function: the expression of a time.
            given: the type of the time, one of ``TIME_TYPES``.
            result: the type of what it gives, one of ``TIME_TYPES`` or ``bigint`` in microseconds.
            zone: whose changes of the clocks are tried, besides random moments.
        """
        variable = self._variable(given)
        body = function(variable)
        name = f"{body.toString()} as {result} in {zone}"
        if name not in self._known:
            self._known[name] = self._evaluate(variable, body, given, result, zone)
        return self._known[name]

    def _offsets(self, zone: str) -> tuple[int, int]:
        """The least and greatest difference of a zone's clocks to UTC there ever was."""
        found = [self._first_offset(zone), *(after for _, after in self._transitions(zone))]
        return min(found) * SECOND_US, max(found) * SECOND_US

    def _first_offset(self, zone: str) -> int:
        """Before the first change of a zone's clocks, in seconds."""
        first = self._jvm.java.time.Instant.ofEpochSecond(_EARLIEST_S)
        return int(self._rules(zone).getOffset(first).getTotalSeconds())

    def spread(self, zone: str | None) -> int:
        """How much a zone's difference to UTC varies at most; 0 without a zone."""
        if zone is None:
            return 0
        least, greatest = self.offsets(zone)
        return greatest - least

    def leap(self, zone: str | None, period: float) -> int:
        """How much a zone's difference to UTC varies at most between a time and the begin of its
        period by local time, a whole number of ``period`` microseconds since the epoch; 0 without a
        zone.

        The begin of a period of at most a day is at the same side of a change of the clocks, if
        that change goes from one such number to another one.
        """
        if zone is None:
            return 0
        before = self._first_offset(zone)
        changes: list[tuple[int, int]] = []
        for at, after in self._transitions(zone):
            locally = [(at + offset) * SECOND_US % period for offset in (before, after)]
            if any(locally) or period > DAY_US:
                changes.append((at * SECOND_US, abs(after - before) * SECOND_US))
            before = after
        close = (
            sum(jump for at, jump in changes[number:] if at <= first + 2 * period)
            for number, (first, _) in enumerate(changes)
        )
        return min(max(close, default=0), self.spread(zone))

    def _evaluate(
        self, variable: JavaObject, body: JavaObject, given: str, result: str, zone: str | None
    ) -> list[tuple[int, int]] | None:
        scale = DAY_US if given == "date" else 1
        inputs = sorted({moment // scale for moment in self._moments(zone)})
        expressions = self._jvm.org.apache.spark.sql.catalyst.expressions
        try:
            found = expressions.ArrayTransform(
                self._array(inputs, variable.dataType(), given == "date"),
                expressions.LambdaFunction(
                    self._number(body, result), self._seq([variable]), False
                ),
            ).eval(None)
        except Py4JError:
            return None
        buffer = self._jvm.java.nio.ByteBuffer.allocate(8 * len(inputs))
        buffer.asLongBuffer().put(found.toLongArray())
        values = struct.unpack(f">{len(inputs)}q", buffer.array())
        if _NULL in values:
            return None
        unit = DAY_US if result == "date" else 1
        return [
            (before * scale, after * unit) for before, after in zip(inputs, values, strict=True)
        ]

    def _number(self, body: JavaObject, result: str) -> JavaObject:
        """The expression's value as a number that is never null."""
        expressions = self._jvm.org.apache.spark.sql.catalyst.expressions
        long = self._type("bigint")
        if result == "date":
            number = expressions.Cast(
                expressions.UnixDate(body),
                long,
                self._jvm.scala.Option.apply(None),
                expressions.EvalMode.ANSI(),
            )
        elif result in TIME_TYPES:
            number = expressions.PreciseTimestampConversion(body, self._type(result), long)
        else:
            number = body
        return expressions.Coalesce(self._seq([number, expressions.Literal(_NULL, long)]))

    def _array(self, values: list[int], kind: JavaObject, days: bool) -> JavaObject:
        expressions = self._jvm.org.apache.spark.sql.catalyst.expressions
        code, java = ("i", self._jvm.int) if days else ("q", self._jvm.long)
        array = self._gateway.new_array(java, len(values))
        buffer = self._jvm.java.nio.ByteBuffer.wrap(struct.pack(f">{len(values)}{code}", *values))
        (buffer.asIntBuffer() if days else buffer.asLongBuffer()).get(array)
        data = expressions.UnsafeArrayData.fromPrimitiveArray(array)
        return expressions.Literal(
            data, self._jvm.org.apache.spark.sql.types.ArrayType(kind, False)
        )

    def _make_variable(self, kind: str) -> JavaObject:
        expressions = self._jvm.org.apache.spark.sql.catalyst.expressions
        return expressions.NamedLambdaVariable(
            "moment",
            self._type(kind),
            False,
            expressions.NamedExpression.newExprId(),
            self._jvm.java.util.concurrent.atomic.AtomicReference(),
        )

    def _moments(self, zone: str | None) -> Iterable[int]:
        chosen = random.Random(_RANDOM)
        yield from (chosen.randrange(_FIRST_US, _LAST_US) for _ in range(_RANDOM))
        # every day of four years, and the edges of its hours
        yield from (
            _FIRST_US + day * DAY_US + hour * 3_600 * SECOND_US + shift
            for day in range(0, 4 * 366)
            for hour in (day % 24,)
            for shift in (-1, 0)
        )
        if zone is not None:
            yield from (
                at * SECOND_US + shift
                for at, _ in self._transitions(zone)
                for hours in (-25, -24, -3, -2, -1, 0, 1, 2, 3, 24, 25)
                for shift in (hours * 3_600 * SECOND_US - 1, hours * 3_600 * SECOND_US)
            )

    def _find_transitions(self, zone: str) -> list[tuple[int, int]]:
        """When a zone's clocks are changed, and their difference to UTC since then, in seconds."""
        rules, found = self._rules(zone), []
        next_one = rules.nextTransition(self._jvm.java.time.Instant.ofEpochSecond(_EARLIEST_S))
        while next_one is not None and next_one.toEpochSecond() < _LATEST_S:
            found.append(
                (int(next_one.toEpochSecond()), int(next_one.getOffsetAfter().getTotalSeconds()))
            )
            next_one = rules.nextTransition(next_one.getInstant())
        return found

    def _rules(self, zone: str) -> JavaObject:
        utils = self._jvm.org.apache.spark.sql.catalyst.util.DateTimeUtils
        return utils.getZoneId(zone).getRules()

    def _type(self, kind: str) -> JavaObject:
        return self._types[kind]

    @cached_property
    def _types(self) -> dict[str, JavaObject]:
        types = self._jvm.org.apache.spark.sql.types.DataTypes
        return {
            "timestamp": types.TimestampType,
            "timestamp_ntz": types.TimestampNTZType,
            "date": types.DateType,
            "bigint": types.LongType,
        }

    def with_children(self, expression: JavaObject, children: list[JavaObject]) -> JavaObject:
        """The same expression of other operands."""
        return expression.withNewChildren(self._seq(children))

    def _seq(self, items: list[JavaObject]) -> JavaObject:
        return self._jvm.PythonUtils.toSeq(items)
