"""The Spark properties of a backfill: those of the program,
except for those that a backfill decides.

From lowest to highest precedence: this module's defaults, the SparkApplication, the program, what
is enforced.
"""

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from backfill.runtime.catalyst import active, zone_id
from backfill.runtime.settings import RuntimeSettings

_DEFAULTS = {
    "spark.ui.showConsoleProgress": "false",  # the log is a file
    # which state store a query has is decided when it starts
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # To count its rows, a state store would read before each write. The count is not needed: open
    # results are read at the end.
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    # The events of a session are close together in a step. Merging them first reduces the rows to
    # shuffle and sort to a fraction.
    "spark.sql.streaming.sessionWindow.merge.sessions.in.local.partition": "true",
}
_TASK_DAEMON = {"spark.python.daemon.module": "backfill.runtime.task_daemon"}
"""Loads libraries once for all tasks. An application may bring its own versions of them in Python
files, which Spark adds to each process after that.
"""
_PYTHON_FILES = "spark.submit.pyFiles"
_ALWAYS = {
    # Whether a batch without rows is run would depend on when the driver was restarted. The plan
    # has a flush of its own.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}
SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Set if spark-submit has started the JVM, so that it has the SparkApplication's properties before
the program runs.
"""

_log = logging.getLogger(__name__)


def context_conf(conf: SparkConf | None, settings: RuntimeSettings) -> SparkConf:
    """The properties of a SparkContext that the program starts with ``conf``."""
    if SUBMITTED in os.environ:
        # a SparkConf that was made earlier lacks what was submitted
        SparkContext._ensure_initialized()
    program = dict(conf.getAll()) if conf is not None else {}
    resolved = resolved_conf(dict(SparkConf().getAll()), program, settings)
    return SparkConf().setAll(list(resolved.items()))


def resolved_conf(
    submitted: Mapping[str, str], program: Mapping[str, str], settings: RuntimeSettings
) -> dict[str, str]:
    """The properties of a SparkContext. ``submitted`` are those of spark-submit, ``program`` those
    that the program sets.
    """
    enforced = _enforced(settings)
    for key in enforced:
        _tell_if_set(key, program.get(key), enforced[key])
    given = {**settings.spark_defaults, **submitted, **program, **enforced}
    return {**_DEFAULTS, **({} if given.get(_PYTHON_FILES) else _TASK_DAEMON), **given}


def session_zone(spark: SparkSession) -> str | None:
    """The time zone of a session, as the program wrote it; None if it is UTC, whatever its name."""
    zone = str(spark.conf.get("spark.sql.session.timeZone"))
    return None if zone_id(spark, zone).normalized().getId() == "Z" else zone


@contextmanager
def in_session(spark: SparkSession, settings: RuntimeSettings) -> Iterator[None]:
    """Makes the program's session the thread's active one, with the enforced properties set in it.

    Spark looks for data sources in the active session, and a program may have several. A query
    copies the properties of the session when it starts.
    """
    _enforce(spark, settings)
    with active(spark):
        yield


def _enforce(spark: SparkSession, settings: RuntimeSettings) -> None:
    for key, value in _enforced(settings).items():
        if key.startswith("spark.sql.") and spark.conf.isModifiable(key):
            _tell_if_set(key, spark.conf.get(key, None), value)
            spark.conf.set(key, value)


def _enforced(settings: RuntimeSettings) -> dict[str, str]:
    return {**settings.spark_conf, **_ALWAYS}


def _tell_if_set(key: str, found: str | None, enforced: str) -> None:
    """Logs that a property of the program is replaced.

    Values are left out, since some are credentials.
    """
    if found is not None and found != enforced:
        _log.warning(
            "the program sets %s, which the backfill controls: the program's value is ignored; to"
            " use another value, set it in spec.overrides.sparkConf where that is allowed",
            key,
        )
