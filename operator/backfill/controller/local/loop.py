"""The controller of a single Backfill: reconciles whenever something has changed."""

import time
from collections.abc import Callable

from backfill.controller.decisions.policy import LOCAL
from backfill.controller.driver import Backend
from backfill.controller.local.channel import ControllerChannel
from backfill.controller.local.jobs import Worker
from backfill.controller.local.plan_headers import StoredPlans
from backfill.controller.local.store import LocalStore
from backfill.controller.reconcile import Reconciled, Reconciler

_POLL_SECONDS = 0.02
_LONGEST_WAIT_SECONDS = 1.0


class Loop:
    """Watches everything that a reconcile depends on, and reconciles when it changes."""

    def __init__(
        self, store: LocalStore, backend: Backend, channel: ControllerChannel, worker: Worker
    ):
        self.reconciler = Reconciler(store, StoredPlans(), backend, channel, worker, policy=LOCAL)
        self._store = store
        self._backend = backend
        self._channel = channel
        self._worker = worker

    def run(self, on_reconcile: Callable[[Reconciled], None]) -> Reconciled | None:
        """Runs until nothing more will happen by itself. Returns the last reconcile; None if the
        Backfill was removed.
        """
        while True:
            seen = self._events()
            reconciled = self.reconciler.reconcile()
            if reconciled is None:
                return None
            on_reconcile(reconciled)
            if reconciled.decision.next.at_rest:
                return reconciled if self._store.version() is not None else None
            self._wait(reconciled, seen)

    def _wait(self, reconciled: Reconciled, seen: tuple[object, ...]) -> None:
        """Waits until something changes, the time that the decision gave is over, or a second has
        passed, for the clocks on the screen.
        """
        requeue = reconciled.decision.next.requeue_seconds
        deadline = time.monotonic() + min(
            _LONGEST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS if requeue is None else requeue
        )
        attempt, driver = reconciled.observed.attempt, reconciled.observed.driver.phase
        resource = self._store.version()
        while (
            time.monotonic() < deadline
            and self._events() == seen
            and self._store.version() == resource
        ):
            if attempt is not None and self._backend.observe(attempt.number).phase != driver:
                return
            time.sleep(_POLL_SECONDS)

    def _events(self) -> tuple[object, ...]:
        """Versions of everything that others change. Taken before a reconcile, so that no change
        during it is missed.
        """
        return self._channel.report_version(), self._worker.state, self.reconciler.shutting_down
