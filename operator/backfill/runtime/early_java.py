"""Java, started while this process still loads its own libraries, which takes a second.

PySpark starts it with the first SparkContext, for the properties and in the environment that the
program has given it. Most programs change none of these; otherwise Java is started once more, as
PySpark does it.
"""

import logging
import os
import re
import threading
from collections.abc import Mapping
from pathlib import Path

from py4j.java_gateway import JavaGateway
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

from backfill.api.errors import BackfillError
from backfill.runtime.session_conf import SUBMITTED, resolved_conf
from backfill.runtime.settings import settings_from_environment

_READ_LATER = re.compile(
    r"spark\.(app\.name|default\.parallelism|driver\.(bindAddress|host|maxResultSize)|serializer"
    r"|(executor|hadoop|shuffle|sql|ui)\..+)"
)
"""Properties that a SparkContext or a session reads, and nothing before."""

_log = logging.getLogger(__name__)


class _EarlyJava:
    def __init__(self, conf: Mapping[str, str]):
        self._conf = dict(conf)
        self._around = _around()
        self._connection: JavaGateway | None = None
        # not a daemon: a process that ends meanwhile would leave files behind
        self._thread = threading.Thread(target=self._start, name="backfill-java")
        self._thread.start()

    def _start(self) -> None:
        conf = SparkConf(loadDefaults=False).setAll([*self._conf.items()])
        try:
            self._connection = launch_gateway(conf)  # type: ignore[no-untyped-call]
        except Exception as error:  # PySpark gives the same error where it can be reported
            _log.info("Java could not be started early: %s", error)

    def gateway(self, conf: Mapping[str, str]) -> JavaGateway | None:
        self._thread.join()
        gateway = self._connection
        if gateway is None:
            return None
        # a program may have PySpark start it before, for Java's properties
        unused = SparkContext._gateway is None
        if unused and self._around == _around() and not self._differs(conf):
            return gateway
        _log.info(
            "restarting Java, because the program changes the properties or environment of Java"
        )
        gateway.shutdown()
        gateway.proc.stdin.close()
        # a process that the program has forked may hold its input open, at whose end it would end
        gateway.proc.terminate()
        gateway.proc.wait()
        return None

    def _differs(self, conf: Mapping[str, str]) -> bool:
        changed = {key for key, _ in self._conf.items() ^ conf.items()}
        return not all(map(_READ_LATER.fullmatch, changed))


_early: list[_EarlyJava] = []


def start_java() -> None:
    """Starts Java in a thread, unless spark-submit has started it, or the settings of this driver
    cannot be read.
    """
    if SUBMITTED in os.environ:
        return
    try:
        settings = settings_from_environment()
    except BackfillError:  # reported by the launcher
        return
    _early.append(_EarlyJava(resolved_conf({}, {}, settings)))


def early_gateway(conf: SparkConf) -> JavaGateway | None:
    """The connection to the Java that was started, for the first SparkContext. None if there is
    none, or if one with these properties, in this environment, must be started in another way.
    """
    return _early.pop().gateway(dict(conf.getAll())) if _early else None


def _around() -> tuple[dict[str, str], Path]:
    """What a process gets from the one that starts it."""
    return dict(os.environ), Path.cwd()
