"""What the operators of a stream keep, program by program: of which source, for how long before the
watermark, and how many entries for each row.
"""

import math
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from captured_streams import Read, streams
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backfill.runtime.batch.state_rows import kept_rows
from backfill.runtime.batch.time_reach import Unbounded

SCHEMAS = {
    "l": "k int, t timestamp, n timestamp_ntz, name string, wide array<int>",
    "r": "k2 int, t2 timestamp, v2 int",
}
MINUTE = 60_000_000
NEAR = "k = k2 and t2 between t and t + interval 30 minutes"
FOREVER = math.inf
Program = Callable[[Read], DataFrame]


def left(read: Read) -> DataFrame:
    return read("l").withWatermark("t", "10 minutes")


def right(read: Read) -> DataFrame:
    return read("r").withWatermark("t2", "5 minutes")


def windows(*sizes: str) -> Program:
    return lambda read: left(read).groupBy(F.window("t", *sizes), "k").count()


def join(condition: str, how: str = "inner") -> Program:
    return lambda read: left(read).join(right(read), F.expr(condition), how)


def filtered_after_the_join(read: Read) -> DataFrame:
    joined = left(read).join(right(read), F.expr("k = k2"))
    return joined.where("t2 between t and t + interval 30 minutes")


def join_of_windows(read: Read) -> DataFrame:
    mine = left(read).groupBy(F.window("t", "20 minutes"), "k").count()
    other = right(read).groupBy(F.window("t2", "20 minutes"), "k2").count()
    return mine.join(other, "window")


def windows_of_windows(read: Read) -> DataFrame:
    small = left(read).groupBy(F.window("t", "5 minutes"), "k").count()
    return small.groupBy(F.window("window", "20 minutes")).count()


def windows_of_a_join(read: Read) -> DataFrame:
    return join(NEAR)(read).groupBy(F.window("t", "20 minutes")).count()


def sessions(read: Read) -> DataFrame:
    return left(read).groupBy(F.session_window("t", "30 minutes"), "k").count()


def lists(read: Read) -> DataFrame:
    return left(read).groupBy(F.window("t", "5 minutes")).agg(F.collect_list("k"))


def exploded(read: Read) -> DataFrame:
    rows = left(read).select("t", F.explode("wide").alias("k"))
    return rows.groupBy(F.window("t", "5 minutes")).count()


def copied(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def own_state(read: Read) -> DataFrame:
    def counted(key: object, frames: object, state: object) -> Iterator[object]:
        yield from ()

    grouped = left(read).groupBy("k")
    return grouped.applyInPandasWithState(counted, "k int", "n int", "append", "NoTimeout")


@pytest.mark.parametrize(
    ("name", "program", "expected"),
    [
        ("no state", lambda read: left(read).where("k > 1"), []),
        ("windows until they end", windows("20 minutes"), [("l", 20, 1)]),
        ("sliding windows: a row is in four", windows("20 minutes", "5 minutes"), [("l", 20, 4)]),
        ("sessions for their gap", sessions, [("l", 30, 1)]),
        ("windows of windows", windows_of_windows, [("l", 5, 1), ("l", 25, 1)]),
        ("keys with their time", lambda read: left(read).dropDuplicates(["k", "t"]), [("l", 0, 1)]),
        ("distinct rows", lambda read: left(read).select("k", "t").distinct(), [("l", 0, 1)]),
        (
            "keys within the watermark",
            lambda read: left(read).dropDuplicatesWithinWatermark(["k"]),
            [("l", 10, 1)],
        ),
        ("one side waits for what comes later", join(NEAR), [("l", 30, 1), ("r", 0, 1)]),
        ("an outer join", join(NEAR, "left_outer"), [("l", 30, 1), ("r", 0, 1)]),
        ("a condition after the join", filtered_after_the_join, [("l", 30, 1), ("r", 0, 1)]),
        ("the same time", join("k = k2 and t = t2"), [("l", 0, 1), ("r", 0, 1)]),
        ("no bound on one side", join("k = k2 and t2 > t"), [("l", FOREVER, 1), ("r", 0, 1)]),
        ("no bound at all", join("k = k2"), [("l", FOREVER, 1), ("r", FOREVER, 1)]),
        (
            "a join of windows",
            join_of_windows,
            [("l", 20, 1), ("r", 20, 1), ("l", 20, 1), ("r", 20, 1)],
        ),
        (
            "more than one result of a join for each row",
            windows_of_a_join,
            [("l", 30, 1), ("r", 0, 1), ("l", 20, FOREVER), ("r", 20, FOREVER)],
        ),
        ("rows made of lists", exploded, [("l", 5, FOREVER)]),
        (
            "rows made in Python",
            lambda read: (
                left(read)
                .mapInArrow(copied, left(read).schema)
                .groupBy(F.window("t", "5 minutes"))
                .count()
            ),
            "Aggregate",
        ),
        ("the program's own state", own_state, "keeps user-defined state"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_kept(
    spark: SparkSession, name: str, program: Program, expected: list[tuple[str, float, float]] | str
) -> None:
    found = kept_rows(program(streams(spark, SCHEMAS)), {})
    if isinstance(expected, str):
        assert isinstance(found, Unbounded)
        assert expected in found.reason, name
        return
    assert not isinstance(found, Unbounded), found.reason
    rounded = [(each.source, round(each.since_us / MINUTE, 3), each.copies) for each in found]
    assert rounded == expected, name


@pytest.mark.parametrize(
    ("name", "program", "finite"),
    [
        ("numbers", windows("20 minutes"), True),
        ("lists of what was there", lists, False),
        ("columns that nobody uses", lambda read: join(NEAR)(read).select("t"), True),
        ("columns of any length", join(NEAR), False),
    ],
)
def test_entries_of_any_length_have_no_known_size(
    spark: SparkSession, name: str, program: Program, finite: bool
) -> None:
    found = kept_rows(program(streams(spark, SCHEMAS)), {})
    assert not isinstance(found, Unbounded), found.reason
    assert all(math.isfinite(each.entry_bytes) for each in found) == finite, name
