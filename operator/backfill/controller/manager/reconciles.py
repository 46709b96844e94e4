"""Runs the reconciles of all Backfills, and keeps
what each needs from one reconcile to the next.
"""

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from backfill.api.conditions import SUMMARIES, Condition, ConditionType, find_condition
from backfill.api.errors import BackfillError, BadInput, ConflictError
from backfill.api.status import BackfillStatus
from backfill.controller.cluster.store import KubernetesStore
from backfill.controller.interfaces import JobRunner
from backfill.controller.manager.log_format import about
from backfill.controller.manager.metrics import Metrics, ReconcileOutcome
from backfill.controller.manager.workqueue import WorkQueue
from backfill.controller.reconcile import Reconciled, Reconciler
from backfill.kube.object_names import Key
from backfill.kube.request_errors import Faltering, Unauthorized, Unreachable
from backfill.kube.resources import Manifest

_LOG = logging.getLogger(__name__)
STUCK_SECONDS: Final = 900.0
"""A reconcile that takes longer is stuck: it makes a few requests, each of which fails after three
minutes at the latest, and waits for nothing else.
"""


@dataclass(frozen=True, slots=True)
class Case:
    """A Backfill that is being reconciled, with what its reconciles use."""

    uid: str
    store: KubernetesStore
    jobs: JobRunner
    reconciler: Reconciler

    def close(self) -> None:
        """Ends its work in this process; drivers continue."""
        self.jobs.close()


class Reconciles:
    """May be used by several threads.

    The queue makes sure that each Backfill is reconciled by one at a time.
    """

    def __init__(
        self,
        queue: WorkQueue[Key],
        find: Callable[[Key], Manifest | None],
        open_case: Callable[[Key, Manifest], Case],
        metrics: Metrics,
        *,
        leads: Callable[[], bool],
        on_trouble: Callable[[Manifest, str], None] = lambda backfill, why: None,
        monotonic: Callable[[], float] = time.monotonic,
    ):
        """Keeps what reconciles are run with.

        Args:
            queue: is informed how each reconcile ended.
            find: returns a Backfill as it is known now, without a request to the API server.
            open_case: makes what the reconciles of a Backfill use.
            metrics: records each reconcile.
            leads: whether this process may reconcile.
            on_trouble: called with a Backfill whose reconciles fail, and the reason; again only if
                the reason changes.
        """
        self._queue = queue
        self._find = find
        self._open_case = open_case
        self._metrics = metrics
        self._leads = leads
        self._on_trouble = on_trouble
        self._troubles: dict[Key, str] = {}
        self._monotonic = monotonic
        self._cases: dict[Key, Case] = {}
        self._under_way: dict[Key, float] = {}

    @property
    def stuck(self) -> str | None:
        """A reconcile that has been in progress for too long, in words; None if there is none."""
        now = self._monotonic()
        for (namespace, name), began in self._under_way.copy().items():
            if now - began > STUCK_SECONDS:
                return (
                    f"the reconcile of {namespace}/{name} has been under way for"
                    f" {now - began:.0f} s"
                )
        return None

    def take(self, key: Key) -> None:
        """Reconciles a Backfill once. Never raises."""
        if not self._leads():
            self._queue.done(key)
            return
        began = self._under_way[key] = self._monotonic()
        try:
            result = self._guarded(key)
        finally:
            del self._under_way[key]
        self._metrics.turned(result, self._monotonic() - began)
        if result in {"done", "refused"}:
            self._queue.done(key)
        else:
            self._queue.failed(key)

    def close(self) -> None:
        """Releases everything. No reconcile may be in progress."""
        for key in list(self._cases):
            self._drop(key)

    def _guarded(self, key: Key) -> ReconcileOutcome:
        backfill = self._find(key)
        with about(*key, uid=_uid(backfill), attempt=_attempt(backfill)):
            try:
                self._reconcile(key, backfill)
            except ConflictError as error:
                _LOG.debug("changed during its reconcile; retrying: %s", error)
                return "conflict"
            except BadInput as error:
                _LOG.warning("cannot be reconciled until it is corrected: %s", error)
                return "refused"
            except BackfillError as error:
                _LOG.warning("could not be reconciled; retrying: %s", error)
                nobody_there = isinstance(error, Unauthorized | Unreachable) and not isinstance(
                    error, Faltering
                )
                if not nobody_there:  # otherwise nobody could be informed
                    self._say_trouble(key, backfill, str(error))
                return "failed"
            except Exception as error:
                _LOG.exception("a reconcile failed; retrying")
                self._say_trouble(
                    key, backfill, f"{type(error).__name__} (details in the operator's log)"
                )
                return "failed"
        self._troubles.pop(key, None)
        return "done"

    def _say_trouble(self, key: Key, backfill: Manifest | None, why: str) -> None:
        if backfill is not None and self._troubles.get(key) != why:
            self._troubles[key] = why
            self._on_trouble(backfill, why)

    def _reconcile(self, key: Key, backfill: Manifest | None) -> None:
        case = self._cases.get(key)
        if case is not None and case.uid != _uid(backfill):
            self._drop(key)
            case = None
        if backfill is None:
            return
        if case is None:
            case = self._cases[key] = self._open_case(key, backfill)
        try:
            reconciled = case.reconciler.reconcile()
        except BadInput as error:
            case.store.refuse(error)
            raise
        if reconciled is None:
            self._drop(key)
            return
        for condition in changed_conditions(
            reconciled.observed.backfill.status, reconciled.decision.status
        ):
            _LOG.info(
                "%s=%s %s %s", condition.type, condition.status, condition.reason, condition.message
            )
        self._metrics.decided(key, reconciled)
        if reconciled.decision.next.at_rest and (case.jobs.state is None or _is_over(reconciled)):
            self._drop(key)
        for wait in (reconciled.decision.next.requeue_seconds, case.reconciler.withheld_seconds):
            if wait is not None:
                self._queue.mark(key, wait)

    def _drop(self, key: Key) -> None:
        self._metrics.forget(key)
        self._troubles.pop(key, None)
        case = self._cases.pop(key, None)
        if case is not None:
            case.close()


def changed_conditions(before: BackfillStatus, after: BackfillStatus) -> Iterator[Condition]:
    """The conditions whose status or reason has changed,
    without those that only summarise others.
    """
    for condition in after.conditions:
        if condition.type in SUMMARIES:
            continue
        old = find_condition(before.conditions, condition.type)
        if old is None or (old.status, old.reason) != (condition.status, condition.reason):
            yield condition


def _is_over(reconciled: Reconciled) -> bool:
    """Whether not even the result of the last job is needed any more."""
    outcome = find_condition(reconciled.decision.status.conditions, ConditionType.SUCCEEDED)
    deleted = reconciled.observed.backfill.metadata.deletion_timestamp is not None
    return outcome is not None and outcome.status != "Unknown" and not deleted


def _uid(backfill: Manifest | None) -> str:
    return str(backfill["metadata"]["uid"]) if backfill else ""


def _attempt(backfill: Manifest | None) -> int | None:
    attempts = (backfill or {}).get("status", {}).get("attempts")
    return int(attempts[-1]["number"]) if attempts else None
