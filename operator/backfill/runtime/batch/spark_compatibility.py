"""Whether this Spark does what batch jobs need of it. They take plans apart and put them together
through interfaces that Spark does not promise, so that a version of Spark which changes one of them
must be noticed before a query depends on it.
"""

import logging
import threading
from functools import lru_cache

from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backfill.api.errors import first_line
from backfill.runtime.batch.rebind_plan import ARRIVAL, rebind
from backfill.runtime.batch.sessions import with_sessions
from backfill.runtime.batch.straight_json import without_json
from backfill.runtime.catalyst import (
    analyzed,
    column_of,
    elements,
    executed,
    kind_of,
    observing,
    pickled,
    pruned,
    size_bytes,
    sized,
)
from backfill.runtime.queries.logical_plan import session_window
from backfill.runtime.source.clock import clock
from backfill.runtime.source.json_values import JSON_OPTIONS

_COLUMNS = "k int, t timestamp"
_RECORD = "k bigint, t timestamp, s string, n struct<t: timestamp>, none int"
_SIZE_BYTES = 2**40
_OBSERVED = {"Aggregate", "EventTimeWatermark"}
_ROWS = "select k, timestamp'2024-01-01' as t, 0L as {} from values (1), (2), (3) as rows(k)"

_trying = threading.Lock()
_log = logging.getLogger(__name__)


class _Differs(Exception):  # noqa: N818 - named as the answer that it is
    """A plan gives something else than it should."""


def try_early(spark: SparkSession) -> None:
    """Starts trying in a thread, while the application still builds its queries."""
    threading.Thread(target=unusable, args=(spark,), name="backfill-self-test", daemon=True).start()


def unusable(spark: SparkSession) -> str | None:
    """Why queries cannot be run as batch jobs with this Spark, with its version; None if they can.

    No job is run, and a session is tried once. The source's format must be known to it.
    """
    with _trying:
        return _tried(spark)


@lru_cache(maxsize=1)
def _tried(spark: SparkSession) -> str | None:
    try:
        _try_plans(spark)
    except Exception as error:
        _log.warning("plans cannot be used with this Spark", exc_info=True)
        return f"batch jobs do not work with Spark {spark.version}: {first_line(error)}"
    return None


def _try_plans(spark: SparkSession) -> None:
    stream = clock(spark, "test", 0, 1, None).mapInArrow(lambda rows: rows, _COLUMNS)
    rows = stream.where("k > 1").withWatermark("t", "1 minute").select((F.col("k") * 2).alias("k"))
    _must_give(_over_rows(rows), 4, 6)
    row = F.struct("k", "t", F.col("k").cast("string").alias("s"), F.struct("t").alias("n"))
    text = F.to_json(row, JSON_OPTIONS).cast("binary").alias("value")
    parsed = F.from_json(F.col("value").cast("string"), _RECORD).alias("record")
    records = stream.select(text).select(parsed).select("record.*")
    _must_give(_over_rows(records), 1, 2, 3)
    given = sized(pickled(spark, [None]), _SIZE_BYTES).mapInArrow(lambda rows: rows, "task binary")
    if (size := size_bytes(given)) != _SIZE_BYTES:
        raise _Differs(f"rows of {_SIZE_BYTES} bytes are taken for {size} bytes")
    _try_sessions(records.withWatermark("t", "1 minute").dropDuplicatesWithinWatermark(["k"]))


def _try_sessions(records: DataFrame) -> None:
    """Puts together what measuring and watching sessions need. The analysis is not tried: where it
    fails, the query is a stream.
    """
    visits = records.groupBy("k", F.session_window("t", "5 minutes")).count()
    frame = visits.dropDuplicates(["k", "session_window"]).select(
        F.col("session_window.start").alias("at"), "k", "count"
    )
    pruned(analyzed(frame), frame.sparkSession)
    if executed(_over_rows(frame, observed=True)).count("CollectMetrics") < len(_OBSERVED):
        raise _Differs("rows that pass a plan are not observed")


def _must_give(rows: DataFrame, *expected: int) -> None:
    if (found := [row.k for row in rows.collect()]) != list(expected):
        raise _Differs(f"a plan over other rows gives {found}, and not {list(expected)}")


def _over_rows(frame: DataFrame, *, observed: bool = False) -> DataFrame:
    """A streaming DataFrame over three rows."""
    spark = frame.sparkSession

    def observe(node: JavaObject, bound: JavaObject) -> JavaObject:
        if not observed or kind_of(node) not in _OBSERVED:
            return bound
        window = session_window(node)
        plan = bound if window is None else with_sessions(spark, bound, window)
        last = column_of(spark, elements(plan.output())[-1])
        return observing(spark, plan, kind_of(node), F.max(last))

    bound = rebind(
        without_json(analyzed(frame), spark),
        spark,
        lambda _source, _topic: spark.sql(_ROWS.format(ARRIVAL)),
        observe,
        with_arrival=True,
    )
    if bound.isStreaming:
        raise _Differs("a plan over other rows still streams")
    return bound
