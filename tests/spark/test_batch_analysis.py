"""What is computed of a query's look-back and look-ahead, and what is refused, program by
program.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from captured_streams import Read, streams
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.window import Window

from backfill.runtime.batch import look_back
from backfill.runtime.batch.look_back import KnownRows, analyze
from backfill.runtime.batch.time_expressions import ColumnKey
from backfill.runtime.batch.time_reach import Bounded, Reach, TimeRange, Unbounded
from backfill.runtime.queries.logical_plan import drops_within_watermark

SCHEMAS = {
    "l": "k int, t timestamp, n timestamp_ntz, v int, u timestamp, m struct<at: timestamp>",
    "r": "k2 int, t2 timestamp, v2 int, s string",
}
SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
DELAY = 10 * MINUTE
NEAR = "k = k2 and t2 between t and t + interval 30 minutes"


@dataclass(frozen=True)
class Streams:
    """What programs read."""

    spark: SparkSession
    read: Read

    @property
    def left(self) -> DataFrame:
        return self.read("l").withWatermark("t", "10 minutes")

    @property
    def right(self) -> DataFrame:
        return self.read("r").withWatermark("t2", "5 minutes")

    @property
    def table(self) -> DataFrame:
        return self.spark.range(5).selectExpr("cast(id as int) as k", "'x' as name")


Program = Callable[[Streams], DataFrame]


@dataclass(frozen=True)
class Case:
    """A program, the column that dates its results, and what is said of it: by source how far back
    and ahead in microseconds, or words of the reason.
    """

    name: str
    program: Program
    column: str | None
    expected: dict[str, tuple[int, int]] | str
    sessions: dict[str, tuple[int, int]] = field(default_factory=dict)
    """How many sessions must be added."""
    zone: str = "UTC"


def windows(of: str = "t", *sizes: str) -> Program:
    return lambda s: s.left.groupBy(F.window(of, *sizes), "k").count().select("window.*", "k")


def joined(on: str, how: str = "inner") -> Program:
    return lambda s: s.left.join(s.right, F.expr(on), how)


def grouped_by(expression: str) -> Program:
    return lambda s: s.left.groupBy(F.expr(expression).alias("g")).count()


def stateless(step: Callable[[DataFrame], DataFrame]) -> Program:
    return lambda s: step(s.left)


def sessions(gap: str = "'5 minutes'") -> Program:
    return lambda s: (
        s.left.groupBy("k", F.session_window("t", F.expr(gap)).alias("w")).count().select("w.*")
    )


def distinct_sessions(s: Streams) -> DataFrame:
    visits = s.left.groupBy("k", F.session_window("t", "5 minutes").alias("w")).count()
    visits.createOrReplaceTempView("analysis_visits")
    return s.spark.sql("SELECT DISTINCT w FROM analysis_visits")


def of_windows(s: Streams) -> DataFrame:
    return s.left.groupBy(F.window("t", "5 minutes"), "k").count()


def chained(s: Streams) -> DataFrame:
    counted = of_windows(s).groupBy(F.window(F.window_time("window"), "20 minutes"))
    return counted.agg(F.max("count")).select("window.*")


def chained_twice(s: Streams) -> DataFrame:
    once = of_windows(s).groupBy(F.window("window", "20 minutes")).count()
    return once.groupBy(F.window("window", "1 hour")).count().select("window.*")


def join_of_windows(how: str = "inner") -> Program:
    def program(s: Streams) -> DataFrame:
        windows = s.right.groupBy(F.window("t2", "5 minutes"), F.col("k2").alias("k"))
        return of_windows(s).join(windows.agg(F.sum("v2")), ["window", "k"], how).select("window.*")

    return program


def join_of_structures(s: Streams) -> DataFrame:
    """Rows without a time match each other, whenever they happened."""
    left = s.left.withColumn("at", F.expr("struct(if(v > 1, t, null) AS x, k)"))
    right = s.right.withColumn("at2", F.expr("struct(if(v2 > 1, t2, null) AS x, k2)"))
    return left.join(right, F.expr("at = at2"))


def windows_of_a_join(s: Streams) -> DataFrame:
    return joined(NEAR)(s).groupBy(F.window("t2", "10 minutes")).count().select("window.*")


def extremes(s: Streams) -> DataFrame:
    return s.left.groupBy(F.window("t", "10 minutes")).agg(
        F.min("t").alias("first"),
        F.max("t").alias("last"),
        (F.max("t") + F.expr("interval 1 minute")).alias("later"),
        F.max("u").alias("other"),
        F.any_value("t").alias("any"),
        F.max_by("t", "v").alias("best"),
        F.avg("v").alias("mean"),
    )


def extreme_of_a_session(function: str) -> Program:
    def program(s: Streams) -> DataFrame:
        visits = s.left.groupBy("k", F.session_window("t", "5 minutes"))
        return visits.agg(F.expr(function).alias("at"), F.count("*").alias("n"))

    return program


def latest(function: str) -> Program:
    def program(s: Streams) -> DataFrame:
        groups = s.left.groupBy(F.window("t", "10 minutes"))
        return groups.agg(F.expr(f"1 + {function}(v)").alias("x")).select("window.*", "x")

    return program


def cube(s: Streams) -> DataFrame:
    return (
        s.left.cube(F.window("t", "10 minutes"), "k")
        .agg(F.min("t").alias("first"))
        .select("window.*", "first")
    )


def union(s: Streams) -> DataFrame:
    early = s.left.select("k", "t")
    late = s.right.selectExpr("k2", "t2 + interval 7 minutes")
    return early.union(late).groupBy(F.window("t", "10 minutes")).count().select("window.*")


def union_of_structures(*names: str) -> Program:
    """Their fields are united by position, whatever they are called."""

    def program(s: Streams) -> DataFrame:
        time, later = F.col("t"), F.expr("t + interval 1 hour")
        left = s.left.select(F.struct(time.alias("a"), later.alias("b")).alias("w"))
        time, later = F.col("t2"), F.expr("t2 + interval 1 hour")
        right = s.right.select(F.struct(*map(Column.alias, (time, later), names)).alias("w"))
        return left.union(right).groupBy(F.date_trunc("hour", "w.a").alias("at")).count()

    return program


def fields_of_the_same_name(s: Streams) -> DataFrame:
    pairs = s.left.select(F.expr("named_struct('a', t + interval 1 hour, 'a', t) AS w"))
    return pairs.select("w.*").toDF("x", "y").groupBy("x").count()


def union_with_missing_times(s: Streams) -> DataFrame:
    counted = of_windows(s).select(F.col("window.start").alias("at"))
    return counted.unionByName(s.right.select("k2"), allowMissingColumns=True)


def self_join(s: Streams) -> DataFrame:
    other = s.left.select(F.col("k").alias("k2"), F.col("t").alias("t2"))
    return s.left.join(other, F.expr("k = k2 and t2 > t and t2 < t + interval 1 hour"))


def three_joins(s: Streams) -> DataFrame:
    third = s.read("r").withWatermark("t2", "1 minute").selectExpr("k2 as k3", "t2 as t3")
    return joined(NEAR)(s).join(
        third, F.expr("k3 = k and t3 between t2 and t2 + interval 10 minutes")
    )


def filtered_join(s: Streams) -> DataFrame:
    return s.left.join(s.right, F.expr("k = k2")).where("t2 - t <= interval 20 minutes and t2 >= t")


def within_a_window(s: Streams) -> DataFrame:
    return of_windows(s).join(s.right, F.expr("k = k2 and t2 >= window.start and t2 < window.end"))


def sql(s: Streams) -> DataFrame:
    s.left.createOrReplaceTempView("analysis_left")
    return s.spark.sql(
        "with x as (select k, t from analysis_left where v > 1)"
        " select window.start as at, count(*) from x group by window(t, '10 minutes'), k"
    )


def sql_union_distinct(s: Streams) -> DataFrame:
    s.left.createOrReplaceTempView("analysis_left")
    s.right.createOrReplaceTempView("analysis_right")
    return s.spark.sql("select k, t from analysis_left union select k2, t2 from analysis_right")


def derived_before_the_watermark(s: Streams) -> DataFrame:
    hours = s.read("l").withColumn("hour", F.date_trunc("hour", "t")).withWatermark("t", "1 hour")
    return hours.groupBy("hour").count()


def sometimes_timed(s: Streams) -> DataFrame:
    """Rows may have their other times without an event time."""
    at = F.when(F.col("v") > 1, F.col("t"))
    rows = s.read("l").withColumns({"at": at, "later": F.col("t") + F.expr("interval 1 hour")})
    return rows.withWatermark("at", "1 minute").dropDuplicates(["at", "t", "later"])


def timed_by_what_is_there(s: Streams) -> DataFrame:
    at = F.col("t") - F.expr("interval 1 hour")
    rows = s.read("l").withColumns({"at": at, "hour": F.date_trunc("hour", "t")})
    return rows.withWatermark("at", "1 minute").dropDuplicates(["hour", "t"])


def parsed(s: Streams) -> DataFrame:
    value = F.from_json("s", "at timestamp, id int").alias("value")
    rows = s.read("r").select(value).select("value.*").withWatermark("at", "1 minute")
    return rows.groupBy(F.window("at", "10 minutes")).count().select("window.*")


def exploded(s: Streams) -> DataFrame:
    rows = s.left.select("t", F.explode(F.sequence(F.lit(0), "v")).alias("x"))
    return rows.groupBy(F.window("t", "10 minutes"), "x").count().select("window.*")


def with_a_table(s: Streams) -> DataFrame:
    named = s.left.join(F.broadcast(s.table), "k", "left").where(F.col("name") != "y")
    return named.groupBy(F.window("t", "10 minutes"), "name").count().select("window.*")


def in_a_table(s: Streams) -> DataFrame:
    s.left.createOrReplaceTempView("analysis_left")
    s.table.createOrReplaceTempView("analysis_table")
    return s.spark.sql("select t from analysis_left where k in (select k from analysis_table)")


def on_its_part(condition: str) -> Program:
    """Rows by a condition that has a subquery on their own part of a table."""

    def program(s: Streams) -> DataFrame:
        s.left.createOrReplaceTempView("analysis_left")
        s.table.createOrReplaceTempView("analysis_table")
        rows = s.spark.sql(f"SELECT t FROM analysis_left l WHERE {condition}")
        return rows.groupBy(F.window("t", "10 minutes")).count().select("window.*")

    return program


def copied(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def python_rows(s: Streams) -> DataFrame:
    rows = s.read("l").mapInArrow(copied, "k int, at timestamp").withWatermark("at", "1 minute")
    return rows.groupBy(F.window("at", "10 minutes")).count().select("window.*")


def python_rows_lose_the_time(s: Streams) -> DataFrame:
    rows = s.left.mapInArrow(copied, "k int, at timestamp")
    return rows.groupBy(F.window("at", "10 minutes")).count().select("window.*")


def python_function(s: Streams) -> DataFrame:
    double = F.udf(lambda value: value * 2, "int")
    rows = s.left.where(double("v") > 2)
    return rows.groupBy(F.window("t", "10 minutes"), double("k")).count().select("window.*")


def timed_by_python(s: Streams) -> DataFrame:
    rows = s.left.withColumn("x", F.udf(lambda at: at, "timestamp")("t"))
    return rows.groupBy("x").count()


class Counting(StatefulProcessor):
    def init(self, handle: object) -> None: ...

    def handleInputRows(self, key: object, rows: object, timers: object) -> Iterator[object]:
        yield from ()

    def close(self) -> None: ...


def own_state(s: Streams) -> DataFrame:
    grouped = s.left.groupBy("k")
    return grouped.transformWithStateInPandas(Counting(), "k int, t timestamp", "append", "None")


def own_state_by_key(s: Streams) -> DataFrame:
    def counted(key: object, frames: object, state: object) -> Iterator[object]:
        yield from ()

    return s.left.groupBy("k").applyInPandasWithState(
        counted, "k int, t timestamp", "n int", "append", "NoTimeout"
    )


def within_watermark(s: Streams) -> DataFrame:
    return s.left.select("k", "t", "u").dropDuplicatesWithinWatermark(["k"])


def null_groups(s: Streams) -> DataFrame:
    """A group without a key has rows of all times."""
    hours = s.left.withColumn("hour", F.when(F.col("v") > 1, F.date_trunc("hour", "t")))
    return hours.groupBy("hour").agg(F.min("t").alias("first"))


def other_stream(s: Streams) -> DataFrame:
    return s.spark.readStream.format("rate").load()


SLIDING = ("20 minutes", "5 minutes")
BOTH = {"l": (0, 0)}
CASES = [
    # windows: [start, end)
    Case("window by start", windows("t", "10 minutes"), "start", {"l": (0, 10 * MINUTE - 1)}),
    Case("window in another case", windows("t", "10 minutes"), "Start", {"l": (0, 10 * MINUTE - 1)}),
    Case("field in another case", of_windows, "Window.START", {"l": (0, 5 * MINUTE - 1)}),
    Case("window by end", windows("t", "10 minutes"), "end", {"l": (10 * MINUTE, -1)}),
    Case("sliding by start", windows("t", *SLIDING), "start", {"l": (0, 20 * MINUTE - 1)}),
    Case("sliding by end", windows("t", *SLIDING), "end", {"l": (20 * MINUTE, -1)}),
    Case("sliding unevenly", windows("t", "10 minutes", "3 minutes"), "start", {"l": (0, 10 * MINUTE - 1)}),
    Case("window with an offset", windows("t", "10 minutes", "10 minutes", "3 minutes"), "start", {"l": (0, 10 * MINUTE - 1)}),
    Case("window of a shifted time", lambda s: windows("x", "10 minutes")(Shifted(s)), "start", {"l": (5 * MINUTE, 5 * MINUTE - 1)}),
    Case("windows of a cube", cube, "start", {"l": (0, 10 * MINUTE - 1)}),
    Case("extreme of a cube", cube, "first", "unknown how the result's first"),
    Case("chain by window_time", chained, "start", {"l": (5 * MINUTE - 1, 20 * MINUTE - 1)}),
    Case("chain by end", chained, "end", {"l": (25 * MINUTE - 1, -1)}),
    Case("chain of three", chained_twice, "start", {"l": (25 * MINUTE - 2, HOUR - 1)}),
    Case("windows within sql", sql, "at", {"l": (0, 10 * MINUTE - 1)}),
    Case("first of a window", extremes, "first", {"l": (10 * MINUTE - 1, 10 * MINUTE - 1)}),
    Case("last of a window, later", extremes, "later", {"l": (11 * MINUTE - 1, 9 * MINUTE - 1)}),
    Case("extreme of another time", extremes, "other", "unknown how the result's other"),
    Case("any of them", extremes, "any", "unknown how the result's any"),
    Case("the last to come", latest("last"), "start", "last(v) depends on the order of rows"),
    Case("the first to come", latest("first_value"), "start", "first_value(v) depends on the order of rows"),
    Case("time of the best", extremes, "best", "unknown how the result's best"),
    Case("a result that is no time", extremes, "mean", "is a double"),
    Case("no such result", extremes, "nothing", "no column nothing"),
    Case("by hour", grouped_by("date_trunc('hour', t)"), "g", {"l": (0, HOUR - 1)}),
    Case("by month", grouped_by("trunc(t, 'month')"), "g", {"l": (0, 31 * DAY - 1)}),
    Case("by day", grouped_by("to_date(t)"), "g", {"l": (0, DAY - 1)}),
    Case("by time", grouped_by("t"), "g", {"l": (0, 0)}),
    Case("by the end of an hour", grouped_by("date_trunc('hour', t) + interval 1 hour"), "g", {"l": (HOUR, -1)}),
    Case("by a month later", grouped_by("t + interval 1 month"), "g", {"l": (31 * DAY + DAY, -28 * DAY + DAY)}),
    Case("by one of two times", grouped_by("greatest(t, t - interval 1 hour)"), "g", {"l": (0, HOUR)}),
    Case("group of nulls", null_groups, "first", "unknown how the result's first"),
    Case("group of nulls by hour", null_groups, "hour", {"l": (0, HOUR - 1)}),
    # zones: the hull of all that the clocks did
    Case("by day in Berlin", grouped_by("to_date(t)"), "g", {"l": (3 * HOUR, DAY - 1 - 3208 * SECOND)}, zone="Europe/Berlin"),
    Case("by local time in Berlin", grouped_by("cast(t as timestamp_ntz)"), "g", {"l": (3 * HOUR, -3208 * SECOND)}, zone="Europe/Berlin"),
    Case("by day cut in Berlin", grouped_by("date_trunc('day', t)"), "g", {"l": (HOUR, DAY - 1 + HOUR)}, zone="Europe/Berlin"),
    Case("by hour cut in Berlin", grouped_by("date_trunc('hour', t)"), "g", {"l": (392 * SECOND, HOUR - 1 + 392 * SECOND)}, zone="Europe/Berlin"),
    Case("by hour cut where clocks change by half of one", grouped_by("date_trunc('hour', t)"), "g", {"l": (2180 * SECOND, HOUR - 1 + 2180 * SECOND)}, zone="Australia/Lord_Howe"),
    Case("by year cut in Berlin", grouped_by("date_trunc('year', t)"), "g", {"l": (3 * HOUR - 3208 * SECOND, 366 * DAY - 1 + 3 * HOUR - 3208 * SECOND)}, zone="Europe/Berlin"),
    Case("a day later in UTC", grouped_by("t + interval 1 day"), "g", {"l": (DAY, -DAY)}),
    Case("a day later in Berlin", grouped_by("t + interval 1 day"), "g", {"l": (28 * HOUR - 3208 * SECOND, -(20 * HOUR) - 3208 * SECOND)}, zone="Europe/Berlin"),
    Case("23 hours later in Berlin", grouped_by("t + interval 23 hours"), "g", {"l": (23 * HOUR, -23 * HOUR)}, zone="Europe/Berlin"),
    Case("window in Berlin", windows("t", "1 day"), "start", {"l": (0, DAY - 1)}, zone="Europe/Berlin"),
    # sessions: by start the gap is needed, the rest adapts
    Case("session by start", sessions(), "start", {"l": (5 * MINUTE, 5 * MINUTE)}, {"l": (0, 1)}),
    Case("session by end", sessions(), "end", {"l": (10 * MINUTE, 0)}, {"l": (1, 0)}),
    Case("first of a session", extreme_of_a_session("min(t)"), "at", {"l": (5 * MINUTE, 5 * MINUTE)}, {"l": (0, 1)}),
    Case("last of a session", extreme_of_a_session("max(t)"), "at", {"l": (5 * MINUTE, 5 * MINUTE)}, {"l": (1, 0)}),
    Case("first of some of a session", extreme_of_a_session("min(t) filter (where v > 1)"), "at", "unknown how the result's at depends"),
    Case("first of a session that counts", extreme_of_a_session("min(if(v > 1, t, null))"), "at", "unknown how the result's at depends"),
    Case("last of a session that counts", extreme_of_a_session("max(if(v > 1, t, null))"), "at", "unknown how the result's at depends"),
    Case("session with two gaps", sessions("if(k > 1, '1 minute', '7 minutes')"), "start", {"l": (7 * MINUTE, 7 * MINUTE)}, {"l": (0, 1)}),
    Case("session with any gap", sessions("concat(v, ' minutes')"), "start", "gap of a session window"),
    Case("distinct sessions", lambda s: sessions()(s).select(F.struct("start", "end").alias("w")).distinct(), "w.start", {"l": (5 * MINUTE, 5 * MINUTE)}, {"l": (0, 1)}),
    Case("distinct sessions, which Spark merges", distinct_sessions, "w.start", "DISTINCT of session windows merges any number of them"),
    # joins
    Case("join by left", joined(NEAR), "t", {"l": (0, 0), "r": (0, 30 * MINUTE)}),
    Case("join by right", joined(NEAR), "t2", {"l": (30 * MINUTE, 0), "r": (0, 0)}),
    Case("open bounds", joined("k = k2 and t2 > t and t2 < t + interval 1 hour"), "t", {"l": (0, 0), "r": (-1, HOUR - 1)}),
    Case("bounds before", joined("t2 <= t and t <= t2 + interval 1 hour"), "t", {"l": (0, 0), "r": (HOUR, 0)}),
    Case("the same time", joined("t = t2"), "t2", {"l": (0, 0), "r": (0, 0)}),
    Case("difference", joined("t2 - t between interval -5 minutes and interval 5 minutes"), "t", {"l": (0, 0), "r": (5 * MINUTE, 5 * MINUTE)}),
    Case("difference of seconds", joined("unix_timestamp(t2) - unix_timestamp(t) <= 60 and t2 >= t"), "t", {"l": (0, 0), "r": (0, 62 * SECOND - 2)}),
    Case("seconds", joined("cast(t2 as long) < cast(t as long) + 60 and t2 >= t"), "t", {"l": (0, 0), "r": (0, 61 * SECOND - 2)}),
    Case("left join", joined(NEAR, "left"), "t", {"l": (0, 0), "r": (0, 30 * MINUTE)}),
    Case("left join by right", joined(NEAR, "left"), "t2", {"l": (30 * MINUTE, 0), "r": (0, 0)}),
    Case("right join", joined(NEAR, "right"), "t2", {"l": (30 * MINUTE, 0), "r": (0, 0)}),
    Case("full join by either", lambda s: joined(NEAR, "full")(s).withColumn("x", F.coalesce("t", "t2")), "x", {"l": (30 * MINUTE, 0), "r": (0, 30 * MINUTE)}),
    Case("semi join", joined(NEAR, "left_semi"), "t", {"l": (0, 0), "r": (0, 30 * MINUTE)}),
    Case("anti join", joined(NEAR, "left_anti"), "t", {"l": (0, 0), "r": (0, 30 * MINUTE)}),
    Case("bounds in a filter", filtered_join, "t", {"l": (0, 0), "r": (0, 20 * MINUTE)}),
    Case("self join", self_join, "t", {"l": (0, HOUR - 1)}),
    Case("three joined", three_joins, "t", {"l": (0, 0), "r": (0, 40 * MINUTE)}),
    Case("join of windows", join_of_windows(), "start", {"l": (0, 5 * MINUTE - 1), "r": (0, 5 * MINUTE - 1)}),
    Case("full join of windows", join_of_windows("full"), "end", {"l": (5 * MINUTE, -1), "r": (5 * MINUTE, -1)}),
    Case("join within a window", within_a_window, "t2", {"l": (5 * MINUTE - 1, 5 * MINUTE - 1), "r": (0, 0)}),
    Case("windows of a join", windows_of_a_join, "start", {"l": (30 * MINUTE, 10 * MINUTE - 1), "r": (0, 10 * MINUTE - 1)}),
    Case("join one-sided", joined("k = k2 and t2 >= t"), "t", "inner join of l with r does not limit"),
    Case("join by key", joined("k = k2"), "t", "inner join of l with r does not limit"),
    Case("join structures, within which nulls are equal", join_of_structures, "t", "inner join of l with r does not limit"),
    Case("join nulls as equal", joined("t <=> t2"), "t", "inner join of l with r does not limit"),
    Case("outer join, bound in a filter", lambda s: joined("k = k2", "left")(s).where("t2 between t and t + interval 1 hour"), "t", {"l": (0, 0), "r": (0, HOUR)}),
    # duplicates
    Case("duplicates", lambda s: s.left.dropDuplicates(["k", "t"]), "t", BOTH),
    Case("duplicates by another time", lambda s: s.left.dropDuplicates(["k", "t"]), "u", "unknown how the result's u"),
    Case("duplicates of an hour", lambda s: s.left.withColumn("h", F.date_trunc("hour", "t")).dropDuplicates(["k", "h"]), "h", {"l": (0, HOUR - 1)}),
    Case("one of an hour", lambda s: s.left.withColumn("h", F.date_trunc("hour", "t")).dropDuplicates(["k", "h"]), "t", "unknown how the result's t"),
    Case("duplicates without a time", lambda s: s.left.dropDuplicates(["k"]), "t", "dropDuplicates of k has no event time"),
    Case("distinct", lambda s: s.left.select("k", "t").distinct(), "t", BOTH),
    Case("within watermark", within_watermark, "t", {"l": (10 * MINUTE, 0)}),
    Case("within watermark by another time", within_watermark, "u", "unknown how the result's u"),
    # unions
    Case("union", union, "start", {"l": (0, 10 * MINUTE - 1), "r": (7 * MINUTE, 3 * MINUTE - 1)}),
    Case("union of structures", union_of_structures("a", "b"), "at", {"l": (0, HOUR - 1), "r": (0, HOUR - 1)}),
    Case("union of structures by position", union_of_structures("b", "a"), "at", "Aggregate groups by date_trunc"),
    Case("fields of the same name", fields_of_the_same_name, "x", "Aggregate groups by x"),
    Case("union with missing times", union_with_missing_times, "at", {"l": (0, 5 * MINUTE - 1), "r": (0, 0)}),
    Case("sql's union", sql_union_distinct, "t", {"l": (0, 0), "r": (0, 0)}),
    # where the time comes from
    Case("derived before the watermark", derived_before_the_watermark, "hour", {"l": (0, HOUR - 1)}),
    Case("only where there is one", sometimes_timed, "at", BOTH),
    Case("maybe without one", sometimes_timed, "t", "unknown how the result's t depends"),
    Case("maybe without one, later", sometimes_timed, "later", "unknown how the result's later depends"),
    Case("always with one", timed_by_what_is_there, "t", {"l": (HOUR, -HOUR)}),
    Case("always with one, by hour", timed_by_what_is_there, "hour", {"l": (HOUR, -1)}),
    Case("parsed", parsed, "start", {"r": (0, 10 * MINUTE - 1)}),
    Case("exploded", exploded, "start", {"l": (0, 10 * MINUTE - 1)}),
    Case("with a table", with_a_table, "start", {"l": (0, 10 * MINUTE - 1)}),
    Case("python rows", python_rows, "start", {"l": (0, 10 * MINUTE - 1)}),
    Case("python rows lose the time", python_rows_lose_the_time, "start", "Aggregate groups by window"),
    Case("python function", python_function, "start", {"l": (0, 10 * MINUTE - 1)}),
    Case("timed by python", timed_by_python, "x", "groups by x"),
    Case("as text", grouped_by("cast(t as string)"), "g", "groups by"),
    Case("as a number", grouped_by("cast(t as long)"), "g", "groups by"),
    Case("without a watermark", lambda s: s.read("l").groupBy(F.window("t", "1 hour")).count().select("window.*"), "start", "l is read without a watermark"),
    Case("in another zone", grouped_by("from_utc_timestamp(t, 'Asia/Tokyo')"), "g", "groups by"),
    # row by row: nothing to bound
    Case("stateless", stateless(lambda f: f.where("v > 1").selectExpr("k + 1 as k", "t")), None, BOTH),
    Case("stateless by chance", stateless(lambda f: f.withColumn("x", F.rand())), None, BOTH),
    Case("stamped", stateless(lambda f: f.withColumn("x", F.current_timestamp())), None, BOTH),
    Case("stateless python", stateless(lambda f: f.mapInArrow(copied, "k int")), None, BOTH),
    Case("stateless with a table", lambda s: s.left.join(s.table, "k", "left_anti"), None, BOTH),
    Case("stateless with a subquery", in_a_table, None, BOTH),
    # not at all
    Case("a subquery on each row", on_its_part("EXISTS (SELECT 1 FROM analysis_table b WHERE b.k = l.k)"), "start", "Filter has a subquery that refers to columns outside of it"),
    Case("a value of a subquery on each row", on_its_part("v > (SELECT max(k) FROM analysis_table b WHERE b.k = l.k)"), "start", "Filter has a subquery"),
    Case("no time", windows("t", "1 hour"), None, "no timestampColumn"),
    Case("by key", grouped_by("k"), "g", "Aggregate groups by"),
    Case("all of it", lambda s: s.left.agg(F.count("*")), None, "Aggregate groups by nothing"),
    Case("limit", stateless(lambda f: f.limit(5)), "t", "Limit depends on all rows"),
    Case("sample", stateless(lambda f: f.sample(0.5)), "t", "Sample picks rows at random"),
    Case("sort", stateless(lambda f: f.sort("t")), "t", "Sort depends on all rows"),
    Case("over rows", stateless(lambda f: f.select("t", F.count("*").over(Window.partitionBy("k")))), "t", "Window is a window function"),
    Case("own state", own_state, "t", "TransformWithState"),
    Case("own state by key", own_state_by_key, "t", "FlatMapGroupsInPandasWithState keeps user-defined state"),
    Case("table's own rows", lambda s: s.table.join(s.left, "k", "left"), "t", "that no row of the stream matches"),
    Case("another stream", other_stream, "timestamp", "streams from"),
    Case("chance below", lambda s: windows("t", "1 hour")(Chance(s)), "start", "rand("),
    Case("clock below", lambda s: windows("t", "1 hour")(Clock(s)), "start", "current_timestamp"),
    Case("clock in a filter", stateless(lambda f: f.where("t > now() - interval 1 hour")), "t", "depend on when it runs"),
]  # fmt: skip


class Shifted(Streams):
    def __init__(self, streams: Streams):
        super().__init__(streams.spark, streams.read)

    @property
    def left(self) -> DataFrame:
        return super().left.withColumn("x", F.col("t") + F.expr("interval 5 minutes"))


class Chance(Shifted):
    @property
    def left(self) -> DataFrame:
        return super().left.where(F.rand() > 0.5)


class Clock(Shifted):
    @property
    def left(self) -> DataFrame:
        return super().left.withColumn("seen", F.current_timestamp())


@pytest.fixture
def sources(spark: SparkSession) -> Streams:
    return Streams(spark, streams(spark, SCHEMAS))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_results_depend_on(
    case: Case, sources: Streams, in_zone: Callable[[str], None]
) -> None:
    in_zone(case.zone)
    found = analyze(case.program(sources), case.column)
    if isinstance(case.expected, str):
        assert isinstance(found, Unbounded), found
        assert re.search(re.escape(case.expected), found.reason), found.reason
        assert found.lacks_time == (case.name == "no time")
        return
    assert isinstance(found, Bounded), found
    reach = {name: (each.back_us, each.ahead_us) for name, each in found.sources.items()}
    assert reach == case.expected, {
        name: (back / MINUTE, ahead / MINUTE) for name, (back, ahead) in reach.items()
    }
    lengths = {
        name: (each.sessions_back, each.sessions_ahead)
        for name, each in found.sources.items()
        if each.sessions_back or each.sessions_ahead
    }
    assert lengths == case.sessions
    assert found.stateless == (case.column is None)


def test_it_is_said_how_late_rows_may_arrive_and_which_column_says_when_they_happened(
    sources: Streams,
) -> None:
    near = analyze(joined(NEAR)(sources), "t")
    assert isinstance(near, Bounded)
    said = {name: (each.delay_us, each.event_column) for name, each in near.sources.items()}
    # the watermark of the query is the least of both, and drops no row of r before
    assert said == {"l": (10 * MINUTE, "t"), "r": (10 * MINUTE, "t2")}
    computed = analyze(parsed(sources), "start")
    assert isinstance(computed, Bounded)
    assert (computed.sources["r"].delay_us, computed.sources["r"].event_column) == (MINUTE, None)


def test_it_is_known_which_keys_may_recur_at_other_times(sources: Streams) -> None:
    """A stream then keeps other rows."""
    with_time = sources.left.dropDuplicatesWithinWatermark(["k", "t"])
    assert drops_within_watermark(within_watermark(sources))
    assert drops_within_watermark(
        within_watermark(sources).groupBy(F.window("t", "1 hour")).count()
    )
    assert not any(
        map(drops_within_watermark, (with_time, sources.left.dropDuplicates(["k", "t"])))
    )


def test_without_a_watermark_rows_happen_when_they_arrive(sources: Streams) -> None:
    right = sources.read("r")
    near = sources.read("l").join(
        right, F.expr("k = k2 and t2 between m.at and m.at + interval 1 hour")
    )
    assert isinstance(analyze(near, "t2"), Unbounded)
    found = analyze(near, "t2", {"l": "m.at", "r": "t2"})
    assert isinstance(found, Bounded)
    assert found.sources == {"l": Reach(HOUR, 0, 0, "m.at"), "r": Reach(0, 0, 0, "t2")}


def test_the_work_grows_with_the_columns_and_not_with_their_pairs(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table may have a thousand columns, and a program as many steps as it likes."""
    asked: list[int] = []
    gap = look_back._Rows.gap

    def counted(rows: KnownRows, first: ColumnKey, second: ColumnKey) -> TimeRange:
        asked.append(1)
        return gap(rows, first, second)

    monkeypatch.setattr(look_back._Rows, "gap", counted)

    def work(width: int) -> int:
        columns = ", ".join(f"c{number} int" for number in range(width))
        rows = streams(spark, {"l": f"t timestamp, {columns}"})("l")
        timed = rows.withWatermark("t", "1 minute").withColumn("more", F.lit(1))
        other = timed.select(*(F.col(name).alias(f"{name}2") for name in timed.columns))
        near = F.expr("c0 = c02 and t2 between t and t + interval 30 minutes")
        asked.clear()
        found = analyze(timed.union(timed).join(other, near), "t")
        assert isinstance(found, Bounded)
        assert found.sources["l"].ahead_us == 30 * MINUTE
        return len(asked)

    assert work(80) < 2.5 * work(40)
