"""Sends the reports of a live application to the SplitAssignment, as long as it is there.

The application outlives its Backfill, so nothing here may disturb it: a SplitAssignment that is
gone, or belongs to another Backfill of the name, ends the reports.
"""

import logging
import threading
from collections.abc import Callable

from backfill.api.errors import BackfillError, ConflictError
from backfill.kube.client import Cluster
from backfill.kube.request_errors import ClusterError, NotFound
from backfill.kube.resources import SPLIT_ASSIGNMENT
from backfill.protocol.hand_off_messages import LiveReport, LiveSettings
from backfill.protocol.split_assignment import DRIVER_MANAGER

_PERIOD_SECONDS = 5.0

_log = logging.getLogger(__name__)


class Reports(threading.Thread):
    """Sends a report every few seconds."""

    def __init__(
        self,
        settings: LiveSettings,
        report: Callable[[], LiveReport],
        cluster: Callable[[], Cluster],
        period_seconds: float = _PERIOD_SECONDS,
    ):
        """``cluster`` opens the API server; it may fail."""
        super().__init__(name="backfill-live-reports", daemon=True)
        self._settings = settings
        self._make_report = report
        self._open = cluster
        self._period = period_seconds
        self._ending = threading.Event()
        self._logged = ""

    def run(self) -> None:
        """Sends reports until the SplitAssignment has gone."""
        try:
            cluster = self._open()
        except (BackfillError, OSError) as error:
            _log.warning("no reports are sent: %s", error)
            return
        while not self._ending.is_set():
            try:
                if not self._send(cluster):
                    return
            except NotFound:
                return
            except (ClusterError, ConflictError) as error:
                self._log_once(str(error))
            except Exception:
                _log.exception("a report could not be sent")
            self._ending.wait(self._period)

    def end(self) -> None:
        """Sends nothing more."""
        self._ending.set()

    def _send(self, cluster: Cluster) -> bool:
        """Sends a report. Returns False if nobody reads them any more."""
        settings = self._settings
        place = (SPLIT_ASSIGNMENT, settings.namespace, settings.backfill)
        found = cluster.get(*place)
        if found is None:
            return False
        metadata = found["metadata"]
        if all(owner["uid"] != settings.uid for owner in metadata.get("ownerReferences", [])):
            return False
        operations = [
            {"op": "test", "path": "/metadata/uid", "value": metadata["uid"]},
            {"op": "add", "path": "/status/live", "value": self._make_report().to_manifest()},
        ]
        cluster.edit(*place, operations, manager=DRIVER_MANAGER, subresource="status")
        return True

    def _log_once(self, problem: str) -> None:
        """Logs a problem once, until there is another one."""
        if problem != self._logged:
            _log.warning("a report could not be sent: %s", problem)
            self._logged = problem
