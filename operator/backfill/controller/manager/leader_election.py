"""Leader election: of several operators, only the one that holds a Lease reconciles.

The algorithm is that of client-go's ``tools/leaderelection``. It does not compare clocks of
machines: a candidate takes the Lease over when its record has not changed for its whole duration by
the candidate's own monotonic clock. For a moment, reconciles of two replicas may still overlap.
That is harmless, because writes are bound to the version that was read, and children have fixed
names.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from backfill.api.errors import ConflictError
from backfill.kube.client import Cluster
from backfill.kube.request_errors import AlreadyExists
from backfill.kube.resources import LEASE, Manifest

_LOG = logging.getLogger(__name__)


class LeaseStore(Protocol):
    """The Lease that all replicas share. Every call may raise the errors of a request."""

    def get(self) -> Manifest | None:
        """The Lease; None if it does not exist."""

    def create(self, spec: Manifest) -> None:
        """Creates the Lease.

        Raises:
            ConflictError: another replica has created it.
        """

    def replace(self, lease: Manifest, spec: Manifest) -> None:
        """Replaces the spec of a Lease that was read.

        Raises:
            ConflictError: it has changed since it was read.
        """


class ClusterLeaseStore:
    """A Lease of an API server."""

    def __init__(self, cluster: Cluster, namespace: str, name: str):
        """``cluster`` should serve nothing else: then renewing never waits for other requests."""
        self._cluster = cluster
        self._namespace = namespace
        self._name = name

    def get(self) -> Manifest | None:
        """The Lease; None if it does not exist."""
        return self._cluster.get(LEASE, self._namespace, self._name)

    def create(self, spec: Manifest) -> None:
        """Creates the Lease.

        Raises:
            ConflictError: another replica has created it.
        """
        metadata = {"name": self._name, "namespace": self._namespace}
        kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
        try:
            self._cluster.create(LEASE, {**kind, "metadata": metadata, "spec": spec})
        except AlreadyExists as error:
            raise ConflictError(str(error)) from error

    def replace(self, lease: Manifest, spec: Manifest) -> None:
        """Replaces the spec of a Lease that was read.

        Raises:
            ConflictError: it has changed since it was read.
        """
        self._cluster.replace(LEASE, {**lease, "spec": spec})


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Times in seconds. A leader gives up before another replica may take over."""

    duration: float = 15.0
    """A Lease whose record has not changed for this time is abandoned."""
    renew_deadline: float = 10.0
    """A leader that could not renew the Lease for this time no longer leads."""
    retry: float = 2.0
    """Time between two attempts to acquire or renew the Lease."""


class Elector:
    """One candidate."""

    def __init__(
        self,
        store: LeaseStore,
        identity: str,
        times: LeaseTimes = LeaseTimes(),
        monotonic: Callable[[], float] = time.monotonic,
    ):
        """``identity`` must belong to this process alone, for all time."""
        self._store = store
        self._identity = identity
        self._times = times
        self._monotonic = monotonic
        self._record: Manifest = {}
        self._changed_at = 0.0
        self._renewed_at: float | None = None

    @property
    def leads(self) -> bool:
        """Whether this process may reconcile now. False as soon as the Lease was not renewed in
        time. Takes no request.
        """
        renewed_at = self._renewed_at
        return (
            renewed_at is not None and self._monotonic() - renewed_at < self._times.renew_deadline
        )

    def _has_lapsed(self) -> bool:
        """Whether this process has led, and could not renew the Lease in time."""
        return self._renewed_at is not None and not self.leads

    def attempt(self) -> bool:
        """Acquires or renews the Lease, and returns whether it is held now. Never raises: if a
        request fails, so does the attempt.

        A leader whose Lease has lapsed never leads again, since it may have dropped what was due in
        the meantime: its process ends, and the next leader begins with everything.
        """
        began = self._monotonic()
        if self._has_lapsed():
            return False
        try:
            held = self._try()
        except ConflictError:
            # Somebody has written it, perhaps this process with a request whose answer was lost.
            # The next attempt shows.
            return False
        except Exception as error:
            _LOG.warning("the lease could not be read or written: %s", error)
            return False
        if self._has_lapsed():
            return False  # during the request
        self._renewed_at = began if held else None
        return held

    def acquire(self, stop: threading.Event) -> bool:
        """Waits until the Lease is held; returns False if ``stop`` is set first."""
        while not stop.is_set():
            if self.attempt():
                return True
            stop.wait(self._patience())
        return False

    def keep(self, stop: threading.Event) -> bool:
        """Renews the Lease until ``stop`` is set; returns False as soon as it is lost."""
        while not stop.wait(self._times.retry):
            if not self.attempt() and not self.leads:
                return False
        return True

    def release(self) -> None:
        """Releases the Lease, so that the next candidate gets it at its next attempt."""
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
        """Seconds until the next attempt: fewer if the record is about to be abandoned."""
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
