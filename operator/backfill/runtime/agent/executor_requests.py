"""Adds and removes executors while the application runs, so that there are as many as the
controller wants.

Spark keeps the requested total, and replaces lost executors. It never removes a working executor by
itself. Executors to remove are decommissioned: they take no more tasks, pass on their blocks, and
end. The next batch opens their state stores elsewhere from the checkpoint.
"""

import logging
import time
from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext

from backfill.runtime.spark_versions import java_array

_LOOK_SECONDS = 1.0
_MOST_STAGES = 50

_log = logging.getLogger(__name__)


def active_context() -> SparkContext | None:
    """The application's SparkContext; None before it is created."""
    return SparkContext._active_spark_context


class Executors:
    """The executors of the application's SparkContext. May be used by one thread only."""

    def __init__(
        self,
        context: Callable[[], Any] = active_context,
        clock: Callable[[], float] = time.monotonic,
    ):
        """``context`` returns the SparkContext, ``clock`` the time in seconds."""
        self._context = context
        self._clock = clock
        self._target: int | None = None
        self._requested: int | None = None
        self._leaving: set[str] = set()
        self._count = 0
        self._looked_at = float("-inf")

    @property
    def tasks_percent(self) -> int | None:
        """How many of the tasks of Spark's stages in progress have ended, as a percentage in tens;
        None if there is no stage, or Spark does not answer.
        """
        context = self._context()
        if context is None:
            return None
        try:
            tracker = context.statusTracker()
            stages = map(tracker.getStageInfo, tracker.getActiveStageIds()[:_MOST_STAGES])
            counts = [(each.numCompletedTasks, each.numTasks) for each in stages if each]
        except (AttributeError, Py4JError, OSError):  # it is starting or stopping
            return None
        done, tasks = (sum(each) for each in zip(*counts, strict=True)) if counts else (0, 0)
        return 10 * (10 * done // tasks) if tasks else None

    def follow(self, target: int | None) -> int:
        """Moves the number of executors towards ``target``, and returns how many there are now.
        With None, it stays as it is.

        Asks Spark at most once a second, and at once for a new target. A request that fails is
        repeated.
        """
        if target != self._target or self._clock() - self._looked_at >= _LOOK_SECONDS:
            self._target, self._looked_at = target, self._clock()
            context = self._context()
            try:
                self._count = self._look(context, target) if context is not None else 0
            # a context that is starting or stopping has no JVM, and no executors that matter
            except AttributeError:
                self._count = 0
            except (Py4JError, OSError) as error:
                _log.warning("Spark does not report its executors: %s", type(error).__name__)
        return self._count

    def _look(self, context: Any, target: int | None) -> int:
        if context._jsc.sc().isLocal():
            return 1  # the driver's own process
        if target is not None and target != self._requested:
            _request(context, target)
            _log.info("requested executors: %s (before: %s)", target, self._requested)
            self._requested = target
        present = set(filter(None, context._jsc.sc().getExecutorIds().mkString(",").split(",")))
        self._leaving &= present
        staying = sorted(present - self._leaving, key=int)
        if target is None or len(staying) <= target:
            return len(staying)
        # the newest: older ones hold more state, and more of the tables' files
        surplus = staying[target:]
        _decommission(context, surplus)
        _log.info("executors released: %s", ", ".join(surplus))
        self._leaving.update(surplus)
        return target


def _request(context: Any, total: int) -> None:
    """Requests a total number of executors.

    If there are more, lost ones are not replaced, but none is removed.
    """
    nowhere_in_particular = context._jvm.PythonUtils.toScalaMap(context._jvm.java.util.HashMap())
    context._jsc.sc().requestTotalExecutors(total, 0, nowhere_in_particular)


def _decommission(context: Any, executors: list[str]) -> None:
    jvm = context._jvm
    why = jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo(
        "fewer executors are needed", jvm.scala.Option.empty()
    )
    pairs = [jvm.scala.Tuple2(executor, why) for executor in executors]
    named = java_array(context._gateway, jvm.scala.Tuple2, pairs)
    adjust_total, asked_by_executor = False, False
    context._jsc.sc().schedulerBackend().decommissionExecutors(
        named, adjust_total, asked_by_executor
    )
