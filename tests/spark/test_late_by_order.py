"""A stream whose watermark waits for less time than its plan reads rows out of order."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backfill.runtime.batch.batch_or_stream import order_warnings
from backfill.runtime.queries.logical_plan import late_after_us

Program = Callable[[DataFrame, DataFrame], DataFrame]
MINUTE_US = 60_000_000


def windows(rows: DataFrame, _: DataFrame) -> DataFrame:
    return rows.withWatermark("t", "1 minute").groupBy(F.window("t", "1 hour")).count()


def distinct(rows: DataFrame, _: DataFrame) -> DataFrame:
    return rows.withWatermark("t", "2 minutes").dropDuplicates(["k", "t"])


def joined(rows: DataFrame, others: DataFrame) -> DataFrame:
    others = others.withColumnsRenamed({"k": "k2", "t": "t2"}).withWatermark("t2", "3 minutes")
    near = F.expr("k = k2 and t between t2 and t2 + interval 1 hour")
    return rows.withWatermark("t", "20 minutes").join(others, near)


def by_key(rows: DataFrame, _: DataFrame) -> DataFrame:
    return rows.withWatermark("t", "1 minute").groupBy("k").count()


def sessions(rows: DataFrame, _: DataFrame) -> DataFrame:
    return rows.withWatermark("t", "5 minutes").groupBy(F.session_window("t", "1 hour")).count()


def _grouped(rows: DataFrame, timeout: str) -> DataFrame:
    def each(key: Any, batches: Any, state: Any) -> Any:
        yield from batches

    keyed = rows.withWatermark("t", "5 minutes").groupBy("k")
    return keyed.applyInPandasWithState(each, "k long, t timestamp", "n long", "append", timeout)


def grouped_state(rows: DataFrame, _: DataFrame) -> DataFrame:
    return _grouped(rows, "NoTimeout")


def timed_state(rows: DataFrame, _: DataFrame) -> DataFrame:
    return _grouped(rows, "EventTimeTimeout")


def stateless(rows: DataFrame, _: DataFrame) -> DataFrame:
    return rows.withWatermark("t", "1 minute").where("k > 1")


def with_a_table(rows: DataFrame, _: DataFrame) -> DataFrame:
    names = rows.sparkSession.range(3).withColumnRenamed("id", "k")
    return rows.withWatermark("t", "1 minute").join(names, "k")


def without_a_watermark(rows: DataFrame, _: DataFrame) -> DataFrame:
    return rows.groupBy("k").count()


@pytest.mark.parametrize(
    ("program", "minutes"),
    [
        (windows, 1),
        (distinct, 2),
        (joined, 20),
        (by_key, None),
        (sessions, 5),
        (grouped_state, None),
        (timed_state, 5),
        (stateless, None),
        (with_a_table, None),
        (without_a_watermark, None),
    ],
)
def test_rows_may_be_dropped_after_the_longest_delay_where_a_query_keeps_rows(
    program: Program, minutes: int | None, spark: SparkSession
) -> None:
    rows, others = (
        spark.readStream.format("rate").load().selectExpr("value as k", "timestamp as t")
        for _ in range(2)
    )
    frame = program(rows, others)
    expected = None if minutes is None else minutes * MINUTE_US
    assert late_after_us(frame, "append") == expected
    assert late_after_us(frame, "complete") is None
    said = {
        disorder: order_warnings(frame, "append", _header(disorder))
        for disorder in (0, MINUTE_US, 40 * MINUTE_US)
    }
    assert not said[0]
    assert not said[MINUTE_US], "rows that are as late as the watermark waits are kept"
    assert bool(said[40 * MINUTE_US]) == (minutes is not None)
    for warning in said[40 * MINUTE_US]:
        assert f"delay of {minutes}m is shorter than the 40m by which the plan reads" in warning
        assert f"allowedLateness to less than {minutes}m" in warning


def _header(disorder_us: int) -> Any:
    return SimpleNamespace(proof=SimpleNamespace(greatest_disorder_us=disorder_us))
