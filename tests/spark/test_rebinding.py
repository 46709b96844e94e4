"""A captured plan over the rows of a batch, and what is observed within it."""

from collections import Counter
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from captured_streams import Read, streams
from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backfill.runtime.batch.null_keys import with_null_keys
from backfill.runtime.batch.rebind_plan import rebind
from backfill.runtime.catalyst import analyzed, column_of, elements, kind_of, observed, observing

SCHEMAS = {"events": "k int, t timestamp"}
ROWS = "(1, timestamp'2024-01-01 00:00'), (1, timestamp'2024-01-01 00:07'), (2, timestamp'2024-01-01 00:20')"


def rows_of(spark: SparkSession, rows: str = ROWS) -> DataFrame:
    return spark.sql(f"select k, t from values {rows} as rows(k, t)")


def test_what_a_node_hands_on_is_observed_by_each_run_of_its_own(spark: SparkSession) -> None:
    events = streams(spark, SCHEMAS)("events").withWatermark("t", "1 minute")
    windows = events.groupBy(F.window("t", "10 minutes")).agg(F.count("*").alias("n"))
    frame = windows.where("window.start >= '2024-01-01 00:10'").union(windows.where("n > 9"))
    seen: list[str] = []

    def above(node: JavaObject, bound: JavaObject) -> JavaObject:
        seen.append(kind_of(node))
        if seen[-1] not in {"Aggregate", "EventTimeWatermark"}:
            return bound
        first = column_of(spark, elements(bound.output())[-1])
        metrics = (F.count("*").alias("rows"), F.max(first).alias("most"))
        return observing(spark, bound, f"{seen[-1]} {len(seen)}", *metrics)

    runs = []
    for rows in (ROWS, "(3, timestamp'2024-01-01 00:11')"):
        seen.clear()
        result = rebind(analyzed(frame), spark, lambda *_, rows=rows: rows_of(spark, rows), above)
        counts = [row.n for row in result.collect()]
        runs.append((counts, [each["rows"] for _, each in sorted(observed(result).items())]))
    assert runs == [([1], [2, 2, 3, 3]), ([1], [1, 1, 1, 1])]
    assert seen[0] == "EventTimeWatermark"
    assert seen[-1] == "Union"


def test_rows_of_whose_keys_none_is_within_the_delay_before_them_are_kept(
    spark: SparkSession,
) -> None:
    """By what rows of the key there are, whether those were kept themselves or not."""
    events = streams(spark, {"events": "k int, s struct<a: double>, t timestamp, x int"})("events")
    late = events.withWatermark("t", "10 minutes").select("x", F.col("t").alias("at"), "s", "k")
    frame = late.dropDuplicatesWithinWatermark(["k", "s"])
    random = np.random.default_rng(11)
    rows = [
        (
            [None, 1, 2][int(random.integers(0, 3))],
            None if random.integers(0, 3) else (float(random.integers(0, 2)),),
            None if number % 40 == 0 else int(random.integers(0, 400)) * 60,
            number,
        )
        for number in range(300)
    ]
    numbers = spark.createDataFrame(rows, "k int, s struct<a: double>, t long, x int")
    kept = rebind(
        analyzed(frame), spark, lambda *_: numbers.withColumn("t", F.timestamp_seconds("t"))
    )
    assert kept.columns == ["x", "at", "s", "k"]
    times: dict[tuple[Any, ...], set[int | None]] = {}
    for k, s, t, _ in rows:
        times.setdefault((k, s), set()).add(t)
    expected = Counter(
        (k, s, t)
        for (k, s), every in times.items()
        for t in every
        if t is None or not any(each in every for each in range(t - 600, t))
    )
    given = kept.select("k", "s.a", F.unix_seconds("at")).collect()
    assert Counter((k, None if a is None else (a,), t) for k, a, t in given) == expected
    assert any(t is None for _, _, t in expected)
    assert len(rows) / 4 < expected.total() < len(rows)


def test_a_delay_of_a_day_has_24_hours_when_clocks_change(
    spark: SparkSession, in_zone: Callable[[str], None]
) -> None:
    events = streams(spark, SCHEMAS)("events").withWatermark("t", "1 day")
    frame = events.dropDuplicatesWithinWatermark(["k"])
    # a day of Berlin has 25 hours then, or 23
    autumn = "(1, timestamp'2026-10-24 12:00:00Z'), (1, timestamp'2026-10-25 12:30:00Z')"
    spring = "(2, timestamp'2026-03-28 12:00:00Z'), (2, timestamp'2026-03-29 11:30:00Z')"
    in_zone("Europe/Berlin")
    kept = rebind(analyzed(frame), spark, lambda *_: rows_of(spark, f"{autumn}, {spring}"))
    assert Counter(row.k for row in kept.collect()) == {1: 2, 2: 1}


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_casts_of_times_are_free_where_they_change_only_the_type(
    spark: SparkSession, in_zone: Callable[[str], None], zone: str
) -> None:
    in_zone(zone)
    columns = (
        F.col("n").cast("timestamp").alias("there"),
        F.struct(F.col("t").cast("timestamp_ntz").alias("back"), F.col("k")).alias("row"),
    )
    rows = spark.sql(
        "select nullif(k, 0) as k, n, t from values (1, timestamp_ntz'2026-03-08 02:30:00.000001',"
        " timestamp'2026-11-01 06:30:00Z'), (2, null, timestamp'1200-02-29 00:00:00Z'),"
        " (3, timestamp_ntz'9999-12-31 23:59:59.999999', null) as rows(k, n, t)"
    )
    frame = streams(spark, {"events": "k int, n timestamp_ntz, t timestamp"})("events")
    result, plain = (
        rebind(analyzed(frame.select(*columns)), spark, lambda *_: rows),
        rows.select(*columns),
    )
    assert result.schema == plain.schema
    as_text = [F.col(name).cast("string") for name in result.columns]
    assert Counter(result.select(*as_text).collect()) == Counter(plain.select(*as_text).collect())
    values = [each.child() for each in elements(analyzed(result).expressions())]
    kinds = [kind_of(values[0]), kind_of(elements(values[1].children())[1])]
    assert ("Cast" in kinds) == (zone != "UTC")


_JOINS = (
    ("inner", "date_trunc('hour', u) = date_trunc('hour', u2)", "true"),
    ("inner", "nullif(k + 1, 2) = nullif(k2 + 1, 2) and k + 2 = k2 + 2", "true"),
    ("inner", "if(x > 5, k, null) = if(x2 > 5, k2, null) and k = k2", "true"),
    ("left", "k = nullif(k2, 1)", "true"),
    ("left", "k = nullif(k2, 1)", "x2 > 2"),
    ("right", "nullif(k, 1) = k2", "true"),
    ("full", "(k = k2 and x > 5) or (x2 > 5 and k2 = k)", "true"),
    ("full", "k = k2", "x > 2"),
)
"""Their types, keys, and conditions above, by which Spark makes other joins of outer ones."""


def joined_by_nullable_keys(read: Read) -> DataFrame:
    """The rows that joins give, with the number of the join."""
    left = read("events").withWatermark("t", "1 minute")
    right = read("events").withWatermark("t", "1 minute")
    right = right.select(*(F.col(name).alias(f"{name}2") for name in right.columns))
    near = "t2 between t - interval 1 hour and t + interval 1 hour"
    joins = [
        left.join(right, F.expr(f"{near} and ({keys})"), how)
        .where(above)
        .select(F.lit(number).alias("n"), "x", "x2")
        for number, (how, keys, above) in enumerate(_JOINS)
    ]
    return reduce(DataFrame.union, joins)


def test_keys_that_are_null_match_where_those_of_a_stream_do(
    spark: SparkSession, tmp_path: Path, small_jobs: Callable[[str, str], None]
) -> None:
    schema = "k int, t timestamp, u timestamp, x int"
    rows = spark.sql(
        "select nullif(cast(id % 4 as int), 3) as k,"
        " timestamp'2024-01-01 00:00' + make_interval(0, 0, 0, 0, 0, id) as t,"
        " if(id % 3 = 0, null, timestamp'2024-01-01 00:00' + make_interval(0, 0, 0, 0, id)) as u,"
        " cast(id as int) as x from range(12)"
    )
    rows.coalesce(1).write.parquet(str(tmp_path / "rows"))
    stream = joined_by_nullable_keys(
        lambda _: spark.readStream.schema(schema).parquet(str(tmp_path / "rows"))
    )
    query = (
        stream.writeStream.format("memory")
        .queryName("pairs_of_stream")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    def pairs(frame: DataFrame) -> Counter[tuple[Any, ...]]:
        """Without rows that match nothing, which the stream would give later."""
        return Counter(row for row in map(tuple, frame.collect()) if None not in row)

    expected = pairs(spark.table("pairs_of_stream"))
    captured = joined_by_nullable_keys(streams(spark, {"events": schema}))
    assert {n for n, _, _ in expected} == set(range(len(_JOINS)))
    plan = with_null_keys(analyzed(captured), spark)
    assert pairs(rebind(plan, spark, lambda *_: rows)) == expected
