"""Which Spark properties hold in a backfill: the program's own, except for those that a backfill
decides itself.

Weakest first: this module's defaults, what the SparkApplication brings, what the program sets, what
is enforced.
"""

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from backfill.runtime.settings import RuntimeSettings

_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_DEFAULTS = {
    "spark.ui.showConsoleProgress": "false",  # the log goes to a file
    "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # To keep count of its rows a store reads before each write. Nobody needs the count: what is
    # open is read at the end.
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    # Events of one session come together in a step: sent on as one, they are a fraction of the rows
    # to shuffle and sort.
    "spark.sql.streaming.sessionWindow.merge.sessions.in.local.partition": "true",
}
_ALWAYS = {
    # A batch without rows would come or not come depending on when the driver was restarted; the
    # plan has its own flush.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}
_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Set where spark-submit has started the JVM, so that the SparkApplication's properties are in it
before the program runs.
"""

_log = logging.getLogger(__name__)


def context_conf(conf: SparkConf | None, settings: RuntimeSettings) -> SparkConf:
    """What a SparkContext starts with that the program wants with ``conf``."""
    if _SUBMITTED in os.environ:
        # a SparkConf made before this knows nothing of what was submitted
        SparkContext._ensure_initialized()
    program = dict(conf.getAll()) if conf is not None else {}
    resolved = resolved_conf(dict(SparkConf().getAll()), program, settings)
    return SparkConf().setAll(list(resolved.items()))


def resolved_conf(
    submitted: Mapping[str, str], program: Mapping[str, str], settings: RuntimeSettings
) -> dict[str, str]:
    """The properties of a SparkContext. ``submitted`` is what spark-submit brought, ``program``
    what the program sets.
    """
    enforced = _enforced(settings)
    for key in enforced:
        _tell_if_set(key, program.get(key), enforced[key])
    return {**_DEFAULTS, **settings.spark_defaults, **submitted, **program, **enforced}


def session_zone(spark: SparkSession) -> str | None:
    """The time zone of a session, as the program wrote it; None if it is UTC under whatever
    name.
    """
    assert spark._jvm is not None  # in classic PySpark
    zone = str(spark.conf.get("spark.sql.session.timeZone"))
    known = spark._jvm.org.apache.spark.sql.catalyst.util.DateTimeUtils.getZoneId(zone)
    return None if known.normalized().getId() == "Z" else zone


@contextmanager
def in_session(spark: SparkSession, settings: RuntimeSettings) -> Iterator[None]:
    """Works in a session of the program: with what is enforced set in it, and as the thread's
    active one.

    Spark looks for data sources in the active session, which is another one where the program has
    made several. A query takes a copy of the session's properties when it starts.
    """
    _enforce(spark, settings)
    sessions = SparkSession._get_j_spark_session_class(spark._jvm)
    before = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def _enforce(spark: SparkSession, settings: RuntimeSettings) -> None:
    for key, value in _enforced(settings).items():
        if key.startswith("spark.sql.") and spark.conf.isModifiable(key):
            _tell_if_set(key, spark.conf.get(key, None), value)
            spark.conf.set(key, value)


def _enforced(settings: RuntimeSettings) -> dict[str, str]:
    return {**settings.spark_conf, **_ALWAYS}


def _tell_if_set(key: str, found: str | None, enforced: str) -> None:
    """Values stay unsaid: some are credentials."""
    if found is not None and found != enforced:
        _log.warning(
            "the program sets %s, which a backfill decides itself: its value is not used; to use"
            " another one, write it into spec.overrides.sparkConf where that is allowed",
            key,
        )
