"""Whether this Spark does what batch jobs need of it. They take plans apart and put them together
through interfaces that Spark does not promise, so that a version of Spark which changes one of them
must be noticed before a query depends on it.
"""

import logging
import threading
from functools import lru_cache

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backfill.api.errors import first_line
from backfill.runtime.batch.rebind import ARRIVAL, rebind
from backfill.runtime.catalyst import (
    analyzed,
    column_of,
    elements,
    executed,
    kind_of,
    observing,
    size_bytes,
    sized,
)
from backfill.runtime.source.data_source import FORMAT

_COLUMNS = "k int, t timestamp"
_SIZE_BYTES = 2**40
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
    stream = spark.readStream.format(FORMAT).schema(_COLUMNS).option("source", "test").load()
    rows = stream.where("k > 1").withWatermark("t", "1 minute").select((F.col("k") * 2).alias("k"))
    found = [row.k for row in _over_rows(rows).collect()]
    if found != [4, 6]:
        raise _Differs(f"a plan over other rows gives {found}, and not [4, 6]")
    given = sized(spark.range(1), _SIZE_BYTES).mapInArrow(lambda rows: rows, "id bigint, k int")
    if (size := size_bytes(given)) != _SIZE_BYTES:
        raise _Differs(f"rows of {_SIZE_BYTES} bytes are taken for {size} bytes")
    windows = stream.withWatermark("t", "1 minute").groupBy(F.window("t", "1 hour")).count()
    if "CollectMetrics" not in executed(_over_rows(windows, observed=True)):
        raise _Differs("rows that pass a plan are not observed")


def _over_rows(frame: DataFrame, *, observed: bool = False) -> DataFrame:
    """A streaming DataFrame over three rows."""
    spark = frame.sparkSession
    bound = rebind(
        analyzed(frame),
        spark,
        lambda _source, _topic: spark.sql(_ROWS.format(ARRIVAL)),
        lambda node, plan: (
            observing(spark, plan, "test", F.max(column_of(spark, elements(plan.output())[-1])))
            if observed and kind_of(node) == "EventTimeWatermark"
            else plan
        ),
        with_arrival=True,
    )
    if bound.isStreaming:
        raise _Differs("a plan over other rows still streams")
    return bound
