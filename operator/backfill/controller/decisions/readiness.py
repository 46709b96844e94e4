"""Ready, Reconciling and Stalled, derived from the other conditions. Pure.

They follow kstatus (``sigs.k8s.io/cli-utils/pkg/kstatus``), which Flux and Argo CD use:
``Reconciling`` and ``Stalled`` are present only while they are true. A Backfill that makes progress
or is being retried is ``Reconciling``; one that cannot continue unless a person does something is
``Stalled``. One that is suspended or waits for approval is neither, since nothing is wrong and
nothing is in progress, and it is not ``Ready``.
"""

from backfill.api.conditions import Condition, ConditionType, Reason
from backfill.api.remedies import remedy
from backfill.controller.decisions.status_draft import Draft

_STAGES = (
    ConditionType.HANDED_OVER,
    ConditionType.PUBLISHED,
    ConditionType.RUNNING,
    ConditionType.PLANNED,
)
_REMOVAL = (Reason.REMOVING, Reason.REMOVAL_FAILED, Reason.CLEANUP_INCOMPLETE)
_PAUSED = (Reason.SUSPENDED, Reason.WAITING_FOR_APPROVAL)
_STUCK = (
    Reason.INVALID_INPUT,
    Reason.DRIVER_START_BLOCKED,
    Reason.DRIVER_TERMINATION_STUCK,
    Reason.LIVE_START_BLOCKED,
    Reason.JOB_POD_BLOCKED,
)
"""Reasons that last until a person does something, although the Backfill has not failed."""

_MOST_MESSAGE = 6_000


def summarise(draft: Draft) -> None:
    """Sets the three conditions from the final state of the others."""
    outcome, stage = draft.find(ConditionType.SUCCEEDED), _stage(draft)
    if outcome is None:
        return
    if outcome.status == "True":
        draft.condition(ConditionType.READY, "True", outcome.reason, "Backfill completed")
        _only(draft, None)
    elif outcome.status == "False":
        draft.condition(ConditionType.READY, "False", outcome.reason, _first_line(outcome))
        advice = remedy(outcome.reason).advice.format(retry=draft.kubectl("retry"))
        message = f"{outcome.message[:_MOST_MESSAGE]}\n{advice}".strip()
        _only(draft, ConditionType.STALLED, outcome.reason, message)
    elif outcome.reason in _REMOVAL or stage is None:
        draft.condition(ConditionType.READY, "False", outcome.reason, outcome.message)
        _only(draft, ConditionType.RECONCILING, outcome.reason, outcome.message)
    elif stage.reason in _PAUSED:
        draft.condition(ConditionType.READY, "False", stage.reason, stage.message)
        _only(draft, None)
    else:
        draft.condition(ConditionType.READY, "Unknown", stage.reason, _first_line(stage))
        _only(
            draft,
            ConditionType.STALLED if stage.reason in _STUCK else ConditionType.RECONCILING,
            stage.reason,
            stage.message,
        )


def _stage(draft: Draft) -> Condition | None:
    """The last stage that has begun."""
    return next(
        (condition for kind in _STAGES if (condition := draft.find(kind)) is not None), None
    )


def _only(
    draft: Draft, kind: ConditionType | None, reason: Reason = Reason.IN_PROGRESS, message: str = ""
) -> None:
    """Sets at most one of Reconciling and Stalled."""
    for each in (ConditionType.RECONCILING, ConditionType.STALLED):
        if each == kind:
            draft.condition(each, "True", reason, message)
        else:
            draft.remove_condition(each)


def _first_line(condition: Condition) -> str:
    return condition.message.partition("\n")[0]
