"""The results of the window that a query leaves open at the end of its plan:
its watermark has not closed them.

They are counted in the query's checkpoint after the flush, with Spark's state reader.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType, TimestampNTZType, TimestampType

from backfill.api.quantities import to_us
from backfill.api.spec import Window
from backfill.runtime.queries.encoded_locations import for_state_reader
from backfill.runtime.queries.result_times import JoinedColumns, JoinSide, Shape, WindowEdge
from backfill.runtime.queries.tracker import OpenResults

_AGGREGATIONS = {"stateStoreSave", "sessionWindowStateStoreSaveExec"}
_JOIN = "symmetricHashJoin"
_NOTHING_PENDING = {"dedupe", "dedupeWithinWatermark", "globalLimit"}
"""Stateful operators that have emitted everything for the rows they have read."""


@dataclass(frozen=True, slots=True)
class _Found:
    """Results of the window in the state of one operator."""

    results: int
    first_us: int | None = None
    """Time of the earliest result."""
    end_us: int | None = None
    """End of the last result in event time; None if there is none, or if it is unknown."""


class _Unknown(Exception):  # noqa: N818 - not an error: it says why nothing can be concluded
    """The reason why open results cannot be counted."""


def open_results(
    spark: SparkSession,
    checkpoint: str,
    window: Window,
    closing_delay_us: int,
    results: Shape,
    *,
    settled_us: int | None = None,
) -> OpenResults:
    """Counts the results of the window in a query's state. If they cannot be counted, the number is
    unknown, with the reason.

    For a windowed aggregation, they are its time windows, by the edge that is the result's time; if
    there are several operators, all time windows that overlap the window. For an outer join, they
    are rows without a partner.

    A time window closes with events ``closing_delay_us`` after its end.

    A query that changes rows has written what its state holds, and that is not final for time
    windows that end after ``settled_us``. What it aggregates without a time window has no end that
    could be missing.
    """
    reader = spark.newSession()
    reader.conf.set("spark.sql.session.timeZone", "UTC")  # times without a zone are UTC
    checkpoint = for_state_reader(reader, checkpoint)
    operators = {
        row.operatorId: row.operatorName
        for row in reader.read.format("state-metadata").load(checkpoint).collect()
    }
    # an inner join emits matches at once
    done = _NOTHING_PENDING if results.waiting else {*_NOTHING_PENDING, _JOIN}
    pending = {number: name for number, name in operators.items() if name not in done}
    try:
        found = [
            _State(reader, checkpoint, number, window, settled_us).count(name, results, pending)
            for number, name in pending.items()
        ]
    except _Unknown as why:
        return OpenResults(unknown=str(why))
    return _together(found, window, closing_delay_us)


def _together(found: Iterable[_Found], window: Window, closing_delay_us: int) -> OpenResults:
    held = [each for each in found if each.results]
    firsts = [each.first_us for each in held if each.first_us is not None]
    ends = [each.end_us for each in held if each.end_us is not None]
    drain_us = max(ends, default=0) + closing_delay_us - to_us(window.end)
    needed = None if len(ends) < len(held) else max(drain_us, 0) / 1e6 if held else 0.0
    return OpenResults(sum(each.results for each in held), min(firsts, default=None), needed)


class _State:
    """The state of one operator of a query."""

    def __init__(
        self,
        spark: SparkSession,
        checkpoint: str,
        operator: int,
        window: Window,
        settled_us: int | None,
    ):
        self._reader = spark.read.format("statestore").option("operatorId", operator)
        self._checkpoint = checkpoint
        self._start_us, self._end_us = to_us(window.start), to_us(window.end)
        self._settled_us = settled_us

    def count(self, name: str, results: Shape, operators: dict[int, str]) -> _Found:
        """Number of results of the window in this state.

        Raises:
            _Unknown: they cannot be counted.
        """
        if name == _JOIN:
            return self._rows_without_partner(results, operators)
        if name in _AGGREGATIONS:
            return self._windows(results, operators)
        raise _Unknown(f"the query keeps user-defined state ({name}), whose results have no time")

    def _windows(self, results: Shape, operators: dict[int, str]) -> _Found:
        state = self._reader.load(self._checkpoint)
        column = _time_window(state)
        if column is None and self._settled_us is not None:
            return _Found(0)
        if column is None:
            raise _Unknown("the query has an aggregation that is not by a time window")
        start, end = (_micros(F.col(f"{column}.{edge}")) for edge in ("start", "end"))
        if self._settled_us is not None:
            state = state.where(end > self._settled_us)
        if not results.timed:
            return self._found(state, F.lit(True), start, end)
        touches = (start < self._end_us) & (end >= self._start_us)
        if len(operators) == 1 and isinstance(results.origin, WindowEdge):
            time = start if results.origin.edge == "start" else end
            return self._found(state, self._within(time), time, end)
        if results.origin is None and not state.isEmpty():
            raise _Unknown(
                "the output's timestampColumn is neither the start nor"
                " the end of the query's time windows"
            )
        return self._found(state, touches, start, end)

    def _rows_without_partner(self, results: Shape, operators: dict[int, str]) -> _Found:
        if results.joins > 1:
            raise _Unknown(
                "the query joins several streams, and rows of an outer join may still wait for a"
                " match"
            )
        origin = results.origin if len(operators) == 1 else None
        times = origin.columns if isinstance(origin, JoinedColumns) else None
        found = [self._waiting(side, times, timed=results.timed) for side in results.waiting]
        firsts = [each.first_us for each in found if each.first_us is not None]
        return _Found(sum(each.results for each in found), min(firsts, default=None))

    def _waiting(self, side: JoinSide, times: dict[JoinSide, str] | None, *, timed: bool) -> _Found:
        state = self._reader.option("storeName", f"{side}-keyWithIndexToValue").load(
            self._checkpoint
        )
        rows = state.where(~F.col("value.matched"))
        if not timed:
            return _Found(rows.count())
        if times is None:
            if rows.isEmpty():
                return _Found(0)
            raise _Unknown(
                "rows of an outer join still wait for a match, and the output's timestampColumn"
                " is not one of their columns"
            )
        if side not in times:
            return _Found(0)  # without a partner the result has no time, so it is not in the window
        time = _micros(F.col(f"value.`{times[side]}`"))
        return self._found(rows, self._within(time), time, F.lit(None).cast("long"))

    def _within(self, time: Column) -> Column:
        return (time >= self._start_us) & (time < self._end_us)

    @staticmethod
    def _found(state: DataFrame, which: Column, time: Column, end: Column) -> _Found:
        (counted,) = state.where(which).agg(F.count(F.lit(1)), F.min(time), F.max(end)).collect()
        return _Found(*counted)


def _micros(time: Column) -> Column:
    return F.unix_micros(time.cast("timestamp"))


def _time_window(state: DataFrame) -> str | None:
    """The column with the time window: in the key for a windowed aggregation,
    in the value for a session window.
    """
    for part in ("key", "value"):
        fields = state.schema[part].dataType
        if isinstance(fields, StructType):
            for field in fields:
                if _is_time_window(field.dataType):
                    return f"{part}.`{field.name}`"
    return None


def _is_time_window(kind: DataType) -> bool:
    return (
        isinstance(kind, StructType)
        and kind.names == ["start", "end"]
        and all(isinstance(field.dataType, TimestampType | TimestampNTZType) for field in kind)
    )
