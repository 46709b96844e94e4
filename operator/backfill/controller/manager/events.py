"""Events of a Backfill, which ``kubectl describe`` shows.

They report changes; the status has the current state.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

import kopf

from backfill.api.backfill import API_VERSION, KIND, Backfill, ObjectMeta
from backfill.api.base import printable
from backfill.api.conditions import Condition, ConditionType, Reason, find_condition
from backfill.api.hand_off import HistoryExtension
from backfill.api.manifests.problems import read_json
from backfill.api.quantities import format_time
from backfill.api.redaction import redact
from backfill.api.status import Attempt, BackfillStatus, Verdict
from backfill.controller.decisions.handing_over import (
    history_remark,
    repeats_warning,
    retention_warning,
)
from backfill.kube.resources import Manifest

_MOST_CHARACTERS = 1024

EventType = Literal["Normal", "Warning"]


@dataclass(frozen=True, slots=True)
class Notice:
    """Content of an Event."""

    kind: EventType
    reason: str
    message: str


_TOLD: Final[dict[tuple[ConditionType, Reason], tuple[EventType, str]]] = {
    (ConditionType.PLANNED, Reason.PLAN_READY): ("Normal", "Planned"),
    (ConditionType.INPUT_COMPLETE, Reason.INPUT_INCOMPLETE): ("Warning", "InputIncomplete"),
    (ConditionType.INPUT_COMPLETE, Reason.INCOMPLETE_INPUT_ALLOWED): (
        "Warning",
        "IncompleteInputAllowed",
    ),
    (ConditionType.INPUT_COMPLETE, Reason.WAITING_FOR_INPUT): ("Normal", "WaitingForInput"),
    (ConditionType.RUNNING, Reason.REPLAYING): ("Normal", "Running"),
    (ConditionType.RUNNING, Reason.SUSPENDED): ("Normal", "Suspended"),
    (ConditionType.RUNNING, Reason.ALL_STEPS_COMMITTED): ("Normal", "AllStepsCommitted"),
    (ConditionType.RUNNING, Reason.DRIVER_PENDING): ("Normal", "DriverPending"),
    (ConditionType.RUNNING, Reason.DRIVER_START_BLOCKED): ("Warning", "DriverStartBlocked"),
    (ConditionType.RUNNING, Reason.DRIVER_SILENT): ("Warning", "DriverSilent"),
    (ConditionType.RUNNING, Reason.DRIVER_TERMINATION_STUCK): ("Warning", "DriverTerminationStuck"),
    (ConditionType.VALIDATED, Reason.MATCHED): ("Normal", "Matched"),
    (ConditionType.VALIDATED, Reason.BELOW_MIN_MATCH): ("Warning", "BelowMinMatch"),
    (ConditionType.VALIDATED, Reason.NOT_COMPARABLE): ("Warning", "NotComparable"),
    (ConditionType.PUBLISHED, Reason.WAITING_FOR_APPROVAL): ("Normal", "WaitingForApproval"),
    (ConditionType.PUBLISHED, Reason.DELIVERING): ("Normal", "Delivering"),
    (ConditionType.PUBLISHED, Reason.PUBLISHED): ("Normal", "Published"),
    (ConditionType.HANDED_OVER, Reason.PREPARED): ("Normal", "Prepared"),
    (ConditionType.HANDED_OVER, Reason.STARTING): ("Normal", "LiveStarting"),
    (ConditionType.HANDED_OVER, Reason.CATCHING_UP): ("Normal", "CatchingUp"),
    (ConditionType.HANDED_OVER, Reason.LIVE_START_BLOCKED): ("Warning", "LiveStartBlocked"),
    (ConditionType.HANDED_OVER, Reason.LIVE): ("Normal", "HandedOver"),
    (ConditionType.PLANNED, Reason.INVALID_INPUT): ("Warning", "InvalidInput"),
    (ConditionType.PLANNED, Reason.TRYING_AGAIN): ("Warning", "TryingAgain"),
    (ConditionType.PLANNED, Reason.JOB_POD_BLOCKED): ("Warning", "JobPodBlocked"),
    (ConditionType.RUNNING, Reason.JOB_POD_BLOCKED): ("Warning", "JobPodBlocked"),
    (ConditionType.RUNNING, Reason.INVALID_INPUT): ("Warning", "InvalidInput"),
    (ConditionType.RUNNING, Reason.TRYING_AGAIN): ("Warning", "TryingAgain"),
    (ConditionType.PUBLISHED, Reason.TRYING_AGAIN): ("Warning", "TryingAgain"),
    (ConditionType.SUCCEEDED, Reason.REMOVING): ("Normal", "Removing"),
    (ConditionType.SUCCEEDED, Reason.CLEANUP_INCOMPLETE): ("Warning", "CleanupIncomplete"),
    (ConditionType.SUCCEEDED, Reason.FINISHED): ("Normal", "Succeeded"),
    (ConditionType.SUCCEEDED, Reason.REJECTED): ("Normal", "Rejected"),
    (ConditionType.SUCCEEDED, Reason.UNDONE): ("Normal", "Undone"),
}
"""The Event for each reason that a condition comes to have. There is always one if something has
failed for good.
"""


def transitions(old: BackfillStatus, new: BackfillStatus) -> list[Notice]:
    """The Events for a change of status. Progress alone causes none, and two conditions that say
    the same cause one.
    """
    return list(
        dict.fromkeys((*_attempts(old, new), *_decisions(old, new), *_conditions(old, new)))
    )


def _decisions(old: BackfillStatus, new: BackfillStatus) -> Iterator[Notice]:
    """Events for what no condition shows."""
    made, undo = new.decision, new.undo
    if made is not None and made.decision is Verdict.APPROVE and made != old.decision:
        yield Notice("Normal", "Approved", _in_short(f"approved by {made}"))
    if undo is not None and undo.refused and undo != old.undo:
        yield Notice("Warning", "UndoRefused", _in_short(f"not undone: {undo.refused}"))
    if (warning := retention_warning(new)) and not retention_warning(old):
        yield Notice("Warning", "RetentionTooShort", _in_short(warning))
    if (warning := repeats_warning(new)) and warning != repeats_warning(old):
        yield Notice("Warning", "RecordsReadTwice", _in_short(warning))
    if added := _extensions(new)[len(_extensions(old)) :]:
        extended = f"history extended to {format_time(added[-1].history_end)}"
        yield Notice("Normal", "HistoryExtended", extended)
    if (remark := history_remark(new)) and remark != history_remark(old):
        yield Notice("Normal", "HistoryComplete", _in_short(remark))


def _extensions(status: BackfillStatus) -> tuple[HistoryExtension, ...]:
    return (status.hand_off.extensions or ()) if status.hand_off is not None else ()


def _attempts(old: BackfillStatus, new: BackfillStatus) -> Iterator[Notice]:
    before = {attempt.number: attempt.outcome for attempt in old.attempts}
    for attempt in new.attempts:
        if attempt.number not in before:
            yield Notice("Normal", "AttemptStarted", _as_child(attempt))
        if attempt.outcome == "Failed" != before.get(attempt.number):
            yield Notice(
                "Warning",
                "AttemptFailed",
                _in_short(f"attempt {attempt.number}: {attempt.message}"),
            )


def _conditions(old: BackfillStatus, new: BackfillStatus) -> Iterator[Notice]:
    for condition in new.conditions:
        before = find_condition(old.conditions, condition.type)
        if before is None or (before.status, before.reason) != (condition.status, condition.reason):
            yield from _told(condition)


def _told(condition: Condition) -> Iterator[Notice]:
    if condition.reason == Reason.PLAN_READY:
        yield from _warnings(condition)
    known = _TOLD.get((condition.type, condition.reason))
    if known is not None:
        kind, reason = known
        yield Notice(kind, reason, _in_short(condition.message))
    elif condition.type == ConditionType.SUCCEEDED and condition.status == "False":
        yield Notice("Warning", condition.reason, _in_short(condition.message))


def _warnings(condition: Condition) -> Iterator[Notice]:
    """Warnings of planning, which follow the first line of the condition's message."""
    _, _, warnings = condition.message.partition("\n")
    if warnings:
        yield Notice("Warning", "PlanWarning", _in_short(warnings))


def _as_child(attempt: Attempt) -> str:
    child = f" as SparkApplication {attempt.child}" if attempt.child else ""
    return f"attempt {attempt.number} started{child}"


def _in_short(message: str) -> str:
    """The first line, with credentials removed; the condition has the rest."""
    first, *rest = printable(redact(message)).strip().splitlines() or [""]
    more = (
        f" (and {len(rest)} more line{'s' if len(rest) > 1 else ''} in the status)" if rest else ""
    )
    return f"{first[: _MOST_CHARACTERS - len(more)]}{more}"


class Recorder:
    """Has Kopf post Events."""

    def __init__(self) -> None:
        self._context: Context | None = None
        self._early: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    def begin_anew(self) -> None:
        """To be called when Kopf starts, perhaps not for the first time."""
        with self._lock:
            self._context = None

    def may_post(self) -> None:
        """To be called in a handler of Kopf: Events can only be posted in the context of one."""
        if self._context is None:
            with self._lock:
                self._context = copy_context()
                early, self._early = self._early, []
            for post in early:
                self._context.copy().run(post)

    def status_written(self, before: Backfill, after: BackfillStatus) -> None:
        """Reports a change of status.

        An Event that cannot be written is left out, since the status says the same.
        """
        for notice in transitions(before.status, after):
            self._tell(before.metadata, notice)

    def reconcile_failed(self, backfill: Manifest, why: str) -> None:
        """Reports why a Backfill cannot be reconciled, since its status cannot be written."""
        notice = Notice(
            "Warning",
            "ReconcileFailed",
            _in_short(f"cannot be reconciled; retrying: {why}"),
        )
        self._tell(read_json(ObjectMeta, backfill["metadata"]), notice)

    def _tell(self, backfill: ObjectMeta, notice: Notice) -> None:
        subject: Any = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {
                "namespace": backfill.namespace,
                "name": backfill.name,
                "uid": backfill.uid,
            },
        }
        post = partial(
            kopf.event, subject, type=notice.kind, reason=notice.reason, message=notice.message
        )
        with self._lock:
            with suppress(RuntimeError):  # Kopf has ended, and may begin anew
                if self._context is not None:
                    self._context.copy().run(post)
                    return
            self._early.append(post)
