"""Spans read the rows that their results depend on, whenever they arrived: their results are those
of a stream and of all rows at once.
"""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from batch_runs import (
    COLUMNS,
    DELAY_US,
    HOURS,
    START,
    START_US,
    BatchRun,
    Events,
    staged,
)
from captured_streams import Read, streams
from planned_sources import Backfill, committed, wait
from pyiceberg.catalog import Catalog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backfill.runtime.batch import measure_arrivals
from backfill.runtime.batch.arrival_cells import cells_of_tasks
from backfill.runtime.batch.span_runner import SpanRunner
from backfill.runtime.catalyst import analyzed, kind_of, nodes_of, pruned
from backfill.runtime.queries.run_state import FINISHED
from backfill.runtime.source.source_frame import source_frame
from backfill.runtime.spark_versions import to_arrow
from cases import cases
from histories import HOUR_US, MINUTE_US, UTC_TIME
from waiting import eventually

Program = Callable[[DataFrame], DataFrame]
Rows = list[tuple[Any, ...]]
COUNTED = """
    SELECT time_bucket(INTERVAL 10 MINUTES, t) AS at, k, count(*) AS rows, sum(id)::BIGINT AS ids
    FROM events GROUP BY ALL
"""
FOLLOWED = """
    SELECT e.t AS at, e.k, o.id AS rows, e.id AS ids FROM events e LEFT JOIN others o
    ON e.k = o.k AND o.t >= e.t - INTERVAL 20 MINUTES AND o.t < e.t
"""


@pytest.fixture
def lake(lake_of_workers: Catalog) -> Catalog:
    return lake_of_workers


@pytest.fixture
def events(lake: Catalog, tmp_path: Path) -> Events:
    return Events(lake, tmp_path)


def plain(rows: DataFrame) -> DataFrame:
    return rows


def computed(rows: DataFrame) -> DataFrame:
    """The event time is parsed, after a table is joined and rows are taken apart and united."""
    kinds = rows.sparkSession.createDataFrame([(0,), (1,), (2,)], "k long").distinct()
    parsed = rows.select(
        "id", "k", F.timestamp_seconds(F.col("said").cast("decimal(20,3)")).alias("t")
    )
    joined = F.broadcast(kinds).join(parsed, "k").where("id >= 0")
    apart = (
        joined.withColumn("half", F.explode(F.array(F.lit(0)))).select("id", "k", "t").alias("a")
    )
    return apart.where("id % 2 = 0").union(apart.where("id % 2 = 1").repartition(2))


def hidden(rows: DataFrame) -> DataFrame:
    named = rows.select("id", "k", "t")
    return named.mapInArrow(lambda batches: batches, named.schema)


def counted(rows: DataFrame) -> DataFrame:
    return by_windows(rows.withWatermark("t", "30 minutes"))


def by_windows(timed: DataFrame) -> DataFrame:
    windows = timed.groupBy(F.window("t", "10 minutes"), "k")
    found = windows.agg(F.count("*").alias("rows"), F.sum("id").alias("ids"))
    return found.select(F.col("window.start").alias("at"), "k", "rows", "ids")


def followed(rows: DataFrame, others: DataFrame) -> DataFrame:
    left = rows.select("id", "k", "t").withWatermark("t", "30 minutes")
    right = others.selectExpr("id AS id2", "k AS k2", "t AS t2").withWatermark("t2", "10 minutes")
    near = F.expr("k = k2 AND t2 >= t - INTERVAL 20 MINUTES AND t2 < t")
    return left.join(right, near, "leftOuter").selectExpr(
        "t AS at", "k", "id2 AS rows", "id AS ids"
    )


def streamed(spark: SparkSession, backfill: Backfill, frame: DataFrame) -> pa.Table:
    """What Spark's own streaming gives of it."""
    query = backfill.start(frame)
    steps = backfill.header.steps
    backfill.release(steps)
    wait(lambda: committed(query) > steps, query)
    backfill.stop()
    return to_arrow(backfill.results(spark))


def rows_of(table: pa.Table) -> Rows:
    """Those of the window."""
    columns = (table[name].cast(kind).to_pylist() for name, kind in COLUMNS.items())
    end = START + timedelta(hours=HOURS)
    return sorted((row for row in zip(*columns, strict=True) if START <= row[0] < end), key=str)


def by_duckdb(statement: str, events: Events, others: Events | None = None) -> Rows:
    """What it gives of all rows at once but those that arrived before any is read."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for each in (events, others):
            if each is not None:
                read = each.rows.filter(pc.field("at") >= pa.scalar(START, UTC_TIME))
                connection.register(each.name, read)
        return rows_of(connection.execute(statement).to_arrow_table())


def by_spans(
    lake: Catalog,
    events: Events,
    backfill: Backfill,
    frame: DataFrame,
    *,
    complete: bool = False,
) -> tuple[Rows, BatchRun, SpanRunner]:
    run = BatchRun(backfill)
    runner = run.prepared(frame, events.results, "at", complete=complete)
    assert run.finish(runner) is None
    assert len(runner._spans) > 2
    return rows_of(staged(lake, events.results)), run, runner


def steps_done(run: BatchRun) -> int:
    (query,) = run.run.tracker.queries
    return query.sources[0].committed


def lags_behind(events: Events) -> None:
    """Rows are uploaded two hours later."""
    events.arrived = events.arrived + 2 * HOUR_US


def stands_still(events: Events) -> None:
    """Ingestion stands still for five hours and then catches up within a quarter of an hour."""
    start, end = START_US + 10 * HOUR_US, START_US + 15 * HOUR_US
    held = (events.arrived >= start) & (events.arrived < end)
    events.arrived[held] = end + (events.arrived[held] - start) // 20


def comes_hourly(events: Events) -> None:
    """Rows are uploaded at the end of each hour."""
    hour = (events.happened - START_US) // HOUR_US
    events.arrived = START_US + (hour + 1) * HOUR_US + events.happened % 1000


def is_ahead(events: Events) -> None:
    """The clocks of those who send the rows are fast."""
    events.arrived = events.happened - 40 * MINUTE_US


def lags_more_and_more(events: Events) -> None:
    events.arrived = events.happened + (events.happened - START_US) // 10


@pytest.mark.parametrize(
    ("arrive", "stream"),
    [
        (lags_behind, False),
        (stands_still, True),
        (comes_hourly, False),
        (is_ahead, True),
        (lags_more_and_more, False),
    ],
)
def test_spans_give_what_a_stream_gives_of_rows_that_arrive_at_other_times(
    spark: SparkSession,
    lake: Catalog,
    events: Events,
    arrive: Callable[[Events], None],
    stream: bool,
) -> None:
    """A stream drops none of these rows, so that it gives what DuckDB does: tried where ingestion
    stood still and where clocks are ahead.
    """
    arrive(events)
    backfill = events.planned(drain="8h", allowedLateness="1m")
    frame = counted(plain(source_frame(spark, backfill.settings, "events")))
    given, run, _ = by_spans(lake, events, backfill, frame)
    expected = by_duckdb(COUNTED, events)
    assert given == expected
    if stream:
        assert rows_of(streamed(spark, backfill, frame)) == expected
    (query,) = run.run.tracker.queries
    assert (query.arrived_late, query.open_at_end) == (0, 0)


@pytest.mark.parametrize("arrive", [lags_behind, stands_still])
def test_event_times_may_be_computed_by_the_program(
    spark: SparkSession, lake: Catalog, events: Events, arrive: Callable[[Events], None]
) -> None:
    arrive(events)
    backfill = events.planned(drain="8h", allowedLateness="1m")
    frame = counted(computed(source_frame(spark, backfill.settings, "events")))
    given, _, _ = by_spans(lake, events, backfill, frame)
    assert given == by_duckdb(COUNTED, events)


def test_sessions_are_those_of_a_stream(spark: SparkSession, lake: Catalog, events: Events) -> None:
    stands_still(events)
    backfill = events.planned("2h", drain="12h", allowedLateness="1m")
    rows = source_frame(spark, backfill.settings, "events").withWatermark("t", "30 minutes")
    sessions = rows.groupBy(F.session_window("t", "4 minutes").alias("w"), "k")
    found = sessions.agg(F.count("*").alias("rows"), F.sum("id").alias("ids"))
    frame = found.select(F.col("w.start").alias("at"), "k", "rows", "ids")
    given, _, _ = by_spans(lake, events, backfill, frame)
    assert given == rows_of(streamed(spark, backfill, frame))


@pytest.mark.parametrize("arrive", [lags_behind, stands_still, is_ahead])
def test_each_source_is_read_when_its_rows_arrived(
    spark: SparkSession, lake: Catalog, events: Events, arrive: Callable[[Events], None]
) -> None:
    others = Events(lake, events.directory, name="others")
    others.happened = others.happened[::-1].copy()
    others.arrived = others.happened + MINUTE_US
    arrive(others)
    backfill = events.planned("2h", others, drain="8h", allowedLateness="1m")
    frame = followed(
        *(source_frame(spark, backfill.settings, name) for name in ("events", "others"))
    )
    given, _, _ = by_spans(lake, events, backfill, frame)
    assert given == by_duckdb(FOLLOWED, events, others)


@pytest.mark.parametrize("program", [plain, computed])
def test_rows_that_a_stream_drops_are_counted_once(
    spark: SparkSession, lake: Catalog, events: Events, program: Program
) -> None:
    late = events.some(20)
    events.arrived[late] = events.happened[late] + DELAY_US + 5 * HOUR_US
    backfill = events.planned("20m", drain="8h", allowedLateness="1m")
    frame = counted(program(source_frame(spark, backfill.settings, "events")))
    given, run, runner = by_spans(lake, events, backfill, frame)
    assert run.run.tracker.queries[0].arrived_late == late.sum()
    every = {row[:2]: row[2] for row in by_duckdb(COUNTED, events)}
    events.ids, events.happened = events.ids[~late], events.happened[~late]
    events.arrived = events.arrived[~late]
    punctual = {row[:2]: row[2] for row in by_duckdb(COUNTED, events)}
    counts = {row[:2]: row[2] for row in given}
    assert punctual.keys() <= counts.keys() <= every.keys()
    assert all(punctual.get(key, 0) <= rows <= every[key] for key, rows in counts.items())
    read_ahead = [span.read_end - span.steps.stop for span in runner._spans[:-1]]
    assert max(read_ahead) < 8, "stragglers are not looked for"


def united_with_rows(rows: DataFrame) -> DataFrame:
    """The rows themselves meet no state."""
    timed = rows.select("id", "k", "t").withWatermark("t", "30 minutes")
    windows = by_windows(timed).where("rows < 0")
    return windows.union(timed.selectExpr("t AS at", "k", "id AS rows", "id AS ids"))


def joined_by_a_later_time(rows: DataFrame) -> DataFrame:
    timed = rows.withWatermark("t", "30 minutes")
    left = timed.selectExpr("id", "k", "t + INTERVAL 1 SECOND AS a")
    right = timed.selectExpr("id AS id2", "k AS k2", "t + INTERVAL 1 SECOND AS b")
    near = F.expr("k = k2 AND b >= a - INTERVAL 20 MINUTES AND b < a")
    return left.join(right, near).selectExpr("a AS at", "k", "id2 AS rows", "id AS ids")


ROWS = "SELECT t AS at, k, id AS rows, id AS ids FROM events"
LATER = FOLLOWED.replace("LEFT JOIN others o", "JOIN events o").replace(
    "e.t AS at", "e.t + INTERVAL 1 SECOND AS at"
)


@pytest.mark.parametrize(
    ("program", "statement", "complete"),
    [
        (united_with_rows, ROWS, False),
        (joined_by_a_later_time, LATER, False),
        (counted, COUNTED, True),
    ],
)
def test_rows_that_a_stream_keeps_however_late_are_looked_for(
    lake: Catalog,
    spark: SparkSession,
    events: Events,
    program: Program,
    statement: str,
    complete: bool,
) -> None:
    """Spark's streams gave the same: they drop late rows only at state by the event time, and none
    in output mode complete.
    """
    late = events.some(20)
    events.arrived[late] = events.happened[late] + DELAY_US + 5 * HOUR_US
    backfill = events.planned("20m", drain="8h", allowedLateness="1m")
    frame = program(source_frame(spark, backfill.settings, "events"))
    given, run, _ = by_spans(lake, events, backfill, frame, complete=complete)
    assert given == by_duckdb(statement, events)
    assert run.run.tracker.queries[0].arrived_late == 0


def test_a_clock_that_is_years_ahead_changes_no_other_result(
    spark: SparkSession, lake: Catalog, events: Events
) -> None:
    events.happened[100] += 5 * 365 * 24 * HOUR_US
    backfill = events.planned("20m", allowedLateness="1m")
    frame = counted(source_frame(spark, backfill.settings, "events"))
    given, run, _ = by_spans(lake, events, backfill, frame)
    assert given == by_duckdb(COUNTED, events)
    assert run.run.tracker.queries[0].arrived_late == 0


def test_results_that_lagging_rows_may_still_change_are_left_open(
    spark: SparkSession, lake: Catalog, events: Events
) -> None:
    lags_behind(events)
    backfill = events.planned(drain="1h", allowedLateness="1m")
    frame = counted(source_frame(spark, backfill.settings, "events"))
    given, run, _ = by_spans(lake, events, backfill, frame)
    every = set(by_duckdb(COUNTED, events))
    assert set(given) < every, "no window lacks rows"
    assert set(rows_of(streamed(spark, backfill, frame))) <= set(given)
    (query,) = run.run.tracker.queries
    assert query.open_at_end
    # until the end of the window, and then until its last row has arrived
    complete_us = 10 * MINUTE_US + (events.arrived - events.happened).max()
    assert query.look_ahead_seconds == pytest.approx(complete_us / 1e6, abs=60)
    assert query.needed_drain_seconds == pytest.approx(complete_us / 1e6, abs=60)
    again = BatchRun(backfill)
    assert again.finish(again.prepared(frame, events.results, "at")) is None
    (repeated,) = again.run.tracker.queries
    assert repeated.open_at_end == query.open_at_end, "the branch knows how many"
    assert repeated.needed_drain_seconds is None, "it has read nothing that would tell"


def test_rows_whose_arrival_a_function_of_the_program_hides_are_named(
    spark: SparkSession, lake: Catalog, events: Events, caplog: pytest.LogCaptureFixture
) -> None:
    backfill = events.planned(allowedLateness="1m")
    frame = counted(hidden(source_frame(spark, backfill.settings, "events")))
    given, _, _ = by_spans(lake, events, backfill, frame)
    assert given == by_duckdb(COUNTED, events)
    assert "rows of events arrive, on which results of the query results depend" in caplog.text
    assert "they pass MapInArrow" in caplog.text


def test_rows_that_a_filter_drops_make_no_other_row_late(
    spark: SparkSession, lake: Catalog, events: Events
) -> None:
    """Spark filters before it notes event times, so that the watermark goes by what is left."""
    events.arrived[events.ids % 3 < 2] += 9 * HOUR_US
    backfill = events.planned(drain="10h", allowedLateness="1m")
    timed = source_frame(spark, backfill.settings, "events").withWatermark("t", "30 minutes")
    timed.createOrReplaceTempView("timed")
    some = timed.where("k = 0").select("id", "k", "t")
    frame = by_windows(some.union(spark.sql("SELECT id, k, t FROM timed WHERE k = 1")))
    given, run, _ = by_spans(lake, events, backfill, frame)
    expected = [row for row in by_duckdb(COUNTED, events) if row[1] < 2]
    assert given == expected
    assert rows_of(streamed(spark, backfill, frame)) == expected
    assert run.run.tracker.queries[0].arrived_late == 0


def joined_with_itself(rows: DataFrame) -> DataFrame:
    """Rows without a key match nothing."""
    return joined_by_key(rows.selectExpr("id", "nullif(k, 2) AS k", "t"))


def joined_by_key(rows: DataFrame) -> DataFrame:
    left = rows.withWatermark("t", "30 minutes")
    right = left.selectExpr("id AS id2", "k AS k2", "t AS t2")
    near = F.expr("k = k2 AND t2 >= t - INTERVAL 20 MINUTES AND t2 < t")
    return left.join(right, near).selectExpr("t AS at", "k", "id2 AS rows", "id AS ids")


def joined_if_kept(rows: DataFrame) -> DataFrame:
    """A condition on the other side makes an inner join of an outer one."""
    left = rows.selectExpr("id", "nullif(k, 2) AS k", "t").withWatermark("t", "30 minutes")
    right = left.selectExpr("id AS id2", "k AS k2", "t AS t2")
    near = F.expr("k = k2 AND t2 >= t - INTERVAL 20 MINUTES AND t2 < t")
    joined = left.join(right, near, "left").where("id2 >= 0")
    return joined.selectExpr("t AS at", "k", "id2 AS rows", "id AS ids")


def joined_by_both(rows: DataFrame, condition: str) -> DataFrame:
    """What follows from a condition on both sides leaves rows out on each."""
    left = rows.select("id", "k", "t").withWatermark("t", "30 minutes")
    right = left.selectExpr("id AS id2", "k AS k2", "t AS t2")
    near = "k = k2 AND t2 >= t - INTERVAL 20 MINUTES AND t2 < t"
    joined = left.join(right, F.expr(f"{near} AND ({condition})"))
    return joined.selectExpr("t AS at", "k", "id2 AS rows", "id AS ids")


def joined_by_either(rows: DataFrame) -> DataFrame:
    either = "id % 3 = 0 AND id2 % 3 = 0 OR id % 3 = 1 AND id2 % 3 = 1"
    return joined_by_both(rows, either)


def joined_by_neither(rows: DataFrame) -> DataFrame:
    return joined_by_both(rows, "NOT (id % 3 = 2 OR id2 % 3 = 2)")


def with_a_table(rows: DataFrame) -> DataFrame:
    timed = rows.selectExpr("id", "nullif(k, 2) AS k", "t").withWatermark("t", "30 minutes")
    return by_windows(timed.join(rows.sparkSession.range(3).toDF("k"), "k"))


def exploded(rows: DataFrame) -> DataFrame:
    """Rows without elements give nothing."""
    timed = rows.selectExpr("id", "k", "t", "if(k = 2, array(), array(k)) AS ks")
    each = timed.withWatermark("t", "30 minutes").select("*", F.explode("ks").alias("each"))
    return by_windows(each)


JOINED = FOLLOWED.replace("LEFT JOIN others o", "JOIN events o") + " WHERE e.k < 2"
SOME = COUNTED.replace("FROM events", "FROM events WHERE k < 2")


@pytest.mark.parametrize(
    ("program", "statement"),
    [
        (joined_with_itself, JOINED),
        (joined_if_kept, JOINED),
        (joined_by_either, JOINED),
        (joined_by_neither, JOINED),
        (with_a_table, SOME),
        (exploded, SOME),
    ],
)
def test_rows_that_nothing_can_come_of_make_no_other_row_late(
    spark: SparkSession, lake: Catalog, events: Events, program: Program, statement: str
) -> None:
    """Spark infers conditions, such as that keys are not null, and filters before watermarks."""
    events.arrived[events.ids % 3 < 2] += 9 * HOUR_US
    backfill = events.planned(drain="10h", allowedLateness="1m")
    frame = program(source_frame(spark, backfill.settings, "events"))
    given, run, _ = by_spans(lake, events, backfill, frame)
    assert given == by_duckdb(statement, events)
    assert run.run.tracker.queries[0].arrived_late == 0


def test_rows_without_a_key_are_left_out_where_they_are_read(
    spark: SparkSession, lake: Catalog, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys that are columns: rows without one arrive at once, the others hours later."""

    def by_spark(*_: object) -> NoReturn:
        raise AssertionError("rows pass through Spark to be measured")

    monkeypatch.setattr(measure_arrivals, "_cells_by_spark", by_spark)
    events.without_key = events.ids[events.ids % 3 == 2]
    events.arrived[events.ids % 3 < 2] += 9 * HOUR_US
    backfill = events.planned(drain="10h", allowedLateness="1m")
    rows = source_frame(spark, backfill.settings, "events").select("id", "k", "t")
    given, run, _ = by_spans(lake, events, backfill, joined_by_key(rows))
    assert given == by_duckdb(JOINED, events)
    assert run.run.tracker.queries[0].arrived_late == 0


WATERMARKS: dict[str, tuple[Callable[[Read], DataFrame], int]] = {
    "read twice": (lambda read: timed(read).union(timed(read)), 1),
    "read twice with a filter": (
        lambda read: timed(read).where("k > 1").union(timed(read).where("k > 1")),
        1,
    ),
    "joined with itself by other columns": (
        lambda read: (same := timed(read)).join(
            same.selectExpr("k AS k2", "t AS t2"), F.expr("k = k2 AND t2 BETWEEN t AND t + INTERVAL 1 HOUR")
        ),
        1,
    ),
    "other rows": (lambda read: timed(read).where("k > 1").union(timed(read)), 2),
    "other sources": (lambda read: timed(read).union(timed(read, "others")), 2),
    "another delay": (lambda read: timed(read).union(timed(read, delay="1 minute")), 2),
    "another time": (
        lambda read: timed(read).union(
            read("events").selectExpr("id", "k", "at AS t").withWatermark("t", "30 minutes")
        ),
        2,
    ),
}  # fmt: skip


def timed(read: Read, source: str = "events", delay: str = "30 minutes") -> DataFrame:
    return read(source).select("id", "k", "t").withWatermark("t", delay)


@cases(("program", "number"), WATERMARKS)
def test_watermarks_of_the_same_rows_are_measured_once(
    spark: SparkSession, program: Callable[[Read], DataFrame], number: int
) -> None:
    columns = "id long, k long, t timestamp, at timestamp"
    read = streams(spark, dict.fromkeys(("events", "others"), columns))
    nodes = nodes_of(pruned(analyzed(program(read)), spark))
    watermarks = [node for node in nodes if kind_of(node) == "EventTimeWatermark"]
    assert len(watermarks) == 2
    assert measure_arrivals.without_copies(watermarks, spark) == watermarks[:number]


def test_the_driver_is_given_each_cell_once(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many tasks have rows in it: those of a long history would not fit."""
    tasks = spark.range(0, 4_000, 1, 8).selectExpr(
        "id % 5 AS arrival_cell",
        "id % 2 AS lag_cell",
        "id AS first_arrival",
        "id + 1 AS last_arrival",
        "id - 9 AS first_event",
        "id - 1 AS last_event",
        "id % 100 AS greatest_lag",
        "2L AS rows",
    )
    given: list[pa.Table] = []
    to_arrow = type(tasks).toArrow

    def collected(frame: DataFrame) -> pa.Table:
        given.append(to_arrow(frame))
        return given[-1]

    monkeypatch.setattr(type(tasks), "toArrow", collected)
    found = cells_of_tasks(tasks)
    assert [each.num_rows for each in given] == [10]
    assert found.rows.tolist() == [800] * 10
    for number in range(10):
        least = int(found.first_arrival[number])
        greatest = int(found.last_arrival[number]) - 1
        assert (least, greatest) == (least % 10, 3_990 + least)
        assert (found.first_event[number], found.last_event[number]) == (least - 9, greatest - 1)
        assert found.greatest_lag[number] == 90 + least


def test_every_attempt_reads_the_same(spark: SparkSession, lake: Catalog, events: Events) -> None:
    """Also where rows are late, of which results have those that a span happens to read."""
    late = events.some(20)
    events.arrived[late] = events.happened[late] + DELAY_US + 3 * HOUR_US
    backfill = events.planned("20m", drain="8h", allowedLateness="1m")
    frame = counted(source_frame(spark, backfill.settings, "events"))
    expected, _, whole = by_spans(lake, events, backfill, frame)
    again = f"{events.results}_again"
    lake.create_table(f"raw.{again}", pa.schema(COLUMNS))
    first = BatchRun(backfill)
    begun = first.prepared(frame, again, "at")
    first.run.release(whole._spans[0].read_end)
    begun.start()
    eventually(lambda: steps_done(first) == whole._spans[0].steps.stop, "committed")
    first.run.end(FINISHED)
    second = BatchRun(backfill)
    runner = second.prepared(frame, again, "at")
    assert second.finish(runner) is None
    assert runner._spans == whole._spans[1:]
    assert rows_of(staged(lake, again)) == expected


def test_a_clock_that_is_hours_ahead_costs_only_the_span_that_it_is_about(
    spark: SparkSession, lake: Catalog, events: Events
) -> None:
    (one,) = np.flatnonzero(events.some(1) & (events.happened > START_US + 5 * HOUR_US))[:1]
    events.happened[one] = START_US + 20 * HOUR_US
    events.arrived[one] = START_US + 6 * HOUR_US
    backfill = events.planned("20m", allowedLateness="1m")
    frame = counted(source_frame(spark, backfill.settings, "events"))
    given, run, runner = by_spans(lake, events, backfill, frame)
    assert given == by_duckdb(COUNTED, events)
    assert run.run.tracker.queries[0].arrived_late == 0
    far = [len(span.reads["events"]) > len(span.steps) + 20 for span in runner._spans]
    assert far.count(True) == 1


def test_rows_without_a_time_and_sources_without_rows_change_nothing(
    spark: SparkSession, lake: Catalog, events: Events
) -> None:
    lags_behind(events)
    others = Events(lake, events.directory, name="others")
    others.happened = others.happened - 100 * HOUR_US
    others.arrived = others.happened
    backfill = events.planned("20m", others, drain="8h", allowedLateness="1m")
    read = (source_frame(spark, backfill.settings, name) for name in ("events", "others"))
    timed = (
        rows.withColumn("t", F.when(F.col("id") % 7 != 0, F.col("t"))).withWatermark(
            "t", "30 minutes"
        )
        for rows in read
    )
    one, other = timed
    frame = by_windows(one.union(other))
    given, _, _ = by_spans(lake, events, backfill, frame)
    assert given == by_duckdb(COUNTED.replace("events", "events WHERE id % 7 <> 0"), events)


def test_joins_are_those_of_batch_jobs_unless_they_are_configured(
    spark: SparkSession, events: Events
) -> None:
    """A stream's shuffles have a part for each core, which is too much for one task."""
    backfill = events.planned()
    parts, advised = (
        f"spark.sql.adaptive.{name}"
        for name in ("coalescePartitions.initialPartitionNum", "advisoryPartitionSizeInBytes")
    )
    frame = counted(source_frame(spark, backfill.settings, "events"))
    by_default = BatchRun(backfill).prepared(frame, events.results, "at")._work._session
    spark.conf.set(advised, "8MB")
    try:
        asked = BatchRun(backfill).prepared(frame, events.results, "at")._work._session
    finally:
        spark.conf.unset(advised)
    cores = backfill.header.inputs.parallelism
    assert [each.conf.get(parts) for each in (by_default, asked)] == [str(16 * cores)] * 2
    assert [each.conf.get(advised) for each in (by_default, asked)] == ["32MB", "8MB"]
    assert spark.conf.get(parts, None) is None
