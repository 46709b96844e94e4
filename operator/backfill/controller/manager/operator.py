"""The operator's process, from its start through leading to its end."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from backfill.api.signals import asked_to_end
from backfill.controller.cluster.job_pods.pod_limit import PodPlaces
from backfill.controller.cluster.job_pods.pod_manifests import JobImage
from backfill.controller.cluster.job_pods.runner import JobPods
from backfill.controller.manager.events import Recorder
from backfill.controller.manager.leader_election import ClusterLeaseStore, Elector
from backfill.controller.manager.metrics import Metrics, state_of
from backfill.controller.manager.options import Settings
from backfill.controller.manager.probes import Answer, HttpServer, Routes, probe
from backfill.controller.manager.reconciles import Reconciles
from backfill.controller.manager.watching import Login, Relisting, Watching
from backfill.controller.manager.wiring import Caches, Cases
from backfill.controller.manager.workqueue import Workers, WorkQueue
from backfill.kube.object_names import Key
from backfill.kube.request_errors import ClusterError
from backfill.kube.resources import BACKFILL, DECISION, JOB_REPORT, SPLIT_ASSIGNMENT, Manifest

_LOG = logging.getLogger(__name__)
_NEEDED = frozenset((BACKFILL, DECISION, JOB_REPORT, SPLIT_ASSIGNMENT))
_RETRY_SECONDS = 2.0
_LOOK_SECONDS = 0.25
_LAST_TURNS_SECONDS = 5.0
_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Operator:
    """One replica. It fills its caches from the start, and reconciles only while it leads."""

    def __init__(self, settings: Settings):
        """Reads credentials, without a request to the API server.

        Raises:
            BackfillError: there are no credentials.
        """
        self._settings = settings
        self._stop = threading.Event()
        self._synced = False
        self._caches = Caches()
        self._metrics = Metrics(self._states)
        login = Login(settings.kubeconfig, settings.context)
        cluster = self._cluster = login.cluster(
            requests_per_second=settings.qps,
            burst=round(2 * settings.qps),
            on_request=lambda verb, kind, status, seconds: self._metrics.requested(verb, status),
        )
        watched = self._caches.watched()
        self._watching = Watching(watched, settings.namespaces, login.connection)
        self._relisting = Relisting(cluster, watched, settings.namespaces)
        lease = ClusterLeaseStore(
            login.cluster(), settings.leader_election_namespace, settings.leader_election_id
        )
        self._elector = Elector(lease, settings.identity)
        self._queue: WorkQueue[Key] = WorkQueue(
            threads=settings.workers,
            group_of=lambda key: key[0],
            groups=self._caches.namespaces,
            on_taken=self._metrics.waited,
        )
        self._metrics.watch_depth(lambda: self._queue.depth)
        self._caches.listen(self._changed)
        places = PodPlaces(
            self._caches.pods, settings.job_pods, self._caches.backfills, self._caches.namespaces
        )
        recorder = Recorder(cluster, settings.identity)
        cases = Cases(
            cluster,
            self._caches,
            JobPods(
                cluster,
                self._caches.pods,
                self._caches.reports,
                places,
                JobImage(settings.job_image, settings.job_image_pull_policy),
                on_used=self._metrics.used,
            ),
            self._queue.mark,
            recorder.status_written,
            settings.default_workspace,
            settings.decision_names == "verified",
            leads=lambda: self._elector.leads,
        )
        self._reconciles = Reconciles(
            self._queue,
            self._find,
            cases.open,
            self._metrics,
            leads=lambda: self._elector.leads,
            on_trouble=recorder.reconcile_failed,
        )
        self._workers = Workers(self._queue, self._reconciles.take, settings.workers)

    def run(self) -> int:
        """Runs until SIGTERM or SIGINT, and returns 0,
        or until the Lease is lost, and returns 1.
        """
        with asked_to_end(self._stop.set), self._servers():
            _LOG.info(
                "%s started; it reconciles %s",
                self._settings.identity,
                ", ".join(self._settings.namespaces) or "all namespaces",
            )
            if not self._sync():
                return 0
            self._watching.start()
            threading.Thread(target=self._relist, name="lists", daemon=True).start()
            try:
                return self._lead() if self._elector.acquire(self._stop) else 0
            finally:
                self._stop.set()
                self._watching.close()

    def _sync(self) -> bool:
        """Fills the caches; returns False if it is asked to end first."""
        while not self._stop.is_set():
            try:
                self._relisting.list_once()
                missing = _NEEDED - self._relisting.served
                if not missing:
                    self._synced = True
                    return True
                _LOG.error(
                    "the definitions of %s are not installed",
                    ", ".join(sorted(kind.plural for kind in missing)),
                )
            except ClusterError as error:
                _LOG.error("cannot list resources: %s", error)
            self._stop.wait(_RETRY_SECONDS)
        return False

    def _changed(self, key: Key) -> None:
        """Queues a Backfill if this process leads. One that comes to lead queues all Backfills."""
        if self._elector.leads:
            self._queue.mark(key)

    def _relist(self) -> None:
        self._relisting.keep_on(self._stop, self._watching.restart)

    def _lead(self) -> int:
        _LOG.info("%s is now the leader", self._settings.identity)
        self._metrics.leading(True)
        threading.Thread(
            target=self._elector.keep, args=(self._stop,), name="lease", daemon=True
        ).start()
        for key in self._known():
            self._queue.mark(key)
        self._workers.start()
        while self._elector.leads:
            if self._stop.wait(_LOOK_SECONDS):
                self._step_down()
                return 0
        _LOG.error("the lease could not be renewed; another replica may lead from now on")
        self._metrics.leading(False)
        self._queue.close()
        return 1

    def _step_down(self) -> None:
        """Waits for reconciles in progress. Drivers continue with the steps that were released."""
        self._queue.close()
        if not self._workers.join(_LAST_TURNS_SECONDS):
            _LOG.warning("a reconcile did not finish in time; the next leader repeats it")
        self._elector.release()
        self._metrics.leading(False)
        _LOG.info(
            "%s has finished its reconciles and is no longer the leader", self._settings.identity
        )

    def _known(self) -> list[Key]:
        return self._caches.backfills.keys()

    def _find(self, key: Key) -> Manifest | None:
        return self._caches.backfills.get(*key)

    def _states(self) -> Iterator[str]:
        for key in self._known():
            backfill = self._find(key)
            if backfill is not None:
                yield state_of(backfill)

    @contextmanager
    def _servers(self) -> Iterator[None]:
        """Serves metrics and probes, together if their ports are equal."""
        routes: dict[int, dict[str, Callable[[], Answer]]] = {}
        probes: Routes = {"/healthz": self._health, "/readyz": self._readiness}
        routes.setdefault(self._settings.metrics_port, {})["/metrics"] = self._measured
        routes.setdefault(self._settings.health_port, {}).update(probes)
        with ExitStack() as servers:
            for port, answers in routes.items():
                if port:
                    servers.callback(HttpServer(port, answers).close)
            yield

    def _health(self) -> Answer:
        return probe(
            "the watches have ended"
            if self._synced and not self._watching.alive
            else self._reconciles.stuck
        )

    def _readiness(self) -> Answer:
        return probe(
            None if self._synced else "not everything is listed yet",
            "leader" if self._elector.leads else "standby",
        )

    def _measured(self) -> Answer:
        return Answer(self._metrics.render(), content_type=_METRICS_TYPE)
