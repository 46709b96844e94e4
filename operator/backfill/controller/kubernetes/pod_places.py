"""How many pods do jobs at the same time, and whose turn is next."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import islice

from backfill.controller.backends.driver_state import has_ended
from backfill.controller.kubernetes.cache import Cache
from backfill.controller.kubernetes.job_pod import JOB_LABEL
from backfill.controller.kubernetes.names import Key
from backfill.controller.kubernetes.pod_end import overdue
from backfill.controller.kubernetes.resources import Manifest


class PodPlaces:
    """Bounds the pods of jobs, also those that an operator before this one has made: a pod in the cache has a place.

    Whoever waits longest is next. One that does not come when it is told keeps its place in the queue and holds up nobody
    but itself, as long as there is another place.
    """

    def __init__(self, pods: Cache, most: int):
        """``pods``: those of all Backfills, and maybe others. ``most``: at the same time."""
        self._pods = pods
        self._most = most
        self._waiting: dict[Key, Callable[[], None]] = {}
        self._making: set[Key] = set()
        self._lock = threading.Lock()
        pods.listen(lambda _backfill: self._tell_the_next())

    def take(self, pod: Key, on_turn: Callable[[], None]) -> bool:
        """Whether a pod may be made now; :meth:`leave` tells that it has been. Else it waits, and ``on_turn`` is called
        when it is worth asking again.
        """
        with self._lock:
            self._waiting.setdefault(pod, on_turn)
            if pod not in islice(self._waiting, self._free()):
                return False
            del self._waiting[pod]
            self._making.add(pod)
            return True

    def leave(self, pod: Key) -> None:
        """It is made, and so in the cache, or nobody wants it any more."""
        with self._lock:
            self._waiting.pop(pod, None)
            self._making.discard(pod)
        self._tell_the_next()

    def _tell_the_next(self) -> None:
        if not self._waiting:
            return
        with self._lock:
            due = list(islice(self._waiting.values(), self._free()))
        for on_turn in due:
            on_turn()

    def _free(self) -> int:
        return max(self._most - len(self._making | self._at_work()), 0)

    def _at_work(self) -> set[Key]:
        keys = self._pods.keys()
        return {key for key in keys if _works(self._pods.get(*key))}


def _works(pod: Manifest | None) -> bool:
    """One whose node is lost stays for ever and does not count for ever."""
    job = pod if pod is not None and JOB_LABEL in pod["metadata"].get("labels", {}) else None
    return job is not None and not has_ended(job) and not overdue(job, datetime.now(UTC))
