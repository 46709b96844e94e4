"""Limits how many job pods exist at the same time, and chooses which is next."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime

from backfill.controller.children.driver_state import has_ended
from backfill.controller.cluster.job_pods.pod_deletion import overdue
from backfill.controller.cluster.job_pods.pod_manifests import JOB_LABEL, is_job_name
from backfill.controller.jobs.fair_shares import next_turns, share_of
from backfill.kube.cache import Cache, labelled_key, owner_uid, uid_of
from backfill.kube.object_names import Key
from backfill.kube.resources import Manifest


class PodPlaces:
    """Places for job pods.

    A pod in the cache has a place, also if an earlier operator has created it.

    Only pods that an operator can have created count: one for each Backfill, owned by it, named
    like ours. Namespaces share the places, see :mod:`~backfill.controller.jobs.fair_shares`. Within
    a namespace, the job that has waited longest is next. One that does not respond to its turn
    keeps its position, and delays no other as long as there is another place.
    """

    def __init__(
        self, pods: Cache, most: int, backfills: Cache, namespaces: Callable[[], int] = lambda: 1
    ):
        """Keeps what is needed.

        Args:
            pods: cache with the job pods of all Backfills, and possibly other pods.
            most: number of places.
            backfills: cache of all Backfills.
            namespaces: returns the number of namespaces that have Backfills.
        """
        self._pods = pods
        self._most = most
        self._backfills = backfills
        self._namespaces = namespaces
        self._waiting: dict[Key, Callable[[], None]] = {}
        self._making: set[Key] = set()
        self._lock = threading.Lock()
        pods.listen(lambda _backfill: self._tell_the_next())

    def take(self, pod: Key, on_turn: Callable[[], None]) -> bool:
        """Whether a pod may be created now; call :meth:`leave` after that. If not, it waits, and
        ``on_turn`` is called when it should ask again.
        """
        with self._lock:
            self._waiting.setdefault(pod, on_turn)
            if pod not in self._next():
                return False
            del self._waiting[pod]
            self._making.add(pod)
            return True

    def leave(self, pod: Key) -> None:
        """The pod was created, and so is in the cache, or is no longer wanted."""
        with self._lock:
            self._waiting.pop(pod, None)
            self._making.discard(pod)
        self._tell_the_next()

    def _tell_the_next(self) -> None:
        if not self._waiting:
            return
        with self._lock:
            due = [self._waiting[pod] for pod in self._next()]
        for on_turn in due:
            on_turn()

    def _next(self) -> list[Key]:
        share = share_of(self._most, self._namespaces())
        return next_turns(self._waiting, self._making | self._at_work(), self._most, share)

    def _at_work(self) -> set[Key]:
        """The pods that have a place, at most one of each Backfill,
        because an operator creates no second one.
        """
        known = (self._pods.get(*key) for key in self._pods.keys())  # noqa: SIM118 - no mapping
        found: dict[Key, Key] = {}
        for pod in known:
            if pod is not None and _works(pod) and (backfill := self._maker(pod)) is not None:
                found[backfill] = pod["metadata"]["namespace"], pod["metadata"]["name"]
        return set(found.values())

    def _maker(self, pod: Manifest) -> Key | None:
        """The Backfill that a pod was created for; None if something else has created it."""
        backfill = labelled_key(pod)
        known = self._backfills.get(*backfill) if backfill is not None else None
        if backfill is None or known is None or owner_uid(pod) != uid_of(known):
            return None
        return backfill if is_job_name(backfill[1], pod["metadata"]["name"]) else None


def _works(pod: Manifest) -> bool:
    """Whether a pod counts. One on a lost node stays forever, and must not count forever."""
    is_job = JOB_LABEL in pod["metadata"].get("labels", {})
    return is_job and not has_ended(pod) and not overdue(pod, datetime.now(UTC))
