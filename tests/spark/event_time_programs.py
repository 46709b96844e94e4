"""Streaming programs with state, made at random: every one gives the columns k, t, u (times) and x
(a number), and can be put below any other.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from captured_streams import Read
from hypothesis import strategies as st
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

SOURCES = ("l", "r")
SCHEMA = "k int, t timestamp, u timestamp, x long, arrived timestamp"
"""Of each source. A row arrives at most ``DELAY_MINUTES`` after ``t``, and ``u`` may be null."""
DELAY_MINUTES = 20
_MINUTES = (0, 5, 10, 15, 30)


@dataclass(frozen=True)
class Source:
    """A source with its watermark."""

    name: str
    by_arrival: bool


@dataclass(frozen=True)
class Step:
    """What is done with one program's rows."""

    what: str
    below: "Program"
    size: int
    other_size: int
    choice: int


@dataclass(frozen=True)
class Pair:
    """What is done with the rows of two programs."""

    what: str
    left: "Program"
    right: "Program"
    least: int
    length: int
    choice: int


Program = Source | Step | Pair


def programs(depth: int = 3) -> st.SearchStrategy[Program]:
    """Programs with state of at most so many steps in a row."""
    sources = st.builds(Source, st.sampled_from(SOURCES), st.booleans())
    below = sources if depth == 1 else st.one_of(sources, programs(depth - 1))
    choice = st.integers(0, 11)
    minutes = st.sampled_from(_MINUTES)
    on_sources = st.builds(
        Step, st.sampled_from(("session", "within_watermark")), sources, minutes, minutes, choice
    )
    steps = st.builds(Step, st.sampled_from(sorted(_STEPS)), below, minutes, minutes, choice)
    least = st.sampled_from((-30, -10, -5, 0, 5))
    pairs = st.builds(
        Pair, st.sampled_from(("join", "join", "union")), below, below, least, minutes, choice
    )
    return st.one_of(steps, pairs, on_sources)


def run(program: Program, read: Read) -> DataFrame:
    """The result of a program."""
    match program:
        case Source(name, by_arrival):
            delay = f"{DELAY_MINUTES} minutes"
            if by_arrival:  # the time it arrived is the event time
                rows = read(name).withWatermark("arrived", delay)
                return rows.select("k", F.col("arrived").alias("t"), "u", "x")
            return read(name).withWatermark("t", delay).select("k", "t", "u", "x")
        case Step("session", below, size, _, choice):
            return _session(run(below, read), size, choice)
        case Step("within_watermark", below, _, _, _):
            rows = run(below, read).select("k", "t").dropDuplicatesWithinWatermark(["k"])
            return rows.select("k", "t", F.col("t").alias("u"), F.lit(0).cast("long").alias("x"))
        case Step(what, below, size, other_size, choice):
            return _STEPS[what](run(below, read), size, other_size, choice)
        case Pair("union", left, right, _, _, _):
            return run(left, read).union(run(right, read))
        case Pair(_, left, right, least, length, choice):
            return _join(run(left, read), run(right, read), least, length, choice)
    raise AssertionError(program)


def parts(program: Program) -> Iterator[Program]:
    """A program and all below it."""
    yield program
    match program:
        case Step():
            yield from parts(program.below)
        case Pair():
            yield from parts(program.left)
            yield from parts(program.right)


def _interval(minutes: int) -> Column:
    return F.expr(f"interval {minutes} minutes")


def _window(frame: DataFrame, size: int, other_size: int, choice: int) -> DataFrame:
    length, slide = max(size, other_size, 5), max(min(size, other_size), 5)
    offset = f"{choice % 5} minutes"
    window = F.window("t", f"{length} minutes", f"{slide} minutes", offset)
    given = frame.groupBy(window.alias("w"), "k").agg(
        F.count("*").alias("n"),
        F.sum("x").alias("x"),
        F.min("t").alias("first"),
        F.max("t").alias("last"),
    )
    time = ("w.start", "w.end", "first", "last")[choice % 4]
    other = ("last", "first", "w.end", "w.start")[choice // 3]
    return given.select(
        "k",
        F.col(time).alias("t"),
        F.col(other).alias("u"),
        (F.col("x") * 7 + F.col("n")).alias("x"),
    )


def _calendar(frame: DataFrame, size: int, other_size: int, choice: int) -> DataFrame:
    time = (
        "date_trunc('hour', t)",
        "date_trunc('minute', t)",
        "cast(to_date(t) as timestamp)",
        "date_trunc('day', t) + interval 1 day",
        "cast(cast(t as timestamp_ntz) as timestamp)",
        "date_trunc('hour', t) + interval 1 hour",
    )[choice % 6]
    given = frame.groupBy(F.expr(time).alias("g"), "k").agg(
        F.count("*").alias("x"), (F.min if choice > 5 else F.max)("t").alias("u")
    )
    return given.select("k", F.col("g").alias("t"), "u", "x")


def _shift(frame: DataFrame, size: int, other_size: int, choice: int) -> DataFrame:
    moved = F.col("t") + _interval(size) if choice % 2 else F.col("t") - _interval(size)
    if choice > 8:
        moved = F.when(F.col("x") % 2 == 0, moved).otherwise(F.col("t"))
    return frame.select("k", moved.alias("t"), F.col("t").alias("u"), "x")


def _where(frame: DataFrame, size: int, other_size: int, choice: int) -> DataFrame:
    if choice % 2:
        return frame.where(F.col("x") % 3 != choice % 3)
    return frame.where((F.col("u") >= F.col("t")) & (F.col("u") - F.col("t") < _interval(size)))


def _either(frame: DataFrame, size: int, other_size: int, choice: int) -> DataFrame:
    name = ("greatest", "least", "coalesce")[choice % 3]
    return frame.select("k", F.expr(f"{name}(u, t)").alias("t"), F.col("t").alias("u"), "x")


def _deduplicate(frame: DataFrame, size: int, other_size: int, choice: int) -> DataFrame:
    time = "t" if choice % 2 else F.date_trunc("hour", "t").alias("t")
    kept = frame.select("k", time).dropDuplicates(["k", "t"])
    return kept.select("k", "t", F.col("t").alias("u"), F.lit(choice).cast("long").alias("x"))


def _explode(frame: DataFrame, size: int, other_size: int, choice: int) -> DataFrame:
    copies = F.explode(F.array(F.lit(1), F.col("x")))
    return frame.select("k", "t", "u", copies.alias("c")).select(
        "k", "t", "u", F.col("c").cast("long").alias("x")
    )


def _session(frame: DataFrame, size: int, choice: int) -> DataFrame:
    given = frame.groupBy("k", F.session_window("t", f"{max(size, 5)} minutes").alias("w")).agg(
        F.count("*").alias("x"), F.min("t").alias("first"), F.max("t").alias("last")
    )
    time = ("w.start", "w.end", "first", "last")[choice % 4]
    other = ("last", "first", "w.end", "w.start")[choice // 3]
    return given.select("k", F.col(time).alias("t"), F.col(other).alias("u"), "x")


def interval_join(choice: int) -> tuple[str, bool, bool, tuple[str, str]]:
    """The type of a join, whether its interval is without its first moment and with its last one,
    and the two times that it gives.
    """
    opened, closed = choice % 2 == 0, choice % 3 == 0
    how = ("inner", "left", "right", "full", "left_semi", "left_anti")[choice // 2]
    times = {
        "inner": ("t", "t2", "greatest(t, t2)", "u"),
        "left": ("t", "t2", "coalesce(t2, t)", "u"),
        "right": ("t2", "t", "coalesce(t, t2)", "u2"),
        "full": ("coalesce(t, t2)", "coalesce(t2, t)", "t", "t2"),
    }.get(how, ("t", "u", "t", "u"))
    return how, opened, closed, (times[choice % 4], times[(choice + 1) % 4])


def _join(left: DataFrame, right: DataFrame, least: int, length: int, choice: int) -> DataFrame:
    how, opened, closed, times = interval_join(choice)
    other = right.select(*(F.col(name).alias(f"{name}2") for name in right.columns))
    before, after = left["t"] + _interval(least), left["t"] + _interval(least + length)
    near = (other["t2"] > before if opened else other["t2"] >= before) & (
        other["t2"] <= after if closed else other["t2"] < after
    )
    joined = left.join(other, (left["k"] == other["k2"]) & near, how)
    if how in {"left_semi", "left_anti"}:
        return joined
    return joined.select(
        F.coalesce("k", "k2").alias("k"),
        F.expr(times[0]).alias("t"),
        F.expr(times[1]).alias("u"),
        F.expr("coalesce(x, -1) * 31 + coalesce(x2, -2)").alias("x"),
    )


_STEPS = {
    function.__name__.removeprefix("_"): function
    for function in (_window, _calendar, _shift, _where, _either, _deduplicate, _explode)
}
