"""Session windows by spans: the results of all rows at once, however long a session is, but for
those that are still open at the end.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from captured_streams import streams
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backfill.planning.plan import PlanHeader, PlanInputs, SourceTotals
from backfill.runtime.batch.arrival_lags import StepBounds
from backfill.runtime.batch.look_back import analyze
from backfill.runtime.batch.rebind_plan import rebind
from backfill.runtime.batch.sessions import SessionQuery, SessionWatch
from backfill.runtime.batch.spans import LookAround
from backfill.runtime.batch.time_reach import Bounded, Sessions
from backfill.runtime.catalyst import analyzed, observed
from backfill.runtime.queries.tracker import OpenResults

MINUTE = 60_000_000
HOUR = 60 * MINUTE
START_US = int(datetime(2024, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
STEP, STEPS = 30 * MINUTE, 96
LATER = 6
"""Steps of rows that arrive after what the plan reads."""
WINDOW = (START_US + 2 * HOUR, START_US + 46 * HOUR)
DELAY_MINUTES = 20
SCHEMA = "k int, t timestamp, x int, arrived timestamp"
Program = Callable[[DataFrame, DataFrame], DataFrame]
Row = tuple[int | None, int, int, int]


def sessions(frame: DataFrame, gap: str = "'5 minutes'") -> DataFrame:
    return frame.groupBy(F.session_window("t", F.expr(gap)).alias("w"), "k").agg(
        F.count("*").alias("n"), F.sum("x").alias("x")
    )


def by_start(left: DataFrame, right: DataFrame) -> DataFrame:
    return sessions(left).select(
        F.col("w.start").alias("at"), F.col("w.end").alias("end"), "k", "n", "x"
    )


def by_end(left: DataFrame, right: DataFrame) -> DataFrame:
    return sessions(left).select(
        F.col("w.end").alias("at"), F.col("w.end").alias("end"), "k", "n", "x"
    )


def by_first_event(left: DataFrame, right: DataFrame) -> DataFrame:
    """As in SQL, where the window itself is not among the columns."""
    left.createOrReplaceTempView("events")
    return left.sparkSession.sql(
        """
        WITH some AS (SELECT * FROM events WHERE k IS NULL OR k < 3 OR x < 9)
        SELECT min(t) AS at, max(t) + INTERVAL 5 MINUTES AS end, k, count(*) AS n
        FROM some GROUP BY k, session_window(t, '5 minutes')
        """
    )


def by_last_event(left: DataFrame, right: DataFrame) -> DataFrame:
    last = left.groupBy("k", F.session_window("t", "5 minutes")).agg(F.max("t").alias("last"))
    return last.select(
        (F.col("last") - F.expr("interval 2 hours")).alias("at"),
        F.col("session_window.end").alias("end"),
        "k",
    )


def with_any_gap(left: DataFrame, right: DataFrame) -> DataFrame:
    gap = "case when x > 6 then '5 minutes' when x > 3 then '9 minutes' else '7 minutes' end"
    return sessions(left, gap).select(
        F.col("w.start").alias("at"), F.col("w.end").alias("end"), "k", "n"
    )


def of_two_topics(left: DataFrame, right: DataFrame) -> DataFrame:
    return by_start(left.union(right), right)


def windows_of_sessions(left: DataFrame, right: DataFrame) -> DataFrame:
    counted = sessions(left).groupBy(F.window(F.window_time("w"), "1 hour").alias("h"))
    return counted.agg(F.count("*").alias("n"), F.sum("x").alias("x")).select(
        F.col("h.start").alias("at"), "n", "x"
    )


def sessions_of_sessions(left: DataFrame, right: DataFrame) -> DataFrame:
    again = (
        sessions(left.where("k > 1"))
        .select(F.window_time("w").alias("t"), F.col("k") % 2 * 1, "n")
        .toDF("t", "k", "n")
    )
    return (
        again.groupBy(F.session_window("t", "4 minutes").alias("w"), "k")
        .agg(F.sum("n").alias("n"), F.count("*").alias("x"))
        .select(F.col("w.start").alias("at"), "k", "n", "x")
    )


def joined(left: DataFrame, right: DataFrame) -> DataFrame:
    other = right.select(F.col("k").alias("k2"), F.col("t").alias("t2"), F.col("x").alias("x2"))
    within = "k = k2 and t2 >= at - interval 10 minutes and t2 <= at + interval 10 minutes"
    return by_start(left, right).drop("end").join(other, F.expr(within), "leftOuter")


ALONE = [by_start, by_end, by_first_event, by_last_event, with_any_gap, of_two_topics]
"""Programs in which a session says whether its result is closed."""
BY_START = [by_start, by_first_event, with_any_gap, of_two_topics]
"""Those in which the session that is there all the time begins before the window."""
BELOW_STATE = [windows_of_sessions, sessions_of_sessions, joined]


@dataclass
class Past:
    """Rows of two sources, and a plan that reads them."""

    rows: dict[str, list[Row]]
    window: tuple[int, int] = WINDOW
    plan: PlanHeader = field(init=False)

    def __post_init__(self) -> None:
        inputs = PlanInputs.model_construct(
            target_step_bytes=4,
            start_us=self.window[0],
            end_us=self.window[1],
            warm_up_us=self.window[0] - START_US,
            drain_us=START_US + STEPS * STEP - self.window[1],
            allowed_lateness_us=0,
        )
        totals = tuple(
            SourceTotals.model_construct(name=name, step_bytes=(1,) * STEPS) for name in self.rows
        )
        starts = tuple(START_US + step * STEP for step in range(STEPS))
        self.plan = PlanHeader.model_construct(
            inputs=inputs, sources=totals, step_starts_us=starts, step_ends_us=starts
        )

    @property
    def bounds(self) -> dict[str, StepBounds]:
        found: dict[str, StepBounds] = {}
        for source, rows in self.rows.items():
            by_step: dict[int, list[int]] = {}
            for row in rows:
                if _step(row) < STEPS:
                    by_step.setdefault(_step(row), []).append(row[3])
            found[source] = StepBounds(
                {step: (min(times), max(times)) for step, times in by_step.items()}
            )
        return found

    def frame(self, spark: SparkSession, source: str, steps: range) -> DataFrame:
        rows = [row for row in self.rows[source] if _step(row) in steps]
        numbers = spark.createDataFrame(rows, "k int, t long, x int, arrived long")
        return numbers.withColumns({name: F.timestamp_micros(name) for name in ("t", "arrived")})


def _step(row: Row) -> int:
    return (row[3] - START_US) // STEP


@pytest.fixture(scope="module")
def past() -> Past:
    """Two days of short sessions, one of half a day and one that is there all the time. One goes on
    in rows that arrive after what the plan reads.
    """
    random = np.random.default_rng(7)
    rows: dict[str, list[Row]] = {}
    for source, count in (("left", 1000), ("right", 300)):
        rows[source] = []
        times = [
            (int(k), int(time))
            for k, time in zip(
                random.integers(2, 7, count), random.integers(0, 50 * 60, count), strict=True
            )
        ]
        if source == "left":
            times += [(0, minute) for minute in range(30, 47 * 60, 5)]
            times += [(1, minute) for minute in range(14 * 60, 27 * 60, 4)]
            times += [(2, minute) for minute in range(45 * 60, 50 * 60, 4)]
        for k, minute in times:
            at = START_US + minute * MINUTE + (int(random.integers(0, 2)) if k > 2 else 0)
            late = int(random.integers(0, DELAY_MINUTES)) * MINUTE
            if at + late < START_US + (STEPS + LATER) * STEP:
                key = None if k == 6 else k
                rows[source].append((key, at, int(random.integers(0, 10)), at + late))
    return Past(rows)


@dataclass
class Done:
    """What spans gave, one after the other."""

    rows: Counter[tuple[Any, ...]] = field(default_factory=Counter)
    tries: Counter[int] = field(default_factory=Counter)
    spans: list[Any] = field(default_factory=list)
    open_results: OpenResults | None = None


def by_spans(spark: SparkSession, past: Past, program: Program, committed: int = 0) -> Done:
    read = streams(spark, {"left": SCHEMA, "right": SCHEMA})
    delay = f"{DELAY_MINUTES} minutes"
    frame = program(*(read(name).withWatermark("t", delay) for name in ("left", "right")))
    arrival = dict.fromkeys(past.rows, "arrived")
    found = analyze(frame, "at", arrival)
    assert isinstance(found, Bounded), found
    arrives = {
        name: LookAround.of(reach, "arrived", 0).arrives for name, reach in found.sources.items()
    }
    query = SessionQuery("q", past.plan, found, arrives, past.bounds)
    watch, done, plan = SessionWatch(query, spark), Done(), analyzed(frame)
    for planned in query.spans(committed):
        while True:
            span = watch.reads(planned)
            done.tries[span.steps.start] += 1
            rows = rebind(
                plan,
                spark,
                lambda source, _, span=span: past.frame(spark, source, span.reads[source]),
                watch.above(span),
            )
            table = rows.select(F.unix_micros("at").alias("at"), *rows.columns[1:])
            given = [tuple(row) for row in table.collect()]
            seen = observed(table)
            if watch.enough(span, seen):
                break
        assert span.stretch is not None
        done.spans.append(span)
        done.rows.update(
            row for row in given if span.stretch.start_us <= row[0] < span.stretch.end_us
        )
        done.open_results = watch.open_results(span, seen)
    return done


def at_once(
    spark: SparkSession, past: Past, program: Program, steps: int = STEPS
) -> Counter[tuple[Any, ...]]:
    every = range(steps)
    rows = program(*(past.frame(spark, name, every) for name in ("left", "right")))
    table = rows.select(F.unix_micros("at").alias("at"), *rows.columns[1:])
    start_us, end_us = past.window
    return Counter(tuple(row) for row in table.collect() if start_us <= row.at < end_us)


@pytest.mark.parametrize("program", ALONE, ids=lambda program: program.__name__)
def test_spans_give_every_session_that_is_closed(
    program: Program, spark: SparkSession, past: Past
) -> None:
    done, every = by_spans(spark, past, program), at_once(spark, past, program)
    closed = (START_US + STEPS * STEP) / 1e6 - DELAY_MINUTES * 60
    left_open = Counter({row: n for row, n in every.items() if row[1].timestamp() > closed})
    assert done.rows == every - left_open
    assert len(done.spans) > 3
    assert max(done.tries.values()) > 1, "a session is longer than was thought"
    if program in BY_START:
        assert max(span.session_us for span in done.spans) < 2 * 14 * HOUR, "of another span"
    assert bool(left_open) == (program is not by_end)
    assert done.open_results is not None
    assert done.open_results.count == left_open.total()
    last = max((row[1].timestamp() for row in left_open), default=0)
    needed = last + DELAY_MINUTES * 60 - WINDOW[1] / 1e6 if last else 0
    assert done.open_results.needed_drain_seconds == pytest.approx(needed, abs=1e-6)


@pytest.mark.parametrize("drain_us", [2 * HOUR, HOUR // 2])
@pytest.mark.parametrize("program", BELOW_STATE, ids=lambda program: program.__name__)
def test_spans_give_what_depends_on_several_sessions(
    program: Program, drain_us: int, spark: SparkSession, past: Past
) -> None:
    """With a short drain, the last span has read everything before it knows of a long session."""
    past = Past(past.rows, (WINDOW[0], START_US + STEPS * STEP - drain_us))
    done = by_spans(spark, past, program)
    every = at_once(spark, past, program, STEPS + LATER)
    stretches = [span.stretch for span in done.spans]
    assert all(each.end_us == each.open_us for each in stretches[:-1])
    closed = stretches[-1].end_us
    assert done.rows == Counter({row: n for row, n in every.items() if row[0] < closed})
    assert len(done.spans) > 1
    assert max(done.tries.values()) > 1, "a session is longer than was thought"


def test_sessions_that_are_joined_with_no_row_yet_are_observed_as_well(
    spark: SparkSession, past: Past
) -> None:
    """Spark finds that there are no pairs, and does not look at the other side."""

    def while_it_lasts(left: DataFrame, right: DataFrame) -> DataFrame:
        other = right.select(F.col("k").alias("k2"), F.col("t").alias("t2"))
        return by_start(left, right).join(other, F.expr("k = k2 and t2 >= at and t2 < end"))

    at = START_US + 26 * HOUR
    past = Past({"left": past.rows["left"], "right": [(1, at, 0, at)]})
    assert by_spans(spark, past, while_it_lasts).rows == at_once(spark, past, while_it_lasts)
    assert at_once(spark, past, while_it_lasts).total() == 1


def test_a_condition_is_of_sessions_and_not_of_their_rows(spark: SparkSession, past: Past) -> None:
    long = by_spans(
        spark, past, lambda *both: by_start(*both).where("end - at > interval '12' minute")
    )
    every = by_spans(spark, past, by_start)
    expected = {row: n for row, n in every.rows.items() if _length(row).total_seconds() > 12 * 60}
    assert len(expected) > 3
    assert long.rows == Counter(expected)


def test_sessions_without_repetitions_are_not_merged(spark: SparkSession, past: Past) -> None:
    """A stream compares windows as they are. In a batch job, Spark merges sessions that overlap
    wherever rows are grouped by such a window.
    """

    edges = F.col("w.start").alias("at"), F.col("w.end").alias("end"), F.col("k")

    def of_parts(left: DataFrame) -> DataFrame:
        parts = left.groupBy(F.session_window("t", "5 minutes").alias("w"), "k", F.expr("x % 2"))
        return parts.agg(F.count("*").alias("n"))

    def visits(left: DataFrame, right: DataFrame) -> DataFrame:
        return of_parts(left).dropDuplicates(["w", "k"]).select(*edges)

    def every_part(left: DataFrame, right: DataFrame) -> DataFrame:
        return of_parts(left).select(*edges, "n")

    every = {row[:3] for row in at_once(spark, past, every_part)}
    closed = (START_US + STEPS * STEP) / 1e6 - DELAY_MINUTES * 60
    expected = Counter(row for row in every if row[1].timestamp() <= closed)
    assert by_spans(spark, past, visits).rows == expected
    assert expected.total() > at_once(spark, past, by_start).total(), "some overlap"


def _length(row: tuple[Any, ...]) -> timedelta:
    """Of a session."""
    length: timedelta = row[1] - datetime.fromtimestamp(row[0] / 1e6)
    return length


def test_it_goes_on_where_another_try_thought_sessions_to_be_shorter(
    spark: SparkSession, past: Past
) -> None:
    done = by_spans(spark, past, by_end)
    middle = done.spans[len(done.spans) // 2]
    assert middle.stretch is not None
    resumed = by_spans(spark, past, by_end, middle.steps.start)
    later = {row: n for row, n in done.rows.items() if row[0] >= middle.stretch.start_us}
    assert resumed.rows == Counter(later)
    assert resumed.open_results == done.open_results


def test_a_session_is_as_long_as_it_lasts_when_clocks_are_set_back(
    spark: SparkSession, in_zone: Callable[[str], None]
) -> None:
    in_zone("Europe/Berlin")
    times = "timestamp'2026-10-25 00:50:00Z' as start, timestamp'2026-10-25 02:15:00Z' as end"
    frame = spark.sql(f"select struct({times}) as session")
    kind, some = frame.schema["session"].dataType, cast(Any, SimpleNamespace(stretch=object()))
    longest, _ = SessionWatch._metrics(some, F.col("session"), kind, Sessions(), some)
    assert frame.select(longest).collect() == [(85 * MINUTE,)]
