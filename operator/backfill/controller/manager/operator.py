"""The parts of an operator, and how it comes to lead and ends. Kopf calls it: see ``handlers``."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

from backfill.controller.cluster.job_pods.pod_limit import PodPlaces
from backfill.controller.cluster.job_pods.pod_manifests import JobImage
from backfill.controller.cluster.job_pods.runner import JobPods
from backfill.controller.manager.events import Recorder
from backfill.controller.manager.leader_election import ClusterLeaseStore, Elector
from backfill.controller.manager.listing import Relisting
from backfill.controller.manager.login import Login
from backfill.controller.manager.metrics import Metrics, state_of
from backfill.controller.manager.options import Settings
from backfill.controller.manager.reconciles import Reconciles
from backfill.controller.manager.wiring import Caches, Cases
from backfill.controller.manager.workqueue import Workers, WorkQueue
from backfill.kube.object_names import Key
from backfill.kube.resources import BACKFILL, DECISION, JOB_REPORT, SPLIT_ASSIGNMENT, Manifest

_LOG = logging.getLogger(__name__)
_NEEDED = frozenset((BACKFILL, DECISION, JOB_REPORT, SPLIT_ASSIGNMENT))
_RETRY_SECONDS = 2.0
_LOOK_SECONDS = 0.25
_LAST_TURNS_SECONDS = 5.0


class Operator:
    """One replica. It fills its caches from the start, and reconciles only while it leads."""

    def __init__(self, settings: Settings):
        """Reads credentials, without a request to the API server.

        Raises:
            BackfillError: there are no credentials.
        """
        self.settings = settings
        self.login = Login(settings.kubeconfig, settings.context)
        self.caches = Caches()
        self.watched = self.caches.watched()
        self.cache_of = {kind.resource: kind.cache for kind in self.watched}
        self.recorder = Recorder()
        self.metrics = Metrics(self._states)
        self.exit_status = 0
        """That of the process: 1 if it has lost its Lease."""
        self.has_begun = False
        """Whether it has listed everything, and is a candidate for the Lease."""
        self._stop = threading.Event()
        self._restart: Callable[[], object] = lambda: None
        self._is_to_restart = False
        cluster = self.login.cluster(
            requests_per_second=settings.qps,
            burst=round(2 * settings.qps),
            on_request=lambda verb, kind, status, seconds: self.metrics.requested(verb, status),
        )
        self._relisting = Relisting(cluster, self.watched, settings.namespaces)
        lease = ClusterLeaseStore(
            self.login.cluster(), settings.leader_election_namespace, settings.leader_election_id
        )
        self._elector = Elector(lease, settings.identity)
        self._queue: WorkQueue[Key] = WorkQueue(
            threads=settings.workers,
            group_of=lambda key: key[0],
            groups=self.caches.namespaces,
            on_taken=self.metrics.waited,
        )
        self.metrics.watch_depth(lambda: self._queue.depth)
        self.caches.listen(self._changed)
        places = PodPlaces(
            self.caches.pods, settings.job_pods, self.caches.backfills, self.caches.namespaces
        )
        cases = Cases(
            cluster,
            self.caches,
            JobPods(
                cluster,
                self.caches.pods,
                self.caches.reports,
                places,
                JobImage(settings.job_image, settings.job_image_pull_policy),
                on_used=self.metrics.used,
                leads=lambda: self._elector.leads,
            ),
            self._queue.mark,
            self.recorder.status_written,
            settings.default_workspace,
            settings.decision_names == "verified",
            leads=lambda: self._elector.leads,
        )
        self._reconciles = Reconciles(
            self._queue,
            lambda key: self.caches.backfills.get(*key),
            cases.open,
            self.metrics,
            leads=lambda: self._elector.leads,
            on_trouble=self.recorder.reconcile_failed,
        )
        self._workers = Workers(self._queue, self._reconciles.take, settings.workers)

    @property
    def leads(self) -> bool:
        """Whether it reconciles."""
        return self._elector.leads

    @property
    def stuck(self) -> str | None:
        """A reconcile that has been in progress for too long, in words; None if there is none."""
        return self._reconciles.stuck

    def fill_caches(self) -> str | None:
        """Lists everything. Returns what is missing for a start, in words.

        Raises:
            ClusterError: a list failed.
        """
        self._relisting.list_once()
        missing = sorted(kind.plural for kind in _NEEDED - self._relisting.served)
        return f"the definitions of {', '.join(missing)} are not installed" if missing else None

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Those that may be watched; empty for all."""
        refused = self._relisting.refused
        return tuple(each for each in self.settings.namespaces if each not in refused)

    def begin(self, restart: Callable[[], object]) -> None:
        """Becomes a candidate for the Lease, and lists at intervals, in threads.

        ``restart`` ends Kopf, to begin anew with the kinds and namespaces that there are, or not to
        if :meth:`is_over`.
        """
        self._restart = restart
        if self._is_to_restart:
            restart()
        if not self.has_begun:
            self.has_begun = True
            for name, act in (("lists", self._relist), ("candidate", self._lead)):
                threading.Thread(target=act, name=name, daemon=True).start()

    def is_over(self, *, failed: bool) -> bool:
        """Whether the process ends now that Kopf has ended. If it does not, waits a moment."""
        if not failed and not self._is_to_restart:
            return True
        self._is_to_restart = False
        return self._stop.wait(_RETRY_SECONDS) or self.exit_status != 0

    def close(self) -> None:
        """Waits for reconciles in progress. Drivers continue with the steps that were released."""
        self._stop.set()
        self._queue.close()
        if not self.leads:
            return
        if not self._workers.join(_LAST_TURNS_SECONDS):
            _LOG.warning("a reconcile did not finish in time; the next leader repeats it")
        self._elector.release()
        self.metrics.leading(False)
        _LOG.info(
            "%s has finished its reconciles and is no longer the leader", self.settings.identity
        )

    def end_kopf(self) -> None:
        """Ends the present run of Kopf, if there is one."""
        with suppress(RuntimeError):  # its loop is closed
            self._restart()

    def _changed(self, key: Key) -> None:
        """Queues a Backfill if this process leads. One that comes to lead queues all Backfills."""
        if self.leads:
            self._queue.mark(key)

    def _relist(self) -> None:
        def begin_anew() -> None:
            _LOG.info("kinds or namespaces were added or removed; watching those that there are")
            self._is_to_restart = True
            self.end_kopf()

        self._relisting.keep_on(self._stop, begin_anew)

    def _lead(self) -> None:
        if not self._elector.acquire(self._stop):
            return
        if self._stop.is_set():  # in the meantime
            self._elector.release()
            return
        _LOG.info("%s is now the leader", self.settings.identity)
        self.metrics.leading(True)
        threading.Thread(
            target=self._elector.keep, args=(self._stop,), name="lease", daemon=True
        ).start()
        for key in self.caches.backfills.keys():  # noqa: SIM118 - no mapping
            self._queue.mark(key)
        self._workers.start()
        while self.leads:
            if self._stop.wait(_LOOK_SECONDS):
                return
        if self._stop.is_set():  # released, not lost
            return
        _LOG.error("the lease could not be renewed; another replica may lead from now on")
        self.exit_status = 1
        self.metrics.leading(False)
        self._queue.close()
        self.end_kopf()

    def _states(self) -> Iterator[str]:
        for key in self.caches.backfills.keys():  # noqa: SIM118 - no mapping
            backfill: Manifest | None = self.caches.backfills.get(*key)
            if backfill is not None:
                yield state_of(backfill)
