"""The Spark properties of a backfill: those of the program,
except for those that a backfill decides.

From lowest to highest precedence: this module's defaults, the SparkApplication, the program, what
is enforced.
"""

import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from backfill.runtime.catalyst import active, class_loads, zone_id
from backfill.runtime.settings import RuntimeSettings
from backfill.runtime.spark_versions import FILE_MANAGER, FORKS_TASKS

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
_TASK_DAEMON = {"spark.python.daemon.module": "backfill.runtime.task_daemon"} if FORKS_TASKS else {}
"""Loads libraries once for all tasks. An application may bring its own versions of them in Python
files, which Spark adds to each process after that.
"""
_ON_THIS_MACHINE = {"spark.sql.streaming.checkpointFileManagerClass": FILE_MANAGER}
"""Spark's default runs a program of the operating system for every file that it renames on a local
disk.
"""
_PYTHON_FILES = "spark.submit.pyFiles"
_NAMES_CLASSES = re.compile(
    r"spark\.(extraListeners|plugins|serializer|kryo\.(registrator|classesToRegister)"
    r"|shuffle\.(manager|sort\.io\.plugin\.class)"
    r"|sql\.(catalog\.[^.]+|extensions|queryExecutionListeners|cache\.serializer"
    r"|streaming\.(streamingQueryListeners|stateStore\.providerClass|checkpointFileManagerClass)))"
)
"""Properties that name classes, which Spark loads whether or not a program needs them."""
_CATALOG = "spark.sql.catalog."
_DEFAULT_CATALOG = "spark.sql.defaultCatalog"
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
    here = {} if SUBMITTED in os.environ else _ON_THIS_MACHINE
    return {**_DEFAULTS, **here, **({} if given.get(_PYTHON_FILES) else _TASK_DAEMON), **given}


def conf_of_context(conf: SparkConf, settings: RuntimeSettings) -> SparkConf:
    """The same properties over Java's own, once it runs, without those whose classes it lacks."""
    known = with_known_classes({**dict(SparkConf().getAll()), **dict(conf.getAll())}, settings)
    return SparkConf(loadDefaults=False).setAll(list(known.items()))


def session_options(options: Mapping[str, str], settings: RuntimeSettings) -> dict[str, str]:
    """What the program sets in a session. Those that are made of it get the same."""
    enforced = _enforced(settings)
    kept = {key: enforced.get(key, value) for key, value in options.items()}
    return with_known_classes(kept, settings)


def with_known_classes(
    conf: Mapping[str, str],
    settings: RuntimeSettings,
    loads: Callable[[str], bool] = class_loads,
) -> dict[str, str]:
    """Properties without the classes that are not on this machine, where production has its own
    catalogs, extensions and listeners. A backfill needs none of them, and a program that does gets
    Spark's error about what is not configured.

    On a cluster the image is production's, and overrides are what the user wants: both stay.
    """
    if SUBMITTED in os.environ:
        return dict(conf)
    known = {}
    for key, value in conf.items():
        if not _NAMES_CLASSES.fullmatch(key) or settings.spark_conf.get(key) == value:
            known[key] = value
            continue
        names = [each.strip() for each in value.split(",")]
        missing = [each for each in names if "." in each and not loads(each)]
        if missing:
            _log.warning(
                "left out of %s, because it is not on this machine: %s", key, ", ".join(missing)
            )
        if left := [each for each in names if each not in missing]:
            known[key] = ",".join(left)
    default = f"{_CATALOG}{known.get(_DEFAULT_CATALOG)}"
    given = {**settings.spark_defaults, **conf}.get(default)
    asked_for = {default, _DEFAULT_CATALOG} & settings.spark_conf.keys()
    if given is not None and not asked_for and not loads(given):
        _log.warning("left out %s, because that catalog is not on this machine", _DEFAULT_CATALOG)
        del known[_DEFAULT_CATALOG]
    return known


def session_zone(spark: SparkSession) -> str | None:
    """The time zone of a session, as the program wrote it; None if it is UTC, whatever its name."""
    zone = str(spark.conf.get("spark.sql.session.timeZone"))
    return None if zone_id(spark, zone).normalized().getId() == "Z" else zone


@contextmanager
def in_session(spark: SparkSession, settings: RuntimeSettings) -> Iterator[None]:
    """Makes the program's session the thread's active one, with the enforced properties set in it.

    A program may have several, and Spark takes the active one where none is named. A query copies
    the properties of the session when it starts.
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
