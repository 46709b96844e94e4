"""A rule of the analysis that is wrong is noticed: with each of these, some cut of a program that
needs the rule lacks rows. It is what random programs are tried by, so that they would find it, too.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from captured_streams import Read, streams
from event_time_programs import SCHEMA, SOURCES, Pair, Program, Source, Step, run
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from test_batch_analysis_cuts import (
    MINUTE,
    START_US,
    Cut,
    Row,
    longest_session,
    results_of_cuts,
    whole_of,
)

from backfill.runtime.batch import look_back
from backfill.runtime.batch.look_back import analyze
from backfill.runtime.batch.time_expressions import Alternative, Expressions
from backfill.runtime.batch.time_reach import Bounded, Extent, Reach, TimeRange
from cases import cases

LEFT, RIGHT = Source("l", by_arrival=False), Source("r", by_arrival=False)


def half(whole: TimeRange) -> TimeRange:
    return TimeRange(
        Extent(whole.back.us / 2, whole.back.sessions),
        Extent(whole.ahead.us / 2, whole.ahead.sessions),
    )


def join_looks_half_as_far(patch: pytest.MonkeyPatch) -> None:
    right = look_back._with_other_side

    def wrong(mine: Any, other: Any, across: Any) -> Any:
        return {
            key: {
                leaf: half(each) if leaf in other.leaves else each for leaf, each in found.items()
            }
            for key, found in right(mine, other, across).items()
        }

    patch.setattr(look_back, "_with_other_side", wrong)


def outer_join_is_inner(patch: pytest.MonkeyPatch) -> None:
    right = look_back._Analysis._join

    def wrong(self: Any, node: Any, *sides: Any) -> Any:
        rows = right(self, node, *sides)
        return rows.where(self._expressions(rows).constraints(node.condition().get()))

    patch.setattr(look_back._Analysis, "_join", wrong)


def window_is_half_as_long(patch: pytest.MonkeyPatch) -> None:
    right = Expressions._window

    def wrong(self: Any, expression: Any) -> Any:
        value = right(self, expression)
        halved = {
            path: [replace(each, moved=half(each.moved)) for each in found]
            for path, found in value.alternatives.items()
        }
        return replace(value, alternatives=halved)

    patch.setattr(Expressions, "_window", wrong)


def shift_is_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        Expressions, "_shift", lambda self, each, _: self._times(each.children().apply(0))
    )


def nothing_is_null(patch: pytest.MonkeyPatch) -> None:
    def wrong(self: Alternative, moved: TimeRange, total: bool = True) -> Alternative:
        return Alternative(self.key, self.moved.then(moved), self.total)

    patch.setattr(Alternative, "then", wrong)


def one_of_several_counts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(look_back, "_hulls", lambda times: next(iter(times)))


def seen_again_at_once(patch: pytest.MonkeyPatch) -> None:
    right = look_back.event_times
    patch.setattr(look_back, "event_times", lambda node: [(time, 0) for time, _ in right(node)])


def sessions_have_no_length(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Reach, "with_sessions", lambda self, _: replace(self))


def nothing_is_late(patch: pytest.MonkeyPatch) -> None:
    right = look_back._Analysis._by_source

    def wrong(self: Any, times: Any) -> Any:
        return {name: replace(each, delay_us=0) for name, each in right(self, times).items()}

    patch.setattr(look_back._Analysis, "_by_source", wrong)


def unmatched(read: Read) -> DataFrame:
    """Rows whose other time is far away match nothing, and are results nevertheless."""
    left, right = run(LEFT, read), run(RIGHT, read)
    other = right.select(F.col("k").alias("k2"), F.col("t").alias("t2"))
    near = F.expr("k = k2 AND t2 BETWEEN t AND t + INTERVAL 5 MINUTES AND u BETWEEN t AND t")
    return left.join(other, near, "left").select("k", "t", "u", "x")


def of_some(read: Read) -> DataFrame:
    """Half of the rows have no time that they are grouped by: they are a group, too."""
    hour = F.expr("date_trunc('hour', if(x % 2 = 0, t, null))").alias("u")
    given = run(LEFT, read).groupBy(hour, "k").agg(F.max("t").alias("t"), F.count("*").alias("x"))
    return given.select("k", "t", "u", "x")


def window(below: Program, size: int = 5) -> Program:
    return Step("window", below, size, size, 0)


SHIFTED = Step("shift", RIGHT, 30, 0, 1)
WRONG: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], Program | Callable[[Read], DataFrame], str]] = {
    "join": (join_looks_half_as_far, Pair("join", LEFT, RIGHT, -30, 30, 1), "t"),
    "outer join": (outer_join_is_inner, unmatched, "u"),
    "window": (window_is_half_as_long, window(LEFT, 30), "t"),
    "shift": (shift_is_ignored, window(SHIFTED), "t"),
    "null": (nothing_is_null, of_some, "t"),
    "union": (one_of_several_counts, window(Pair("union", LEFT, SHIFTED, 0, 0, 0)), "t"),
    "within watermark": (seen_again_at_once, Step("within_watermark", LEFT, 0, 0, 0), "t"),
    "session": (sessions_have_no_length, Step("session", LEFT, 5, 0, 0), "t"),
    "late": (nothing_is_late, window(LEFT), "t"),
}  # fmt: skip


def history() -> list[Row]:
    """Three hours of both sources, each with a pause of half an hour."""
    return [
        (
            number % 2,
            time,
            (None, time - 10 * MINUTE, time)[number % 3],
            number % 7,
            time + (0, 20, 5)[number % 3] * MINUTE,
        )
        for number in range(90)
        if not 40 <= number < 55
        for time in [START_US + number * 2 * MINUTE]
    ]


@pytest.mark.usefixtures("small_jobs")
@cases(("wrong", "program", "column"), WRONG)
def test_a_wrong_rule_is_noticed(
    wrong: Callable[[pytest.MonkeyPatch], None],
    program: Program | Callable[[Read], DataFrame],
    column: str,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = program if callable(program) else partial(run, program)
    frame = made(streams(spark, dict.fromkeys(SOURCES, SCHEMA)))
    data = dict.fromkeys(SOURCES, history())
    whole = whole_of(spark, frame, data)
    longest = 0 if callable(program) else longest_session(program, data)
    place = 1 if column == "t" else 2
    moments = sorted({row[place] for row in whole if row[place] is not None})
    some = [*moments[:: -max(len(moments) // 4, 1)], START_US + 60 * MINUTE]
    cuts = [Cut(each, each, by_arrival=wrong is nothing_is_late) for each in some]

    def tried() -> list[tuple[Cut, dict[str, Reach]]]:
        found = analyze(frame, column)
        if not isinstance(found, Bounded):
            return []
        reach = {name: each.with_sessions(longest) for name, each in found.sources.items()}
        return [(cut, reach) for cut in cuts]

    right = tried()
    wrong(monkeypatch)
    both = [*right, *tried()]
    assert len(both) > len(right), "it is bounded"
    results = list(results_of_cuts(spark, frame, column, data, whole, both))
    differ = [given != expected for _, expected, given in results]
    assert not any(differ[: len(right)])
    assert any(differ[len(right) :])
