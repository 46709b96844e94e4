"""Jobs in pods of the Backfill's namespace, with the identity, the image and the volumes of the application's driver.

Nothing about a job is kept here alone: its pod and its ConfigMap are named after what it does, so an operator that starts
anew finds a job under way, and the result of one that is done, by asking for it once more.
"""

import base64
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from backfill.api.backfill import Backfill
from backfill.api.errors import BackfillError, BadInput, first_line
from backfill.controller.backends.driver_state import driver_state
from backfill.controller.backends.production import read_production
from backfill.controller.interfaces import ConflictError
from backfill.controller.job_process import failed, told
from backfill.controller.jobs import Job, JobState, job_kind
from backfill.controller.kubernetes.client import Cluster
from backfill.controller.kubernetes.errors import AlreadyExists, ClusterError, Unauthorized, Unreachable
from backfill.controller.kubernetes.job_codec import decode_end, decode_progress
from backfill.controller.kubernetes.job_pod import JOB_LABEL, PROGRESS_KEY, RESULT_KEY, job_config_map, job_name, job_pod
from backfill.controller.kubernetes.names import CONTROLLER_MANAGER, backfill_labels
from backfill.controller.kubernetes.resources import CONFIG_MAP, POD, Manifest, Resource

_LOG = logging.getLogger(__name__)
_LOOK_SECONDS = 2.0
_STOP_SECONDS = 1.0
"""A request under way is not waited for any longer: the thread makes nothing that is not found again."""
START_SECONDS: Final = 300.0
"""How long a pod may wait for a node and its image."""
_LOG_LINES = 30
_OUT_OF_MEMORY = "OOMKilled"


class JobPods:
    """All Backfills' jobs in pods. One thread makes the pods and looks after them."""

    def __init__(self, cluster: Cluster, *, look_seconds: float = _LOOK_SECONDS, start_seconds: float = START_SECONDS):
        """``look_seconds``: between two looks at each pod. ``start_seconds``: how long one may take to start."""
        self.cluster = cluster
        self.start_seconds = start_seconds
        self._look_seconds = look_seconds
        self._runners: set[PodJobs] = set()
        self._news = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None

    def runner(self, find: Callable[[], Backfill | None], on_change: Callable[[], None]) -> "PodJobs":
        """The jobs of one Backfill.

        Args:
            find: the Backfill as it is now; asked in the thread of the pods.
            on_change: there is something new in its state; called in that thread.
        """
        return PodJobs(self, find, on_change)

    def attend(self, runner: "PodJobs") -> None:
        """Looks after a runner from now on, and at once."""
        with self._news:
            self._runners.add(runner)
            if self._thread is None:
                self._thread = threading.Thread(target=self._look_after_all, name="job-pods", daemon=True)
                self._thread.start()
            self._news.notify()

    def close(self) -> None:
        """Ends the thread, and waits a moment for it. Pods go on; whoever comes after finds them."""
        with self._news:
            self._closed = True
            self._news.notify()
        if self._thread is not None:
            self._thread.join(_STOP_SECONDS)

    def _look_after_all(self) -> None:
        while True:
            with self._news:
                if self._closed:
                    return
                runners = list(self._runners)
            for runner in runners:
                if not runner.look():
                    with self._news:
                        if not runner.busy:
                            self._runners.discard(runner)
            with self._news:
                fresh = self._runners - set(runners)
                if not self._closed and not fresh:
                    self._news.wait(self._look_seconds if self._runners else None)


@dataclass(slots=True, eq=False)
class _Run:
    """One job in a pod."""

    job: Job
    began: float = field(default_factory=time.monotonic)
    name: str = ""
    namespace: str = ""
    backfill: str = ""
    made: bool = False
    """Its pod was seen or made: if it is missing later, it is gone."""


class PodJobs:
    """Does the jobs of one Backfill in pods, one at a time."""

    def __init__(self, pods: JobPods, find: Callable[[], Backfill | None], on_change: Callable[[], None]):
        self._pods = pods
        self._cluster = pods.cluster
        self._find = find
        self._on_change = on_change
        self._lock = threading.Lock()
        self._run: _Run | None = None
        self._abandoned: list[_Run] = []
        self._state: JobState | None = None

    @property
    def state(self) -> JobState | None:
        """The job under way or done last."""
        return self._state

    @property
    def busy(self) -> bool:
        """Whether there is something to look after."""
        with self._lock:
            return bool(self._abandoned) or (self._state is not None and self._state.phase == "Running")

    def start(self, job: Job) -> None:
        """Begins a job, or goes on with its pod, and abandons another one that is under way."""
        with self._lock:
            if self._run is not None and self._run.job != job:
                self._abandoned.append(self._run)
            self._run, self._state = _Run(job), JobState(job, "Running", waits_for="its pod")
        self._pods.attend(self)

    def cancel(self) -> None:
        """Abandons the job under way and forgets the last one; its pod and ConfigMap are deleted soon."""
        with self._lock:
            if self._run is not None:
                self._abandoned.append(self._run)
            self._run, self._state = None, None
        self._pods.attend(self)

    def close(self) -> None:
        """Looks no more. What is in the cluster goes with the Backfill."""
        with self._lock:
            self._abandoned.clear()
            self._run, self._state = None, None

    def look(self) -> bool:
        """Deletes what was abandoned, and sees what became of the job under way. False: there is no more to do.

        Only the thread of the pods calls it.
        """
        with self._lock:
            run, state, abandoned = self._run, self._state, list(self._abandoned)
        try:
            for old in abandoned:
                self._remove(old)
            if run is not None and state is not None and state.phase == "Running":
                self._tell(run, self._step(run, state))
        except (Unreachable, Unauthorized) as error:
            _LOG.warning("looks at job pods again in a moment: %s", error)
        except BackfillError as error:
            self._fail(run, state, error)
        except Exception as error:
            _LOG.exception("a job pod could not be looked after")
            self._fail(run, state, BackfillError(f"{type(error).__name__}: {first_line(error)} (details in the operator's log)"))
        return self.busy

    def _step(self, run: _Run, state: JobState) -> JobState:
        backfill = self._find()
        if backfill is None:
            raise BackfillError("the Backfill is gone")
        if not run.name:
            run.name, run.namespace = job_name(backfill, run.job), backfill.metadata.namespace
            run.backfill = backfill.metadata.name
            self._remove_others(run, backfill)
        notes = self._get(CONFIG_MAP, run)
        if notes is not None and RESULT_KEY in (notes.get("binaryData") or {}):
            return self._ended(run, state, notes)
        pod = self._get(POD, run)
        if pod is None and not run.made:
            self._make(run, backfill)
            return state
        return self._judged(run, state, notes, pod, backfill)

    def _judged(self, run: _Run, state: JobState, notes: Manifest | None, pod: Manifest | None, backfill: Backfill) -> JobState:
        """What the pod says, of a job without a result."""
        terminating = pod is not None and pod["metadata"].get("deletionTimestamp") is not None
        if terminating and not run.made:
            return replace(state, waits_for="the end of an earlier pod")
        if pod is None or notes is None or terminating:
            return failed(state, BackfillError(f"pod {run.name} was deleted before the {job_kind(type(run.job))} job was done"))
        run.made = True
        seen = driver_state(None, pod)
        if seen.phase == "Exited":
            notes = self._get(CONFIG_MAP, run) or notes  # the result may have come between the two looks
            if RESULT_KEY in (notes.get("binaryData") or {}):
                return self._ended(run, state, notes)
            error = _why(run, seen.reason, seen.message, backfill)
            self._log(run, error)
            return failed(state, error)
        if seen.phase == "Pending":
            cause = ": ".join(text for text in (seen.reason, seen.message) if text)
            if time.monotonic() - run.began > self._pods.start_seconds:
                return failed(
                    state, BackfillError(f"pod {run.name} did not start within {self._pods.start_seconds:.0f} s: {cause}")
                )
            return replace(state, waits_for=f"pod {run.name} ({cause})")
        progress = decode_progress((notes.get("data") or {}).get(PROGRESS_KEY, ""))
        return replace(state, waits_for="", progress=progress or state.progress)

    def _ended(self, run: _Run, state: JobState, notes: Manifest) -> JobState:
        """The result, which stays in the ConfigMap; the pod has done its work."""
        state = told(state, decode_end(run.job, base64.b64decode(notes["binaryData"][RESULT_KEY])), "the operator's log")
        if state.error is not None:
            self._log(run, state.error)
        self._delete(POD, run)
        return state

    def _log(self, run: _Run, error: Exception) -> None:
        """The end of the pod's own log goes with the pod."""
        try:
            lines = list(self._cluster.log(run.namespace, run.name, tail_lines=_LOG_LINES))
        except ClusterError:
            lines = []
        extra = {"backfill": f"{run.namespace}/{run.backfill}", "job": job_kind(type(run.job))}
        _LOG.warning("%s", "\n".join((f"job failed: {error}", *lines)), extra=extra)

    def _make(self, run: _Run, backfill: Backfill) -> None:
        production = read_production(self._cluster, backfill)
        if not isinstance(production, dict):
            raise BadInput(production)
        self._create(CONFIG_MAP, job_config_map(backfill, run.job))
        self._create(POD, job_pod(backfill, run.job, production))
        run.made = True

    def _create(self, resource: Resource, manifest: Manifest) -> None:
        try:
            self._cluster.create(resource, manifest, manager=CONTROLLER_MANAGER)
        except AlreadyExists:
            _LOG.debug("%s is there already", manifest["metadata"]["name"])

    def _get(self, resource: Resource, run: _Run) -> Manifest | None:
        return self._cluster.get(resource, run.namespace, run.name)

    def _remove_others(self, run: _Run, backfill: Backfill) -> None:
        """What earlier jobs left, also those of an operator before this one."""
        for resource in (POD, CONFIG_MAP):
            labels = {**backfill_labels(backfill.metadata.name), JOB_LABEL: None}
            for old in self._cluster.list(resource, run.namespace, labels=labels).items:
                if old["metadata"]["name"] != run.name:
                    self._cluster.delete(resource, run.namespace, old["metadata"]["name"])

    def _remove(self, run: _Run) -> None:
        if run.name:
            self._delete(POD, run)
            self._delete(CONFIG_MAP, run)
        with self._lock:
            if run in self._abandoned:
                self._abandoned.remove(run)

    def _delete(self, resource: Resource, run: _Run) -> None:
        try:
            self._cluster.delete(resource, run.namespace, run.name)
        except ConflictError:
            return

    def _fail(self, run: _Run | None, state: JobState | None, error: BackfillError) -> None:
        if run is None or state is None:
            _LOG.warning("a job pod could not be removed: %s", error)
            with self._lock:
                self._abandoned.clear()  # it goes with its Backfill
        else:
            self._tell(run, failed(state, error))

    def _tell(self, run: _Run, state: JobState) -> None:
        with self._lock:
            if self._run is not run or self._state == state:
                return
            self._state = state
        self._on_change()


def _why(run: _Run, reason: str, message: str, backfill: Backfill) -> BackfillError:
    kind = job_kind(type(run.job))
    if reason == _OUT_OF_MEMORY:
        return BackfillError(f"the {kind} job needs more than {backfill.spec.planning.memory} of memory: raise planning.memory")
    return BackfillError(f"pod {run.name} of the {kind} job ended without a result: {reason}{f': {message}' if message else ''}")
