"""Whether rows arrived when a span assumes that they do: at most ``ordering.allowedLateness``
before their event time, and at most the watermark's delay after it.

A span reads the rows that arrived then. Of a row that arrived earlier, the span whose results need
it may know nothing, so a single one makes the run fail. A row that arrived later is one that a
stream drops if its watermark has passed it: such rows are counted. Many of them are no stragglers:
event times lag behind (hourly uploads, an ingestion that stood still, local times), and the
watermark of a stream lags with them. A stream would keep rows that spans lose, so the run fails.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from py4j.java_gateway import JavaObject
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import _parse_datatype_json_string

from backfill.api.errors import InvalidPlanInput, Problem
from backfill.api.quantities import format_duration
from backfill.runtime.batch.overlap import Between
from backfill.runtime.batch.rebind import ARRIVAL, below_watermark, hides_arrival
from backfill.runtime.catalyst import column_of, frame_of, kind_of, nodes_of, observing
from backfill.runtime.queries.logical_plan import is_source, source_of
from backfill.runtime.source.timestamp_columns import microseconds

_MOST_LATE = 10
"""One in so many rows of a span may be late."""


@dataclass(frozen=True, slots=True)
class Expected:
    """When rows are expected to arrive."""

    early_us: int
    """At most so long before their event time."""
    delay_us: int
    """At most so long after it: the longest delay of the query's watermarks."""
    back_us: int
    """Results depend on rows whose event time is at most so long before theirs."""
    ahead_us: int
    """And on rows whose event time is at most so long after theirs."""
    until_us: int
    """Rows with this event time or a later one change no result of the window: clocks that are
    years ahead do not matter.
    """


@dataclass(frozen=True, slots=True)
class _Seen:
    """The rows at one watermark."""

    name: str
    """Of what is observed."""
    plan: JavaObject
    """The rows themselves."""
    metrics: list[Column]
    sources: str


@dataclass(frozen=True, slots=True)
class Late:
    """Rows that arrived later than their watermark's delay allows."""

    rows: int
    """How many of a span's own steps."""
    strips: Mapping[Between, bool]
    """Of strips of results whether they may depend on some, of any step."""


class SpanArrivals:
    """Compares the rows of one span with what is expected."""

    def __init__(self, expected: Expected, spark: SparkSession, strips: Sequence[Between]):
        self._expected = expected
        self._spark = spark
        self._strips = strips
        self._seen: list[_Seen] = []
        self._hidden = False

    def above(self, node: JavaObject, bound: JavaObject) -> JavaObject:
        """For :func:`rebind`: the rows at a watermark are observed."""
        below = below_watermark(node)
        if below is None:
            return bound
        if any(map(hides_arrival, below)):
            self._hidden = True
            return bound
        metrics = self._metrics(node)
        name = f"arrivals {len(self._seen)}"
        self._seen.append(_Seen(name, bound, metrics, _sources(below)))
        return observing(self._spark, bound, name, *metrics)

    def _metrics(self, watermark: JavaObject) -> list[Column]:
        time = watermark.eventTime().toAttribute()
        event_us = microseconds(
            column_of(self._spark, time), _parse_datatype_json_string(time.dataType().json())
        )
        own = F.col(ARRIVAL).bitwiseAND(F.lit(1)) == 1
        ahead_us = F.try_subtract(event_us, F.shiftright(ARRIVAL, 1))
        early = (ahead_us > self._expected.early_us) & (event_us < self._expected.until_us)
        late = ahead_us < -self._expected.delay_us
        in_strips = (
            F.coalesce(late, F.lit(True))
            & (event_us >= strip[0] - self._expected.back_us)
            & (event_us < strip[1] + self._expected.ahead_us)
            for strip in self._strips
        )
        return [
            F.count_if(early).alias("early"),
            F.max(F.when(early, ahead_us)).alias("earliest_us"),
            F.count_if(own).alias("own"),
            F.count_if(late & own).alias("late"),
            *(F.count_if(each).alias(f"late {number}") for number, each in enumerate(in_strips)),
        ]

    def late(self, observed: Mapping[str, Mapping[str, Any]]) -> Late:
        """Which rows arrived later than their watermark's delay allows, by what was observed when
        the span was computed.

        Raises:
            InvalidPlanInput: rows arrived too early, or too many of them late.
        """
        rows, strips = 0, dict.fromkeys(self._strips, self._hidden)
        for each in self._seen:
            found = observed.get(each.name)
            if found is None:  # Spark leaves out what is joined with nothing
                rows_of = frame_of(self._spark, each.plan)
                found = rows_of.agg(*each.metrics).collect()[0].asDict()
            if found["early"]:
                raise self._too_early(each.sources, found)
            if found["late"] * _MOST_LATE > found["own"]:
                raise _too_late(each.sources, found)
            rows += found["late"]
            for number, strip in enumerate(self._strips):
                strips[strip] |= found[f"late {number}"] > 0
        return Late(rows, strips)

    def _too_early(self, sources: str, found: Mapping[str, Any]) -> InvalidPlanInput:
        allowed = format_duration(timedelta(microseconds=self._expected.early_us))
        seen = format_duration(timedelta(seconds=-(-found["earliest_us"] // 1_000_000)))
        return InvalidPlanInput(
            Problem(
                "spec.ordering.allowedLateness",
                f"is {allowed}, but {found['early']:,} rows of {sources} in the steps just read"
                f" arrived longer than that before their event time, up to {seen}: results of batch"
                " jobs would lack rows",
                f"set it to {seen} or more, or set spec.execution to Streaming",
            )
        )


def _too_late(sources: str, found: Mapping[str, Any]) -> InvalidPlanInput:
    return InvalidPlanInput(
        Problem(
            "spec.execution",
            f"{found['late']:,} of {found['own']:,} rows of {sources} in the steps just read"
            " arrived longer after their event time than the delay of withWatermark: where all rows"
            " come so late, a stream keeps them, and batch jobs would lose some",
            "set it to Streaming, or give withWatermark a delay longer than that",
        )
    )


def hidden_arrivals(plan: JavaObject) -> dict[str, str]:
    """Rows of a query that cannot be compared with their arrival: the sources of those below a
    watermark, with the kind of a node that hides when they arrived.
    """
    found = {}
    for node in nodes_of(plan):
        below = below_watermark(node) or []
        hidden = next((kind_of(each) for each in below if hides_arrival(each)), None)
        if hidden is not None:
            found[_sources(below)] = hidden
    return found


def _sources(nodes: list[JavaObject]) -> str:
    return " and ".join(sorted({source_of(each) for each in nodes if is_source(each)}))
