"""How far expressions move a time: asked of Spark itself, at many moments.

An expression's only input is replaced by a variable, and Spark evaluates it for thousands of
moments at once, those around changes of the zone's clocks among them. Days of 23 and 25 hours,
months and leap years are Spark's own that way. Calendar types are compared as microseconds since
the epoch: timestamps without a zone and dates as if they were in UTC.
"""

import random
from collections.abc import Callable, Iterable
from functools import cache

from py4j.java_gateway import JavaObject
from pyspark.sql import SparkSession

from backfill.runtime.catalyst import Catalyst, epoch_second, zone_id

SECOND_US = 1_000_000
DAY_US = 86_400 * SECOND_US
TIME_TYPES = ("timestamp", "timestamp_ntz", "date")

_FIRST_US, _LAST_US = 0, 3_155_760_000 * SECOND_US
"""Half of the moments are at random in these hundred years since 1970."""
_RANDOM = 2_000
_EARLIEST_S, _LATEST_S = -10_000_000_000, 4_102_444_800
"""Between these, 1653 and 2100, changes of a zone's clocks count."""

_known_transitions: dict[str, list[tuple[int, int]]] = {}
"""By the name of a zone. They are the same for all queries, and the JVM is asked for them by
thousands of calls.
"""

Function = Callable[[JavaObject], JavaObject]
"""Makes an expression of the expression of its input."""


class Moments:
    """Evaluates expressions at many moments."""

    def __init__(self, spark: SparkSession):
        self._spark = spark
        self._catalyst = Catalyst(spark)
        self.with_children = self._catalyst.with_children
        self._known: dict[str, list[tuple[int, int]] | None] = {}
        self.offsets = cache(self._offsets)
        self._variable = cache(self._catalyst.variable)

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
        """The least and greatest difference to UTC that a zone's clocks have ever had."""
        found = [self._first_offset(zone), *(after for _, after in self._transitions(zone))]
        return min(found) * SECOND_US, max(found) * SECOND_US

    def _first_offset(self, zone: str) -> int:
        """Before the first change of a zone's clocks, in seconds."""
        first = epoch_second(self._spark, _EARLIEST_S)
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
        values = self._catalyst.evaluate(variable, body, result, inputs)
        if values is None:
            return None
        unit = DAY_US if result == "date" else 1
        return [
            (before * scale, after * unit) for before, after in zip(inputs, values, strict=True)
        ]

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

    def _transitions(self, zone: str) -> list[tuple[int, int]]:
        """When a zone's clocks are changed, and their difference to UTC since then, in seconds."""
        if zone not in _known_transitions:
            _known_transitions[zone] = self._find_transitions(zone)
        return _known_transitions[zone]

    def _find_transitions(self, zone: str) -> list[tuple[int, int]]:
        rules, found = self._rules(zone), []
        next_one = rules.nextTransition(epoch_second(self._spark, _EARLIEST_S))
        while next_one is not None and (second := int(next_one.toEpochSecond())) < _LATEST_S:
            found.append((second, int(next_one.getOffsetAfter().getTotalSeconds())))
            next_one = rules.nextTransition(next_one.getInstant())
        return found

    def _rules(self, zone: str) -> JavaObject:
        return zone_id(self._spark, zone).getRules()
