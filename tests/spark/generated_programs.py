"""Programs over two sources with the same columns, made at random: what a user may put between
reading and writing.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from hypothesis import strategies as st
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.window import Window

COLUMNS = ("a", "b", "c", "d")
SOURCES = ("mobile", "web")
_MOST_COLUMNS = 5

Read = Callable[[str], DataFrame]
"""Gives the frame of a source, a fresh one each time."""


@dataclass(frozen=True)
class Step:
    """One thing a program does with the frame it has so far and another one."""

    what: str
    other: str
    """A source, or ``itself`` for the frame so far."""
    picks: tuple[int, ...]
    """Which columns, counted round and round."""


def programs() -> st.SearchStrategy[tuple[str, tuple[Step, ...]]]:
    """The source a program begins with, and its steps."""
    picks = st.lists(st.integers(0, _MOST_COLUMNS), min_size=1, max_size=4).map(tuple)
    step = st.builds(
        Step, st.sampled_from(sorted(_STEPS)), st.sampled_from((*SOURCES, "itself")), picks
    )
    return st.tuples(st.sampled_from(SOURCES), st.lists(step, min_size=1, max_size=4).map(tuple))


def run(program: tuple[str, tuple[Step, ...]], read: Read) -> DataFrame:
    """The result of a program."""
    first, steps = program
    frame = _named(read(first).select(*COLUMNS))
    for step in steps:
        other = frame if step.other == "itself" else _named(read(step.other).select(*COLUMNS))
        names = [frame.columns[pick % len(frame.columns)] for pick in step.picks]
        frame = _named(_STEPS[step.what](frame, other, list(dict.fromkeys(names))))
    return frame


def _named(frame: DataFrame) -> DataFrame:
    return frame.toDF(*(f"c{number}" for number in range(len(frame.columns)))).select(
        *(f"c{number}" for number in range(min(len(frame.columns), _MOST_COLUMNS)))
    )


def _fitting(frame: DataFrame, other: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Both with the same number of columns, the second one's from the back."""
    width = min(len(frame.columns), len(other.columns))
    return frame.select(*frame.columns[:width]), other.select(*reversed(other.columns[-width:]))


def _select(frame: DataFrame, other: DataFrame, names: list[str]) -> DataFrame:
    return frame.select(*names)


def _derive(frame: DataFrame, other: DataFrame, names: list[str]) -> DataFrame:
    return frame.withColumn(names[0], F.concat_ws("+", *names)).withColumn(
        "more", F.upper(names[-1])
    )


def _filter(frame: DataFrame, other: DataFrame, names: list[str]) -> DataFrame:
    return frame.where(F.crc32(F.coalesce(names[0], F.lit("none"))) % 3 > 0).select(names[-1])


def _needless_casts(frame: DataFrame, other: DataFrame, names: list[str]) -> DataFrame:
    return frame.select(
        *(F.col(name).cast("string").alias(f"same_{name}") for name in frame.columns)
    )


def _union(frame: DataFrame, other: DataFrame, names: list[str]) -> DataFrame:
    left, right = _fitting(frame, other)
    return left.union(right)


def _union_by_name(frame: DataFrame, other: DataFrame, names: list[str]) -> DataFrame:
    return frame.unionByName(other.select(*reversed(other.columns)), allowMissingColumns=True)


def _union_distinct(frame: DataFrame, other: DataFrame, names: list[str]) -> DataFrame:
    return _union(frame, other, names).distinct()


def _sql_union(frame: DataFrame, other: DataFrame, names: list[str]) -> DataFrame:
    left, right = _fitting(frame, other)
    left.createOrReplaceTempView("programs_left")
    right.createOrReplaceTempView("programs_right")
    return frame.sparkSession.sql(
        "with both as (select * from programs_left union all select * from programs_right) select *"
        " from both where true"
    )


def _join(frame: DataFrame, other: DataFrame, names: list[str], how: str = "inner") -> DataFrame:
    condition = F.expr(f"l.{names[0]} = r.{other.columns[-1]}")
    columns = (
        [f"l.{names[-1]}"]
        if how in ("leftsemi", "leftanti")
        else [*(f"l.{name}" for name in names), "r.c0"]
    )
    return frame.alias("l").join(other.alias("r"), condition, how).select(*columns)


def _outer_join(frame: DataFrame, other: DataFrame, names: list[str]) -> DataFrame:
    return _join(frame, other, names, "full")


def _semi_join(frame: DataFrame, other: DataFrame, names: list[str]) -> DataFrame:
    return _join(frame, other, names, "leftsemi")


def _anti_join(frame: DataFrame, other: DataFrame, names: list[str]) -> DataFrame:
    return _join(frame, other, names, "leftanti")


def _join_using(frame: DataFrame, other: DataFrame, names: list[str]) -> DataFrame:
    renamed = other.select(
        *(F.col(name).alias("c0" if name == "c0" else f"o{name}") for name in other.columns)
    )
    return frame.join(renamed, "c0", "left")


def _intersect(frame: DataFrame, other: DataFrame, names: list[str]) -> DataFrame:
    left, right = _fitting(frame, other)
    return (
        left.union(right.limit(0)).intersect(right) if len(names) % 2 else left.intersectAll(right)
    )


def _except(frame: DataFrame, other: DataFrame, names: list[str]) -> DataFrame:
    left, right = _fitting(frame, other)
    return left.subtract(right) if len(names) % 2 else left.exceptAll(right)


def _cube(frame: DataFrame, other: DataFrame, names: list[str]) -> DataFrame:
    return frame.cube(*names[:2]).agg(F.count("*").cast("string"), F.max(frame.columns[-1]))


def _rollup(frame: DataFrame, other: DataFrame, names: list[str]) -> DataFrame:
    return frame.rollup(*names[:2]).agg(F.countDistinct(frame.columns[0]).cast("string"))


def _group(frame: DataFrame, other: DataFrame, names: list[str]) -> DataFrame:
    return frame.groupBy(names[0]).agg(
        F.min(names[-1]), F.countDistinct(frame.columns[-1]).cast("string")
    )


def _explode(frame: DataFrame, other: DataFrame, names: list[str]) -> DataFrame:
    return frame.select(names[-1], F.explode(F.split(names[0], "-")))


def _explode_together(frame: DataFrame, other: DataFrame, names: list[str]) -> DataFrame:
    stacked = ", ".join(f"'{name}', {name}" for name in frame.columns)
    return frame.select(names[0], F.expr(f"stack({len(frame.columns)}, {stacked})"))


def _unpivot(frame: DataFrame, other: DataFrame, names: list[str]) -> DataFrame:
    return frame.select(F.col(names[0]).alias("key"), "*").unpivot(
        "key", list(frame.columns), "name", "value"
    )


def _in(frame: DataFrame, other: DataFrame, names: list[str]) -> DataFrame:
    """Spark allows subqueries of streams over tables that do not stream."""
    frame.createOrReplaceTempView("programs_left")
    values = "select v from values ('x-0'), ('a-1'), ('b-0'), ('c-2') as t(v)"
    return frame.sparkSession.sql(
        f"select {names[-1]} from programs_left where {names[0]} in ({values})"
    )


def _over_window(frame: DataFrame, other: DataFrame, names: list[str]) -> DataFrame:
    over = Window.partitionBy(names[0])
    return frame.select(
        names[-1], F.count("*").over(over).cast("string"), F.max(frame.columns[-1]).over(over)
    )


def _drop_duplicates(frame: DataFrame, other: DataFrame, names: list[str]) -> DataFrame:
    return frame.dropDuplicates(names).select(*names)


def _function_of_rows(frame: DataFrame, other: DataFrame, names: list[str]) -> DataFrame:
    def joined(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = ["|".join(str(value) for value in row.values()) for row in batch.to_pylist()]
            yield pa.RecordBatch.from_arrays([pa.array(rows, pa.string())], ["row"])

    return frame.mapInArrow(joined, "row string")


_STEPS: dict[str, Callable[[DataFrame, DataFrame, list[str]], DataFrame]] = {
    function.__name__.removeprefix("_"): function
    for function in (
        _select,
        _derive,
        _filter,
        _needless_casts,
        _union,
        _union_by_name,
        _union_distinct,
        _sql_union,
        _join,
        _outer_join,
        _semi_join,
        _anti_join,
        _join_using,
        _intersect,
        _except,
        _cube,
        _rollup,
        _group,
        _explode,
        _explode_together,
        _unpivot,
        _in,
        _over_window,
        _drop_duplicates,
        _function_of_rows,
    )
}
