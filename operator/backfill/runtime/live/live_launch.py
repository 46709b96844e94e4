"""Runs the unmodified program of a live application, for ``python -m backfill.runtime``."""

import os

from backfill.kube.client import Cluster
from backfill.kube.transport import RequestOptions
from backfill.protocol.hand_off_messages import LIVE_SETTINGS_VARIABLE, LiveSettings
from backfill.protocol.split_assignment import DRIVER_MANAGER
from backfill.runtime.launch import log_to_stderr
from backfill.runtime.live.observer import Observer, observe
from backfill.runtime.live.reports import Reports
from backfill.runtime.main_program import run_program


def main() -> None:
    """The driver's program: the application's own, which ends the process as it would without."""
    log_to_stderr()
    settings = LiveSettings.model_validate_json(os.environ[LIVE_SETTINGS_VARIABLE])
    observer = Observer()
    observe(observer)
    options = RequestOptions(user_agent=DRIVER_MANAGER, read_seconds=15.0, retries=0)
    Reports(settings, observer.report, lambda: Cluster.in_cluster(options=options)).start()
    run_program(settings.main_file, settings.arguments)
