"""Checks that what a span reads is enough. If the analysis of the query's plan is wrong, results
lack rows where spans meet, and nothing else would show it.

Of two spans that meet, one also computes the results of a strip of time in the stretch of the other
one, from what it reads, and the other one computes them from other rows. If both have read all that
these results depend on, there are as many, with the same values.

What the last committed span has found is kept with its files, and the next attempt compares its
first span with that. Otherwise it would miss a difference that has ended the previous attempt. It
does not where the query reads tables that may have changed since, or where an operator of another
version has added up something else.
"""

import json
import logging
import threading
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from py4j.java_gateway import JavaObject
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DateType

from backfill import __version__
from backfill.api.errors import BatchResultsDiffer, Problem
from backfill.api.quantities import count, format_time, from_us
from backfill.runtime.batch.determined_columns import Lasting, certain_columns, lasting
from backfill.runtime.batch.spans import Span
from backfill.runtime.catalyst import analyzed, clock_pattern, column_of, elements, id_of
from backfill.runtime.source import timestamp_columns

_DAY_US = 86_400_000_000
_EXAMPLES = 3
_SEEN = ("rows", "low", "high")
"""What is compared: how many results there are, and sums of both halves of their hashes."""

_log = logging.getLogger(__name__)

Between = tuple[int, int]
"""From the first time to before the second one, in microseconds."""


@dataclass(frozen=True, slots=True)
class _Found:
    """What a span has found in a strip."""

    seen: Mapping[str, int]
    session_us: int
    """What it read was enough if no session is longer."""
    span: Span | None = None
    """None is one of an earlier attempt."""


@dataclass(frozen=True, slots=True)
class SharedResults:
    """What two spans must find the same."""

    column: str = ""
    """The column of the results' time; empty where nothing is compared."""
    places: Sequence[int] = ()
    """Places of columns in the results; none where nothing is compared."""
    digest: int = 0
    """Differs where something else is added up."""
    lasting: Lasting = Lasting.RUN
    """How long the query finds the same in what is not its sources."""

    @classmethod
    def of(cls, spark: SparkSession, plan: JavaObject, column: str) -> "SharedResults":
        """Of the results of a query with this analyzed plan, whose time is ``column``."""
        places = compared_columns(spark, plan, column)
        return cls(column, places, _digest(spark, plan, column, places), lasting(plan))


class OverlapCheck:
    """Compares the results of one query's spans where they meet."""

    def __init__(
        self,
        query: str,
        spans: Sequence[Span],
        *,
        compared: SharedResults,
        compute: Callable[[Span], DataFrame],
        before: Mapping[str, int] | None = None,
    ):
        """``compute`` gives what a span computes. ``before`` is what :meth:`compare` returned for
        the span before the first one, in an earlier attempt.
        """
        self._query = query
        self._spans = spans
        self._numbers = {span.steps: number for number, span in enumerate(spans)}
        self._compared = compared
        self._compute = compute
        self._lock = threading.Lock()
        self._found: dict[Between, _Found] = {}
        self._first: Between | None = None
        if before is not None and spans and self._may_compare(before):
            strip = before["start_us"], before["end_us"]
            self._first = strip if _computes(spans[0], strip) else None
            seen = {name: before[name] for name in _SEEN}
            self._found[strip] = _Found(seen, before["session_us"])

    def strips(self, span: Span) -> list[Between]:
        """The strips that a span computes, in its own stretch and in those of its neighbours."""
        number = self._numbers.get(span.steps)
        if not self._compared.places or number is None:
            return []
        near = self._spans[max(number - 1, 0) : number + 2]
        strips = [strip for pair in pairwise(near) if (strip := _strip(*pair)) is not None]
        return [self._first, *strips] if self._first is not None and number == 0 else strips

    def observe(self, span: Span, results: DataFrame) -> DataFrame:
        """The same results of a span, observed where another span computes some of them as well:
        otherwise they need not have a time.
        """
        strips = self.strips(span)
        if not strips:
            return results
        time_us = self._time_us(results)
        metrics = [
            metric.alias(f"{name} {number}")
            for number, strip in enumerate(strips)
            for name, metric in self._metrics(results, _inside(time_us, strip)).items()
        ]
        return results.observe("overlap", *metrics)

    def compare(
        self,
        span: Span,
        observed: Mapping[str, Mapping[str, Any]],
        may_differ: Callable[[Between, int], bool],
    ) -> dict[str, int] | None:
        """Compares what a span has computed with its neighbours, where they have computed it, too.

        Returns what the span after it must find as well; None if that computes nothing of it.

        Args:
            may_differ: whether results of a strip depend on rows that arrived so late that not both
                spans need have read them, where sessions are at most this long, in microseconds.

        Raises:
            BatchResultsDiffer: it is not the same, and should be.
        """
        metrics, at_end = observed.get("overlap", {}), None
        for number, strip in enumerate(self.strips(span)):
            seen = {name: int(metrics.get(f"{name} {number}") or 0) for name in _SEEN}
            if span.stretch is not None and strip[1] >= span.stretch.end_us:
                at_end = self._kept(strip, span.session_us, seen)
            mine = _Found(seen, span.session_us, span)
            with self._lock:
                other = self._found.setdefault(strip, mine)
            if seen == other.seen:
                continue
            if may_differ(strip, max(span.session_us, other.session_us)):
                why = "rows arrived late"
            elif self._compared.lasting is Lasting.JOB:
                why = "a table that each of them read separately may have changed"
            else:
                raise self._differ(strip, other.span, span)
            _log.warning(
                "results of the query %s from %s to %s differ between the two batch jobs that"
                " computed them: %s",
                self._query,
                *_in_words(strip),
                why,
            )
        return at_end

    def _kept(
        self, strip: Between, session_us: int, seen: Mapping[str, int]
    ) -> dict[str, int] | None:
        """What another attempt compares; None where it may read something else."""
        if self._compared.lasting < Lasting.RUN:
            return None
        start_us, end_us = strip
        return {
            "start_us": start_us,
            "end_us": end_us,
            "session_us": session_us,
            "digest": self._compared.digest,
            **seen,
        }

    def _may_compare(self, before: Mapping[str, int]) -> bool:
        same_sums = before.get("digest") == self._compared.digest
        return same_sums and self._compared.lasting is Lasting.RUN

    def _metrics(self, results: DataFrame, where: Column) -> dict[str, Column]:
        spark = results.sparkSession
        # Spark may give what a plan reads twice a new identity in each span
        given = elements(analyzed(results).output())
        hashed = F.xxhash64(*(column_of(spark, given[place]) for place in self._compared.places))
        low, high = hashed.bitwiseAND(F.lit(2**32 - 1)), F.shiftrightunsigned(hashed, 32)
        sums = (F.count_if(where), F.sum(F.when(where, low)), F.sum(F.when(where, high)))
        return dict(zip(_SEEN, sums, strict=True))

    def _time_us(self, results: DataFrame) -> Column:
        value, kind = timestamp_columns.column_of(results, self._compared.column)
        if isinstance(kind, DateType):
            return F.unix_date(value).cast("bigint") * _DAY_US
        return timestamp_columns.microseconds(value, kind)

    def _differ(self, strip: Between, one: Span | None, other: Span) -> BatchResultsDiffer:
        examples = "" if one is None else f": {self._examples(strip, one, other)}"
        return BatchResultsDiffer(
            Problem(
                "spec.execution",
                '"Batch" produces wrong results for the query {}: results from {} to {} differ'
                " between the two batch jobs that computed them{}".format(
                    self._query, *_in_words(strip), examples
                ),
                "use Streaming",
            )
        )

    def _examples(self, strip: Between, *spans: Span) -> str:
        """Both are computed again, to say where they differ."""
        first, second = (self._by_time(self._compute(span), strip) for span in spans)
        one, other = ([F.col(f"{side}.{name}") for name in _SEEN] for side in ("a", "b"))
        same = [mine.eqNullSafe(yours) for mine, yours in zip(one, other, strict=True)]
        both = first.alias("a").join(second.alias("b"), "at_us", "full_outer")
        differ = both.where(~(same[0] & same[1] & same[2])).select(
            "at_us", *(F.coalesce(rows[0], F.lit(0)) for rows in (one, other))
        )
        return ", ".join(
            f"at {format_time(from_us(at_us))} {rows:,} and {count(others, 'row')}"
            for at_us, rows, others in differ.orderBy("at_us").limit(_EXAMPLES).collect()
        )

    def _by_time(self, results: DataFrame, strip: Between) -> DataFrame:
        time_us = self._time_us(results)
        metrics = self._metrics(results, F.lit(True)).items()
        inside = results.where(_inside(time_us, strip)).groupBy(time_us.alias("at_us"))
        return inside.agg(*(metric.alias(name) for name, metric in metrics))


def compared_columns(spark: SparkSession, plan: JavaObject, column: str) -> list[int]:
    """The places of those columns of a query's results in which two spans must find the same; none
    if they may differ even in their time, which is ``column``, or in number.
    """
    certain = set(map(id_of, certain_columns(plan, clock_pattern(spark))))
    output = elements(plan.output())
    found = [place for place, each in enumerate(output) if id_of(each) in certain]
    times = timestamp_columns.places_of(column, [str(each.name()) for each in output])
    return found if not set(times).isdisjoint(found) else []


def _digest(spark: SparkSession, plan: JavaObject, column: str, places: Sequence[int]) -> int:
    """Of the columns, their types and the versions that say how they are added up."""
    output = elements(plan.output())
    columns = [
        (str(output[place].name()), str(output[place].dataType().json())) for place in places
    ]
    return zlib.crc32(json.dumps([__version__, str(spark.version), column, columns]).encode())


def _strip(before: Span, after: Span) -> Between | None:
    """What both of two spans that meet compute."""
    if after.stretch is None or not before.after_us + after.before_us:
        return None
    meet_us = after.stretch.start_us
    return meet_us - after.before_us, meet_us + before.after_us


def _computes(first: Span, strip: Between) -> bool:
    """Whether the first span of an attempt reads enough for a strip at its start."""
    if first.stretch is None:
        return False
    start_us, end_us = first.stretch.start_us - first.before_us, first.stretch.open_us
    meets = first.stretch.start_us in strip
    return meets and start_us <= strip[0] and strip[1] <= end_us


def _inside(time_us: Column, strip: Between) -> Column:
    return (time_us >= strip[0]) & (time_us < strip[1])


def _in_words(strip: Between) -> tuple[str, str]:
    start, end = (format_time(from_us(each)) for each in strip)
    return start, end
