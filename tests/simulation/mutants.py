"""Faults put into decisions and acts by hand. The simulation must find each of them."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any
from unittest.mock import patch

from virtual_time import EPOCH

from backfill.api.conditions import Condition, ConditionType
from backfill.api.decision import BackfillDecision, as_recorded
from backfill.api.manifests.problems import read_json
from backfill.api.status import Attempt
from backfill.controller.cluster import store
from backfill.controller.cluster.driver import KubernetesBackend
from backfill.controller.cluster.job_pods.runner import PodJobs
from backfill.controller.decisions import decide, deleting, job_retries, status_draft
from backfill.controller.decisions.actions import Next, RemoveResource
from backfill.controller.decisions.observed import Observed
from backfill.controller.decisions.plan import planning
from backfill.controller.decisions.result import publishing, undoing
from backfill.controller.decisions.run import (
    assignment,
    attempts,
    running,
    silent_driver,
    suspending,
)
from backfill.controller.decisions.status_draft import Draft
from backfill.controller.jobs.any_job import JobState
from backfill.controller.jobs.kinds.undo import UndoResult
from backfill.controller.reconcile import Reconciled, Reconciler
from backfill.coordination.released_steps import release

_Change = tuple[object, str, Any]
"""An object, the name of what is replaced in it, and what replaces it."""


def _end_at_once(observed: Observed, draft: Draft, attempt: Attempt, why: str, due: object) -> Next:
    """Takes a driver that was killed for one that has ended."""
    if not attempt.message:
        draft.change_attempt(message=why)
    attempts.end_attempt(observed, draft, attempt)
    attempts.react(observed, draft)
    return Next(requeue_seconds=0)


def _without_staged_snapshot(backfill: Any) -> Any:
    real = publishing_staged(backfill)
    return tuple(replace(each, staged_snapshot_id=None) for each in real)


publishing_staged = publishing.staged_outputs


def _any_decision(self: Any, backfill: Any) -> Any:
    """Decisions about any result of a Backfill of this name count for this one."""
    known = [
        read_json(BackfillDecision, self._decisions.get(*key)).spec
        for key in self._decisions.keys()  # noqa: SIM118 - no mapping
    ]
    result = backfill.status.result
    return tuple(
        as_recorded(each.model_copy(update={"result": result}), EPOCH, verified=False)
        for each in known
    )


_real_condition = status_draft.set_condition
_real_release = release


def _act_first(self: Reconciler) -> Any:
    """Acts on a decision before its status is recorded."""
    backfill = self._store.load()
    if backfill is None:
        return None
    observed = self._observe(self._with_withheld(backfill))
    decision = self._with_kept_plan(observed, decide.decide(observed))
    for action in decision.next.actions:
        self._act(action, observed, decision.status)
    self._record_if_it_matters(backfill.status, decision)
    return Reconciled(observed, decision)


def _always_new(*arguments: Any, recorded: Any = None) -> tuple[Condition, ...]:
    """Sets a condition as if it had changed."""
    return _real_condition(*arguments, recorded=())


def _assignment_without_stop(observed: Observed, attempt: int) -> Any:
    last = observed.assignment
    if last is not None and last.stop:
        observed = replace(observed, assignment=last.model_copy(update={"stop": False}))
    return _real_assignment(observed, attempt)


_real_assignment = assignment.assignment


def _cached_only(self: KubernetesBackend, attempt: int) -> Any:
    return self._child(attempt)


def _cached_pod(self: KubernetesBackend, attempt: int) -> Any:
    return self._pod(attempt)


def _note_any_decision(observed: Observed, draft: Draft) -> None:
    """Lets a rejection count while the result is published."""
    status = draft.status
    if status.decision is None:
        found = (each for each in observed.decisions if each.result == status.result)
        draft.set(decision=next(found, None))


def _undone_already(observed: Observed, draft: Draft, job: Any, kind: object) -> JobState:
    names = (each.output.name for each in job.staged)
    return JobState(job, "Done", result=UndoResult(dict.fromkeys(names, 1)))


def _delivered_already(outputs: Any, report: Any, now: Any) -> Any:
    done = report.model_copy(
        update={
            "deliveries": tuple(
                each.model_copy(update={"done": True}) for each in report.deliveries
            )
        }
    )
    return _real_deliveries(outputs, done, now)


_real_deliveries = assignment.with_deliveries


def _retry_now(*_: object) -> float:
    return 0.0


def _unbound(raw: Any) -> Any:
    return {name: raw["metadata"][name] for name in ("name", "namespace")}


FAVOURED: Mapping[str, tuple[str, ...]] = {
    "a release goes back": ("has its last report but one delivered late",),
    "a step too many is released": ("lets its first query wait for a while",),
    "a killed driver counts as ended": ("cannot report for a while",),
    "a result is published without a look at what was counted": ("change the branch",),
    "the cleanup does not wait for the driver": ("delete it",),
    "an approval counts for another result": ("delete it, and create it again",),
    "the backoff has no bound": ("dies", "and fails"),
    "a request to stop is taken back": ("suspend it, and resume it soon",),
    "a driver that was stopped counts as finished": ("suspend it, and resume it soon",),
    "a rejection counts while the result is published": ("reject it",),
    "an undo counts before it is made": ("undo it",),
}
"""What must happen more often for a fault to be found within a few seeds. Without that, it takes
some hundreds.
"""

MUTANTS: Mapping[str, tuple[_Change, ...]] = {
    "a release goes back": (
        (assignment, "release", lambda timeline, at, previous: _real_release(timeline, at, 0)),
    ),
    "a step too many is released": (
        (
            assignment,
            "release",
            lambda timeline, at, previous: min(
                _real_release(timeline, at, previous) + 1, timeline.steps
            ),
        ),
    ),
    "a killed driver counts as ended": (
        (silent_driver, "kill", _end_at_once),
        (suspending, "kill", _end_at_once),
    ),
    "what the caches lack does not exist": (
        (KubernetesBackend, "_child_asked_for", _cached_only),
        (KubernetesBackend, "_pod_asked_for", _cached_pod),
    ),
    "the status is written after the act": ((Reconciler, "reconcile", _act_first),),
    "a result is published without a look at what was counted": (
        (publishing, "staged_outputs", _without_staged_snapshot),
    ),
    "the finalizer is removed before the cleanup": (
        (deleting, "_discard", lambda *_: Next(actions=(RemoveResource(),), at_rest=True)),
    ),
    "the cleanup does not wait for the driver": ((deleting, "_without_driver", lambda *_: None),),
    "an approval counts for another result": ((store.KubernetesStore, "decisions", _any_decision),),
    "approval is not waited for": ((publishing, "waits", lambda *_: False),),
    "the backoff has no bound": ((job_retries, "_LONGEST_BACKOFF", timedelta(days=9)),),
    "a job that failed is tried again at once": ((job_retries, "seconds_until_retry", _retry_now),),
    "a status is written without a change": ((status_draft, "set_condition", _always_new),),
    "a request to stop is taken back": (
        (running, "assignment", _assignment_without_stop),
        (assignment, "assignment", _assignment_without_stop),
    ),
    "a driver that was stopped counts as finished": (
        (
            attempts,
            "_OUTCOMES",
            {"Finished": "Succeeded", "Stopped": "Succeeded"},
        ),
    ),
    "a rejection counts while the result is published": (
        (publishing, "note_decision", _note_any_decision),
    ),
    "writes are not bound to what was read": ((store, "_exactly", _unbound),),
    "the end of a job in a pod is not looked for": ((PodJobs, "_begun_anew", lambda *_: None),),
    "a plan that was lost ends the Backfill": (
        (
            planning,
            "_recover",
            lambda observed, draft, plan_id: (
                draft.fail(
                    ConditionType.PLANNED, planning.Reason.PLANNING_FAILED, "the plan is lost"
                )
                or Next(at_rest=True)
            ),
        ),
    ),
    "an undo counts before it is made": ((undoing, "work", _undone_already),),
    "a delivery that has begun counts as done": (
        (assignment, "with_deliveries", _delivered_already),
    ),
}


@contextmanager
def mutated(name: str) -> Iterator[None]:
    """Puts one of the faults in."""
    with ExitStack() as patches:
        for target, attribute, value in MUTANTS[name]:
            patches.enter_context(patch.object(target, attribute, value))
        yield
