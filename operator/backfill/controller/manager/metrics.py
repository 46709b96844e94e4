"""Metrics for Prometheus. Only Backfills that are not at rest have series of their own."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily

from backfill.api.conditions import Reason
from backfill.api.status import Attempt, Comparison, OutputStatus
from backfill.controller.jobs.any_job import JobUsage
from backfill.controller.reconcile import Reconciled
from backfill.kube.object_names import Key

ReconcileOutcome = Literal["done", "conflict", "refused", "failed"]

_RECONCILE_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_JOB_SECONDS = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800)
_OF_BACKFILL = ("namespace", "name")


class Metrics:
    """All metrics of an operator process, in a registry of their own."""

    def __init__(self, states: Callable[[], Iterable[str]]):
        """``states`` returns one word for each Backfill, and is called at each scrape."""
        self.registry = CollectorRegistry()
        self.registry.register(_States(states))
        named: dict[str, Any] = {"namespace": "backfill", "registry": self.registry}
        self._reconciles = Counter("reconciles", "Reconciles by result", ["result"], **named)
        self._reconcile_seconds = Histogram(
            "reconcile_duration_seconds",
            "Duration of a reconcile",
            buckets=_RECONCILE_SECONDS,
            **named,
        )
        self._depth = Gauge(
            "queue_depth", "Backfills that are due and waiting for a reconcile", **named
        )
        self._waited = Histogram(
            "queue_latency_seconds",
            "Time that a Backfill waited for a reconcile",
            buckets=_RECONCILE_SECONDS,
            **named,
        )
        self._requests = Counter(
            "api_requests", "Requests to the API server", ["verb", "code"], **named
        )
        self._leads = Gauge("leader", "1 if this process is the leader", **named)
        self._attempts = Counter("attempts", "Attempts that have ended", ["outcome"], **named)
        self._rows_compared = Counter(
            "rows_compared",
            "Rows of results compared with production or a reference",
            ["result"],
            **named,
        )
        self._jobs = Counter("jobs", "Jobs that have ended", ["kind", "outcome"], **named)
        self._job_seconds = Histogram(
            "job_duration_seconds", "Duration of a job", ["kind"], buckets=_JOB_SECONDS, **named
        )
        self._job_waited = Histogram(
            "job_wait_seconds",
            "Time that a job waited for a free place and for its pod",
            ["kind"],
            buckets=_JOB_SECONDS,
            **named,
        )
        self._job_bytes = Gauge(
            "job_peak_bytes", "Peak memory of the last job of each kind", ["kind"], **named
        )
        self._of_backfill = {
            name: Gauge(name, text, _OF_BACKFILL, **named)
            for name, text in (
                ("steps", "Steps of the plan"),
                ("steps_released", "Steps that may be read"),
                ("steps_committed", "Steps that are committed"),
                ("rows_read", "Rows of committed steps"),
                ("rows_dropped_late", "Rows that the application dropped as late"),
                (
                    "rows_arrived_late",
                    "Rows read by batch jobs that a stream would have dropped as late",
                ),
                ("lag_seconds", "Time from the global watermark to the end of the window"),
                ("live_lag_seconds", "Time by which the live application is behind Kafka"),
                ("executors", "Executors that are running"),
                ("executor_target", "Desired number of executors"),
            )
        }
        self._shown: set[Key] = set()

    def watch_depth(self, depth: Callable[[], float]) -> None:
        """Registers the function that returns the queue's depth at each scrape."""
        self._depth.set_function(depth)

    def waited(self, seconds: float) -> None:
        """Records how long a Backfill waited for its reconcile after it was due."""
        self._waited.observe(seconds)

    def leading(self, leads: bool) -> None:
        """Records whether this process leads."""
        self._leads.set(leads)

    def requested(self, verb: str, code: int) -> None:
        """Records a request with its HTTP status; 0 means that there was no answer."""
        self._requests.labels(verb, str(code)).inc()

    def turned(self, result: ReconcileOutcome, seconds: float) -> None:
        """Records the end of a reconcile."""
        self._reconciles.labels(result).inc()
        self._reconcile_seconds.observe(seconds)

    def used(self, usage: JobUsage) -> None:
        """Records what a job has used."""
        self._jobs.labels(usage.kind, usage.outcome).inc()
        self._job_seconds.labels(usage.kind).observe(usage.seconds)
        self._job_waited.labels(usage.kind).observe(usage.waited_seconds)
        if usage.peak_bytes is not None:
            self._job_bytes.labels(usage.kind).set(usage.peak_bytes)

    def decided(self, key: Key, reconciled: Reconciled) -> None:
        """Records what a reconcile found out about its Backfill."""
        before, after = reconciled.observed.backfill.status, reconciled.decision.status
        for outcome in ended(before.attempts, after.attempts):
            self._attempts.labels(outcome).inc()
        for comparison in compared(before.outputs, after.outputs):
            for result in ("matching", "different", "missing", "extra"):
                self._rows_compared.labels(result).inc(getattr(comparison, result))
        if reconciled.decision.next.at_rest:
            self.forget(key)
            return
        self._shown.add(key)
        progress, assignment = after.progress, reconciled.observed.assignment
        values: Mapping[str, float | None] = {
            "steps": progress.steps,
            "steps_released": assignment.released if assignment else None,
            "steps_committed": progress.committed,
            "rows_read": progress.rows_read,
            "rows_dropped_late": progress.rows_dropped_late,
            "rows_arrived_late": progress.rows_arrived_late,
            "lag_seconds": _lag_seconds(reconciled),
            "live_lag_seconds": after.hand_off.lag_seconds if after.hand_off else None,
            "executors": progress.executors,
            "executor_target": progress.executor_target,
        }
        for name, value in values.items():
            if value is not None:
                self._of_backfill[name].labels(*key).set(value)

    def forget(self, key: Key) -> None:
        """Removes the series of a Backfill that is at rest or no longer exists."""
        if key in self._shown:
            self._shown.discard(key)
            for gauge in self._of_backfill.values():
                gauge.remove(*key)


def ended(before: tuple[Attempt, ...], after: tuple[Attempt, ...]) -> Iterator[str]:
    """The outcomes of attempts that were running before, or that are new."""
    known = {attempt.number: attempt.outcome for attempt in before}
    for attempt in after:
        if attempt.outcome != "Running" and known.get(attempt.number, "Running") == "Running":
            yield attempt.outcome


def compared(
    before: tuple[OutputStatus, ...], after: tuple[OutputStatus, ...]
) -> Iterator[Comparison]:
    """The comparisons that are new."""
    known = {output.name: output.comparison for output in before}
    for output in after:
        if output.comparison is not None and output.comparison != known.get(output.name):
            yield output.comparison


def state_of(backfill: Mapping[str, Any]) -> str:
    """The state of a Backfill, given as an object of the API server, in one word."""
    conditions = {each["type"]: each for each in backfill.get("status", {}).get("conditions", ())}
    outcome = conditions.get("Succeeded", {}).get("status")
    if "deletionTimestamp" in backfill.get("metadata", {}):
        return "Deleting"
    if outcome in {"True", "False"}:
        reason = str(conditions["Succeeded"].get("reason", ""))
        decided = reason in {Reason.REJECTED, Reason.UNDONE}  # by a person: nothing has failed
        return "Succeeded" if outcome == "True" else reason if decided else "Failed"
    for kind, finished in (
        ("HandedOver", ""),
        ("Published", ""),
        ("Running", "AllStepsCommitted"),
        ("Planned", "PlanReady"),
    ):
        reason = str(conditions.get(kind, {}).get("reason", ""))
        if reason and reason != finished:
            return reason
    return "Planned" if "Planned" in conditions else "New"


def _lag_seconds(reconciled: Reconciled) -> float | None:
    watermark = reconciled.decision.status.watermark
    if watermark is None:
        return None
    window, handed = reconciled.observed.backfill.spec.window, reconciled.decision.status.hand_off
    end = (handed.history_end if handed else None) if window.live else window.end
    return max((end - watermark).total_seconds(), 0.0) if end is not None else None


class _States:
    """Counts Backfills by state when asked, so that nothing has to be kept up to date."""

    def __init__(self, states: Callable[[], Iterable[str]]):
        self._states = states

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The number of Backfills in each state."""
        counts: dict[str, int] = {}
        for state in self._states():
            counts[state] = counts.get(state, 0) + 1
        family = GaugeMetricFamily("backfill_backfills", "Backfills by state", labels=["state"])
        for state, number in sorted(counts.items()):
            family.add_metric([state], number)
        yield family
