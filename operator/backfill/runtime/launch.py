"""Runs the application's unmodified main program as a backfill,
for ``python -m backfill.runtime``.
"""

import logging
import os
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path
from types import FrameType

from py4j.protocol import Py4JError
from pyspark import SparkContext

from backfill.api.conditions import Reason
from backfill.api.errors import BackfillError, BadInput, Problem, UnsupportedProgram
from backfill.kube.client import Cluster
from backfill.planning.plan import read_header
from backfill.protocol.driver_settings import CLUSTER_CHANNEL
from backfill.runtime.agent.agent import Agent
from backfill.runtime.agent.channel import Channel, DirectoryChannel
from backfill.runtime.agent.kubernetes_channel import REQUESTS, KubernetesChannel
from backfill.runtime.changes.newest_rows import keep_newest_rows
from backfill.runtime.comparison.compare_outputs import compare_outputs
from backfill.runtime.hand_off.hand_over import hand_over
from backfill.runtime.main_program import run_program
from backfill.runtime.queries.failure_causes import cause_of, is_lasting, lines_of_program
from backfill.runtime.queries.query_end import check_all_started, close_query
from backfill.runtime.queries.run_state import (
    Outcome,
    ProgramRun,
    Run,
    failed,
    failed_for_good,
    unsupported,
)
from backfill.runtime.queries.tracker import Tracker
from backfill.runtime.settings import RuntimeSettings, settings_from_environment
from backfill.runtime.source.split_reading import count_rows
from backfill.runtime.switching.deliver_outputs import deliver_outputs
from backfill.runtime.switching.install import install

_END_GRACE_SECONDS = 30.0
_NO_JAVA = "JAVA_GATEWAY_EXITED"
_SIGNAL_GRACE_SECONDS = 60.0

_log = logging.getLogger(__name__)


def main() -> int:
    """The driver's program. Returns its exit status: 0 if it finished or was stopped, 1 if it
    failed, 2 if the program is not supported.
    """
    log_to_stderr()
    try:
        run, agent = prepare(settings_from_environment())
    except (BackfillError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return 1
    threading.Thread(
        target=_end_process, args=(agent, run), name="backfill-end", daemon=True
    ).start()
    outcome = drive(run, agent)
    if outcome.exit_status == 0:
        _stop_spark()
    if outcome.exit_status:
        print(f"error: {outcome.message}", file=sys.stderr)  # noqa: T201
    return outcome.exit_status


def _stop_spark() -> None:
    """Stops the application's Spark, whose listeners would call into a process that has ended.

    PySpark's own way also waits, for up to a second and a half, until it takes no more updates of
    accumulators, of which there are none without Spark.
    """
    context = SparkContext._active_spark_context
    if context is not None and context._jsc is not None:
        with suppress(Py4JError):  # it has ended by itself
            context._jsc.stop()


def drive(run: Run, agent: Agent) -> Outcome:
    """Runs the application until its history has ended,
    it is stopped, or it fails, and returns how it ended.
    """
    signals = GracefulSignals(run.stopping)
    signals.install()
    install(run, signals.install)
    agent.start()
    run_application(run)
    run.application_waits()
    run.over.wait()
    agent.reported.wait()
    return run.outcome or failed("the run ended without reporting its outcome")


class GracefulSignals:
    """Ends the driver on SIGTERM and SIGINT like a suspension: released steps are committed first.

    The first signal sets ``stopping``. After a second one, or after a minute, the process ends at
    once.
    """

    def __init__(self, stopping: threading.Event):
        self._stopping = stopping
        self._deadline: threading.Timer | None = None

    def install(self) -> None:
        """Installs the handlers. Call it again after a SparkContext was started, since PySpark
        replaces that of SIGINT.
        """
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._handle)
            signal.signal(signal.SIGINT, self._handle)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self._deadline is not None:
            os._exit(128 + number)
        _log.warning("signal %s: stopping after the released steps", number)
        self._stopping.set()
        self._deadline = threading.Timer(_SIGNAL_GRACE_SECONDS, os._exit, (128 + number,))
        self._deadline.daemon = True
        self._deadline.start()


def log_to_stderr() -> None:
    """Logs the messages of this package only; the application configures its own logging."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("backfill")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False


def prepare(settings: RuntimeSettings) -> tuple[Run, Agent]:
    """The run, which continues where earlier attempts have stopped,
    and its agent, which has not started.

    Nothing is written before the channel is open. If the Backfill is gone, that is said rather than
    that its plan is gone too.

    Raises:
        BackfillError: the plan or the SplitAssignment cannot be read.
    """
    channel = _open_channel(settings)
    plan = settings.plan_workspace
    header = read_header(plan)
    tracker = Tracker(
        header,
        sources=[source.name for source in settings.sources],
        count_rows=lambda source, step: count_rows(plan, source, step),
        clock_us=lambda: time.time_ns() // 1_000,
        before=channel.last_status(),
    )
    run = Run(settings, tracker)
    return run, Agent(
        run,
        channel,
        lambda query: close_query(query, run),
        lambda: _complete(run),
    )


def _complete(run: Run) -> bool:
    """Makes what is staged the results. Returns False if it was stopped before it was done."""
    check_all_started(run)
    complete = keep_newest_rows(run) and compare_outputs(run)
    return complete and deliver_outputs(run) and hand_over(run)


def _open_channel(settings: RuntimeSettings) -> Channel:
    _, cluster, name = settings.channel.partition(CLUSTER_CHANNEL)
    if not cluster:
        return DirectoryChannel(Path(settings.channel))
    channel = KubernetesChannel(Cluster.in_cluster(options=REQUESTS), name, settings)
    channel.open()
    return channel


def run_application(run: ProgramRun) -> None:
    """Runs the main program to its end, as ``spark-submit`` does.

    Its queries may continue after that.
    """
    settings = run.settings
    try:
        run_program(settings.main_file, settings.arguments)
    except BadInput as error:
        run.end(unsupported(error))
    except SyntaxError as error:
        run.end(
            unsupported(
                UnsupportedProgram(
                    Problem("", f"{type(error).__name__}: {error}", "correct the program")
                )
            )
        )
    except SystemExit as end:
        if end.code not in (None, 0):
            run.end(_ended_by_itself(end, run))
    except BaseException as error:
        traceback.print_exc()
        run.end(_failed_with(error, run))


def _ended_by_itself(end: SystemExit, run: ProgramRun) -> Outcome:
    """The outcome of a program that ends with a status, as many do where they catch an error."""
    caught = end.__context__
    if caught is not None:
        traceback.print_exception(caught)
        return _failed_with(caught, run)
    said = f"status {end.code}" if isinstance(end.code, int) else f"the message: {end.code}"
    return failed(f"the application ended with {said}")


def _failed_with(error: BaseException, run: ProgramRun) -> Outcome:
    """The outcome of a program that raised an error. Before its first query nothing of the backfill
    was at work that could be different in another attempt.
    """
    message = f"{type(error).__name__}: {cause_of(error)}"
    if _NO_JAVA in message:
        fix = "check that java runs here, that JAVA_HOME is right, and that there is enough memory"
        return failed_for_good(Reason.PROGRAM_FAILED, f"{message}; {fix}")
    if run.began or run.stopping.is_set() or not is_lasting(error):
        return failed(message)
    return failed_for_good(
        Reason.PROGRAM_FAILED,
        "\n".join(
            [
                f"the application failed before it started a query: {message}",
                *lines_of_program(error),
            ]
        ),
    )


def _end_process(agent: Agent, run: Run) -> None:
    """Ends the process if the main program does not end after its queries,
    which some never do in production.
    """
    agent.reported.wait()
    time.sleep(_END_GRACE_SECONDS)
    _log.warning(
        "the main program is still running %s s after its queries ended; stopping it",
        _END_GRACE_SECONDS,
    )
    os._exit(run.outcome.exit_status if run.outcome else 1)
