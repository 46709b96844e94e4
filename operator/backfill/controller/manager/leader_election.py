"""One operator of several reconciles: the one that holds a Lease.

The algorithm is that of client-go's ``tools/leaderelection``. Clocks of machines are never
compared: whoever does not hold the Lease watches whether its record changes, and takes it when the
record stayed the same for its whole duration by the watcher's own monotonic clock. Between two
replicas a reconcile may still overlap for an instant; writes that are bound to what was read, and
children with fixed names, make that harmless.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from backfill.api.errors import ConflictError
from backfill.kube.resources import Manifest

_LOG = logging.getLogger(__name__)


class LeaseStore(Protocol):
    """The one Lease all replicas look at. Every call may fail with the errors of a request."""

    def get(self) -> Manifest | None:
        """The Lease, if there is one."""

    def create(self, spec: Manifest) -> None:
        """Makes it.

        Raises:
            ConflictError: somebody else was faster.
        """

    def replace(self, lease: Manifest, spec: Manifest) -> None:
        """Replaces the spec of a Lease that was got.

        Raises:
            ConflictError: it has changed since.
        """


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """How patient everybody is, in seconds. A leader gives up before anybody else may take over."""

    duration: float = 15.0
    """A record that stays the same for so long is abandoned."""
    renew_deadline: float = 10.0
    """A leader that could not renew for so long is none any more."""
    retry: float = 2.0
    """Between two attempts to get or renew it."""


class Elector:
    """One candidate."""

    def __init__(
        self,
        store: LeaseStore,
        identity: str,
        times: LeaseTimes = LeaseTimes(),
        monotonic: Callable[[], float] = time.monotonic,
    ):
        """``identity`` must be of this process alone, now and later."""
        self._store = store
        self._identity = identity
        self._times = times
        self._monotonic = monotonic
        self._record: Manifest = {}
        self._changed_at = 0.0
        self._renewed_at: float | None = None

    @property
    def leads(self) -> bool:
        """Whether to reconcile right now. Cheap; false as soon as the Lease could not be renewed in
        time.
        """
        renewed_at = self._renewed_at
        return (
            renewed_at is not None and self._monotonic() - renewed_at < self._times.renew_deadline
        )

    def attempt(self) -> bool:
        """Gets or renews the Lease; whether it is held now. Never raises: a request that fails is
        an attempt that failed.
        """
        began = self._monotonic()
        try:
            held = self._try()
        except ConflictError:
            # somebody wrote it, perhaps this process with an answer that got lost: the next look
            # tells
            return False
        except Exception as error:
            _LOG.warning("the lease could not be read or written: %s", error)
            return False
        self._renewed_at = began if held else None
        return held

    def acquire(self, stop: threading.Event) -> bool:
        """Waits until the Lease is held; False when ``stop`` is set before."""
        while not stop.is_set():
            if self.attempt():
                return True
            stop.wait(self._patience())
        return False

    def keep(self, stop: threading.Event) -> bool:
        """Renews until ``stop`` is set; False as soon as the Lease is lost."""
        while not stop.wait(self._times.retry):
            if not self.attempt() and not self.leads:
                return False
        return True

    def release(self) -> None:
        """Lets the next candidate have it at its next attempt."""
        if self._renewed_at is None:
            return
        self._renewed_at = None
        try:
            lease = self._store.get()
            if lease is not None and lease.get("spec", {}).get("holderIdentity") == self._identity:
                self._store.replace(
                    lease,
                    {
                        **lease["spec"],
                        "holderIdentity": "",
                        "leaseDurationSeconds": 1,
                        "renewTime": _now(),
                    },
                )
        except Exception as error:
            _LOG.warning("the lease could not be released and will expire: %s", error)

    def _try(self) -> bool:
        lease = self._store.get()
        if lease is None:
            self._store.create(self._wanted({}))
            return True
        record = lease.get("spec") or {}
        if record != self._record:
            self._record, self._changed_at = record, self._monotonic()
        if record.get("holderIdentity") not in {None, "", self._identity} and not self._abandoned():
            return False
        self._store.replace(lease, self._wanted(record))
        return True

    def _abandoned(self) -> bool:
        return self._monotonic() >= self._changed_at + self._duration()

    def _duration(self) -> float:
        return float(self._record.get("leaseDurationSeconds") or self._times.duration)

    def _patience(self) -> float:
        """Until the next attempt: sooner where the record is about to be abandoned."""
        left = self._changed_at + self._duration() - self._monotonic()
        return min(self._times.retry, left) if left > 0 else self._times.retry

    def _wanted(self, record: Manifest) -> Manifest:
        mine = record.get("holderIdentity") == self._identity
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": round(self._times.duration),
            "acquireTime": record["acquireTime"] if mine and "acquireTime" in record else _now(),
            "renewTime": _now(),
            "leaseTransitions": int(record.get("leaseTransitions") or 0) + (0 if mine else 1),
        }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
