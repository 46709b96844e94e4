"""A stretch of a query's results needs no more rows than the analysis says: programs at random are
run over all rows, and over only those that moments of their results depend on.

``BACKFILL_ANALYSIS_EXAMPLES`` is how many programs are tried.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from typing import Any

import pytest
from captured_streams import over_batch, streams
from event_time_programs import (
    DELAY_MINUTES,
    SCHEMA,
    SOURCES,
    Program,
    Source,
    Step,
    parts,
    programs,
    run,
)
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backfill.runtime.batch.look_back import analyze
from backfill.runtime.batch.time_reach import Bounded, Reach

MINUTE = 60_000_000
START_US = int(datetime(2026, 3, 29, tzinfo=UTC).timestamp()) * 1_000_000
"""The clocks of Berlin are put forward an hour later."""
DELAY_US = DELAY_MINUTES * MINUTE
EXAMPLES = int(os.environ.get("BACKFILL_ANALYSIS_EXAMPLES", "25"))
DEPTH = 2 if EXAMPLES < 100 else 3
CUTS = 3
Row = tuple[int, int, int | None, int, int]
"""k, t, u, x and the arrival, times in microseconds."""
Result = tuple[Any, ...]
"""k, t, u and x."""


def rows() -> st.SearchStrategy[list[Row]]:
    """A few hours, in which much happens at the same moment or a microsecond beside it."""
    time = st.builds(
        lambda minutes, beside: START_US + minutes * 5 * MINUTE + beside,
        st.integers(0, 36),
        st.sampled_from((0, 0, 0, -1, 1)),
    )
    row = st.builds(
        lambda k, t, u, x, late: (
            k,
            t,
            None if u is None else t + u * MINUTE,
            x,
            t + late * MINUTE,
        ),
        st.integers(0, 1),
        time,
        st.sampled_from((None, -10, -5, 0, 5, 10)),
        st.integers(0, 9),
        st.sampled_from((0, 0, 5, DELAY_MINUTES)),
    )
    return st.lists(row, min_size=15, max_size=40)


@dataclass(frozen=True)
class Cut:
    """Results of a stretch, first and last moment included, and where the rows for them are."""

    first: int
    last: int
    by_arrival: bool

    def reads(self, row: Row, reach: Reach) -> bool:
        if reach.event_column == "arrived":
            at, late = row[4], 0
        elif reach.event_column is None or self.by_arrival:  # None: read by one and by the other
            at, late = row[4], reach.delay_us
        else:
            at, late = row[1], 0
        return self.first - reach.back_us <= at <= self.last + reach.ahead_us + late


def longest_session(program: Program, data: Mapping[str, list[Row]]) -> int:
    longest = 0
    for step in parts(program):
        if isinstance(step, Step) and step.what == "session" and isinstance(step.below, Source):
            gap = max(step.size, 5) * MINUTE
            for k in (0, 1):
                column = 4 if step.below.by_arrival else 1
                times = sorted(row[column] for row in data[step.below.name] if row[0] == k)
                for first, time in enumerate(times):
                    last = time
                    for each in times[first:]:
                        if each - last > gap:
                            break
                        last = each
                    longest = max(longest, last - time)
    return longest


def numbers(frame: DataFrame, number: int) -> DataFrame:
    times = (F.unix_micros(name).alias(name) for name in ("t", "u"))
    return frame.select(F.lit(number).alias("cut"), "k", *times, "x")


@pytest.mark.timeout(60 + 20 * EXAMPLES)
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)
@given(
    program=programs(DEPTH),
    data=st.fixed_dictionaries({name: rows() for name in SOURCES}),
    column=st.sampled_from(("t", "u")),
    zone=st.sampled_from(("UTC", "Europe/Berlin")),
    draw=st.data(),
)
def test_results_depend_on_no_other_rows(
    program: Program,
    data: dict[str, list[Row]],
    column: str,
    zone: str,
    draw: st.DataObject,
    spark: SparkSession,
    small_jobs: Callable[[str, str], None],
) -> None:
    small_jobs("spark.sql.session.timeZone", zone)
    frame = run(program, streams(spark, dict.fromkeys(SOURCES, SCHEMA)))
    found = analyze(frame, column)
    event("bounded" if isinstance(found, Bounded) else found.reason.split(",")[0][:40])
    if not isinstance(found, Bounded) or found.stateless:
        return

    place = _PLACES[column]
    whole = whole_of(spark, frame, data)
    moments = sorted({row[place] for row in whole if row[place] is not None})
    every = [START_US + minutes * MINUTE for minutes in range(-30, 240, 5)]
    longest = longest_session(program, data)
    reach = {name: each.with_sessions(longest) for name, each in found.sources.items()}
    cuts = []
    for _ in range(CUTS):
        moment = (
            st.sampled_from(moments or every)
            if draw.draw(st.integers(0, 4))
            else st.sampled_from(every)
        )
        first = draw.draw(moment)
        length = draw.draw(st.sampled_from((0, 0, 0, 5 * MINUTE - 1, 30 * MINUTE)))
        cuts.append(Cut(first, first + length, draw.draw(st.integers(0, 3)) == 0))
    tried = [(cut, reach) for cut in cuts]
    for cut, expected, given_rows in results_of_cuts(spark, frame, column, data, whole, tried):
        assert given_rows == expected, (cut, reach)


_PLACES = {"t": 1, "u": 2}


def whole_of(spark: SparkSession, frame: DataFrame, data: Mapping[str, list[Row]]) -> list[Result]:
    """The results of all rows."""
    over = over_batch(frame, lambda source: batch(spark, data[source]))
    return [tuple(row)[1:] for row in numbers(over, 0).collect()]


def results_of_cuts(
    spark: SparkSession,
    frame: DataFrame,
    column: str,
    data: Mapping[str, list[Row]],
    whole: list[Result],
    cuts: list[tuple[Cut, Mapping[str, Reach]]],
) -> Iterator[tuple[Cut, Counter[Result], Counter[Result]]]:
    """For each cut its results, of all rows and of those that it reads by what is said of them."""
    place = _PLACES[column]

    def read(cut: Cut, reach: Mapping[str, Reach], name: str) -> list[Row]:
        return [row for row in data[name] if name in reach and cut.reads(row, reach[name])]

    frames = [
        numbers(
            over_batch(
                frame, lambda source, cut=cut, reach=reach: batch(spark, read(cut, reach, source))
            ),
            number,
        )
        for number, (cut, reach) in enumerate(cuts)
    ]
    results = [tuple(row) for row in reduce(DataFrame.union, frames).collect()]
    for number, (cut, _) in enumerate(cuts):
        expected, given_rows = (
            Counter(
                row
                for row in some
                if row[place] is not None and cut.first <= row[place] <= cut.last
            )
            for some in (whole, [row[1:] for row in results if row[0] == number])
        )
        yield cut, expected, given_rows


def batch(spark: SparkSession, rows: list[Row]) -> DataFrame:
    numbers = spark.createDataFrame(rows, "k int, t long, u long, x long, arrived long")
    times = {name: F.timestamp_micros(name) for name in ("t", "u", "arrived")}
    return numbers.withColumns(times)
