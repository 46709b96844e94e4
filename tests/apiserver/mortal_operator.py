"""The operator in the test's own process: it dies at the first request without an answer, and
another one takes over.

It is put together from the same parts as the process, but for what is not asked of it here: it has
no Lease, lists where the process watches, and does jobs at once. So a test decides when it takes
turns, and a death costs no time.
"""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

from backfill.api.backfill import Backfill
from backfill.controller.cluster.job_pods.pod_limit import PodPlaces
from backfill.controller.cluster.job_pods.pod_manifests import JobImage
from backfill.controller.cluster.job_pods.runner import JobPods
from backfill.controller.interfaces import JobRunner
from backfill.controller.jobs.any_job import Job, JobState
from backfill.controller.manager.events import Recorder
from backfill.controller.manager.listing import Relisting
from backfill.controller.manager.login import Login
from backfill.controller.manager.metrics import Metrics
from backfill.controller.manager.reconciles import Reconciles
from backfill.controller.manager.wiring import Caches, Cases
from backfill.controller.manager.workqueue import WorkQueue
from backfill.kube.object_names import Key
from backfill.kube.transport import OnRequest
from waiting import PATIENCE_SECONDS

_UNBOUNDED = 100_000


class Killed(BaseException):
    """Nothing catches it: whatever was to come after it does not come."""


class JobsHere:
    """In the place of pods: a job is done when it is started, by this process and with its
    credentials.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        self.state: JobState | None = None
        self._on_change = on_change

    def start(self, job: Job) -> None:
        try:
            self.state = JobState(job, "Done", result=job.run(lambda progress: None))
        except Exception as error:
            self.state = JobState(job, "Failed", error=error)
        self._on_change()

    def cancel(self) -> None:
        self.state = None

    def close(self) -> None:
        self.cancel()


class _NoPods:
    def runner(
        self, find: Callable[[], Backfill | None], again: Callable[[float], None]
    ) -> JobRunner:
        return JobsHere(lambda: again(0))


def _die_without_answer(verb: str, kind: str, status: int, seconds: float) -> None:
    if status == 0:
        raise Killed


class MortalOperator:
    """One life."""

    def __init__(
        self,
        kubeconfig: Path,
        namespace: str,
        on_request: OnRequest = _die_without_answer,
        *,
        in_pods: bool = False,
    ):
        """``in_pods``: whether jobs are in pods, as they are for the process."""
        cluster = Login(kubeconfig).cluster(
            requests_per_second=_UNBOUNDED, burst=_UNBOUNDED, on_request=on_request
        )
        caches = self._caches = Caches()
        self._relisting = Relisting(cluster, caches.watched(), [namespace])
        self._queue: WorkQueue[Key] = WorkQueue()
        recorder = Recorder()
        places = PodPlaces(caches.pods, 1, caches.backfills)
        pods = JobPods(cluster, caches.pods, caches.reports, places, JobImage("jobs:1"))
        jobs = pods if in_pods else cast(JobPods, _NoPods())
        cases = Cases(cluster, caches, jobs, self._queue.mark, recorder.status_written)
        caches.listen(self._queue.mark)
        find = caches.backfills.get
        self._reconciles = Reconciles(
            self._queue, lambda key: find(*key), cases.open, Metrics(lambda: ()), leads=lambda: True
        )

    def take_turns(self) -> None:
        """Looks at everything, and takes the turns that are due."""
        self.look()
        self._take_due()

    def look(self) -> None:
        """Sees everything as it is now."""
        self._relisting.list_once()

    def take_turns_unseeing(self) -> None:
        """One turn for each Backfill, by what was seen last."""
        keys = self._caches.backfills.keys()
        for key in keys:
            self._queue.mark(key)
        self._take_due()

    def _take_due(self) -> None:
        while (key := self._queue.take(0)) is not None:
            self._reconciles.take(key)


class MortalOperators:
    """One after the other; whoever dies is followed at once."""

    def __init__(self, kubeconfig: Path, namespace: str, *, in_pods: bool = False):
        self._next = partial(MortalOperator, kubeconfig, namespace, in_pods=in_pods)
        self._now = self._next()
        self.deaths = 0

    def work_until(
        self, condition: Callable[[], Any], what: str, seconds: float = PATIENCE_SECONDS
    ) -> None:
        """Turns are taken until the condition is true."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"{what}: not within {seconds:g} s"
            try:
                self._now.take_turns()
            except Killed:
                self.deaths += 1
                self._now = self._next()
