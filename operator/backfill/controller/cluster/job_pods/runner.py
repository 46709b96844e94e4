"""Runs jobs in pods of the Backfill's namespace, with the identity and volumes of the application's
driver.

The state of a job is in the cluster: its pod, JobReport and ConfigMap are named after the job, so
that an operator that has restarted finds a job in progress, or its result, by starting it again.
The caches have the state of these objects; the API server is used only to create, fetch or delete
one. The report is created before the ConfigMap and deleted after it, so that ConfigMaps need not be
watched.
"""

import base64
import logging
import math
import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final, Literal

from backfill.api.backfill import Backfill
from backfill.api.errors import BackfillError, BadInput, ConflictError, Problem
from backfill.api.redaction import redact
from backfill.controller.children.driver_state import driver_state, has_ended
from backfill.controller.cluster.job_pods.admission import POD_SECURITY, advice, restricted
from backfill.controller.cluster.job_pods.packed_jobs import decode_end, decode_progress
from backfill.controller.cluster.job_pods.pod_deletion import being_deleted, end_in_words
from backfill.controller.cluster.job_pods.pod_limit import PodPlaces
from backfill.controller.cluster.job_pods.pod_manifests import (
    JOB_LABEL,
    JobImage,
    job_config_map,
    job_name,
    job_pod,
    job_report,
    needs_program,
    progress_of,
    result_of,
)
from backfill.controller.cluster.plan_config_map import application_of, kept_application
from backfill.controller.decisions.run.pending_driver import (
    IMAGE_WAIT,
    STARTING_WAIT,
    Wait,
    wait_of,
)
from backfill.controller.driver import DriverState
from backfill.controller.jobs.any_job import ITS_TURN, Job, JobState, JobUsage, job_kind
from backfill.controller.jobs.job_messages import LOG_LINES, failed, log_text, with_message
from backfill.controller.jobs.kinds.discard import DiscardJob
from backfill.kube.cache import Cache, uid_of
from backfill.kube.client import Cluster
from backfill.kube.object_names import CONTROLLER_MANAGER, Key
from backfill.kube.request_errors import (
    AlreadyExists,
    ClusterError,
    Denied,
    Faltering,
    Unauthorized,
    Unreachable,
)
from backfill.kube.resources import CONFIG_MAP, EVENT, JOB_REPORT, POD, Manifest, Resource

_LOG = logging.getLogger(__name__)
START_SECONDS: Final = 300.0
"""Seconds that a pod on a node may take to start."""
_AGAIN_SECONDS = 2.0
"""Seconds between two attempts at a request that the API server does not answer."""
_LOOK_SECONDS = 60.0
"""Seconds between two checks of what no watch reports: a pod that should have been deleted by now,
or one that cannot be deleted.
"""
_WARNING_SECONDS = 10.0
"""Seconds between two looks at the Events of a pod that does not start."""
_MOST_WARNING = 600
_SECONDS_CHARACTERS = len("2024-01-01T00:00:00")
_MISSING = re.compile(r"(?i)(secret|configmap) \S+ not found")
"""Part of the kubelet's message for a Secret or a ConfigMap that does not exist."""
_FIX_MISSING = "; create what is missing, and the pod starts by itself"
_FIX_IMAGE = (
    "; the operator's --job-image names it, and the SparkApplication or its service account the"
    " pull Secrets"
)
_OUT_OF_MEMORY = "OOMKilled"
_DISK = "ephemeral local storage usage exceeds"
"""Part of the kubelet's message for a pod that was
evicted because it exceeded its limit of disk space.
"""


@dataclass(frozen=True, slots=True)
class JobPods:
    """What the jobs in pods of all Backfills share."""

    cluster: Cluster
    pods: Cache
    """Cache with at least the pods of jobs."""
    reports: Cache
    """Cache of JobReports, reduced by
    :func:`~backfill.controller.cluster.job_pods.pod_manifests.report_essence`.
    """
    places: PodPlaces
    image: JobImage
    start_seconds: float = START_SECONDS
    """Seconds that a pod may take to start."""
    on_used: Callable[[JobUsage], None] = lambda usage: None
    """Called for each job that has ended."""
    leads: Callable[[], bool] = lambda: True
    """Whether this process may still act."""

    def runner(
        self, find: Callable[[], Backfill | None], again: Callable[[float], None]
    ) -> "PodJobs":
        """The jobs of one Backfill.

        Args:
            find: returns the Backfill as it is now; called often.
            again: requests that the state is read again after some seconds. It is also read
                whenever a cache has news of the Backfill.
        """
        return PodJobs(self, find, again)


@dataclass(slots=True, eq=False)
class _Run:
    """One job in a pod."""

    job: Job
    asked_at: float = field(default_factory=time.monotonic)
    pod: Key | None = None
    """Name of the job's objects, once it is known."""
    made: bool = False
    """Whether its pod was seen or created. If it is missing later, it was deleted."""
    since: float = field(default_factory=time.monotonic)
    """When the pod was seen or created."""
    generation: int = 0
    """Generation of the spec at that time."""

    def note_pod(self, backfill: Backfill) -> None:
        """Records that there is a pod."""
        self.made, self.since, self.generation = (
            True,
            time.monotonic(),
            backfill.metadata.generation,
        )

    def usage(self, backfill: Key, end: JobState) -> JobUsage:
        """What the job has used.

        For a pod that ended without a report, it is the time since its creation.
        """
        now, used = time.monotonic(), end.used
        seconds = used.seconds if used else now - self.since
        outcome: Literal["Done", "Failed"] = "Done" if end.phase == "Done" else "Failed"
        waited = max(now - self.asked_at - seconds, 0.0)
        return JobUsage(
            backfill,
            job_kind(type(self.job)),
            outcome,
            waited,
            seconds,
            used.peak_bytes if used else None,
        )


class PodJobs:
    """Runs the jobs of one Backfill in pods, one at a time. May be used by one thread at a time."""

    def __init__(
        self, pods: JobPods, find: Callable[[], Backfill | None], again: Callable[[float], None]
    ):
        self._shared = pods
        self._cluster = pods.cluster
        self._find = find
        self._again = again
        self._run: _Run | None = None
        self._state: JobState | None = None

    @property
    def state(self) -> JobState | None:
        """The job in progress, or the last one.

        Reading it also takes the next action for a job in progress.
        """
        if self._run is not None and self._state is not None and self._state.phase == "Running":
            self._state = self._looked_after(self._run, self._state)
            if self._state.phase != "Running":
                self._over(self._run, self._state)
        return self._state

    def start(self, job: Job) -> None:
        """Starts a job, or continues with its pod. Another job in progress is abandoned."""
        if self._run is not None and self._run.job != job:
            self.cancel()
        self._run, self._state = _Run(job), JobState(job, "Running", waits_for="its pod")
        self._again(0)

    def cancel(self) -> None:
        """Abandons the job in progress, forgets the last one, and deletes the objects of both, also
        those that another operator has left.
        """
        self.close()
        backfill = self._find()
        if backfill is not None:
            self._remove_others((backfill.metadata.namespace, ""), backfill)

    def close(self) -> None:
        """Stops watching. Objects in the cluster are deleted together with the Backfill."""
        if self._run is not None and self._run.pod is not None:
            self._shared.places.leave(self._run.pod)
        self._run, self._state = None, None

    def _over(self, run: _Run, end: JobState) -> None:
        backfill = self._find()
        if run.pod is not None:
            self._shared.places.leave(run.pod)
        if backfill is not None:
            self._shared.on_used(
                run.usage((backfill.metadata.namespace, backfill.metadata.name), end)
            )

    @property
    def _kinds(self) -> tuple[tuple[Resource, Cache], ...]:
        return (POD, self._shared.pods), (JOB_REPORT, self._shared.reports)

    def _looked_after(self, run: _Run, state: JobState) -> JobState:
        try:
            return self._step(run, state)
        except (Unreachable, Unauthorized) as error:
            _LOG.warning(
                "the pod of the %s job could not be checked; retrying: %s",
                job_kind(type(run.job)),
                error,
            )
            self._again(_AGAIN_SECONDS)
            why = f": {error}" if isinstance(error, Faltering) else ""
            return replace(state, waits_for=f"the API server{why}")
        except BackfillError as error:
            return failed(state, error)

    def _step(self, run: _Run, state: JobState) -> JobState:
        backfill = self._find()
        if backfill is None:
            raise BackfillError("the Backfill is gone")
        if run.pod is None:
            run.pod = backfill.metadata.namespace, job_name(backfill, run.job)
        report, pod = self._shared.reports.get(*run.pod), self._shared.pods.get(*run.pod)
        if result_of(report) and (end := self._end(run.pod, state)) is not None:
            return (
                self._begun_anew(run.pod, end)
                if end.phase == "Failed" and not run.made
                else self._closed(run.pod, end)
            )
        if pod is None and not run.made:
            return self._made(run, run.pod, state, backfill)
        if pod is not None and being_deleted(pod) and not run.made:
            return self._waiting_for_end(pod, state)
        if pod is None or report is None or being_deleted(pod):
            raise BackfillError(
                f"pod {run.pod[1]} was deleted before the {job_kind(type(run.job))} job was done"
            )
        if not run.made:
            run.note_pod(backfill)
        seen = driver_state(None, pod)
        changed = run.generation != backfill.metadata.generation
        if seen.phase == "Pending" and (changed or not self._has_image(run.job, pod)):
            run.made = False  # what has changed may allow it to start
            self._remove(POD, self._shared.pods, pod)
            self._again(0)
            return replace(state, waits_for="a new pod, because the spec or its image has changed")
        return self._judged(run, run.pod, state, seen, backfill)

    def _made(self, run: _Run, pod: Key, state: JobState, backfill: Backfill) -> JobState:
        """Creates the pod, once no earlier pod of the Backfill is running and there is a place.

        Two pods at the same time would not know of each other, and one could remove what the other
        publishes.
        """
        self._remove_others(pod, backfill)
        earlier = next(
            (
                other
                for other in self._others(self._shared.pods, pod, backfill)
                if not has_ended(other)
            ),
            None,
        )
        if earlier is not None:
            return self._waiting_for_end(earlier, state)
        if not self._shared.places.take(pod, lambda: self._again(0)):
            self._again(_LOOK_SECONDS)
            return replace(state, waits_for=ITS_TURN)
        try:
            application = application_of(self._cluster, backfill)
            if isinstance(application, Problem):
                self._require_namespace(backfill, run.job)
                # it may be deleted with its Backfill, or before
                kept = kept_application(self._cluster, backfill, as_tuned=False)
                if kept is None:
                    raise BadInput(application)
                application = kept
            manifest = self._admitted(job_pod(backfill, run.job, application, self._shared.image))
            self._create(JOB_REPORT, self._shared.reports, job_report(backfill, run.job))
            with suppress(AlreadyExists):
                self._cluster.create(
                    CONFIG_MAP, job_config_map(backfill, run.job), manager=CONTROLLER_MANAGER
                )
            if not self._shared.leads():  # the Backfill may have been deleted since
                raise ConflictError("this process no longer leads")
            self._create(POD, self._shared.pods, manifest)
        except Denied as error:
            self._remove_all(pod)  # admission may have changed its mind since the dry run
            # a quota may be full for hours, and then have room without a change here
            self._again(_LOOK_SECONDS)
            return replace(
                state,
                waits_for=f"its pod to be admitted: {error}; {advice(str(error))}",
                blocked=True,
            )
        finally:
            self._shared.places.leave(pod)
        run.note_pod(backfill)
        self._again(self._shared.start_seconds)
        return replace(state, waits_for="its pod", blocked=False)

    def _require_namespace(self, backfill: Backfill, job: Job) -> None:
        """Checks that the application is not only missing because its namespace is being deleted.

        Raises:
            NamespaceEnding: it is.
        """
        with suppress(AlreadyExists):
            report = job_report(backfill, job)
            self._cluster.create(JOB_REPORT, report, manager=CONTROLLER_MANAGER, dry_run=True)

    def _admitted(self, pod: Manifest) -> Manifest:
        """The pod as admission accepts it.

        If the namespace's Pod Security level requires more than the application's driver has, which
        may be created by an exempt user, the pod is adapted to it.

        Raises:
            Denied: admission refuses the pod.
        """
        try:
            self._try(pod)
        except Denied as error:
            if POD_SECURITY not in str(error):
                raise
            pod = restricted(pod)
            self._try(pod)
        return pod

    def _try(self, pod: Manifest) -> None:
        with suppress(AlreadyExists):  # then it was admitted before
            self._cluster.create(POD, pod, manager=CONTROLLER_MANAGER, dry_run=True, strict=False)

    def _waiting_for_end(self, pod: Manifest, state: JobState) -> JobState:
        self._again(_LOOK_SECONDS)
        return replace(state, waits_for=end_in_words(pod, datetime.now(UTC)))

    def _begun_anew(self, pod: Key, end: JobState) -> JobState:
        """Discards a failure from before the job was started this time,
        so that the job runs again.
        """
        self._remove_all(pod)
        if self._shared.reports.get(*pod) is not None:
            return self._closed(pod, end)
        self._again(0)
        return JobState(end.job, "Running", waits_for="its pod")

    def _judged(
        self, run: _Run, pod: Key, state: JobState, seen: DriverState, backfill: Backfill
    ) -> JobState:
        """The state of a job without a result, judged by its pod."""
        if seen.phase == "Exited":
            end = self._end(pod, state)  # the two caches may be of different times
            if end is not None:
                return self._closed(pod, end)
            error = _why(run.job, pod, seen, backfill)
            self._log(pod, backfill, run.job, error)
            return failed(state, error)
        if seen.phase == "Pending":
            warning = "" if seen.message else self._warning(pod)
            cause = ": ".join(text for text in (seen.reason, seen.message or warning) if text)
            wait, missing = wait_of(seen.reason), _MISSING.search(warning) is not None
            blocked = missing or wait.needs_person
            limit = self._start_limit(wait)
            left = run.since + limit - time.monotonic()
            if left <= 0 and not blocked:
                raise BackfillError(f"pod {pod[1]} did not start within {limit:.0f} s: {cause}")
            self._again(_WARNING_SECONDS if blocked else min(left, _WARNING_SECONDS))
            fix = _FIX_MISSING if missing else _FIX_IMAGE if wait is IMAGE_WAIT else ""
            return replace(state, waits_for=f"pod {pod[1]} ({cause}){fix}", blocked=blocked)
        progress = decode_progress(progress_of(self._shared.reports.get(*pod)))
        return replace(state, waits_for="", blocked=False, progress=progress or state.progress)

    def _start_limit(self, wait: Wait) -> float:
        """Seconds that a pod may take to start, without a person who has to do something."""
        if wait is STARTING_WAIT:
            return self._shared.start_seconds
        return wait.limit.total_seconds() if wait.limit is not None else math.inf

    def _has_image(self, job: Job, pod: Manifest) -> bool:
        """Whether a pod has the present image of jobs, unless it has the application's."""
        containers = pod["spec"]["containers"]
        return needs_program(job) or any(
            each.get("image") == self._shared.image.name for each in containers
        )

    def _warning(self, pod: Key) -> str:
        """What its kubelet last warned of: of a missing Secret only an Event says so."""
        fields = f"involvedObject.kind=Pod,involvedObject.name={pod[1]},type=Warning"
        with suppress(ClusterError):
            events = self._cluster.list(EVENT, pod[0], fields=fields).items
            latest = max(events, key=_last_time, default={})
            return str(latest.get("message", ""))[:_MOST_WARNING]
        return ""

    def _end(self, pod: Key, state: JobState) -> JobState | None:
        """How the job has ended; None if that is not recorded."""
        result = result_of(self._fetched(JOB_REPORT, self._shared.reports, pod))
        if not result:
            return None
        return with_message(
            state, decode_end(state.job, base64.b64decode(result)), "the operator's log"
        )

    def _closed(self, pod: Key, end: JobState) -> JobState:
        """Deletes the pod after its job has ended. The result stays in the report."""
        backfill, there = self._find(), self._shared.pods.get(*pod)
        if end.error is not None and backfill is not None:
            self._log(pod, backfill, end.job, end.error)
        if there is not None:
            # after a discard the Backfill is removed, and nobody should find a pod of it then
            at_once = isinstance(end.job, DiscardJob) and end.phase == "Done"
            self._remove(POD, self._shared.pods, there, grace_seconds=0 if at_once else None)
        return end

    def _log(self, pod: Key, backfill: Backfill, job: Job, error: Exception) -> None:
        """Logs the end of the pod's log before the pod is deleted. Output that its libraries write
        without Python is not redacted.
        """
        lines: list[str] = []
        with suppress(ClusterError):
            lines += map(redact, self._cluster.log(*pod, tail_lines=LOG_LINES))
        extra = {"backfill": f"{pod[0]}/{backfill.metadata.name}", "job": job_kind(type(job))}
        _LOG.warning("%s", redact(log_text(error, lines)), extra=extra)

    def _create(self, resource: Resource, cache: Cache, manifest: Manifest) -> None:
        metadata = manifest["metadata"]
        try:
            cache.put(self._cluster.create(resource, manifest, manager=CONTROLLER_MANAGER))
        except AlreadyExists:
            self._fetched(resource, cache, (metadata["namespace"], metadata["name"]))

    def _fetched(self, resource: Resource, cache: Cache, key: Key) -> Manifest | None:
        """An object as it is now, which is also put into the cache."""
        known, found = cache.get(*key), self._cluster.get(resource, *key)
        if found is not None:
            cache.put(found)
        elif known is not None:
            cache.forget(known)
        return found

    def _remove_others(self, pod: Key, backfill: Backfill) -> None:
        """Deletes the objects of earlier jobs, including those of an earlier operator."""
        for resource, cache in self._kinds:
            for old in self._others(cache, pod, backfill):
                if not being_deleted(old):
                    self._remove(resource, cache, old)

    def _others(self, cache: Cache, pod: Key, backfill: Backfill) -> list[Manifest]:
        """Objects of other jobs in the cache."""
        known = (
            (manifest, manifest["metadata"])
            for manifest in cache.of((pod[0], backfill.metadata.name))
        )
        return [
            each
            for each, metadata in known
            if JOB_LABEL in metadata["labels"] and metadata["name"] != pod[1]
        ]

    def _remove_all(self, pod: Key) -> None:
        for resource, cache in self._kinds:
            left = cache.get(*pod)
            if left is not None:
                self._remove(resource, cache, left)

    def _remove(
        self,
        resource: Resource,
        cache: Cache,
        manifest: Manifest,
        *,
        grace_seconds: int | None = None,
    ) -> None:
        """Deletes an object. A failure does not fail another job: what is left is deleted before
        the next job, or together with the Backfill.
        """
        metadata = manifest["metadata"]
        key = metadata["namespace"], metadata["name"]
        try:
            if resource is JOB_REPORT:
                self._cluster.delete(CONFIG_MAP, *key)
            with suppress(ConflictError):  # by now another object has its name
                self._cluster.delete(
                    resource, *key, uid=uid_of(manifest), grace_seconds=grace_seconds
                )
            self._fetched(resource, cache, key)
        except ClusterError as error:
            _LOG.warning(
                "%s %s of an earlier job could not be deleted: %s",
                resource.plural,
                "/".join(key),
                error,
            )


def _last_time(event: Manifest) -> str:
    """When an Event was last seen. New ones, such as the scheduler's, have another field."""
    seen = event.get("lastTimestamp") or event.get("eventTime")
    return str(seen or event["metadata"]["creationTimestamp"])[:_SECONDS_CHARACTERS]


def _why(job: Job, pod: Key, seen: DriverState, backfill: Backfill) -> BackfillError:
    kind = job_kind(type(job))
    if seen.reason == _OUT_OF_MEMORY:
        had = backfill.spec.planning.resources.memory
        return BackfillError(
            f"the {kind} job needs more than {had} of memory: raise planning.resources.memory"
        )
    last_words = redact(seen.message.strip().splitlines()[-1]) if seen.message.strip() else ""
    more = f": {last_words}" if last_words else ""
    more += "; raise planning.resources.ephemeralStorage" if _DISK in last_words else ""
    return BackfillError(
        f"pod {pod[1]} of the {kind} job ended without a result: {seen.reason}{more}"
    )
