"""What a query leaves open, counted in its state: with it, what was given out is all that the same
program gives in batch.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backfill.api.spec import Window
from backfill.runtime.queries.logical_plan import closing_delay_us
from backfill.runtime.queries.open_at_end import open_results
from backfill.runtime.queries.result_times import shape
from backfill.runtime.queries.tracker import OpenResults

MIDNIGHT = datetime(2024, 1, 1, tzinfo=UTC)
SCHEMA = {"left": "k int, t timestamp", "right": "k2 int, t2 timestamp"}
NEAR = "k = k2 and t2 between t - interval 10 minutes and t + interval 10 minutes"
Program = Callable[[DataFrame, DataFrame], DataFrame]


def left_outer(left: DataFrame, right: DataFrame) -> DataFrame:
    joined = left.join(right, F.expr(NEAR), "left_outer")
    return joined.select(F.col("t").alias("at"), "t2", F.expr("t + interval 1 hour as h"))


def full_outer(left: DataFrame, right: DataFrame) -> DataFrame:
    joined = left.join(right, F.expr(NEAR), "full_outer")
    return joined.select(
        F.coalesce("t", "t2").alias("at"), "t", F.greatest("t", "t2").alias("later")
    )


def sliding(left: DataFrame, right: DataFrame) -> DataFrame:
    counts = left.union(right).groupBy(F.window("t", "30 minutes", "10 minutes").alias("w")).count()
    times = (
        F.col("w.start").alias("start"),
        F.col("w.end").alias("end"),
        F.col("w.end").cast("long").alias("seconds"),
    )
    return counts.select(*times, F.date_trunc("hour", "w.start").alias("hour"))


def sessions(left: DataFrame, right: DataFrame) -> DataFrame:
    parity = F.expr("k % 2").alias("parity")
    return (
        left.groupBy(F.session_window("t", "11 minutes").alias("s"), parity)
        .count()
        .select("s.start", "s.end")
    )


def windows_of_windows(left: DataFrame, right: DataFrame) -> DataFrame:
    counts = left.groupBy(F.window("t", "5 minutes")).count()
    return counts.groupBy(F.window("window", "20 minutes")).count().select("window.start")


def windows_after_an_outer_join(left: DataFrame, right: DataFrame) -> DataFrame:
    return (
        left_outer(left, right)
        .select("at")
        .groupBy(F.window("at", "10 minutes"))
        .count()
        .select("window.start", "count")
    )


def united_windows(left: DataFrame, right: DataFrame) -> DataFrame:
    counts = (
        left.groupBy(F.window("t", "10 minutes")).count().select(F.col("window.start").alias("at"))
    )
    return counts.union(
        left.groupBy(F.window("t", "20 minutes")).count().select(F.col("window.end").alias("at"))
    )


@dataclass(frozen=True)
class Expected:
    """What is known of a program's open results, by the column that is their time."""

    exact: tuple[str, ...] = ()
    at_least: tuple[str, ...] = ()
    """Counted, with those of each of several aggregations."""
    unknown: tuple[str, ...] = ()


PROGRAMS: dict[Program, Expected] = {
    left_outer: Expected(exact=("at", "t2"), unknown=("h",)),
    full_outer: Expected(exact=("at", "t"), unknown=("later",)),
    sliding: Expected(exact=("start", "end", "seconds"), unknown=("hour",)),
    sessions: Expected(exact=("end",)),
    windows_of_windows: Expected(at_least=("start",)),
    windows_after_an_outer_join: Expected(unknown=("start",)),
    united_windows: Expected(unknown=("at",)),
}


class Events:
    """Two streams of an hour. The last batch has but one event, so that the watermark of the others
    takes effect.
    """

    def __init__(self, spark: SparkSession, directory: Path):
        self._spark, self._directory = spark, directory
        self._write("left", 0, [(number, 5 * number) for number in range(12)])
        self._write("left", 1, [(12, 55)])
        self._write("right", 0, [*((number, 5 * number) for number in range(0, 12, 3)), (99, 55)])

    def complete(self, program: Program) -> DataFrame:
        left, right = (
            self._spark.read.schema(SCHEMA[name]).json(self._path(name))
            for name in ("left", "right")
        )
        return program(left, right)

    def streams(self) -> tuple[DataFrame, DataFrame]:
        reader = self._spark.readStream.option("maxFilesPerTrigger", 1)
        left, right = (
            reader.schema(SCHEMA[name]).json(self._path(name)) for name in ("left", "right")
        )
        return left.withWatermark("t", "10 minutes"), right.withWatermark("t2", "10 minutes")

    def run(self, frame: DataFrame, name: str = "checkpoint") -> tuple[DataFrame, str]:
        """What a query of the frame gives out, and its checkpoint, which has a name."""
        out, checkpoint = (str(self._directory / each) for each in ("out", name))
        writer = frame.writeStream.option("path", out).option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()
        return self._spark.read.parquet(out), checkpoint

    def later(self, minute: int) -> None:
        """One more event of each stream, and another batch."""
        for number in (2, 3):
            for name in ("left", "right"):
                self._write(name, number, [(1_000 + number, minute)])

    def _path(self, name: str) -> str:
        return str(self._directory / name)

    def _write(self, name: str, number: int, rows: list[tuple[int, int]]) -> None:
        key, time = ("k", "t") if name == "left" else ("k2", "t2")
        path = self._directory / name
        path.mkdir(parents=True, exist_ok=True)
        lines = (
            json.dumps({key: k, time: f"2024-01-01T{minute // 60:02}:{minute % 60:02}:00Z"})
            for k, minute in rows
        )
        (path / f"{number}.json").write_text("\n".join(lines))


def times(frame: DataFrame) -> dict[str, list[datetime | None]]:
    """The values of a frame's columns, which are moments where they are looked at."""
    rows = frame.collect()
    moments = {}
    for column in frame.columns:
        values = [row[column] for row in rows]
        moments[column] = [
            datetime.fromtimestamp(each) if column == "seconds" else each for each in values
        ]
    return moments


def within(moments: list[datetime | None], first: int, last: int) -> int:
    start, end = (_naive(minute) for minute in (first, last))
    return sum(moment is not None and start <= moment < end for moment in moments)


def _naive(minute: int) -> datetime:
    """As Python code gets it from Spark: in this process's zone."""
    return datetime.fromtimestamp((MIDNIGHT + timedelta(minutes=minute)).timestamp())


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_no_result_of_the_window_is_missing_without_a_word(
    program: Program, spark: SparkSession, tmp_path: Path
) -> None:
    events, expected = Events(spark, tmp_path), PROGRAMS[program]
    frame = program(*events.streams())
    given, checkpoint = events.run(frame)
    all_given, complete, delay_us = (
        times(given),
        times(events.complete(program)),
        closing_delay_us(frame),
    )
    for column in (*expected.exact, *expected.at_least, *expected.unknown):
        results = shape(frame, column)
        for first, last in [(30, 60), (0, 40)] if column in expected.exact[:1] else [(30, 60)]:
            window = Window(
                start=MIDNIGHT + timedelta(minutes=first), end=MIDNIGHT + timedelta(minutes=last)
            )
            found = open_results(spark, checkpoint, window, delay_us, results)
            missing = within(complete[column], first, last) - within(all_given[column], first, last)
            case = f"{column} from {first} to {last}: {missing} missing, {found}"
            assert (found.count is None) == (column in expected.unknown), case
            if found.count is not None:
                assert found.count == missing or (
                    column in expected.at_least and found.count > missing > 0
                ), case
            assert bool(found.unknown) == (found.count is None), case


@pytest.mark.parametrize("name", ["checkpoint", "of counts, 100%25 für {all}"])
def test_the_drain_that_lets_a_window_close_is_named_with_the_first_that_is_open(
    name: str, spark: SparkSession, tmp_path: Path
) -> None:
    events = Events(spark, tmp_path)
    frame = events.streams()[0].groupBy(F.window("t", "20 minutes")).count().select("window.start")
    _, checkpoint = events.run(frame, name)
    window = Window(start=MIDNIGHT, end=MIDNIGHT + timedelta(minutes=50))
    found = open_results(spark, checkpoint, window, closing_delay_us(frame), shape(frame, "start"))
    first_us = int((MIDNIGHT + timedelta(minutes=40)).timestamp() * 1_000_000)
    assert found == OpenResults(count=1, first_us=first_us, needed_drain_seconds=20 * 60.0)


def test_the_named_drain_lets_windows_of_joined_rows_close(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark keeps rows of the join for ten minutes more, and closes windows so much later."""
    window = Window(start=MIDNIGHT, end=MIDNIGHT + timedelta(minutes=50))
    drains, left_open = set(), []
    for minutes in (20, 21):
        events = Events(spark, tmp_path / f"{minutes}")
        left, right = events.streams()
        joined = left.join(right, F.expr(NEAR))
        frame = joined.groupBy(F.window("t2", "10 minutes")).count().select("window.start")
        delay_us, results = closing_delay_us(frame), shape(frame, "start")
        _, checkpoint = events.run(frame)
        before = open_results(spark, checkpoint, window, delay_us, results)
        assert before.needed_drain_seconds is not None
        drains.add(round(before.needed_drain_seconds))
        events.later(50 + minutes)
        events.run(frame)
        left_open.append(open_results(spark, checkpoint, window, delay_us, results).count)
    assert drains == {20 * 60}
    assert left_open[0]
    assert left_open[1] == 0
