"""The driver's side of a SplitAssignment on a cluster.

Two threads keep the agent from waiting for the API server. One watches the object; answers to other
requests count as well, so that a watch that has silently died costs one heartbeat. The other
delivers reports, always the newest one, until it succeeds. If the API server is unavailable for
minutes, the run continues with what is released, and the next report contains everything that has
happened in the meantime.
"""

import logging
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from backfill.api.errors import BackfillError, ConflictError
from backfill.kube.client import Cluster
from backfill.kube.request_errors import (
    ClusterError,
    Forbidden,
    Invalid,
    KindMissing,
    NotFound,
    Refused,
    Unreachable,
)
from backfill.kube.resources import SPLIT_ASSIGNMENT, Manifest
from backfill.kube.transport import RequestOptions
from backfill.protocol.split_assignment import (
    DRIVER_MANAGER,
    SplitAssignmentSpec,
    SplitAssignmentStatus,
)
from backfill.runtime.agent.seen_assignment import SeenAssignment
from backfill.runtime.settings import RuntimeSettings

REQUESTS: Final = RequestOptions(user_agent=DRIVER_MANAGER, read_seconds=15.0, retries=0)
"""Retries are left to the channel, so that each delivers the newest report."""
_WATCH_SECONDS = 240
_SILENCE_SECONDS = 100.0
"""Seconds after which a silent watch is considered dead. It gets a bookmark about once a minute."""
_MOST_ASKED_SECONDS = 30.0
"""Longest wait that a server may ask for."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Timing:
    """Intervals and limits, in seconds."""

    heartbeat: float = 10.0
    """Between reports if nothing happens. A controller waits for six of them."""
    between_reports: float = 0.2
    """Minimum between two reports. What happens in between is in the next one."""
    first_retry: float = 0.2
    last_retry: float = 5.0
    """Maximum of the delay between retries, which doubles each time."""
    refused_at_start: float = 30.0
    """How long the object may be missing or forbidden when a driver starts, because permissions
    take a moment to be effective.
    """
    patience: float = 300.0
    """How long a driver waits for an unavailable API server at its start, and with its last report.
    While it runs, it waits forever.
    """


class Retries:
    """Retries of one operation. The delay doubles each time.

    Logs the first failure, and the next success.
    """

    def __init__(self, what: str, first_seconds: float, last_seconds: float):
        self._what, self._first, self._last = what, first_seconds, last_seconds
        self._failures = 0
        self._next = first_seconds

    def worked(self) -> None:
        """Records a success: the next failure counts as the first."""
        if self._failures:
            _log.info("%s works again after %d failures", self._what, self._failures)
        self._failures, self._next = 0, self._first

    def failed(self, error: Exception, asked_seconds: float | None = None) -> float:
        """Records a failure, and returns the seconds to wait: at least what the server asked for,
        up to half a minute.

        The delay has a random part, so that a thousand drivers do not retry at the same moment.
        """
        self._failures += 1
        _log.log(
            logging.WARNING if self._failures == 1 else logging.DEBUG,
            "%s failed; retrying: %s",
            self._what,
            error,
        )
        seconds, self._next = self._next, min(self._next * 2, self._last)
        return max(
            seconds * random.uniform(0.5, 1.0), min(asked_seconds or 0.0, _MOST_ASKED_SECONDS)
        )


class KubernetesChannel:
    """A channel for the agent (see ``channel.py``). Call ``open`` first and ``close`` last."""

    def __init__(
        self, cluster: Cluster, name: str, settings: RuntimeSettings, timing: Timing = Timing()
    ):
        """``name`` is the name of the SplitAssignment."""
        self._cluster, self._namespace, self._name = cluster, settings.namespace, name
        self._attempt, self._timing = settings.attempt, timing
        self._seen = SeenAssignment(owner_uid=settings.uid)
        self._last_status: SplitAssignmentStatus | None = None
        self._outbox = _Outbox()
        self._closed = threading.Event()
        self._threads = [
            threading.Thread(target=self._follow, name="backfill-assignment", daemon=True),
            threading.Thread(target=self._deliver, name="backfill-reports", daemon=True),
        ]

    @property
    def heartbeat_seconds(self) -> float:
        """Longer than on one machine, since every report is a write to the API server."""
        return self._timing.heartbeat

    def open(self) -> None:
        """Reads the object, waiting for an unavailable API server, and starts watching it.

        Raises:
            BackfillError: it cannot be read, or belongs to another Backfill.
        """
        self._read_first()
        if self._seen.gone:
            raise BackfillError(
                f"the SplitAssignment {self._name} belongs to another Backfill with this name"
            )
        self._last_status = self._seen.status
        for thread in self._threads:
            thread.start()

    def assignment(self) -> SplitAssignmentSpec | None:
        """The newest spec of all answers and events."""
        return self._seen.spec

    def last_status(self) -> SplitAssignmentStatus | None:
        """The status when the channel was opened."""
        return self._last_status

    def report(self, status: SplitAssignmentStatus) -> None:
        """Queues the status for delivery, in place of one that is still waiting.

        Returns at once.
        """
        self._outbox.put(status)

    def controller_alive(self) -> bool:
        """True unless the object was deleted, and so its Backfill:
        an operator that is unavailable comes back.
        """
        return not self._seen.gone

    def close(self) -> None:
        """Returns when the last report is delivered, or cannot be: it was refused, or the API
        server has been unavailable for minutes.
        """
        if not self._outbox.wait_until_empty(self._timing.patience):
            _log.error("the last report could not be delivered within %s s", self._timing.patience)
        self._closed.set()
        self._outbox.close()

    def _read_first(self) -> None:
        begun, retries = time.monotonic(), self._retries("reading the SplitAssignment")
        while True:
            try:
                return self._seen.take(self._read())
            except (ClusterError, ConflictError) as error:
                refused = isinstance(error, Forbidden | NotFound | KindMissing)
                limit = self._timing.refused_at_start if refused else self._timing.patience
                if time.monotonic() - begun > limit:
                    hint = (
                        "; the driver's service account needs the Role backfill-driver"
                        if isinstance(error, Forbidden)
                        else ""
                    )
                    raise BackfillError(f"{error}{hint}") from error
                time.sleep(_wait(error, retries))

    def _follow(self) -> None:
        """Watches the object until the channel is closed or the object deleted, each time from
        where the last watch has ended.
        """
        retries = self._retries("following the SplitAssignment")
        version = self._seen.version
        while not self._closed.is_set() and not self._seen.gone:
            try:
                if not version:
                    self._seen.take(self._read())
                    version = self._seen.version
                ended = version
                for kind, manifest in self._watch(version):
                    version = manifest["metadata"]["resourceVersion"]
                    if kind == "DELETED":
                        self._seen.end()
                    elif kind != "BOOKMARK":
                        self._seen.take(manifest)
                    retries.worked()
                if version == ended:
                    raise Unreachable("the watch ended without an event")
                pause = self._timing.first_retry
            except (ClusterError, ConflictError) as error:
                if not isinstance(error, Unreachable) or error.status not in (0, 429):
                    version = ""  # the server has forgotten it, or does not understand it
                pause = self._failed(error, retries)
            self._closed.wait(pause)

    def _deliver(self) -> None:
        """Delivers reports until the channel is closed,
        or those of this attempt no longer count.
        """
        retries = self._retries("reporting")
        while (status := self._outbox.wait_for_one()) is not None:
            if self._seen.gone or self._newer_attempt():
                self._outbox.close()
                return
            try:
                self._send(status)
                self._outbox.delivered(status)
                retries.worked()
                pause = self._timing.between_reports
            except (ClusterError, ConflictError) as error:
                pause = self._failed(error, retries)
            self._closed.wait(pause)

    def _send(self, status: SplitAssignmentStatus) -> None:
        """Writes the status once.

        If the patch does not fit the object, the object is read for the next one.
        """
        try:
            self._seen.take(
                self._cluster.edit(
                    SPLIT_ASSIGNMENT,
                    self._namespace,
                    self._name,
                    self._seen.status_patch(status),
                    manager=DRIVER_MANAGER,
                    subresource="status",
                )
            )
        except Invalid as error:
            _log.error("a report was dropped, because the API server rejects it: %s", error)
        except Refused:
            self._seen.take(self._read())
            raise

    def _read(self) -> Manifest:
        """The object as it is now.

        Raises:
            NotFound: it does not exist.
        """
        manifest = self._cluster.get(SPLIT_ASSIGNMENT, self._namespace, self._name)
        if manifest is None:
            raise NotFound(f"there is no SplitAssignment {self._namespace}/{self._name}", 404)
        return manifest

    def _watch(self, version: str) -> Iterator[tuple[str, Manifest]]:
        return self._cluster.watch(
            SPLIT_ASSIGNMENT,
            self._namespace,
            name=self._name,
            resource_version=version,
            seconds=_WATCH_SECONDS,
            silence_seconds=_SILENCE_SECONDS,
        )

    def _newer_attempt(self) -> bool:
        spec = self._seen.spec
        return spec is not None and spec.attempt > self._attempt

    def _failed(self, error: ClusterError | ConflictError, retries: Retries) -> float:
        """Seconds to wait. Only NotFound means that the object was deleted: a server that is
        starting may not know its kind.
        """
        if isinstance(error, NotFound):
            self._seen.end()
            return 0.0
        return _wait(error, retries)

    def _retries(self, what: str) -> Retries:
        return Retries(what, self._timing.first_retry, self._timing.last_retry)


def _wait(error: ClusterError | ConflictError, retries: Retries) -> float:
    asked = error.retry_after_seconds if isinstance(error, Unreachable) else 0.0
    return retries.failed(error, asked)


class _Outbox:
    """Holds the newest report until it is delivered."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: SplitAssignmentStatus | None = None
        self._closed = False

    def put(self, status: SplitAssignmentStatus) -> None:
        """Replaces the waiting report."""
        with self._changed:
            self._waiting = status
            self._changed.notify_all()

    def wait_for_one(self) -> SplitAssignmentStatus | None:
        """Waits for a report, and returns it; None once the outbox is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._waiting is not None)
            return None if self._closed else self._waiting

    def delivered(self, status: SplitAssignmentStatus) -> None:
        """Removes the report, unless a newer one has replaced it."""
        with self._changed:
            if self._waiting is status:
                self._waiting = None
            self._changed.notify_all()

    def wait_until_empty(self, seconds: float) -> bool:
        """Whether no report is waiting, or none will be delivered any more, within this time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._closed or self._waiting is None, seconds)

    def close(self) -> None:
        """Stops delivery."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
