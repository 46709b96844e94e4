"""Decides which Backfill is reconciled next. Each key is in the queue at most once, and is handled
by one thread at a time.

The rules are those of client-go's work queue (``k8s.io/client-go/util/workqueue``): a key that is
marked while it is handled is handled again afterwards, and one that is marked several times before
that is handled once. In addition, keys belong to groups (namespaces) that share the threads, so
that thousands of keys of one group do not delay a key of another.
"""

import heapq
import math
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable
from itertools import count
from typing import Generic, TypeVar

from backfill.controller.jobs.fair_shares import share_of

K = TypeVar("K", bound=Hashable)

_FIRST_BACKOFF_SECONDS = 0.1
_LONGEST_BACKOFF_SECONDS = 60.0
_MOST_DOUBLINGS = 30


class Agenda(Generic[K]):
    """When each key is due.

    Has neither threads nor a clock; times are seconds of one monotonic clock.
    """

    def __init__(self, group_of: Callable[[K], Hashable] = lambda key: None):
        """``group_of`` returns the group of a key. By default all keys are in one group."""
        self._group_of = group_of
        self._due: dict[K, float] = {}
        self._heaps: dict[Hashable, list[tuple[float, int, K]]] = {}
        """Heaps by group. They may contain outdated entries; ``_due`` is authoritative."""
        self._order = count()
        self._running: set[K] = set()
        self._busy: Counter[Hashable] = Counter()
        """Number of running keys by group."""

    def __len__(self) -> int:
        """Number of marked keys, including those whose time has not come."""
        return len(self._due)

    def mark(self, key: K, at: float) -> None:
        """Makes a key due at a time. If it is marked several times, the earliest time counts."""
        if key in self._due and self._due[key] <= at:
            return
        self._due[key] = at
        if key not in self._running:
            self._push(key)

    def begin(self, now: float, share: float = math.inf) -> tuple[K, float] | None:
        """The next key and the time since which it is due; None if there is none. The key is taken
        until :meth:`end`.

        Among the groups with the fewest running keys, it is the key that has been due longest.

        Args:
            now: the current time.
            share: most running keys of one group.
        """
        heads = [(self._busy[group], at, group) for group, at in self._heads(share) if at <= now]
        if not heads:
            return None
        _, at, group = min(heads, key=lambda head: head[:2])
        _, _, key = heapq.heappop(self._heaps[group])
        del self._due[key]
        self._running.add(key)
        self._busy[group] += 1
        return key, at

    def end(self, key: K) -> None:
        """Ends a key's turn. It may be taken again if it was marked in the meantime."""
        if key in self._running:
            self._running.remove(key)
            group = self._group_of(key)
            self._busy[group] -= 1
            if not self._busy[group]:
                del self._busy[group]
        if key in self._due:
            self._push(key)

    def next_due(self, share: float = math.inf) -> float | None:
        """When the next key that is not running is due.

        Groups that have used up their share are left out.
        """
        return min((at for _, at in self._heads(share)), default=None)

    def due(self, now: float) -> int:
        """Number of keys that are due."""
        return sum(at <= now for at in self._due.values())

    def _heads(self, share: float) -> list[tuple[Hashable, float]]:
        """Groups that may have one more key running, and when their next key is due."""
        heads = []
        for group, heap in list(self._heaps.items()):
            while heap and self._overtaken(heap[0]):
                heapq.heappop(heap)
            if not heap:
                del self._heaps[group]
            elif self._busy[group] < share:
                heads.append((group, heap[0][0]))
        return heads

    def _push(self, key: K) -> None:
        heapq.heappush(
            self._heaps.setdefault(self._group_of(key), []),
            (self._due[key], next(self._order), key),
        )

    def _overtaken(self, entry: tuple[float, int, K]) -> bool:
        at, _, key = entry
        return key in self._running or self._due.get(key) != at


class WorkQueue(Generic[K]):
    """An agenda that threads share. A key that failed is due again after a delay, which doubles
    with each failure.
    """

    def __init__(
        self,
        *,
        threads: int = sys.maxsize,
        group_of: Callable[[K], Hashable] = lambda key: None,
        groups: Callable[[], int] = lambda: 1,
        monotonic: Callable[[], float] = time.monotonic,
        on_taken: Callable[[float], None] = lambda waited_seconds: None,
    ):
        """Creates an empty queue.

        Args:
            threads: number of threads that take keys.
            group_of: the group of a key; groups share the threads, see
                :func:`~backfill.controller.jobs.fair_shares.share_of`.
            groups: returns the number of groups, including those without a key that is due.
            monotonic: the clock, in seconds.
            on_taken: called with the seconds that a taken key was due.
        """
        self._agenda: Agenda[K] = Agenda(group_of)
        self._threads = threads
        self._groups = groups
        self._monotonic = monotonic
        self._on_taken = on_taken
        self._failures: dict[K, int] = {}
        self._changed = threading.Condition()
        self._closed = False

    @property
    def depth(self) -> int:
        """Number of keys that are due and not taken."""
        with self._changed:
            return self._agenda.due(self._monotonic())

    def mark(self, key: K, after_seconds: float = 0.0) -> None:
        """Makes a key due, now or after some time."""
        with self._changed:
            self._agenda.mark(key, self._monotonic() + after_seconds)
            self._changed.notify()

    def take(self, timeout_seconds: float | None = None) -> K | None:
        """Waits for a key that is due. None if the queue is closed or the time is up."""
        with self._changed:
            give_up = None if timeout_seconds is None else self._monotonic() + timeout_seconds
            while not self._closed:
                now, share = self._monotonic(), share_of(self._threads, self._groups())
                taken = self._agenda.begin(now, share)
                if taken is not None:
                    self._on_taken(now - taken[1])
                    return taken[0]
                if give_up is not None and now >= give_up:
                    return None
                times = [at for at in (self._agenda.next_due(share), give_up) if at is not None]
                self._changed.wait(min(times) - now if times else None)
            return None

    def done(self, key: K) -> None:
        """Records that the reconcile of a key has succeeded."""
        with self._changed:
            self._failures.pop(key, None)
            self._end(key)

    def failed(self, key: K) -> float:
        """Records that the reconcile of a key has failed,
        and returns the seconds until the next one.
        """
        with self._changed:
            failures = self._failures.get(key, 0)
            self._failures[key] = failures + 1
            wait = min(
                _FIRST_BACKOFF_SECONDS * 2.0 ** min(failures, _MOST_DOUBLINGS),
                _LONGEST_BACKOFF_SECONDS,
            )
            self._agenda.mark(key, self._monotonic() + wait)
            self._end(key)
            return wait

    def close(self) -> None:
        """Closes the queue: no more keys are taken."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _end(self, key: K) -> None:
        self._agenda.end(key)
        self._changed.notify()


class Workers(Generic[K]):
    """Threads that reconcile until the queue is closed."""

    def __init__(self, queue: WorkQueue[K], reconcile: Callable[[K], None], threads: int):
        """``reconcile`` must not raise. It ends the key's turn with ``done`` or ``failed``."""
        self._queue = queue
        self._reconcile = reconcile
        self._threads = [
            threading.Thread(target=self._work, name=f"reconcile-{n}", daemon=True)
            for n in range(threads)
        ]

    def start(self) -> None:
        """Starts the threads."""
        for thread in self._threads:
            thread.start()

    def join(self, timeout_seconds: float) -> bool:
        """Waits for reconciles in progress after the queue was closed.

        Returns whether all ended in time.
        """
        deadline = time.monotonic() + timeout_seconds
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(deadline - time.monotonic(), 0))
        return not any(thread.is_alive() for thread in self._threads)

    def _work(self) -> None:
        while (key := self._queue.take()) is not None:
            self._reconcile(key)
