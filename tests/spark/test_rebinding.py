"""A captured plan over the rows of a batch, and what is observed within it."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from captured_streams import streams
from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backfill.runtime.batch.rebind import rebind
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
        "select * from values (1, timestamp_ntz'2026-03-08 02:30:00.000001',"
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
