"""Runs the application's unmodified main program as a backfill: what ``python -m backfill.runtime`` does."""

import logging
import runpy
import sys
import time
import traceback
from pathlib import Path

from backfill.api.errors import BackfillError, BadInput
from backfill.planning.plan import read_header
from backfill.runtime.agent import Agent
from backfill.runtime.channel import DirectoryChannel
from backfill.runtime.closing import close_query
from backfill.runtime.interception import install
from backfill.runtime.reading import count_rows
from backfill.runtime.run import Run, failed, unsupported
from backfill.runtime.settings import RuntimeSettings, settings_from_environment
from backfill.runtime.signals import GracefulSignals
from backfill.runtime.tracking import Tracker


def main() -> int:
    """The driver's program. Returns its exit status: 0 finished or stopped, 1 failed, 2 the program is not supported."""
    _log_to_stderr()
    try:
        settings = settings_from_environment()
        run, agent = _prepare(settings)
    except BackfillError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return 1
    signals = GracefulSignals(run.stopping)
    signals.install()
    install(run, signals.install)
    agent.start()
    _run_application(settings, run)
    run.application_waits()
    run.over.wait()
    agent.reported.wait()
    return _exit_status(run)


def _log_to_stderr() -> None:
    """Only this package's own messages: how the application logs is its own affair."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("backfill")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False


def _prepare(settings: RuntimeSettings) -> tuple[Run, Agent]:
    plan = settings.plan_workspace
    header = read_header(plan)
    channel = DirectoryChannel(Path(settings.channel))
    Path(settings.scratch).mkdir(parents=True, exist_ok=True)
    tracker = Tracker(
        header,
        sources=[source.name for source in settings.sources],
        count_rows=lambda source, step: count_rows(plan, source, step),
        clock_us=lambda: time.time_ns() // 1_000,
        before=channel.last_status(),
    )
    run = Run(settings, tracker)
    return run, Agent(run, channel, lambda query: close_query(query, run))


def _run_application(settings: RuntimeSettings, run: Run) -> None:
    """Runs the main program to its end, as ``spark-submit`` would. Its queries may go on after that."""
    sys.argv = [settings.main_file, *settings.arguments]
    sys.path[0] = str(Path(settings.main_file).resolve().parent)
    try:
        runpy.run_path(settings.main_file, run_name="__main__")
    except BadInput as error:
        run.end(unsupported(error))
    except SystemExit as end:
        if end.code not in (None, 0):
            run.end(failed(f"the application ended with status {end.code}"))
    except BaseException as error:
        traceback.print_exc()
        run.end(failed(f"{type(error).__name__}: {error}"))


def _exit_status(run: Run) -> int:
    outcome = run.outcome
    if outcome is None:
        raise AssertionError("the run is over without an outcome")
    if outcome.exit_status:
        print(f"error: {outcome.message}", file=sys.stderr)  # noqa: T201
    return outcome.exit_status
