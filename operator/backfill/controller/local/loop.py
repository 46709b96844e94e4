"""Reconciles, one after the other, as soon as there is something new: the controller of a single
Backfill.
"""

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
    """Watches what a reconcile is made from, and reconciles when any of it changes."""

    def __init__(
        self, store: LocalStore, backend: Backend, channel: ControllerChannel, worker: Worker
    ):
        self.reconciler = Reconciler(store, StoredPlans(), backend, channel, worker, policy=LOCAL)
        self._store = store
        self._backend = backend
        self._channel = channel
        self._worker = worker

    def run(self, on_reconcile: Callable[[Reconciled], None]) -> Reconciled | None:
        """Goes on until nothing more will happen by itself. Gives the last reconcile; None when the
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
        """Until something changed, the time the decision gave is up, or a second for the clocks on
        the screen.
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
        """What changes without this controller's doing. Taken before a reconcile, so that nothing
        in between is missed.
        """
        return self._channel.report_version(), self._worker.state, self.reconciler.shutting_down
