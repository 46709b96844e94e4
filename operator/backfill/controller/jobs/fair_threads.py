"""A limited number of threads that namespaces share."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from backfill.controller.jobs.fair_shares import next_turns, share_of
from backfill.kube.object_names import Key


@dataclass(frozen=True, slots=True, eq=False)
class Ticket:
    """A place in the queue."""

    key: Key
    work: Callable[[], None]


class FairThreads:
    """Runs work when its turn comes; see :func:`~backfill.controller.jobs.fair_shares.next_turns`.

    Each piece of work has a new thread, so that none is idle; there are few.
    """

    def __init__(self, most: int, namespaces: Callable[[], int]):
        """``most`` is the number of threads at the same time. ``namespaces`` returns the number of
        namespaces that have Backfills.
        """
        self._most = most
        self._namespaces = namespaces
        self._waiting: list[Ticket] = []
        self._at_work: dict[Ticket, threading.Thread] = {}
        self._closed = False
        self._lock = threading.Lock()

    def submit(self, key: Key, work: Callable[[], None]) -> Ticket:
        """Queues work for a Backfill. It must not raise."""
        ticket = Ticket(key, work)
        with self._lock:
            self._waiting.append(ticket)
            self._begin()
        return ticket

    def cancel(self, ticket: Ticket) -> None:
        """Removes a ticket from the queue. Work in progress continues."""
        with self._lock:
            if ticket in self._waiting:
                self._waiting.remove(ticket)

    def close(self) -> None:
        """Starts no more work."""
        with self._lock:
            self._closed = True
            self._waiting.clear()

    def join(self) -> None:
        """Waits for work in progress."""
        with self._lock:
            threads = list(self._at_work.values())
        for thread in threads:
            thread.join()

    def _begin(self) -> None:
        if self._closed:
            return
        keys = (ticket.key for ticket in self._waiting)
        share = share_of(self._most, self._namespaces())
        for key in next_turns(keys, (ticket.key for ticket in self._at_work), self._most, share):
            ticket = next(each for each in self._waiting if each.key == key)
            self._waiting.remove(ticket)
            self._at_work[ticket] = threading.Thread(
                target=self._do, args=(ticket,), name="job", daemon=True
            )
            self._at_work[ticket].start()

    def _do(self, ticket: Ticket) -> None:
        try:
            ticket.work()
        finally:
            with self._lock:
                del self._at_work[ticket]
                self._begin()
